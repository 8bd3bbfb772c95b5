"""Counters as programs print them: `ethtool -S`, `rdma statistic`, `grep "" hw_counters/*`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NOT_A_COUNTER = "lifespan"  # the interval of the driver's own refresh, in milliseconds
_LINK = re.compile(r"^link (?P<device>[^\s/]+)/(?P<port>\d+)(?P<rest>.*)$")


@dataclass(frozen=True)
class PortCounters:
    """The counters of one port, by the names of its driver."""

    device: str
    port: int
    values: dict[str, int]


@dataclass(frozen=True)
class PortLink:
    """A line of `rdma link`."""

    device: str
    port: int
    state: str
    physical_state: str
    netdev: str


def statistics(text: str) -> dict[str, int]:
    """`name: value` lines (`ethtool -S`), or `path:value` as grep prints files.

    What follows the last colon is the value; of a path the last component is the name. What is no
    whole number is left out.
    """
    values = {}
    for line in text.splitlines():
        name, _, value = line.strip().rpartition(":")
        name, value = name.strip().rsplit("/", 1)[-1], value.strip()
        if name and name != _NOT_A_COUNTER and value.isascii() and value.isdigit():
            values[name] = int(value)
    return values


def rdma_statistic(text: str) -> tuple[PortCounters, ...]:
    """`rdma statistic show`: names and values after `link DEVICE/PORT`, on one line or on many."""
    found: list[PortCounters] = []
    words: list[str] = []
    for line in text.splitlines():
        match = _LINK.match(line.strip())
        if match:
            found.append(PortCounters(match["device"], int(match["port"]), {}))
            words = match["rest"].split()
        else:
            words = line.split()
        if found:
            pairs = zip(words[::2], words[1::2])
            found[-1].values.update((name, int(value)) for name, value in pairs if value.isdigit())
    return tuple(found)


def rdma_links(text: str) -> tuple[PortLink, ...]:
    """`rdma link show`."""
    found = []
    for line in text.splitlines():
        match = _LINK.match(line.strip())
        if not match:
            continue
        words = match["rest"].split()
        fields = dict(zip(words[::2], words[1::2]))
        found.append(
            PortLink(
                device=match["device"],
                port=int(match["port"]),
                state=fields.get("state", ""),
                physical_state=fields.get("physical_state", ""),
                netdev=fields.get("netdev", ""),
            )
        )
    return tuple(found)
