"""Waiting until nodes answer: READY on the serial line, then the greeting of sshd."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping

from rdmabench.errors import LabError
from rdmabench.lab import processes, qemu
from rdmabench.lab.processes import ProcessRef
from rdmabench.lab.qemu import Guest

_POLL_S = 0.05
_GREETING_S = 10.0


def wait_ready(
    started: Mapping[Guest, ProcessRef],
    *,
    deadline_s: float,
    progress: Callable[[str], None],
) -> dict[str, float]:
    """Seconds until each node answered; raises for the first that died, failed or was too slow."""
    begun = time.monotonic()
    seconds: dict[str, float] = {}
    while len(seconds) < len(started):
        for guest, process in started.items():
            if guest.name in seconds or not _is_ready(guest, process):
                continue
            _await_greeting(guest, min(begun + deadline_s, time.monotonic() + _GREETING_S))
            seconds[guest.name] = round(time.monotonic() - begun, 1)
            progress(f"{guest.name} ready after {seconds[guest.name]:.1f} s")
        if len(seconds) < len(started) and time.monotonic() - begun > deadline_s:
            late = next(guest for guest in started if guest.name not in seconds)
            raise _boot_error(late, f"not ready after {deadline_s:.0f} s")
        time.sleep(_POLL_S)
    return seconds


def _is_ready(guest: Guest, process: ProcessRef) -> bool:
    output = qemu.serial_output(guest)
    if qemu.READY in output:
        return True
    if qemu.FAILED in output:
        raise _boot_error(guest, "the node gave up")
    if not processes.is_running(process, guest.token):
        raise _boot_error(guest, "QEMU ended while the node booted")
    return False


def _await_greeting(guest: Guest, deadline: float) -> None:
    """QEMU accepts connections from its start on; only the greeting shows that sshd is there."""
    while (left_s := deadline - time.monotonic()) > 0:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", guest.ssh_port), timeout=left_s) as connection,
        ):
            if connection.recv(64).startswith(b"SSH-2.0"):
                return
        time.sleep(_POLL_S)
    raise _boot_error(guest, f"sshd does not answer on 127.0.0.1:{guest.ssh_port}")


def _boot_error(guest: Guest, what: str) -> LabError:
    return LabError(
        f"{what}; last lines of {guest.serial_log}:\n{qemu.tail(guest.serial_log)}",
        host=guest.name,
        remedy="a longer deadline on a busy machine, fewer nodes, or --accel tcg if it was kvm",
    )
