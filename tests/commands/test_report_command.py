"""`rdmabench report`: which file, which format."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rdmabench.commands import report
from rdmabench.errors import InputError
from tests.collector.synthetic import SyntheticRun

app = typer.Typer()
report.register(app)
app.callback()(lambda: None)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    run = SyntheticRun(tmp_path / "results").begin()
    run.bandwidth()
    run.end()
    return tmp_path / "results"


def invoke(results: Path, *options: str):
    arguments = ["report", "latest", *options, "--results", str(results)]
    return CliRunner().invoke(app, arguments)


def test_html_goes_to_the_file_and_nothing_to_stdout(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = invoke(results, "-o", str(out))
    assert done.exit_code == 0
    assert done.stdout == ""
    assert out.read_text().startswith("<!doctype html>")


def test_markdown_goes_to_stdout(results: Path) -> None:
    done = invoke(results, "--format", "md")
    assert done.exit_code == 0
    assert done.stdout.startswith("# rdmabench report")


def test_the_name_of_the_file_tells_the_format(results: Path, tmp_path: Path) -> None:
    assert invoke(results, "-o", str(tmp_path / "report.md")).exit_code == 0
    assert (tmp_path / "report.md").read_text().startswith("# rdmabench")


@pytest.mark.parametrize("options", [(), ("-o", "/nowhere/report.html")])
def test_html_wants_a_file_in_a_directory_that_exists(
    results: Path, options: tuple[str, ...]
) -> None:
    assert isinstance(invoke(results, *options).exception, InputError)
