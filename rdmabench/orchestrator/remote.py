"""A command on a node, over an SSH channel: run to its end, or spoken to while it runs.

The channel's two streams share one window: whoever reads one must drain the other, or both stop.
Here each stream has a thread of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from rdmabench.errors import DeadlineError

WRITE_LIMIT_S = 30.0
_STDERR_LIMIT_BYTES = 16 << 20
_CHUNK_BYTES = 32_768
_QUEUED_CHUNKS = 256
_NOT_FOUND = (  # the first that matches: a later one would misread an earlier one's text
    re.compile(r"command not found: (\S+)"),  # zsh
    re.compile(r"Unknown command:? '?([^\s':]+)"),  # fish
    re.compile(r"([^\s:]+): (?:[Cc]ommand )?not found"),  # sh, bash, csh
)
_log = logging.getLogger(__name__)

Door = Callable[[str], AbstractContextManager[None]]


class Channel(Protocol):
    """What is used of paramiko's channel."""

    status_event: threading.Event
    exit_status: int

    def recv(self, nbytes: int) -> bytes: ...
    def recv_stderr(self, nbytes: int) -> bytes: ...
    def sendall(self, s: bytes) -> None: ...
    def shutdown_write(self) -> None: ...
    def settimeout(self, timeout: float | None) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Completed:
    """A remote command that ended; `exit_status` -1: it was killed by a signal."""

    exit_status: int
    stdout: bytes
    stderr: bytes

    @property
    def missing_program(self) -> str:
        """The program that the remote shell did not find; empty if it found what it was given.

        sh, bash, zsh, fish and csh each say it in their own words, and csh exits with 1.
        """
        text = self.stderr.decode(errors="replace") if self.exit_status else ""
        found = next(filter(None, (pattern.search(text) for pattern in _NOT_FOUND)), None)
        return found[1] if found else ""


def finish(channel: Channel, *, stdin: bytes, deadline_s: float) -> Completed:
    """Send stdin, read both streams to their ends, then the status; closes the channel.

    Raises:
        TimeoutError: it did not end in time.
    """
    ends_at = time.monotonic() + deadline_s
    out, err = bytearray(), bytearray()
    channel.settimeout(None)
    threads = (
        _thread(_drain, channel.recv, out.extend),
        _thread(_drain, channel.recv_stderr, err.extend),
        _thread(_feed, channel, stdin),
    )
    try:
        for thread in threads[:2]:
            thread.join(max(0.0, ends_at - time.monotonic()))
        ended = channel.status_event.wait(max(0.0, ends_at - time.monotonic()))
        if not ended or any(thread.is_alive() for thread in threads[:2]):
            raise TimeoutError
        return Completed(channel.exit_status, bytes(out), bytes(err))
    finally:
        channel.close()


class RemoteProcess:
    """A remote command that still runs, spoken to over its stdin and stdout."""

    def __init__(self, host: str, channel: Channel, stderr_descriptor: int, door: Door) -> None:
        """Take over an executing channel and the open log file; `door` translates errors."""
        self._host = host
        self._channel = channel
        self._channel.settimeout(WRITE_LIMIT_S)  # bounds write; the readers go on after it
        self._door = door
        self._chunks: queue.Queue[bytes] = queue.Queue(_QUEUED_CHUNKS)
        self._ended = False
        self._write_lock = threading.Lock()
        self._closing = threading.Event()
        self._stderr_left = _STDERR_LIMIT_BYTES
        self._threads = (
            _thread(self._read_stdout),
            _thread(self._read_stderr, stderr_descriptor),
        )

    def write(self, data: bytes) -> None:
        """Send to the command's stdin; one caller's bytes stay together.

        Raises:
            ConnectError: the command or the connection is gone.
            DeadlineError: the command has not read for a long time.
        """
        with self._write_lock, self._door("write to the remote command"):
            self._channel.sendall(data)

    def read(self, timeout_s: float) -> bytes:
        """The next bytes of its stdout, as many as there are; b"" when it will write no more.

        Raises:
            DeadlineError: nothing came within `timeout_s`; the command still runs.
        """
        if self._ended:
            return b""
        try:
            chunk = self._chunks.get(timeout=max(0.0, timeout_s))
        except queue.Empty as exc:
            raise DeadlineError(f"nothing came within {timeout_s:g} s", host=self._host) from exc
        self._ended = not chunk
        return chunk

    @property
    def exit_status(self) -> int | None:
        """None while it runs; -1 if a signal or the end of the connection ended it."""
        return self._channel.exit_status if self._channel.status_event.is_set() else None

    def close(self, grace_s: float = 2.0) -> None:
        """End its stdin, give it `grace_s` to end by itself, then close the channel."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()
        self._channel.status_event.wait(grace_s)
        self._closing.set()
        self._channel.close()
        for thread in self._threads:
            thread.join(grace_s)

    def _read_stdout(self) -> None:
        _drain(self._channel.recv, self._put)
        self._put(b"")

    def _put(self, chunk: bytes) -> None:
        """Wait for room, so that a flood stops at the sender; but not once nobody reads."""
        while True:
            with contextlib.suppress(queue.Full):
                self._chunks.put(chunk, timeout=0.2)
                return
            if self._closing.is_set():
                return

    def _read_stderr(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "wb", buffering=0) as log:
            _drain(self._channel.recv_stderr, lambda chunk: self._keep(log.write, chunk))

    def _keep(self, write: Callable[[bytes], object], chunk: bytes) -> None:
        """Log what fits under the limit; a full disk must not stop the draining."""
        kept = chunk[: self._stderr_left]
        self._stderr_left -= len(kept)
        if not kept:
            return
        try:
            write(kept)
        except OSError as exc:
            _log.warning("%s: its stderr is no longer kept: %s", self._host, exc)
            self._stderr_left = 0


def _thread(target: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True, name=target.__name__)
    thread.start()
    return thread


def _drain(receive: Callable[[int], bytes], keep: Callable[[bytes], object]) -> None:
    while True:
        try:
            chunk = receive(_CHUNK_BYTES)
        except TimeoutError:
            continue
        except (OSError, EOFError):
            return
        if not chunk:
            return
        keep(chunk)


def _feed(channel: Channel, data: bytes) -> None:
    """Send stdin and end it; a command that does not read it all is no error here."""
    with contextlib.suppress(OSError, EOFError):
        if data:
            channel.sendall(data)
        channel.shutdown_write()
