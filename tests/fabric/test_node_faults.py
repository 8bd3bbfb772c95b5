"""Nodes that cannot take part: what the person who reads the message can do about it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rdmabench.model import Case, Notice, Outcome
from tests.fabric.conftest import Cli, Lab, MakePlan

pytestmark = pytest.mark.lab

_SEND = {"probe": "latency", "op": ["send"], "sizes": [64], "iterations": 40}


def test_a_host_that_cannot_be_reached_does_not_hide_the_good_ones(
    lab: Lab, cli: Cli, plan: MakePlan, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: nobody else takes it
        inventory = lab.write_inventory(
            tmp_path / "three.yml", added={"gone": {"ansible_port": closed.getsockname()[1]}}
        )
        ended = cli.sweep("--fabric", "rxe", "--plan", plan(_SEND), inventory=inventory)
    assert ended.status == 4
    (notice,) = (e for e in cli.run.events() if isinstance(e, Notice) and e.host == "gone")
    assert "Connection refused" in notice.text
    assert "ansible_port" in notice.remedy
    assert ended.stderr.count(notice.remedy) == 1
    (measured,) = cli.run.records(Outcome.MEASURED)
    assert (measured.case.initiator.host, measured.case.responder.host) == ("node1", "node2")
    assert {record.reason for record in cli.run.records(Outcome.SKIPPED)} == {
        f"gone does not take part: {notice.text}"
    }
    assert set(cli.run.table("cases")["outcome"]) == {"measured", "skipped"}


def test_a_missing_python_and_a_missing_pyverbs_are_each_told_with_what_to_install(
    lab: Lab, cli: Cli, plan: MakePlan, tmp_path: Path
) -> None:
    bare = lab.put_script("node2", "/tmp/bare-python", 'exec /usr/bin/python3 -S "$@"')
    changed = {
        "node1": {"ansible_python_interpreter": "/opt/none/bin/python3"},
        "node2": {"ansible_python_interpreter": bare},
    }
    inventory = lab.write_inventory(tmp_path / "bare.yml", changed=changed)
    ended = cli.sweep("--fabric", "rxe", "--plan", plan(_SEND), inventory=inventory)
    assert ended.status == 4
    assert "error: node1: the worker did not start (status 127)" in ended.stderr
    assert "/opt/none/bin/python3: No such file or directory" in ended.stderr
    assert "install Python 3.9 or later there" in ended.stderr
    assert "error: node2: pyverbs is missing for this Python (No module named" in ended.stderr
    assert "python3-pyverbs" in ended.stderr
    assert "error: 0 of 2 nodes can take part" in ended.stderr
    assert f"`rdmabench sweep --resume {cli.run.path.name}`" in ended.stderr
    assert cli.run.records() == []


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
    assert ended.status == 4
    assert ended.stderr.count("has CHANGED") == 2
    assert "ssh-keygen -R" in ended.stderr
    assert cli.run.records() == []
    assert swapped.read_text().splitlines()[0].split()[0] == name1
    assert len(swapped.read_text().splitlines()) == 2


def test_a_missing_device_and_a_port_that_is_down_are_told_apart(
    lab: Lab, cli: Cli, plan: MakePlan
) -> None:
    with _link_down(lab, "node1"), _no_device(lab, "node2"):
        ended = cli.sweep("--fabric", "rxe", "--plan", plan(_SEND))
    assert ended.status == 4
    assert "error: node1 rxe0: no active port: rxe0 port 1 is DOWN (Disabled)" in ended.stderr
    assert "`ip link set NETDEV up`" in ended.stderr
    assert (
        "error: node2: no RDMA device for fabric rxe: it has no RDMA device at all" in ended.stderr
    )
    assert "`rdma link add rxe0 type rxe netdev NETDEV`" in ended.stderr
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
    assert ended.status == 4
    outcomes = [record.outcome for record in cli.run.records()]
    assert outcomes == [Outcome.FAILED] * 3 + [Outcome.SKIPPED] * 2
    for record in cli.run.records(Outcome.FAILED):
        assert record.reason.startswith("node2 rxe0: registering 0.5 MiB of memory was refused")
        assert "the memlock limit of this session is 64 KiB" in record.reason
        assert "memlock unlimited" in record.reason
    assert set(cli.run.table("cases")["outcome"]) == {"failed", "skipped"}
    assert len({e.id for e in cli.run.events() if isinstance(e, Case)}) == 5


@contextmanager
def _no_device(lab: Lab, node: str) -> Iterator[None]:
    lab.ssh(node, "rdma link del rxe0")
    try:
        yield
    finally:
        lab.ssh(node, "rdma link add rxe0 type rxe netdev data0")
        _wait_active(lab, node)


@contextmanager
def _link_down(lab: Lab, node: str) -> Iterator[None]:
    """Addresses come back with the link, IPv6's by themselves; what neighbours knew is dropped."""
    lab.ssh(node, "ip link set data0 down")
    try:
        yield
    finally:
        lab.ssh(node, "ip link set data0 up; ip neigh flush dev data0")
        _wait_active(lab, node)


def _wait_active(lab: Lab, node: str) -> None:
    state = "/sys/class/infiniband/rxe0/ports/1/state"
    lab.ssh(node, f"timeout 20 busybox sh -c 'until grep -q ACTIVE {state}; do usleep 50000; done'")
