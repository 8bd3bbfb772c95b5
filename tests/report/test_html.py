"""The report file: complete, self-contained, and deaf to what a node calls itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from rdmabench.errors import InputError, SetupError
from rdmabench.model import Outcome
from rdmabench.report import html, markdown, static
from rdmabench.report.view import ReportRun, gather
from tests.collector.synthetic import SyntheticRun
from tests.report.browser import visit
from tests.report.fleet import HOSTILE

HOSTS = ("node1", "node2", HOSTILE)


@dataclass(frozen=True)
class Row:
    rule: str
    subject: str
    verdict: str
    value: str = "80 Gb/s"
    limit: str = "at least 95 Gb/s"
    why: str = HOSTILE


@pytest.fixture(scope="module")
def report(runs: tuple[ReportRun, ...]) -> str:
    return html.render(runs, made_at="2026-12-01 05:00 UTC")


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_sections_that_have_something_to_say_are_there(report: str) -> None:
    found = re.findall(r'<section id="([a-z]+)"', report)
    assert found == [
        *("runs", "comparison", "latency", "tail", "bandwidth", "pairs", "counters"),
        *("findings", "environment", "reading"),
    ]


def test_nothing_is_fetched_and_only_our_scripts_may_run(report: str) -> None:
    page = without_scripts(report)
    assert not re.search(r'(?:src|href)="(?!#|data:,)', page)
    assert "@import" not in page
    assert "url(" not in page
    assert "default-src &#39;none&#39;" in page
    assert report.count("plotly.js v") == 1


def test_the_upload_button_of_plotly_is_off(report: str) -> None:
    assert "showSendToCloud: false" in report
    assert 'plotlyServerURL: ""' in report


def test_a_hostile_name_stays_text(report: str) -> None:
    assert HOSTILE not in report
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in without_scripts(report)


def test_what_is_compared_names_its_base_and_interval(report: str) -> None:
    assert "The base is rxe" in report
    assert "tcp against rxe" in report
    assert "over the 6 pairs that every run has" in report
    assert "6 worse" in report


def test_what_failed_comes_first(runs: tuple[ReportRun, ...]) -> None:
    verdicts = [Row("line", "node1", "PASS"), Row("bandwidth", "node2", "FAIL")]
    page = html.render(runs, verdicts=verdicts)
    assert "FAIL: 1 FAIL, 1 PASS" in page
    assert page.index("Not passed (1)") < page.index("Passed (1)")
    assert page.index('id="verdict"') < page.index('id="comparison"')
    assert HOSTILE not in page


def test_without_verdicts_nothing_is_called_passed(report: str) -> None:
    assert 'id="verdict"' not in report
    assert "not judged against limits" in report


def test_cases_without_numbers_stand_on_top(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    run.unmeasured(Outcome.FAILED, f"lost {HOSTILE}")
    page = html.render(gather([run.end("incomplete")]))
    assert "What went wrong" in page
    assert "1 cases without numbers" in page
    assert HOSTILE not in page
    assert "plotly.js v" not in page


def test_a_run_without_a_case_has_a_report(tmp_path: Path) -> None:
    page = html.render(gather([SyntheticRun(tmp_path).begin().end()]))
    assert "0 of 0 cases measured" in page


def test_no_run_is_wrong_input() -> None:
    with pytest.raises(InputError):
        html.render(())


def test_markdown_has_the_same_tables_and_no_markup_of_a_node(
    runs: tuple[ReportRun, ...],
) -> None:
    text = markdown.render(runs, verdicts=[Row("bandwidth", "a|b", "FAIL")])
    assert text.startswith("# rdmabench report")
    assert "## Comparison" in text
    assert "a\\|b" in text
    assert "<" not in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in lines)


@pytest.fixture(scope="module")
def chromium() -> str:
    try:
        return static.browser()
    except SetupError as exc:
        pytest.skip(f"the page is not opened: {exc}")


def test_a_browser_draws_every_picture_in_silence(
    report: str, tmp_path: Path, chromium: str
) -> None:
    page = tmp_path / "report.html"
    page.write_text(report, encoding="utf-8")
    seen = visit(page)
    assert seen.console == ()
    assert seen.requests == ()
    assert "<script>alert(1)" not in seen.dom
    figures = re.split(r'<div class="plot[^"]*" id="figure-\d+"', seen.dom)[1:]
    assert f'data-drawn="{len(figures)}"' in seen.dom
    assert len(figures) >= 8
    for figure in figures:
        assert re.search(r'class="point"|class="js-line"|<image ', figure)
        assert "xtitle" in figure
        assert "ytitle" in figure


def test_the_watch_sees_requests_and_console_errors(tmp_path: Path, chromium: str) -> None:
    page = tmp_path / "noisy.html"
    page.write_text('<img src="http://127.0.0.1:9/x.png"><script>throw Error("boo")</script>')
    seen = visit(page)
    assert any("127.0.0.1:9" in url for url in seen.requests)
    assert any("boo" in said for said in seen.console)
