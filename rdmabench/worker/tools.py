"""Programs of the node that know what /sys does not tell: run with a deadline, absent is no error.

Each call is made once for an audit; a second question to the same program gets the same text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Protocol

from rdmabench.worker.gathering import UnknownError

_LIMIT_S = 10.0
_MAX_CHARS = 1 << 20
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Tools(Protocol):
    """Programs by name."""

    def has(self, name: str) -> bool:
        """Whether the node has the program."""

    def run(self, *argv: str) -> str:
        """What it prints; UnknownError where it is absent, fails or does not end."""


class RealTools:
    """The programs of this node."""

    def __init__(self, limit_s: float = _LIMIT_S) -> None:
        self._limit_s = limit_s
        self._search = os.pathsep.join([os.environ.get("PATH", ""), _PATH])
        self._answers: dict[Sequence[str], str] = {}
        self._failures: dict[Sequence[str], str] = {}

    def has(self, name: str) -> bool:
        """As `Tools.has`."""
        return shutil.which(name, path=self._search) is not None

    def run(self, *argv: str) -> str:
        """As `Tools.run`."""
        if argv in self._failures:
            raise UnknownError(self._failures[argv])
        if argv not in self._answers:
            try:
                self._answers[argv] = self._run(argv)
            except UnknownError as exc:
                self._failures[argv] = str(exc)
                raise
        return self._answers[argv]

    def _run(self, argv: Sequence[str]) -> str:
        program = shutil.which(argv[0], path=self._search)
        if program is None:
            raise UnknownError(f"no `{argv[0]}` on the node")
        text = " ".join(argv)
        try:
            done = subprocess.run(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._limit_s,
                check=False,
                env={**os.environ, "LC_ALL": "C", "PATH": self._search},
            )
        except subprocess.TimeoutExpired as exc:
            raise UnknownError(f"`{text}` did not end within {self._limit_s:g} s") from exc
        except OSError as exc:
            raise UnknownError(f"`{text}`: {exc.strerror}") from exc
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            detail = f": {said[-1][:200]}" if said else ""
            raise UnknownError(f"`{text}` ended with status {done.returncode}{detail}")
        return done.stdout.decode(errors="replace")[:_MAX_CHARS]
