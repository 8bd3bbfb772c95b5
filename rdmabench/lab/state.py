"""What a lab consists of, on disk; its token is written before anything that carries it starts."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rdmabench.errors import LabError
from rdmabench.lab.processes import ProcessRef

_VERSION = 1
_FILE = "state.json"


@dataclass(frozen=True)
class NodeState:
    """One node; without a process it was never started, or its start was cut short."""

    name: str
    index: int
    ssh_port: int
    process: ProcessRef | None = None
    seconds_to_ready: float = 0.0

    @property
    def address(self) -> str:
        return data_address(self.index)


@dataclass(frozen=True)
class LabState:
    """One lab; `complete` once all nodes of its first start answered."""

    token: str
    vcpus: int
    memory_mib: int
    icount: bool
    requested_accel: str
    accel: str
    image_digest: str
    sockets: Path
    nodes: tuple[NodeState, ...]
    switch: ProcessRef | None = None
    complete: bool = False

    def with_node(self, node: NodeState) -> LabState:
        nodes = tuple(node if other.name == node.name else other for other in self.nodes)
        return replace(self, nodes=nodes)

    def node(self, name: str) -> NodeState:
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise LabError(f"the lab has no node {name!r}", remedy=f"one of {known}")


def data_address(index: int) -> str:
    return f"10.77.0.{index}"


def data_mac(index: int) -> str:
    return mac("64", index)


def mac(kind: str, index: int) -> str:
    """guest/start tells the management NIC (6d) from the data NIC (64) by this."""
    return f"52:54:00:{kind}:00:{index:02x}"


def new_token() -> str:
    return secrets.token_hex(16)


def sockets_directory(token: str) -> Path:
    """Short, because a unix socket's path ends at 107 bytes."""
    return Path(tempfile.gettempdir()) / f"rdmabench-{token[:12]}"


def save(directory: Path, state: LabState) -> None:
    """Atomic: a reader sees the state before or after, and a crash leaves one of the two."""
    document = {"version": _VERSION, **asdict(state), "sockets": str(state.sockets)}
    temporary = directory / f"{_FILE}.new"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / _FILE)


def load(directory: Path) -> LabState | None:
    path = directory / _FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _from_document(document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise LabError(
            f"the lab's state cannot be read: {path}: {exc}",
            remedy=f"end its processes by hand (ps -ef | grep rdmabench-), remove {directory}",
        ) from exc


def forget(directory: Path) -> None:
    (directory / _FILE).unlink(missing_ok=True)


def _from_document(document: dict[str, Any]) -> LabState:
    if document.pop("version") != _VERSION:
        raise ValueError("written by another version of rdmabench")
    nodes = tuple(
        NodeState(**{**node, "process": _process(node["process"])}) for node in document["nodes"]
    )
    fields = {
        **document,
        "nodes": nodes,
        "switch": _process(document["switch"]),
        "sockets": Path(document["sockets"]),
    }
    return LabState(**fields)


def _process(document: dict[str, int] | None) -> ProcessRef | None:
    return None if document is None else ProcessRef(**document)
