"""The switch as its own process, with sockets in place of nodes."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmabench.lab import processes, switch

_TOKEN = "7d3c1c0a4f0b4f5d9f2be1a5c6d7e8f9"
_BROADCAST = b"\xff" * 6


def _mac(index: int) -> bytes:
    return bytes([0x52, 0x54, 0, 0x64, 0, index])


def _frame(destination: bytes, source: bytes, payload: bytes = b"x" * 50) -> bytes:
    return destination + source + b"\x08\x00" + payload


class _Node:
    """A node's end of the wire."""

    def __init__(self, directory: Path, index: int) -> None:
        self.mac = _mac(index)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = directory / f"node{index}.sock"
        path.unlink(missing_ok=True)
        self.socket.bind(str(path))
        self.socket.settimeout(5)
        self._switch = str(directory / "switch.sock")

    def send(self, destination: bytes, payload: bytes = b"x" * 50) -> bytes:
        frame = _frame(destination, self.mac, payload)
        self.socket.sendto(frame, self._switch)
        return frame

    def receive(self) -> bytes:
        return self.socket.recv(70000)

    def has_nothing(self) -> bool:
        self.socket.settimeout(0.1)
        try:
            self.socket.recv(70000)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(5)
        return False


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[tuple[_Node, _Node, _Node]]:
    ports = [str(tmp_path / f"node{index}.sock") for index in (1, 2, 3)]
    subprocess.run(
        [
            *(sys.executable, "-I", switch.__file__, "--token", _TOKEN),
            *("--listen", str(tmp_path / "switch.sock"), *ports),
        ],
        check=True,
        capture_output=True,
    )
    nodes = (_Node(tmp_path, 1), _Node(tmp_path, 2), _Node(tmp_path, 3))
    yield nodes
    for node in nodes:
        node.socket.close()
    processes.end(processes.find(_TOKEN), _TOKEN)


def test_a_broadcast_reaches_all_but_its_sender(wire: tuple[_Node, _Node, _Node]) -> None:
    first, second, third = wire
    frame = first.send(_BROADCAST)
    assert second.receive() == frame
    assert third.receive() == frame
    assert first.has_nothing()


def test_a_frame_to_a_learnt_address_goes_to_its_node_alone(
    wire: tuple[_Node, _Node, _Node],
) -> None:
    first, second, third = wire
    second.send(_BROADCAST)
    assert first.receive() == third.receive()
    frame = first.send(second.mac, b"y" * 4200)
    assert second.receive() == frame
    assert third.has_nothing()


def test_a_node_that_comes_back_is_served_again(
    wire: tuple[_Node, _Node, _Node], tmp_path: Path
) -> None:
    first, second, _third = wire
    second.send(_BROADCAST)
    first.receive()
    second.socket.close()
    first.send(second.mac)
    returned = _Node(tmp_path, 2)
    frame = first.send(returned.mac)
    assert returned.receive() == frame
    returned.socket.close()


def test_a_node_that_takes_nothing_does_not_stop_the_others(
    wire: tuple[_Node, _Node, _Node],
) -> None:
    first, second, third = wire
    second.send(_BROADCAST)
    assert first.receive() == third.receive()
    for _ in range(2000):
        first.send(second.mac)
    frame = first.send(_BROADCAST)
    assert third.receive() == frame
