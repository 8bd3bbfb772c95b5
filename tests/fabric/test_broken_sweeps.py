"""Sweeps that break off: what was measured stays, nothing runs on, `--resume` does the rest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rdmabench.model import Notice, Outcome, RunEnded
from tests.fabric.conftest import Cli, Lab, MakePlan, Run

pytestmark = pytest.mark.lab

_LATENCIES = {"probe": "latency", "op": ["send", "write"], "sizes": [64], "iterations": 60}
_REPEATS = 6
_CASES = 2 * _REPEATS


def _resumed_to_the_end(cli: Cli, *, measured_before: set[str]) -> None:
    """Resume the one run; every case must then be measured, and none of them twice."""
    ended = cli.sweep("--resume", cli.run.path.name)
    assert ended.status == 0, ended.stderr
    before = len(measured_before)
    expected = f"{_CASES - before} cases to measure, {before} were measured before;"
    assert expected in ended.stderr
    times = Counter(record.case.id for record in cli.run.records(Outcome.MEASURED))
    assert times == Counter(dict.fromkeys(cli.run.planned(), 1))
    assert len(times) == _CASES
    assert set(cli.run.table("cases")["outcome"]) == {"measured"}


def _measured_ids(run: Run) -> set[str]:
    return {record.case.id for record in run.records(Outcome.MEASURED)}


def test_a_node_that_dies_in_the_middle_costs_only_its_own_cases(
    lab: Lab, cli: Cli, plan: MakePlan
) -> None:
    running = cli.start_sweep("--fabric", "rxe", "--plan", plan(_LATENCIES, repeats=_REPEATS))
    try:
        running.wait_for_records(2)
        lab.kill("node2")
        ended = running.end()
        left = lab.left_behind("node1")
    finally:
        lab.up()
    assert ended.status == 4
    assert left == ""
    run = cli.run
    before = _measured_ids(run)
    assert 2 <= len(before) < _CASES
    assert len(run.records()) == _CASES
    (failed,) = run.records(Outcome.FAILED)
    assert failed.reason.startswith("node2: the connection to the node ended")
    assert [e.host for e in run.events() if isinstance(e, Notice) and e.severity == "error"] == [
        "node2"
    ]
    _resumed_to_the_end(cli, measured_before=before)


def test_ctrl_c_keeps_the_journal_and_leaves_nothing_running(
    lab: Lab, cli: Cli, plan: MakePlan
) -> None:
    running = cli.start_sweep("--fabric", "rxe", "--plan", plan(_LATENCIES, repeats=_REPEATS))
    running.wait_for_records(2)
    running.signal(signal.SIGINT)
    ended = running.end()
    assert ended.status == 130
    assert f"what was measured is kept: `rdmabench sweep --resume {cli.run.path.name}`" in (
        ended.stderr
    )
    assert ended.stderr.endswith("interrupted\n")
    for node in lab.nodes:
        assert lab.left_behind(node) == ""
    before = _measured_ids(cli.run)
    assert 2 <= len(before) < _CASES
    (end,) = (event for event in cli.run.events() if isinstance(event, RunEnded))
    assert (end.status, end.measured) == ("interrupted", len(before))
    assert {record.outcome for record in cli.run.records()} == {Outcome.MEASURED}
    _resumed_to_the_end(cli, measured_before=before)


def test_a_killed_controller_leaves_no_worker_and_a_torn_journal_is_resumed(
    lab: Lab, cli: Cli, plan: MakePlan
) -> None:
    running = cli.start_sweep("--fabric", "rxe", "--plan", plan(_LATENCIES, repeats=_REPEATS))
    running.wait_for_records(3)
    running.signal(signal.SIGKILL)
    assert running.end().status == -signal.SIGKILL
    for node in lab.nodes:
        assert lab.left_behind(node) == ""
    journal = cli.run.path / "journal.jsonl"
    text = journal.read_bytes()
    last_record = text.rindex(b'{"v":1,"type":"Record"')
    journal.write_bytes(text[: last_record + 200])
    before = _measured_ids(cli.run)
    assert len(before) >= 2
    for command in ("show", "rebuild"):
        ended = cli("runs", command, "latest")
        assert ended.status == 0, ended.stderr
        assert "the last line is incomplete" in ended.stderr
    assert len(cli.run.table("cases").query("outcome == 'measured'")) == len(before)
    _resumed_to_the_end(cli, measured_before=before)
    assert (cli.run.path / "journal.torn").read_bytes() == text[last_record:][:200] + b"\n"


def test_a_full_disk_ends_the_sweep_with_a_remedy_that_works(
    lab: Lab, cli: Cli, plan: MakePlan
) -> None:
    with _small_disk(cli.results) as disk:
        asked = ("--fabric", "rxe", "--plan", plan(_LATENCIES, repeats=_REPEATS))
        running = cli.start_sweep(*asked)
        running.wait_for_records(2)
        _fill(disk / "filler")
        ended = running.end()
        assert ended.status == 4
        assert "No space left on device" in ended.stderr
        assert f"free space, then `rdmabench sweep --resume {cli.run.path.name}`" in ended.stderr
        for node in lab.nodes:
            assert lab.left_behind(node) == ""
        before = _measured_ids(cli.run)
        assert 2 <= len(before) < _CASES
        shown = cli("runs", "show", "latest")
        assert shown.status == 0, shown.stderr
        assert "proved" in shown.stdout
        (disk / "filler").unlink()
        _resumed_to_the_end(cli, measured_before=before)


@contextmanager
def _small_disk(path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting a small file system needs root")
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)):
                pass
        except OSError:
            return


def test_a_black_hole_on_the_roce_port_is_a_failed_row_and_the_next_sweep_is_fine(
    lab: Lab, cli: Cli, plan: MakePlan
) -> None:
    """Only UDP 4791 is swallowed: the nodes, their ports and their TCP are as good as before."""
    one = {"probe": "latency", "op": ["send"], "sizes": [64], "iterations": 40}
    with _black_hole(lab, "node1"):
        ended = cli.sweep("--fabric", "rxe", "--plan", plan(one))
    assert ended.status == 4
    (record,) = cli.run.records()
    assert record.outcome is Outcome.FAILED
    assert record.reason.startswith("node1 rxe0: send_lat/64/1: after 0 of 40 messages: ")
    assert "RETRY_EXC_ERR (12): the peer did not acknowledge" in record.reason
    assert "look at node2/rxe0 (10.77.0.2) and the path to it" in record.reason
    assert "UDP 4791" in record.reason
    ended = cli.sweep("--resume", "latest")
    assert ended.status == 0, ended.stderr
    assert len(cli.run.records(Outcome.MEASURED)) == 1


@contextmanager
def _black_hole(lab: Lab, node: str) -> Iterator[None]:
    """What the node sends to the RoCE port is lost, and nothing else."""
    lab.ssh(
        node,
        "tc qdisc add dev data0 root handle 1: prio && "
        "tc qdisc add dev data0 parent 1:3 handle 30: netem loss 100% && "
        "tc filter add dev data0 parent 1: protocol ip u32 match ip dport 4791 0xffff flowid 1:3",
    )
    try:
        yield
    finally:
        lab.ssh(node, "tc qdisc del dev data0 root")
