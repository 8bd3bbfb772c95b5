"""Sysfs trees for tests: a dict of path to text, or to an OSError that reading it raises."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
CLASS = "/sys/class/infiniband"


class DictTree:
    """`worker.sysfs.Tree` over a dict; `reads` counts what was read."""

    def __init__(self, files: Mapping[str, str | int], links: Mapping[str, str] | None = None):
        self.files = dict(files)
        self.links = dict(links or {})
        self.reads: list[str] = []

    def read(self, path: str) -> str:
        self.reads.append(path)
        found = self.files.get(path, errno.ENOENT)
        if isinstance(found, int):
            raise OSError(found, os.strerror(found), path)
        return found.strip()

    def names(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = (p.removeprefix(prefix) for p in self.files if p.startswith(prefix))
        return sorted({rest.split("/")[0] for rest in below})

    def link(self, path: str) -> str:
        return self.links.get(path, "")


def gid_table(
    base: str, entries: Sequence[tuple[int, str, str, str]], *, length: int
) -> dict[str, str | int]:
    """A port's table as the kernel shows it: reading the type of a zero entry is EINVAL."""
    files: dict[str, str | int] = {}
    used = {index: (gid, kind, netdev) for index, gid, kind, netdev in entries}
    for index in range(length):
        gid, kind, netdev = used.get(index, (ZERO_GID, errno.EINVAL, errno.EINVAL))
        files[f"{base}/gids/{index}"] = gid + "\n"
        files[f"{base}/gid_attrs/types/{index}"] = kind
        files[f"{base}/gid_attrs/ndevs/{index}"] = netdev
    return files


def port(
    device: str,
    *,
    number: int = 1,
    layer: str = "Ethernet",
    state: str = "4: ACTIVE",
    rate: str = "100 Gb/sec (4X EDR)",
) -> dict[str, str | int]:
    base = f"{CLASS}/{device}/ports/{number}"
    return {
        f"{base}/link_layer": layer + "\n",
        f"{base}/state": state + "\n",
        f"{base}/phys_state": ("5: LinkUp" if "ACTIVE" in state else "3: Disabled") + "\n",
        f"{base}/rate": rate + "\n",
    }
