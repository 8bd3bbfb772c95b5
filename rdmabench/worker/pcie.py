"""PCI devices from /sys: their place in the tree, their links, and what config space allows.

The tree of directories below /sys/devices is the tree of bridges, so no symbolic link is followed.
Config space beyond its first 64 bytes is shown to root alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rdmabench.audit import Pci
from rdmabench.worker.gathering import Gathering, UnknownError
from rdmabench.worker.sysfs import Tree

DEVICES = "/sys/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_SPEED = re.compile(r"(\d+(?:\.\d+)?) GT/s")
_DEPTH = 32

# PCI Express Base Specification: capability 0x10 (7.5.3), extended capability 0x0d (7.7.8)
_CAPABILITY_POINTER = 0x34
_EXPRESS = 0x10
_DEVICE_CONTROL = 8
_RELAXED_ORDERING = 1 << 4
_EXTENDED = 0x100
_ACS = 0x0D
_ACS_CONTROL = 6
_ACS_REDIRECT = 0b1100  # peer-to-peer request and completion redirect


def is_address(text: str) -> bool:
    """`0000:1a:00.0`."""
    return _ADDRESS.fullmatch(text) is not None


@dataclass(frozen=True)
class Topology:
    """Every PCI device by address, as the directories of the bridges above it and its own."""

    paths: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, tree: Tree) -> Topology:
        """Of this node."""
        found: dict[str, tuple[str, ...]] = {}
        for root in tree.names(DEVICES):
            if _BRIDGE.fullmatch(root):
                for path in _below(tree, (root,)):
                    found[path[-1]] = path
        return cls(found)

    def directory(self, address: str) -> str:
        """Where the device's files are."""
        path = self.paths.get(address)
        return f"{DEVICES}/{'/'.join(path)}" if path else f"/sys/bus/pci/devices/{address}"


def _below(tree: Tree, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name in tree.names(f"{DEVICES}/{'/'.join(path)}"):
        if is_address(name) and len(path) < _DEPTH:
            yield (*path, name)
            yield from _below(tree, (*path, name))


def read(tree: Tree, topology: Topology, address: str) -> Pci:
    """One device."""
    base = topology.directory(address)
    path = topology.paths.get(address, ())
    made = Gathering()
    made.fields.update(address=address, path=path)
    made.add("speed_gts", lambda: speed(tree.read(f"{base}/current_link_speed")))
    made.add("max_speed_gts", lambda: speed(tree.read(f"{base}/max_link_speed")))
    made.add("width", lambda: width(tree.read(f"{base}/current_link_width")))
    made.add("max_width", lambda: width(tree.read(f"{base}/max_link_width")))
    made.add("slot_speed_gts", lambda: speed(_of_slot(tree, topology, path, "max_link_speed")))
    made.add("slot_width", lambda: width(_of_slot(tree, topology, path, "max_link_width")))
    made.add("numa_node", lambda: _numa(tree.read(f"{base}/numa_node")))
    made.add("iommu", lambda: _iommu(tree, base))
    control = made.add("relaxed_ordering", lambda: _device_control(tree, base))
    if control is None:
        for name in ("max_read_request_bytes", "max_payload_bytes"):
            made.unknown[name] = made.unknown["relaxed_ordering"]
    else:
        made.fields["relaxed_ordering"] = bool(control & _RELAXED_ORDERING)
        made.fields["max_payload_bytes"] = 128 << (control >> 5 & 7)
        made.fields["max_read_request_bytes"] = 128 << (control >> 12 & 7)
    made.add("acs_redirect", lambda: _redirecting(tree, topology, path))
    return Pci(**made.fields)


def _of_slot(tree: Tree, topology: Topology, path: tuple[str, ...], name: str) -> str:
    """A file of the bridge above a device."""
    if len(path) < 3:
        raise UnknownError("the device hangs on the root complex itself")
    return tree.read(f"{topology.directory(path[-2])}/{name}")


def speed(text: str) -> float:
    """GT/s of `16.0 GT/s PCIe`.

    Raises:
        UnknownError: "Unknown", as for virtual functions.
    """
    match = _SPEED.match(text)
    if match is None:
        raise UnknownError(f"the link speed reads {text!r}")
    return float(match[1])


def width(text: str) -> int:
    """Lanes; 0 and 255 are what the kernel says where there is no link.

    Raises:
        UnknownError: the device tells no width.
    """
    lanes = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < lanes <= 32:
        raise UnknownError(f"the link width reads {text!r}")
    return lanes


def _numa(text: str) -> int:
    node = int(text)
    if node < 0:
        raise UnknownError("the firmware names no NUMA node")
    return node


def _iommu(tree: Tree, base: str) -> str:
    if not tree.names("/sys/kernel/iommu_groups"):
        return "off"
    group = tree.link(f"{base}/iommu_group")
    if not group:
        raise UnknownError("the device is in no IOMMU group")
    return tree.read(f"/sys/kernel/iommu_groups/{group}/type")


def _config(tree: Tree, base: str, least: int) -> bytes:
    data = tree.read_bytes(f"{base}/config")
    if len(data) < least:
        raise UnknownError(f"only {len(data)} bytes of config space can be read without root")
    return data


def _device_control(tree: Tree, base: str) -> int:
    data = _config(tree, base, 256)
    offset = data[_CAPABILITY_POINTER]
    for _ in range(48):
        if not 0x40 <= offset <= len(data) - 16:
            break
        if data[offset] == _EXPRESS:
            return int.from_bytes(data[offset + _DEVICE_CONTROL :][:2], "little")
        offset = data[offset + 1]
    raise UnknownError("the device has no PCI Express capability")


def _redirecting(tree: Tree, topology: Topology, path: tuple[str, ...]) -> tuple[str, ...]:
    """Bridges above a device with ACS redirect on: peer traffic goes up to the root and back."""
    if len(path) < 2:
        raise UnknownError("the device is not in the tree of bridges")
    return tuple(
        bridge
        for bridge in path[1:-1]
        if acs_control(_config(tree, topology.directory(bridge), _EXTENDED + 4)) & _ACS_REDIRECT
    )


def acs_control(config: bytes) -> int:
    """The ACS control register of a bridge; 0 where it has none."""
    offset = _EXTENDED
    for _ in range(64):
        if not _EXTENDED <= offset <= len(config) - 8:
            break
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == _ACS:
            return int.from_bytes(config[offset + _ACS_CONTROL :][:2], "little")
        offset = header >> 20
    return 0
