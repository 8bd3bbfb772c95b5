"""Real nodes: each fault is found with its remedy, and gone after the playbook that mends it.

The tests are one story, in order: broken, found, mended, mended again without change, taken down.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.playbooks.conftest import PLAYBOOKS, Ansible, Found, Nodes, preflight

pytestmark = pytest.mark.lab

_LIMITED = 'ulimit -l 64\nexec /usr/bin/python3 "$@"'
_BARE = 'exec /usr/bin/python3 -S "$@"'
_ARGS = ("-e", "rdma_netdev=data0", "-e", "rdma_mtu=4200")


@pytest.fixture(scope="module")
def broken(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """node1 has MTU 1500 and no pyverbs; node2 is down and has a limit on locked memory."""
    nodes.ssh("node1", "ip link set data0 mtu 1500")
    nodes.ssh("node2", "ip link set data0 down")
    path = "/tmp/other-python"
    for name, text in (("node1", _BARE), ("node2", _LIMITED)):
        nodes.ssh(name, f"printf '#!/bin/sh\\n%s\\n' '{text}' > {path} && chmod 755 {path}")
    inventory = tmp_path_factory.mktemp("preflight") / "nodes.yml"
    return preflight(nodes.with_pythons(inventory, {"node1": path, "node2": path}))


def test_a_low_mtu_is_found(broken: Found) -> None:
    finding = broken.of("node1")["mtu-low"]
    # without pyverbs ibv_devinfo is asked
    assert finding["seen"] == "data0 has MTU 1500: RDMA uses 1024"
    assert finding["device"] == "rxe0"
    assert "ip link set data0 mtu 4200" in finding["remedy"]
    assert "rxe.yml" in finding["remedy"]


def test_a_memlock_limit_of_the_launched_process_is_found(broken: Found) -> None:
    finding = broken.of("node2")["memlock"]
    assert (finding["severity"], "64 KiB" in finding["seen"]) == ("error", True)
    assert "prepare.yml" in finding["remedy"]
    assert "memlock" not in broken.of("node1")


def test_missing_pyverbs_is_found_and_hides_nothing_else(broken: Found) -> None:
    finding = broken.of("node1")["pyverbs-missing"]
    assert finding["severity"] == "error"
    assert "No module named" in finding["seen"]
    assert "python3-pyverbs" in finding["remedy"]


def test_a_device_that_is_down_is_found(broken: Found) -> None:
    finding = broken.of("node2")["port-down"]
    assert finding["severity"] == "error"
    assert finding["seen"].startswith("DOWN/")
    assert "ip link set data0 up" in finding["remedy"]
    assert broken.status == 3
    assert broken.document["unreachable"] == {}


def test_prepare_and_rxe_mend_the_nodes_and_then_change_nothing(
    nodes: Nodes, ansible: Ansible, broken: Found, tmp_path: Path
) -> None:
    assert broken.status == 3
    nodes.ssh("node2", "rdma link delete rxe0")
    both = tmp_path / "both.yml"
    both.write_text(
        f"- import_playbook: {PLAYBOOKS}/prepare.yml\n- import_playbook: {PLAYBOOKS}/rxe.yml\n"
    )
    before = nodes.ssh("node2", "ls /etc/security/limits.d")
    would = ansible.play(both, nodes.inventory, "--check", "--limit", "node2", *_ARGS)
    assert (would.status, nodes.ssh("node2", "ls /etc/security/limits.d")) == (0, before)
    assert "make rxe_data0 on data0" in would.text
    first = ansible.play(both, nodes.inventory, *_ARGS)
    assert first.changed == {"node1": 2, "node2": 2}, first.text
    second = ansible.play(both, nodes.inventory, *_ARGS)
    assert second.changed == {"node1": 0, "node2": 0}, second.text


def test_what_was_found_is_gone(nodes: Nodes) -> None:
    mended = preflight(nodes.inventory)
    kinds = {f["id"] for f in mended.document["findings"] if f["severity"] != "info"}
    assert kinds == set()
    assert mended.status == 0


def test_teardown_removes_what_was_made_and_nothing_else(nodes: Nodes, ansible: Ansible) -> None:
    first = ansible.play(PLAYBOOKS / "teardown.yml", nodes.inventory)
    assert first.changed == {"node1": 1, "node2": 1}, first.text
    assert "rxe0" in nodes.ssh("node1", "rdma link"), "it was there before"
    assert "rxe" not in nodes.ssh("node2", "rdma link")
    left = nodes.ssh("node1", "ls -d /etc/modules-load.d/rdmabench.conf ~/.cache/rdmabench; true")
    assert left == ""
    second = ansible.play(PLAYBOOKS / "teardown.yml", nodes.inventory)
    assert second.changed == {"node1": 0, "node2": 0}, second.text
