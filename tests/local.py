"""A worker in a process of this machine, spoken to as over SSH: for tests without a network."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from rdmabench.errors import DeadlineError
from rdmabench.orchestrator import bundle
from rdmabench.orchestrator.agent import Agent

SYSTEM_PYTHON = "/usr/bin/python3"


class LocalProcess:
    """`agent.Process` over pipes."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], stderr: Path) -> None:
        self._log = stderr.open("ab")
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **env},
        )
        self._chunks: queue.Queue[bytes] = queue.Queue()
        self._pumping = threading.Thread(target=self._pump, daemon=True)
        self._pumping.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _pump(self) -> None:
        assert self._process.stdout is not None
        while data := os.read(self._process.stdout.fileno(), 65536):
            self._chunks.put(data)
        self._process.wait()
        self._chunks.put(b"")

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError:
            return

    def read(self, timeout_s: float) -> bytes:
        try:
            return self._chunks.get(timeout=timeout_s)
        except queue.Empty as exc:
            raise DeadlineError("nothing came") from exc

    @property
    def exit_status(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._pumping.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def start_worker(
    directory: Path,
    *,
    host: str,
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> tuple[Agent, LocalProcess]:
    """The very zipapp and loops that are pushed to nodes, in `directory`."""
    made = bundle.build(os.uname().machine)
    directory.mkdir(parents=True, exist_ok=True)
    zipapp, hotloop = directory / bundle.ZIPAPP, directory / bundle.HOTLOOP
    zipapp.write_bytes(made.zipapp)
    hotloop.write_bytes(made.hotloop)
    argv = [python, "-I", str(zipapp), "--hotloop", str(hotloop), "--root", str(root)]
    log = directory / f"{host}.log"
    process = LocalProcess([*argv, "--sha256", made.sha256], env=env or {}, stderr=log)
    return Agent(process, host=host, log=log), process
