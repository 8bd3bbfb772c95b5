"""`rdmabench accept` and `rdmabench suspects`: exit statuses, and what goes to stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rdmabench.commands import accept, suspects
from rdmabench.errors import InputError
from rdmabench.model import CounterSet, Outcome
from tests.collector.synthetic import BANDWIDTH, LATENCY, SyntheticRun, case_of

STILL = CounterSet(
    values={
        "hw_counters/sent_pkts": 1,
        "hw_counters/retry_exceeded_err": 0,
        "hw_counters/rcvd_seq_err": 0,
    }
)


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    accept.register(made)
    suspects.register(made)
    return made


def run_of(root: Path, *, fails: bool = False) -> str:
    run = SyntheticRun(root).begin()
    counters = {"counters_before": STILL, "counters_after": STILL}
    for repeat in range(3):
        run.latency(range(2000, 4000), case=case_of(LATENCY, repeat=repeat))
        case = case_of(BANDWIDTH, repeat=repeat)
        run.bandwidth(case=case, initiator=counters, responder=counters)
    if fails:
        run.unmeasured(Outcome.FAILED, "it broke", case=case_of(BANDWIDTH, repeat=3))
    return str(run.end().path)


def test_a_good_run_passes_and_json_is_alone_on_stdout(app: typer.Typer, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["accept", run_of(tmp_path), "--format", "json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["verdict"] == "PASS"


def test_a_failed_case_ends_with_3_and_is_in_the_junit_file(
    app: typer.Typer, tmp_path: Path
) -> None:
    out = tmp_path / "accept.xml"
    found = CliRunner().invoke(app, ["accept", run_of(tmp_path, fails=True), "--junit", str(out)])
    assert found.exit_code == 3
    assert "it broke" in found.stdout
    assert "it broke" in out.read_text()


def test_two_nodes_end_suspects_with_4(app: typer.Typer, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["suspects", run_of(tmp_path)])
    assert found.exit_code == 4
    assert "cannot tell" in found.stdout
    again = CliRunner().invoke(app, ["suspects", run_of(tmp_path), "--retest-pairs"])
    assert (again.exit_code, again.stdout) == (0, "node1:node2\n")


def test_the_selftest_passes_on_soft_roce(app: typer.Typer, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["accept", run_of(tmp_path), "--selftest", "--format", "json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["passed"] is True


def test_a_case_is_explained(app: typer.Typer, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["accept", run_of(tmp_path), "--explain", "write_bw/65536/1"])
    assert found.exit_code == 0
    assert "RoCE v2 over IPv4, MTU 1024 B" in found.stdout


def test_rules_are_learnt_into_a_file_that_accepts_the_run(
    app: typer.Typer, tmp_path: Path
) -> None:
    run, rules = run_of(tmp_path), tmp_path / "mine.yml"
    runner = CliRunner()
    assert runner.invoke(app, ["accept", "--learn", "-o", str(rules), run]).exit_code == 0
    assert runner.invoke(app, ["accept", run, "--rules", str(rules)]).exit_code == 0


def test_several_runs_are_wrong_use(app: typer.Typer, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["accept", run_of(tmp_path), run_of(tmp_path)])
    assert isinstance(found.exception, InputError)
