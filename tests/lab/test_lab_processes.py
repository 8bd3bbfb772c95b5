"""Whose process it is, and how it is ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rdmabench.lab import processes

_TOKEN = "4e0fd3a1c5b24c6fb2f6f3a7d0c1e9aa"
_DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    yield from _running("print(flush=True)")


@pytest.fixture
def deaf() -> Iterator[subprocess.Popen[bytes]]:
    yield from _running(_DEAF)


def _running(code: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", f"{code}; import time; time.sleep(60)", _TOKEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_is_found_by_its_token(sleeper: subprocess.Popen[bytes]) -> None:
    assert [process.pid for process in processes.find(_TOKEN)] == [sleeper.pid]
    assert processes.find("another-" + _TOKEN) == ()


def test_a_pid_that_changed_hands_is_not_believed(sleeper: subprocess.Popen[bytes]) -> None:
    process = processes.reference(sleeper.pid)
    assert process is not None
    assert processes.is_running(process, _TOKEN)
    assert not processes.is_running(process, "another token")
    earlier = replace(process, start_ticks=process.start_ticks - 1)
    assert not processes.is_running(earlier, _TOKEN)
    processes.end([earlier], _TOKEN)
    assert sleeper.poll() is None


def test_a_process_that_is_asked_to_end_ends(sleeper: subprocess.Popen[bytes]) -> None:
    processes.end(processes.find(_TOKEN), _TOKEN)
    assert sleeper.wait(1) == -15
    assert processes.find(_TOKEN) == ()


def test_a_process_that_does_not_listen_is_killed(deaf: subprocess.Popen[bytes]) -> None:
    begun = time.monotonic()
    processes.end(processes.find(_TOKEN), _TOKEN)
    assert deaf.wait(1) == -9
    assert time.monotonic() - begun < 5


def test_an_unreaped_process_counts_as_gone(sleeper: subprocess.Popen[bytes]) -> None:
    process = processes.reference(sleeper.pid)
    assert process is not None
    processes.end([process], _TOKEN, at_once=True)
    assert processes.reference(sleeper.pid) is None
    processes.end([process], _TOKEN)
