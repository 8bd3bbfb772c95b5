"""Files that are whole or absent: private, synced before they count, errors that name the file.

A run holds host names, addresses and user names, so its files are 0600 and its directories
0700.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rdmabench.errors import StorageError

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


@contextlib.contextmanager
def storing(path: Path, *, remedy: str = "") -> Iterator[None]:
    """Turns the system's refusal into a StorageError that names the file."""
    try:
        yield
    except OSError as exc:
        cause = exc.strerror or str(exc) or type(exc).__name__
        raise StorageError(f"{path}: {cause}", remedy=remedy) from exc


def make_directory(path: Path) -> None:
    """The directory and its parents; the last one private, and new ones only."""
    with storing(path):
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)


def write_all(descriptor: int, data: bytes) -> None:
    """Every byte, since write(2) may take fewer than it was given."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def create_exclusively(path: Path, data: bytes) -> None:
    """A new file with these bytes, on the disk when this returns.

    Raises:
        FileExistsError: the name is taken; nothing was changed.
        OSError: it could not be written; nothing of it is left.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    whole = False
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
        whole = True
    finally:
        os.close(descriptor)
        if not whole:
            path.unlink(missing_ok=True)
    sync_directory(path.parent)


def replace_atomically(path: Path, data: bytes) -> None:
    """The file with these bytes: a reader sees the old ones or the new ones, never a part.

    Raises:
        StorageError: it could not be written; the old file stands.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with storing(path, remedy="free space, or choose another results directory"):
        scratch.unlink(missing_ok=True)
        create_exclusively(scratch, data)
        scratch.replace(path)
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """A new name in a directory is on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
