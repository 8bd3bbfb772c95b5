"""Where the lab keeps its files: the image cache, and one private directory per lab."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rdmabench.errors import InputError, LabError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a lab",
            remedy="at most 32 of a-z, 0-9 and '-', neither first nor last a '-'",
        )
    return name


def image_cache() -> Path:
    return _xdg("XDG_CACHE_HOME", ".cache") / "rdmabench" / "lab"


def labs_directory() -> Path:
    return _xdg("XDG_STATE_HOME", ".local/state") / "rdmabench" / "lab"


def lab_directory(name: str) -> Path:
    return labs_directory() / checked_name(name)


def private_directory(path: Path) -> Path:
    """Made with its parents, and readable by nobody else from the first moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits until this process alone holds the lock; the kernel frees it when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise LabError(f"cannot lock {path}: {exc.strerror}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _xdg(variable: str, default: str) -> Path:
    configured = os.environ.get(variable, "")
    return Path(configured) if configured.startswith("/") else Path.home() / default
