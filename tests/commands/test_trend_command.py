"""`rdmabench trend`: what it prints, and how it exits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rdmabench.commands import trend
from rdmabench.errors import EXIT_DONE, EXIT_INCOMPLETE, EXIT_LIMITS_MISSED, InputError
from tests.collector.synthetic import LATENCY, SyntheticRun, case_of

app = typer.Typer()
trend.register(app)
app.callback()(lambda: None)


def nightly(root: Path, runs: int, rtt_ns: Callable[[int], int]) -> Path:
    for number in range(runs):
        run = SyntheticRun(root).begin()
        for repeat in range(3):
            rtts = [rtt_ns(number) + number % 3 + repeat] * 20
            run.latency(rtts, case=case_of(LATENCY, repeat=repeat))
        run.end()
    return root


def invoke(root: Path, *options: str):
    return CliRunner().invoke(app, ["trend", *options, "--results", str(root)])


def test_a_quiet_history_exits_0(tmp_path: Path) -> None:
    done = invoke(nightly(tmp_path, 8, lambda _: 4000), "--last", "8")
    assert done.exit_code == EXIT_DONE
    assert "No change" in done.stdout


def test_a_regression_exits_3_and_json_is_alone_on_stdout(tmp_path: Path) -> None:
    root = nightly(tmp_path, 10, lambda number: 4000 if number < 5 else 6000)
    done = invoke(root, "--last", "10", "--plan", "quick", "--fabric", "rxe", "--format", "json")
    assert done.exit_code == EXIT_LIMITS_MISSED
    said = json.loads(done.stdout)
    assert said["regressions"] == 1
    (row,) = said["rows"]
    assert row["verdict"] == "worse"
    assert row["ratio"] == pytest.approx(1.5, rel=0.01)
    assert len(said["series"]) == 10


def test_too_few_runs_exit_4_and_say_how_many(tmp_path: Path) -> None:
    done = invoke(nightly(tmp_path, 4, lambda _: 4000), "--last", "4")
    assert done.exit_code == EXIT_INCOMPLETE
    assert "from 8 runs" in done.stderr


def test_names_and_last_exclude_each_other(tmp_path: Path) -> None:
    done = invoke(tmp_path)
    assert isinstance(done.exception, InputError)
