"""A sweep as it should go: numbers, evidence, and nothing left on the nodes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rdmabench.model import Outcome
from rdmabench.orchestrator import deploy
from tests.fabric.conftest import Cli, Ended, Lab, MakePlan, Run, write_plan

pytestmark = pytest.mark.lab

WHAT = {
    ("latency", "send"),
    ("latency", "write"),
    ("latency", "read"),
    ("bandwidth", "write"),
    ("bandwidth", "send"),
}
_STAMP = "stat -c '%n %Y %i' .cache/rdmabench/*/*"


@pytest.fixture(scope="module")
def swept(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cli, Ended]:
    """One sweep over rxe with the default engine, its result as JSON."""
    directory = tmp_path_factory.mktemp("swept")
    cli = Cli(lab, directory / "results")
    plan = write_plan(directory / "small.yml")
    return cli, cli.sweep("--fabric", "rxe", "--plan", plan, "--format", "json")


def _measured(run: Run) -> set[tuple[str, str]]:
    rows = run.table("measurements")
    rows = rows[rows["outcome"] == "measured"]
    return set(zip(rows["probe"].astype(str), rows["op"].astype(str), strict=True))


def test_every_row_of_an_rxe_sweep_has_numbers_and_is_proved_by_the_nics_counters(
    swept: tuple[Cli, Ended],
) -> None:
    cli, ended = swept
    assert ended.status == 0, ended.stderr
    run = cli.run
    assert _measured(run) == WHAT
    rows = run.table("measurements")
    assert set(rows["evidence"]) == {"proved"}
    assert set(rows["engine"]) == {"hotloop"}
    assert set(rows["transport"]) == {"RC"}
    assert set(rows["gid_type"]) == {"RoCE v2"}
    assert rows["value"].notna().all()
    assert (rows.loc[rows["metric"].isin(["lat_p50", "bw"]), "value"] > 0).all()
    assert list(run.table("latency")["n"]) == [40, 40, 40]
    for record in run.records(Outcome.MEASURED):
        assert record.initiator is not None
        assert record.responder is not None
        assert (record.initiator.host, record.responder.host) == ("node1", "node2")
    sent = run.table("counters").query("counter == 'hw_counters/sent_pkts'")
    assert len(sent) == 2 * len(WHAT)
    assert (sent["delta"] > 0).all()


def test_json_on_stdout_is_alone_there_and_the_table_shows_the_same_rows(
    swept: tuple[Cli, Ended],
) -> None:
    cli, ended = swept
    said = json.loads(ended.stdout)
    assert (said["run"], said["fabric"], said["status"]) == (cli.run.path.name, "rxe", "done")
    assert said["not_measured"] == []
    assert {(row["probe"], row["op"]) for row in said["rows"]} == WHAT
    assert {row["evidence"] for row in said["rows"]} == {"proved"}
    shown = cli("runs", "show", "latest")
    assert shown.status == 0, shown.stderr
    latency, bandwidth = shown.stdout.split("\nBandwidth\n")
    for op in ("send", "write", "read"):
        (line,) = (ln for ln in latency.splitlines() if ln.startswith(f"{op} "))
        assert "proved" in line
    assert "write  4 KiB" in bandwidth


def test_the_pure_pyverbs_engine_measures_the_same_and_finds_the_worker_in_place(
    swept: tuple[Cli, Ended], lab: Lab, cli: Cli, plan: MakePlan
) -> None:
    before = lab.ssh("node1", _STAMP)
    ended = cli.sweep("--fabric", "rxe", "--plan", plan(), "--engine", "pyverbs")
    assert ended.status == 0, ended.stderr
    assert _measured(cli.run) == WHAT
    rows = cli.run.table("measurements")
    assert set(rows["engine"]) == {"pyverbs"}
    assert set(rows["evidence"]) == {"proved"}
    assert lab.ssh("node1", _STAMP) == before
    assert before != ""


def test_a_tcp_sweep_leaves_the_rdma_counters_alone_and_compares_with_rxe(
    swept: tuple[Cli, Ended], cli: Cli, plan: MakePlan
) -> None:
    ended = cli.sweep("--fabric", "tcp", "--plan", plan())
    assert ended.status == 0, ended.stderr
    rows = cli.run.table("measurements")
    assert set(rows["transport"]) == {"TCP"}
    assert set(rows["evidence"]) == {"proved"}
    assert set(zip(rows["probe"], rows["op"], strict=True)) == {
        ("latency", "send"),
        ("bandwidth", "send"),
    }
    counters = cli.run.table("counters")
    assert (counters.query("counter == 'netdev/tx_bytes'")["delta"] > 0).all()
    packets = counters[counters["counter"].astype(str).str.match(r"rdma/.*(sent|rcvd)_pkts$")]
    assert len(packets) == 8
    assert set(packets["delta"]) == {0}

    compared = cli("compare", swept[0].run.path, cli.run.path, "--format", "json")
    assert compared.status == 0, compared.stderr
    ratios = [row for row in json.loads(compared.stdout) if row["ratio"] is not None]
    assert {"latency", "bandwidth"} <= {row["probe"] for row in ratios}
    assert all(row["ratio"] > 0 for row in ratios)


def test_accept_new_learns_unknown_keys_and_clean_leaves_nothing_on_the_nodes(
    swept: tuple[Cli, Ended], lab: Lab, cli: Cli, plan: MakePlan, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    known.touch()
    args = f"-F /dev/null -o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null"
    changed = {name: {"ansible_ssh_common_args": args} for name in lab.nodes}
    inventory = lab.write_inventory(tmp_path / "new.yml", changed=changed)
    only_send = {"probe": "latency", "op": ["send"], "sizes": [64], "iterations": 40}
    asked = ("--fabric", "tcp", "--plan", plan(only_send))
    refused = cli.sweep(*asked, inventory=inventory)
    assert refused.status == 4
    assert "is not known" in refused.stderr
    assert "--host-key-policy accept-new" in refused.stderr
    assert known.read_text() == ""

    shutil.rmtree(cli.run.path)
    ended = cli.sweep(*asked, "--host-key-policy", "accept-new", "--clean", inventory=inventory)
    assert ended.status == 0, ended.stderr
    names = {line.split()[0] for line in known.read_text().splitlines()}
    assert names == {f"[127.0.0.1]:{port}" for port in lab.nodes.values()}
    (sha256,) = set(cli.run.table("nodes")["worker_sha256"])
    worker = Path(deploy.directory_of(sha256)).name
    for node in lab.nodes:
        assert lab.left_behind(node) == ""
        assert worker not in lab.ssh(node, "ls -A .cache/rdmabench")


def test_a_dry_run_prints_the_plan_without_a_node(cli: Cli, lab: Lab, tmp_path: Path) -> None:
    closed = {"node1": {"ansible_port": 7}, "node2": {"ansible_port": 9}}
    inventory = lab.write_inventory(tmp_path / "closed.yml", changed=closed)
    plan = write_plan(tmp_path / "small.yml", repeats=3)
    asked = ("--fabric", "rxe", "--plan", plan, "--dry-run", "--format", "json")
    ended = cli.sweep(*asked, inventory=inventory)
    assert ended.status == 0, ended.stderr
    would = json.loads(ended.stdout)
    assert would["hosts"] == ["node1", "node2"]
    assert (would["repeats"], would["cases"]) == (3, 15)
    assert [[(a.split("/")[0], b.split("/")[0]) for a, b in each] for each in would["rounds"]] == [
        [("node1", "node2")]
    ]
    assert {(row["probe"], row["op"]) for row in would["measurements"]} == WHAT
    assert "2 hosts, 1 rounds, 15 cases" in ended.stderr
    assert "nothing was touched" in ended.stderr
    assert not cli.results.exists()
