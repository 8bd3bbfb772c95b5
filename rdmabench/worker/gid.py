"""Which GID of a port to use: the rule of the design, on a table read from sysfs.

RoCE v2 over IPv4, then v2 over global IPv6, then v2 link-local; v1 only when it is asked for. An
InfiniBand port routes by LID and uses GID 0. Zero entries are passed over unread: the kernel
answers EINVAL for their type, and a port may have 252 of them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from rdmabench.errors import DeviceError

ROCE_V1 = "IB/RoCE v1"
ROCE_V2 = "RoCE v2"

Read = Callable[[str], str]
"""Text of a path below the port's directory; raises OSError where there is none."""


@dataclass(frozen=True)
class Gid:
    """One used entry of a port's GID table."""

    index: int
    gid: str
    kind: str
    netdev: str = ""

    @property
    def address(self) -> ipaddress.IPv6Address:
        """The 128 bits as an address."""
        return ipaddress.IPv6Address(self.gid)

    @property
    def ipv4(self) -> Optional[ipaddress.IPv4Address]:
        """The IPv4 address of an IPv4-mapped GID."""
        return self.address.ipv4_mapped

    @property
    def link_local(self) -> bool:
        """fe80::/10: reaches no further than its subnet."""
        return self.address.is_link_local

    @property
    def rank(self) -> int:
        """0 is best; the lowest index wins among equals."""
        if self.kind != ROCE_V2:
            return 3
        if self.ipv4 is not None:
            return 0
        return 2 if self.link_local else 1


def read_table(read: Read, length: int) -> tuple[Gid, ...]:
    """The used entries among the first `length` of a port's GID table."""
    entries = []
    for index in range(length):
        text = _read_or_empty(read, f"gids/{index}")
        if not text or int(ipaddress.IPv6Address(text)) == 0:
            continue
        kind = _read_or_empty(read, f"gid_attrs/types/{index}")
        netdev = _read_or_empty(read, f"gid_attrs/ndevs/{index}")
        entries.append(Gid(index=index, gid=text, kind=kind, netdev=netdev))
    return tuple(entries)


def _read_or_empty(read: Read, path: str) -> str:
    try:
        return read(path).strip()
    except OSError:
        return ""


def choose(
    table: Sequence[Gid],
    *,
    link_layer: str,
    device: str,
    forced: Optional[int] = None,
    roce_v1: bool = False,
) -> Gid:
    """The GID to use on a port.

    Raises:
        DeviceError: there is none, with what the table holds and what to do.
    """
    if forced is not None:
        return _forced(table, forced, device)
    if link_layer == "InfiniBand":
        return next((gid for gid in table if gid.index == 0), Gid(index=0, gid="::", kind=ROCE_V1))
    usable = [gid for gid in table if gid.kind == ROCE_V2 or roce_v1]
    if not usable:
        raise DeviceError(
            f"no RoCE v2 GID among {len(table)} used entries of the GID table",
            device=device,
            remedy="give the port's netdev an IP address and set it up; `rdma link` and "
            "`ibv_devinfo -v` show the table",
        )
    return min(usable, key=lambda gid: (gid.rank, gid.index))


def _forced(table: Sequence[Gid], index: int, device: str) -> Gid:
    found = next((gid for gid in table if gid.index == index), None)
    if found is None:
        raise DeviceError(
            f"GID index {index} is empty; used entries are "
            f"{', '.join(str(gid.index) for gid in table) or 'none'}",
            device=device,
            remedy="correct rdma_gid_index in the inventory, or leave it out",
        )
    return found


def warning(gid: Gid, link_layer: str) -> str:
    """Why a chosen GID deserves a look, or empty text."""
    if link_layer == "InfiniBand":
        return ""
    if gid.link_local:
        return f"GID {gid.index} ({gid.gid}) is link-local: it is not routable beyond its subnet"
    if gid.kind != ROCE_V2:
        return f"GID {gid.index} is {gid.kind}: RoCE v1 does not cross a router"
    return ""
