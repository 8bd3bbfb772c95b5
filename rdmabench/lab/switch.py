"""The lab's virtual L2: a learning switch over unix datagram sockets, one process of its own.

Each node's QEMU binds a socket and sends every frame to the switch's. A node may die and come
back: its socket keeps its name. Standard library alone, and run by path, so that it starts quickly
and shares nothing with the program that started it; ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import time

_MAX_FRAME = 65536 + 64
_BUFFER_BYTES = 4 << 20
_SEND_WAIT_MS = (
    50  # a node that takes nothing for so long loses frames, and for a while is not waited for
)
_STALL_S = 1.0


class Switch:
    """Forwards by destination address; floods what it has not learnt."""

    def __init__(self, listener: socket.socket, ports: list[str]) -> None:
        self._listener = listener
        self._ports = ports
        self._stalled: dict[str, float] = {}

    def serve(self) -> None:
        listener = self._listener
        buffer = bytearray(_MAX_FRAME)
        view = memoryview(buffer)
        table: dict[bytes, str] = {}
        receive = listener.recvfrom_into
        send = self._send
        while True:
            size, source = receive(buffer)
            if size < 14:
                continue
            frame = view[:size]
            learnt = bytes(view[6:12])
            if table.get(learnt) != source and not learnt[0] & 1:
                table[learnt] = source
            port = table.get(bytes(view[:6]))
            if port is not None:
                if port != source:
                    send(frame, port)
                continue
            for other in self._ports:
                if other != source:
                    send(frame, other)

    def _send(self, frame: memoryview, port: str) -> None:
        flags = 0
        if self._stalled and self._stalled.get(port, 0.0) > time.monotonic():
            flags = socket.MSG_DONTWAIT
        try:
            self._listener.sendto(frame, flags, port)
        except BlockingIOError:
            if not flags:
                self._stalled[port] = time.monotonic() + _STALL_S
        except OSError:
            return  # the node is gone: its frames go nowhere, as on a real switch


def listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    wait = struct.pack("@ll", 0, _SEND_WAIT_MS * 1000)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
    listener.bind(path)
    return listener


def _into_background() -> None:
    """Returns in a child without terminal; the parent prints the child's pid and ends."""
    pid = os.fork()
    if pid:
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        os._exit(0)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(description="the soft-RoCE lab's switch")
    parser.add_argument("--token", required=True, help="names the lab this process belongs to")
    parser.add_argument("--listen", required=True, help="the switch's own socket")
    parser.add_argument("ports", nargs="+", help="the nodes' sockets")
    arguments = parser.parse_args()
    listener = listen(arguments.listen)
    _into_background()
    Switch(listener, arguments.ports).serve()


if __name__ == "__main__":
    main()
