"""A node's initrd: the image's, then the node's own files, which the kernel unpacks over it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

_FILE_MODE = 0o100600
_DIRECTORY_MODE = 0o040755


def write(path: Path, base: Path, files: Mapping[str, bytes]) -> None:
    """`files` go to /lab, readable by root alone."""
    path.unlink(missing_ok=True)
    shutil.copyfile(base, path)
    path.chmod(0o600)
    with path.open("ab") as archive:
        archive.write(cpio(files))


def cpio(files: Mapping[str, bytes]) -> bytes:
    """The "newc" format (the kernel's Documentation/driver-api/early-userspace/buffer-format)."""
    entries = [_entry("lab", _DIRECTORY_MODE, b"")]
    entries += [_entry(f"lab/{name}", _FILE_MODE, content) for name, content in files.items()]
    return b"".join([*entries, _entry("TRAILER!!!", 0, b"")])


def _entry(name: str, mode: int, content: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    # inode, mode, uid, gid, links, mtime, size, device (2), rdev (2), name's size, checksum
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % number for number in numbers)
    return _padded(header + encoded) + _padded(content)


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
