"""Nodes that cannot take part: what the person who reads the message can do about it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rdmabench.model import Case, Notice, Outcome
from tests.fabric.conftest import Cli, Ended, Lab, MakePlan, write_plan

pytestmark = pytest.mark.lab

_SEND = {"probe": "latency", "op": ["send"], "sizes": [64], "iterations": 40}


@pytest.fixture(scope="module")
def mixed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cli, Ended]:
    """A sweep over two good hosts, one on a closed port, and one whose Python has no pyverbs."""
    directory = tmp_path_factory.mktemp("mixed")
    bare = lab.put_script("node1", "/tmp/bare-python", 'exec /usr/bin/python3 -S "$@"')
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: nobody else takes it
        inventory = lab.write_inventory(
            directory / "mixed.yml",
            added={
                "gone": {"ansible_port": closed.getsockname()[1]},
                "bare": {"ansible_python_interpreter": bare},
            },
        )
        cli = Cli(lab, directory / "results")
        plan = write_plan(directory / "small.yml", _SEND)
        return cli, cli.sweep("--fabric", "rxe", "--plan", plan, inventory=inventory)


def test_a_host_that_cannot_be_reached_does_not_hide_the_good_ones(
    mixed: tuple[Cli, Ended],
) -> None:
    cli, ended = mixed
    print(ended.stderr)
    assert ended.status == 4
    (notice,) = (e for e in cli.run.events() if isinstance(e, Notice) and e.host == "gone")
    assert "Connection refused" in notice.text
    assert "ansible_port" in notice.remedy
    (measured,) = cli.run.records(Outcome.MEASURED)
    assert (measured.case.initiator.host, measured.case.responder.host) == ("node1", "node2")
    skipped = cli.run.records(Outcome.SKIPPED)
    assert len(skipped) == 3
    for record in skipped:
        hosts = {record.case.initiator.host, record.case.responder.host}
        assert any(f"{host} does not take part: " in record.reason for host in hosts)


def test_missing_pyverbs_is_told_with_the_host_and_the_package(mixed: tuple[Cli, Ended]) -> None:
    _cli, ended = mixed
    line = next(ln for ln in ended.stderr.splitlines() if ln.startswith("error: bare: "))
    assert "pyverbs is missing for this Python" in line
    assert "python3-pyverbs" in ended.stderr
    assert "ansible_python_interpreter" in ended.stderr


def test_a_changed_host_key_is_never_talked_to(
    lab: Lab, cli: Cli, plan: MakePlan, tmp_path: Path
) -> None:
    lines = (lab.inventory.parent / "known_hosts").read_text().splitlines()
    (name1, *key1), (name2, *key2) = (line.split() for line in lines)
    swapped = tmp_path / "known_hosts"
    swapped.write_text(f"{' '.join([name1, *key2])}\n{' '.join([name2, *key1])}\n")
    args = f"-F /dev/null -o UserKnownHostsFile={swapped} -o GlobalKnownHostsFile=/dev/null"
    changed = {name: {"ansible_ssh_common_args": args} for name in ("node1", "node2")}
    inventory = lab.write_inventory(tmp_path / "swapped.yml", changed=changed)
    ended = cli.sweep(
        *("--fabric", "rxe", "--plan", plan(_SEND), "--host-key-policy", "accept-new"),
        inventory=inventory,
    )
    print(ended.stderr)
    assert ended.status == 4
    assert ended.stderr.count("has CHANGED") == 2
    assert "ssh-keygen -R" in ended.stderr
    assert cli.run.records() == []
    assert swapped.read_text().splitlines()[0].split()[0] == name1
    assert len(swapped.read_text().splitlines()) == 2


def test_a_node_without_an_rdma_device_says_how_to_make_one(
    lab: Lab, cli: Cli, plan: MakePlan
) -> None:
    lab.ssh("node2", "rdma link del rxe0")
    try:
        ended = cli.sweep("--fabric", "rxe", "--plan", plan(_SEND))
    finally:
        _restore_device(lab, "node2")
    print(ended.stderr)
    assert ended.status == 4
    assert "node2: no RDMA device for fabric rxe: it has no RDMA device at all" in ended.stderr
    assert "rdma link add rxe0 type rxe" in ended.stderr
    assert "1 of 2 nodes can take part" in ended.stderr


def test_a_port_that_is_down_is_named_with_its_state(lab: Lab, cli: Cli, plan: MakePlan) -> None:
    lab.ssh("node1", "ip link set data0 down")
    try:
        ended = cli.sweep("--fabric", "rxe", "--plan", plan(_SEND))
    finally:
        lab.ssh("node1", "ip link set data0 up; ip neigh flush dev data0")
        _wait_active(lab, "node1")
    print(ended.stderr)
    assert ended.status == 4
    assert "node1 rxe0: no active port: rxe0 port 1 is DOWN" in ended.stderr
    assert "ip link set" in ended.stderr
    assert cli.run.records() == []


def test_a_memlock_limit_that_is_too_low_is_named_with_its_remedy(
    lab: Lab, cli: Cli, plan: MakePlan, tmp_path: Path
) -> None:
    limited = lab.put_script(
        "node2",
        "/tmp/limited-python",
        "ulimit -l 64",
        'exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock /usr/bin/python3 "$@"',
    )
    inventory = lab.write_inventory(
        tmp_path / "limited.yml", changed={"node2": {"ansible_python_interpreter": limited}}
    )
    big = {"probe": "latency", "op": ["send"], "sizes": ["256K"], "iterations": 4}
    asked = ("--fabric", "rxe", "--plan", plan(big, repeats=5))
    ended = cli.sweep(*asked, inventory=inventory)
    print(ended.stderr)
    assert ended.status == 4
    outcomes = [record.outcome for record in cli.run.records()]
    assert outcomes == [Outcome.FAILED] * 3 + [Outcome.SKIPPED] * 2
    for record in cli.run.records(Outcome.FAILED):
        assert record.reason.startswith("node2 rxe0: registering 0.5 MiB of memory was refused")
        assert "the memlock limit of this session is 64 KiB" in record.reason
        assert "memlock unlimited" in record.reason
    assert set(cli.run.table("cases")["outcome"]) == {"failed", "skipped"}
    assert len({e.id for e in cli.run.events() if isinstance(e, Case)}) == 5


def _restore_device(lab: Lab, node: str) -> None:
    lab.ssh(node, "rdma link add rxe0 type rxe netdev data0")
    _wait_active(lab, node)


def _wait_active(lab: Lab, node: str) -> None:
    state = "/sys/class/infiniband/rxe0/ports/1/state"
    lab.ssh(node, f"timeout 20 busybox sh -c 'until grep -q ACTIVE {state}; do usleep 50000; done'")
