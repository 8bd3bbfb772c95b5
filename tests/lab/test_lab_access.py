"""Keys, known hosts and the inventory of a lab."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rdmabench.lab import access, host
from rdmabench.lab.state import NodeState

_NODES = (NodeState("node1", 1, 20001), NodeState("node2", 2, 20002))

needs_openssh = pytest.mark.skipif(
    not shutil.which("ssh-keygen"), reason="needs OpenSSH's client programs"
)


def test_the_inventory_says_how_to_reach_each_node_and_nothing_about_qemu() -> None:
    text = access.inventory_text(Path("/state/lab"), _NODES)
    hosts = yaml.safe_load(text)["rdma"]["hosts"]
    assert list(hosts) == ["node1", "node2"]
    common = hosts["node2"].pop("ansible_ssh_common_args")
    assert hosts["node2"] == {
        "ansible_host": "127.0.0.1",
        "ansible_port": 20002,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": "/state/lab/id_ed25519",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    assert "StrictHostKeyChecking=yes" in shlex.split(common)
    assert "UserKnownHostsFile=/state/lab/known_hosts" in shlex.split(common)


@needs_openssh
def test_openssh_takes_the_inventorys_arguments_with_a_space_in_the_path() -> None:
    text = access.inventory_text(Path("/state/my lab"), _NODES)
    common = yaml.safe_load(text)["rdma"]["hosts"]["node1"]["ansible_ssh_common_args"]
    resolved = subprocess.run(
        ["ssh", "-G", *shlex.split(common), "127.0.0.1"], capture_output=True, text=True, check=True
    ).stdout
    assert "userknownhostsfile /state/my lab/known_hosts" in resolved
    assert "stricthostkeychecking true" in resolved


@needs_openssh
def test_each_node_gets_its_own_host_key_and_knows_the_others(tmp_path: Path) -> None:
    access.write_all(tmp_path, _NODES)
    first, second = (access.node_files(tmp_path, node, _NODES) for node in _NODES)
    assert first["host_key"] != second["host_key"]
    assert first["known_hosts"] == second["known_hosts"]
    assert first["node.conf"] == b"NODE=node1\nADDRESS=10.77.0.1\n"
    assert b"10.77.0.2 node2\n" in first["hosts"]
    assert len(first["authorized_keys"].splitlines()) == 2
    known = (tmp_path / "known_hosts").read_text(encoding="ascii").splitlines()
    assert [line.split()[0] for line in known] == ["[127.0.0.1]:20001", "[127.0.0.1]:20002"]
    assert (tmp_path / "id_ed25519").stat().st_mode & 0o077 == 0


def test_free_ports_are_different_and_below_the_ephemeral_ones() -> None:
    ports = access.free_ports(8)
    assert len(set(ports)) == 8
    assert all(20000 <= port < 32000 for port in ports)


def test_what_the_lab_lacks_is_named_as_debian_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, path: program != "mkfs.erofs" or None)
    assert host.missing_packages() == ("erofs-utils",)
