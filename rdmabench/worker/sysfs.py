"""Reading /sys and /proc below a given root, so that a captured tree is as good as a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Tree(Protocol):
    """Files by absolute path; a missing or unreadable one raises OSError."""

    def read(self, path: str) -> str:
        """The text of a file, stripped."""

    def read_bytes(self, path: str) -> bytes:
        """A file as it is."""

    def names(self, path: str) -> list[str]:
        """What a directory holds, sorted; empty where there is none."""

    def link(self, path: str) -> str:
        """The last component of a symbolic link's target; empty where there is none."""


class RealTree:
    """The files of this machine, or of a copy below `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def _path(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def read(self, path: str) -> str:
        """As `Tree.read`."""
        return self._path(path).read_text(encoding="utf-8", errors="replace").strip()

    def read_bytes(self, path: str) -> bytes:
        """As `Tree.read_bytes`."""
        return self._path(path).read_bytes()

    def names(self, path: str) -> list[str]:
        """As `Tree.names`."""
        try:
            return sorted(entry.name for entry in self._path(path).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def link(self, path: str) -> str:
        """As `Tree.link`."""
        try:
            return self._path(path).readlink().name
        except OSError:
            return ""


def read_or(tree: Tree, path: str, default: str = "") -> str:
    """The text of a file, or the default where it cannot be read."""
    try:
        return tree.read(path)
    except OSError:
        return default


def read_int(tree: Tree, path: str, default: int = 0) -> int:
    """The whole number in a file (decimal or 0x), or the default."""
    try:
        return int(tree.read(path), 0)
    except (OSError, ValueError):
        return default
