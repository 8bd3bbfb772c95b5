"""How a lab is reached: its keys, the hosts' keys, the inventory, what a node is given at boot."""

from __future__ import annotations

import secrets
import shlex
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from rdmabench.errors import LabError
from rdmabench.lab.state import NodeState, data_mac

INVENTORY = "inventory.yml"
_IDENTITY = "id_ed25519"  # from this machine to the nodes
_PEER_IDENTITY = "peer_ed25519"  # between the nodes, for mpirun
_FOR_EVER_S = 1_000_000_000
_KNOWN_HOSTS = "known_hosts"
_PORTS = range(
    20000, 32000
)  # below the ephemeral ports, so that a stopped node finds its own again


def write_all(directory: Path, nodes: Sequence[NodeState], *, virtual_time: bool = False) -> None:
    """Keys of a new lab, known_hosts and the inventory."""
    for stem in (_IDENTITY, _PEER_IDENTITY, *(f"{node.name}.host_key" for node in nodes)):
        _make_key(directory / stem)
    known_hosts = "".join(
        f"[127.0.0.1]:{node.ssh_port} {_public_key(directory, node)}\n" for node in nodes
    )
    (directory / _KNOWN_HOSTS).write_text(known_hosts, encoding="ascii")
    text = inventory_text(directory, nodes, virtual_time=virtual_time)
    (directory / INVENTORY).write_text(text, encoding="utf-8")


def inventory_text(
    directory: Path, nodes: Sequence[NodeState], *, virtual_time: bool = False
) -> str:
    """The lab as an Ansible inventory; an idle node's virtual clock runs ahead of everyone's."""
    common = shlex.join(_options(directory))
    hosts = {
        node.name: {
            "ansible_host": "127.0.0.1",
            "ansible_port": node.ssh_port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(directory / _IDENTITY),
            "ansible_ssh_common_args": common,
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        for node in nodes
    }
    group: dict[str, object] = {"hosts": hosts}
    if virtual_time:
        group["vars"] = {"rdma_silence_limit_s": _FOR_EVER_S}
    return yaml.safe_dump({"rdma": group}, sort_keys=False, width=1000)


def ssh_argv(directory: Path, node: NodeState) -> tuple[str, ...]:
    identity = ("-i", str(directory / _IDENTITY))
    return ("ssh", *_options(directory), *identity, "-p", str(node.ssh_port), "root@127.0.0.1")


def node_files(
    directory: Path, node: NodeState, nodes: Sequence[NodeState], *, virtual_time: bool = False
) -> dict[str, bytes]:
    """What guest/start finds in /lab: the node's name and address, its host key, who may enter."""
    hosts = ["127.0.0.1 localhost", "::1 localhost", *(f"{n.address} {n.name}" for n in nodes)]
    known = [f"{n.name},{n.address} {_public_key(directory, n)}" for n in nodes]
    entering = [
        (directory / f"{stem}.pub").read_text(encoding="ascii").strip()
        for stem in (_IDENTITY, _PEER_IDENTITY)
    ]
    others = [f"{n.address} {data_mac(n.index)}" for n in nodes if n.name != node.name]
    neighbours = {"neighbours": _lines(others)} if virtual_time else {}
    return neighbours | {
        "node.conf": f"NODE={node.name}\nADDRESS={node.address}\n".encode(),
        "hosts": _lines(hosts),
        "known_hosts": _lines(known),
        "authorized_keys": _lines(entering),
        "peer_key": (directory / _PEER_IDENTITY).read_bytes(),
        "host_key": (directory / f"{node.name}.host_key").read_bytes(),
    }


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on now, drawn at random: two labs may start at once."""
    free: list[int] = []
    for port in secrets.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            # As QEMU binds: a port in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise LabError(f"no {count} free TCP ports of {_PORTS.start}-{_PORTS.stop - 1} on 127.0.0.1")


def _options(directory: Path) -> tuple[str, ...]:
    """OpenSSH options that keep the lab apart from the user's own keys, hosts and configuration."""
    settings = (
        f"UserKnownHostsFile={_quoted(directory / _KNOWN_HOSTS)}",
        "GlobalKnownHostsFile=/dev/null",
        "StrictHostKeyChecking=yes",
        "IdentitiesOnly=yes",
    )
    return ("-F", "/dev/null", *(part for setting in settings for part in ("-o", setting)))


def _quoted(path: Path) -> str:
    return f'"{path}"' if " " in str(path) else str(path)


def _public_key(directory: Path, node: NodeState) -> str:
    kind, key, *_ = (directory / f"{node.name}.host_key.pub").read_text(encoding="ascii").split()
    return f"{kind} {key}"


def _make_key(path: Path) -> None:
    path.unlink(missing_ok=True)
    command = [
        "ssh-keygen",
        "-q",
        "-t",
        "ed25519",
        "-N",
        "",
        "-C",
        "rdmabench-lab",
        "-f",
        str(path),
    ]
    made = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30
    )
    if made.returncode != 0:
        raise LabError(f"ssh-keygen could not make {path}: {made.stderr.strip()}")


def _lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
