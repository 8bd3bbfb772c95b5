"""How near GPUs and NICs are to each other, and the map of rails that follows from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from rdmabench.audit import Audit, Gpu, Pci

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class Distance(IntEnum):
    """What lies between two PCI devices; smaller is nearer."""

    SWITCH = 0
    BRIDGE = 1  # one host bridge
    NUMA = 2  # one NUMA node, two host bridges
    SOCKETS = 3
    UNKNOWN = 4


@dataclass(frozen=True)
class Rail:
    """One rail of a node: the NIC, where it is, and the GPUs for which no other NIC is nearer."""

    rail: int
    device: str
    port: int
    numa_node: int | None
    gpus: tuple[int, ...]

    @property
    def place(self) -> str:
        """Without names, so that it can be compared between nodes."""
        numa = "?" if self.numa_node is None else str(self.numa_node)
        return f"rail {self.rail}: NUMA {numa}, GPU {','.join(map(str, self.gpus)) or '-'}"


def distance(one: Pci | None, other: Pci | None) -> Distance:
    """Between two devices; the directories of /sys name the bridges above each."""
    if one is None or other is None or not one.path or not other.path:
        return Distance.UNKNOWN
    shared = [a for a, b in zip(one.path[:-1], other.path[:-1], strict=False) if a == b]
    if any(_ADDRESS.fullmatch(name) for name in shared):
        return Distance.SWITCH
    if shared:
        return Distance.BRIDGE
    if one.numa_node is None or other.numa_node is None:
        return Distance.UNKNOWN
    return Distance.NUMA if one.numa_node == other.numa_node else Distance.SOCKETS


def nearest(gpu: Gpu, audit: Audit) -> Distance:
    """How far a GPU is from the nearest NIC of the fabric."""
    return min(
        (distance(gpu.pci, device.pci) for device, _ in audit.rails), default=Distance.UNKNOWN
    )


def rail_map(audit: Audit) -> tuple[Rail, ...]:
    """The rails of a node, in order."""
    near = {gpu.index: _nearest_devices(gpu, audit) for gpu in audit.gpus}
    return tuple(
        Rail(
            rail=port.rail,
            device=device.name,
            port=port.number,
            numa_node=device.pci.numa_node if device.pci else None,
            gpus=tuple(gpu for gpu, names in near.items() if device.name in names),
        )
        for device, port in audit.rails
    )


def _nearest_devices(gpu: Gpu, audit: Audit) -> frozenset[str]:
    """The NICs of the fabric than which none is nearer; none where distances are not known."""
    found = {device.name: distance(gpu.pci, device.pci) for device, _ in audit.rails}
    least = min(found.values(), default=Distance.UNKNOWN)
    if least is Distance.UNKNOWN:
        return frozenset()
    return frozenset(name for name, each in found.items() if each == least)


def pairs(one: Audit, other: Audit) -> tuple[tuple[str, str], ...]:
    """The devices of two nodes rail by rail: by place, never by name."""
    return tuple(
        (f"{one.host}/{a.name}", f"{other.host}/{b.name}")
        for (a, _), (b, _) in zip(one.rails, other.rails, strict=False)
    )


def in_pci_order(audit: Audit) -> bool:
    """Whether the rails follow the PCI addresses of their devices."""
    addresses = [d.pci.address for d, _ in audit.rails if d.pci is not None]
    return addresses == sorted(addresses)
