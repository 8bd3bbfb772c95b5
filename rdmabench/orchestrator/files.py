"""Files on a node over SFTP: whole or not there, in directories that are ours."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Any, Protocol


class Sftp(Protocol):
    """What is used of paramiko's SFTP client."""

    def open(self, filename: str, mode: str = "r") -> Any: ...
    def stat(self, path: str) -> Any: ...
    def lstat(self, path: str) -> Any: ...
    def chmod(self, path: str, mode: int) -> None: ...
    def mkdir(self, path: str, mode: int = 0o777) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def posix_rename(self, oldpath: str, newpath: str) -> None: ...


def put(sftp: Sftp, data: bytes, path: str, mode: int) -> None:
    """Write under a temporary name in the same directory, then rename.

    Raises:
        OSError: the node's file system refuses.
    """
    part = f"{path}.part-{os.urandom(6).hex()}"
    try:
        _write(sftp, data, part, mode)
        sftp.posix_rename(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            sftp.remove(part)
        raise


def _write(sftp: Sftp, data: bytes, path: str, mode: int) -> None:
    with sftp.open(path, "wx") as file:
        file.chmod(mode)
        file.set_pipelined(True)
        file.write(data)
    written = sftp.stat(path).st_size
    if written != len(data):
        raise OSError(errno.EIO, f"{written} of {len(data)} bytes were written")


def get(sftp: Sftp, path: str) -> bytes:
    """The content of a file."""
    with sftp.open(path, "rb") as file:
        file.prefetch()
        content: bytes = file.read()
        return content


def exists(sftp: Sftp, path: str) -> bool:
    """Whether the path is there; a symbolic link to nowhere is not."""
    try:
        sftp.stat(path)
    except FileNotFoundError:
        return False
    return True


def remove(sftp: Sftp, path: str) -> None:
    """Remove a file, or an empty directory; one that is gone already is no error."""
    with contextlib.suppress(FileNotFoundError):
        is_directory = stat.S_ISDIR(sftp.lstat(path).st_mode or 0)
        (sftp.rmdir if is_directory else sftp.remove)(path)


def mkdir(sftp: Sftp, path: str, mode: int) -> None:
    """Make a directory and its parents; it may exist.

    What stands in its place must be a directory and ours: a link, or a directory whose mode we may
    not set, is refused.
    """
    for part in [*reversed([str(parent) for parent in Path(path).parents]), path]:
        with contextlib.suppress(OSError):  # there already; the check below decides
            sftp.mkdir(part, mode)
    if not stat.S_ISDIR(sftp.lstat(path).st_mode or 0):
        raise OSError(errno.ENOTDIR, "something else than a directory is there")
    sftp.chmod(path, mode)
