"""The lab's processes: known by a token in their command line, ended through pidfds.

Each lab draws a random token before it starts anything, and each process it starts carries the
token. A process recorded by pid is believed only while that pid has the recorded start time and
the token; one that a crash kept from being recorded is found by the token alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rdmabench.errors import LabError

_TERM_GRACE_S = 2.0
_KILL_GRACE_S = 5.0


@dataclass(frozen=True)
class ProcessRef:
    """One process for ever: a pid alone may be another process tomorrow."""

    pid: int
    start_ticks: int  # /proc/PID/stat, field 22: clock ticks after boot


def reference(pid: int) -> ProcessRef | None:
    """None if there is no such process, or only its exit status is left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else ProcessRef(pid=pid, start_ticks=int(fields[18]))


def is_running(process: ProcessRef, token: str) -> bool:
    return reference(process.pid) == process and _carries(process.pid, token)


def find(token: str) -> tuple[ProcessRef, ...]:
    """Every process of this machine whose command line carries the token."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    carriers = (reference(pid) for pid in pids if pid != os.getpid() and _carries(pid, token))
    return tuple(process for process in carriers if process is not None)


def end(processes: Iterable[ProcessRef], token: str, *, at_once: bool = False) -> None:
    """Ends them and waits until they are gone: SIGTERM, then SIGKILL; at once: SIGKILL only."""
    descriptors = [fd for process in processes if (fd := _open_verified(process, token)) >= 0]
    try:
        left = descriptors
        if not at_once:
            left = _signal_and_wait(left, signal.SIGTERM, _TERM_GRACE_S)
        left = _signal_and_wait(left, signal.SIGKILL, _KILL_GRACE_S)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if left:
        raise LabError(f"{len(left)} of the lab's processes did not end after SIGKILL")


def _carries(pid: int, token: str) -> bool:
    try:
        return token.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _open_verified(process: ProcessRef, token: str) -> int:
    """A pidfd; -1 if the process is gone. Verified once open: the pid cannot change hands then."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return -1
    if is_running(process, token):
        return descriptor
    os.close(descriptor)
    return -1


def _signal_and_wait(descriptors: list[int], number: int, grace_s: float) -> list[int]:
    for descriptor in descriptors:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)
    left = list(descriptors)
    deadline = time.monotonic() + grace_s
    while left and (wait_s := deadline - time.monotonic()) > 0:
        ended, _, _ = select.select(left, [], [], wait_s)
        left = [descriptor for descriptor in left if descriptor not in ended]
    return left
