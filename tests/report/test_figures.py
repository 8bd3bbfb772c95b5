"""The pictures: axis titles, units, sample counts, harmless text, bounded sizes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import plotly.graph_objects as go
import pytest

from rdmabench.errors import InputError, SetupError
from rdmabench.model import Fabric
from rdmabench.report import static
from rdmabench.report.chart import plain, to_json
from rdmabench.report.figures import figures, is_trouble
from rdmabench.report.tails import POINTS, tails
from rdmabench.report.view import ReportRun, gather
from tests.report.fleet import HOSTILE, fleet_run

HOSTS = ("node1", "node2", HOSTILE)


def test_every_picture_has_axis_titles_a_unit_and_the_number_of_samples(
    runs: tuple[ReportRun, ...],
) -> None:
    made = figures(runs)
    assert {figure.name.split("-")[0] for figure in made} == {
        *("latency", "bandwidth", "tail", "pairs", "counters")
    }
    for figure in made:
        assert "n = " in figure.note, figure.name
        assert figure.point_count > 0
        for name in ("xaxis", "yaxis"):
            assert figure.layout[name]["title"]["text"], figure.name
        titles = json.dumps([figure.layout["yaxis"]["title"], figure.traces])
        assert any(unit in titles for unit in ("us", "Gb/s", "%", "count")), figure.name


def test_plotly_knows_every_attribute(runs: tuple[ReportRun, ...]) -> None:
    for figure in figures(runs):
        go.Figure(data=list(figure.traces), layout=figure.layout)


def test_a_curve_per_fabric_with_intervals_and_the_attainable_line(
    runs: tuple[ReportRun, ...],
) -> None:
    made = {figure.name: figure for figure in figures(runs)}
    assert [trace["name"] for trace in made["latency-send"].traces] == [
        *("rxe p50", "rxe p99", "tcp p50", "tcp p99")
    ]
    assert max(made["latency-send"].traces[0]["error_y"]["array"]) > 0
    names = [trace["name"] for trace in made["bandwidth-write"].traces]
    assert names.count("rxe attainable") == 1


def test_the_pair_map_marks_the_pairs_of_the_slow_node(runs: tuple[ReportRun, ...]) -> None:
    made = next(f for f in figures(runs) if f.name.startswith("pairs-latency") and "rxe" in f.name)
    heat, marks = made.traces
    assert len(heat["z"]) == len(HOSTS)
    assert all(math.isnan(row[place]) for place, row in enumerate(heat["z"]))
    assert {"node2"} <= {*marks["x"], *marks["y"]}


def test_two_nodes_have_no_pair_map(tmp_path: Path) -> None:
    run = fleet_run(tmp_path, Fabric.RXE, HOSTS[:2], base_us=4, gbps=60, samples=100)
    assert not [figure for figure in figures(gather([run])) if figure.name.startswith("pairs")]


def test_the_tail_is_thinned_and_keeps_its_ends(runs: tuple[ReportRun, ...]) -> None:
    tail = next(tails(runs[0]))
    assert tail.n == 18_000
    assert len(tail.latency_us) <= POINTS
    assert tail.slower_pct[0] == 100
    assert tail.slower_pct[-1] == pytest.approx(100 / tail.n)
    assert list(tail.latency_us) == sorted(tail.latency_us)


def test_samples_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    run = fleet_run(tmp_path, Fabric.RXE, HOSTS[:2], base_us=4, gbps=60, samples=100)
    gathered = gather([run])
    min(run.samples.iterdir()).write_bytes(b"")
    assert next(tails(gathered[0])).read == 5


def test_text_from_a_run_is_no_markup_for_plotly() -> None:
    assert plain("<b>a</b> & <a href='x'>") == "&lt;b&gt;a&lt;/b&gt; &amp; &lt;a href='x'&gt;"
    assert plain("\x1b[31mred\n") == "[31mred "
    assert len(plain("x" * 500)) == 60


def test_the_json_can_stand_in_a_script_element() -> None:
    text = to_json({"a": "</script><!--&", "b": [math.nan, math.inf, 1.23456789]})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": "</script><!--&", "b": [None, None, 1.23457]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hw_counters/completer_retry_err", True),
        ("port/symbol_error", True),
        ("np_cnp_sent", True),
        ("netdev/tx_bytes", False),
        ("hw_counters/sent_pkts", False),
    ],
)
def test_counters_of_trouble_are_known_by_name(name: str, expected: bool) -> None:
    assert is_trouble(name) is expected


def test_an_unknown_picture_format_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gif"):
        static.write([], tmp_path, "gif")


def test_without_a_browser_the_error_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="apt install chromium"):
        static.write([], tmp_path, "svg")


def test_a_picture_becomes_a_file(runs: tuple[ReportRun, ...], tmp_path: Path) -> None:
    try:
        static.browser()
    except SetupError as exc:
        pytest.skip(str(exc))
    picture = next(f for f in figures(runs) if f.name.startswith("pairs-latency"))
    (path,) = static.write([picture], tmp_path / "out", "svg")
    svg = path.read_text()
    assert svg.startswith("<svg")
    assert "responder" in svg
    assert "<script" not in svg
