"""A node's audit: every part read by itself, so that what is missing hides nothing else.

Ports of the asked-for fabric are marked with the rail that a sweep would give them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rdmabench.audit import Audit, Device, GidEntry, Port
from rdmabench.errors import DeviceError, VerbsError
from rdmabench.model import Fabric
from rdmabench.units import parse_rate
from rdmabench.wire import ListEndpoints
from rdmabench.worker import gid as gids
from rdmabench.worker import gpus, machine, netdevs, pcie
from rdmabench.worker.device import CLASS, QueryPort, driver_of, read_state
from rdmabench.worker.gathering import Gathering, UnknownError
from rdmabench.worker.pcie import Topology
from rdmabench.worker.selector import select, surprises
from rdmabench.worker.sysfs import Tree, read_or
from rdmabench.worker.tools import Tools

_LAYERS = {Fabric.IB: "InfiniBand", Fabric.ROCE: "Ethernet", Fabric.RXE: "Ethernet"}
_TOS = "/sys/kernel/config/rdma_cm"


@dataclass(frozen=True)
class Sources:
    """Where facts come from."""

    tree: Tree
    tools: Tools
    query: QueryPort
    pyverbs_problem: str = ""


def gather(request: ListEndpoints, sources: Sources, *, host: str) -> Audit:
    """The audit of this node."""
    tree, tools = sources.tree, sources.tools
    topology = Topology.read(tree)
    ports = [
        (name, int(port))
        for name in tree.names(CLASS)
        for port in tree.names(f"{CLASS}/{name}/ports")
        if port.isdigit()
    ]
    rails = _rails(tree, request, ports)
    devices = tuple(
        _device(sources, topology, request, name, rails) for name in _natural(tree.names(CLASS))
    )
    return Audit(
        host=host,
        fabric=request.fabric,
        selector=request.selector,
        forced_gid_index=request.gid_index,
        machine=machine.read(tree, tools, pyverbs_problem=sources.pyverbs_problem),
        devices=devices,
        netdevs=tuple(netdevs.read(tree, tools, name) for name in _names(tree, devices, request)),
        gpus=gpus.read(tree, tools, topology),
        notes=surprises([name for name, _ in ports], request.selector),
    )


def _rails(
    tree: Tree, request: ListEndpoints, ports: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """The ports of the fabric, up or down, each with its place."""
    if request.fabric is Fabric.TCP:
        return {}
    soft = request.fabric is Fabric.RXE
    chosen = [
        (device, port)
        for device, port in select(ports, request.selector)
        if read_or(tree, f"{CLASS}/{device}/ports/{port}/link_layer") == _LAYERS[request.fabric]
        and (driver_of(tree, device) == "rxe") == soft
    ]
    place = {name: index for index, name in enumerate(request.rail_order)}
    chosen.sort(key=lambda item: place.get(item[0], len(place)))
    return {item: rail for rail, item in enumerate(chosen)}


def _natural(names: Iterable[str]) -> list[str]:
    return [name for name, _ in select([(name, 1) for name in names], "")]


def _names(tree: Tree, devices: Sequence[Device], request: ListEndpoints) -> list[str]:
    """The interfaces under the RDMA ports and under those, the asked-for one first."""
    found = [request.netdev] if request.netdev else []
    found += [p.netdev for d in devices for p in d.ports if p.netdev]
    for name in list(found):
        found += netdevs.lower(tree, name)
    present = set(tree.names(netdevs.NET))
    return [name for name in dict.fromkeys(found) if name in present]


def _device(
    sources: Sources,
    topology: Topology,
    request: ListEndpoints,
    name: str,
    rails: dict[tuple[str, int], int],
) -> Device:
    tree, base = sources.tree, f"{CLASS}/{name}"
    made = Gathering()
    made.fields["name"] = name
    driver = made.add("driver", lambda: _said(driver_of(tree, name), "the device has no driver"))
    made.add("firmware", lambda: _said(tree.read(f"{base}/fw_ver"), "it is empty"))
    made.add("board", lambda: _said(tree.read(f"{base}/board_id"), "it is empty"))
    made.add("node_guid", lambda: tree.read(f"{base}/node_guid"))
    made.add("system_guid", lambda: tree.read(f"{base}/sys_image_guid"))
    made.add("vendor", lambda: tree.read(f"{base}/device/vendor"))
    made.add("part", lambda: tree.read(f"{base}/device/device"))
    made.add("pci", lambda: pcie.read(tree, topology, _address(tree, name, driver or "")))
    made.fields["ports"] = tuple(
        _port(sources, request, name, int(port), rails.get((name, int(port)), -1))
        for port in tree.names(f"{base}/ports")
        if port.isdigit()
    )
    return Device(**made.fields)


def _said(text: str, otherwise: str) -> str:
    if not text:
        raise UnknownError(otherwise)
    return text


def _address(tree: Tree, name: str, driver: str) -> str:
    address = tree.link(f"{CLASS}/{name}/device")
    if driver == "rxe":
        raise UnknownError("soft-RoCE has no PCI device of its own")
    if not pcie.is_address(address):
        raise UnknownError(f"the device hangs on {address or 'nothing'}, which is not PCI")
    return address


def _port(sources: Sources, request: ListEndpoints, name: str, number: int, rail: int) -> Port:
    tree, base = sources.tree, f"{CLASS}/{name}/ports/{number}"
    made = Gathering()
    made.fields.update(number=number, rail=rail)
    made.add("state", lambda: _said(read_state(tree, name, number), "the port tells no state"))
    made.add("phys_state", lambda: tree.read(f"{base}/phys_state").split(": ")[-1])
    layer = made.add("link_layer", lambda: tree.read(f"{base}/link_layer"))
    text = made.add("rate_text", lambda: tree.read(f"{base}/rate"))
    made.add("rate_gbit_s", lambda: parse_rate(text or "").data_gbit_s(layer or ""))
    made.add("lanes", lambda: _lanes(text or ""))
    made.add("lid", lambda: int(tree.read(f"{base}/lid"), 0))
    made.add("sm_lid", lambda: int(tree.read(f"{base}/sm_lid"), 0))
    made.add("active_mtu_bytes", lambda: _active_mtu(sources, name, number))
    made.add("max_mtu_bytes", lambda: _devinfo_mtu(sources.tools, name, number, "max_mtu"))
    table = made.add("gids", lambda: _gids(tree, base)) or ()
    made.add("gid_index", lambda: _gid_index(table, request, layer or "", name))
    made.add("netdev", lambda: _netdev(tree, base, name, table, made.fields.get("gid_index")))
    made.add("traffic_class", lambda: _traffic_class(tree, name, number))
    made.fields["counters"] = _counters(tree, base, made)
    return Port(**made.fields)


def _lanes(rate: str) -> int:
    width = parse_rate(rate).width
    if not width:
        raise UnknownError(f"the rate {rate!r} names no lanes")
    return width


def _active_mtu(sources: Sources, name: str, number: int) -> int:
    try:
        mtu = sources.query(name, number).active_mtu_bytes
    except VerbsError:
        return _devinfo_mtu(sources.tools, name, number, "active_mtu")
    if not mtu:
        raise UnknownError("the device tells no active MTU")
    return mtu


def _devinfo_mtu(tools: Tools, name: str, number: int, wanted: str) -> int:
    text = tools.run("ibv_devinfo", "-d", name, "-i", str(number))
    return devinfo_number(text, wanted)


def devinfo_number(text: str, wanted: str) -> int:
    """`4096` of `active_mtu: 4096 (5)` in what ibv_devinfo prints of one port.

    Raises:
        UnknownError: it prints no such line.
    """
    match = re.search(rf"^\s*{wanted}:\s*(\d+)", text, re.MULTILINE)
    if match is None:
        raise UnknownError(f"`ibv_devinfo` prints no {wanted}")
    return int(match[1])


def _gids(tree: Tree, base: str) -> tuple[GidEntry, ...]:
    length = len(tree.names(f"{base}/gids"))
    table = gids.read_table(lambda path: tree.read(f"{base}/{path}"), length)
    return tuple(GidEntry(index=g.index, gid=g.gid, kind=g.kind, netdev=g.netdev) for g in table)


def _gid_index(table: Sequence[GidEntry], request: ListEndpoints, layer: str, device: str) -> int:
    """As a sweep chooses it; where that finds none, the best of RoCE v1."""
    entries = [gids.Gid(index=g.index, gid=g.gid, kind=g.kind, netdev=g.netdev) for g in table]
    try:
        forced = request.gid_index
        return gids.choose(entries, link_layer=layer, device=device, forced=forced).index
    except DeviceError as exc:
        if request.gid_index is not None:
            raise UnknownError(exc.what) from exc
    try:
        return min(entries, key=lambda g: (g.ipv4 is None, g.link_local, g.index)).index
    except ValueError as exc:
        raise UnknownError("the GID table has no used entry") from exc


def _netdev(tree: Tree, base: str, device: str, table: Sequence[GidEntry], index: object) -> str:
    ordered = sorted(table, key=lambda g: g.index != index)
    for entry in ordered:
        if entry.netdev:
            return entry.netdev
    shown = [
        read_or(tree, f"{base}/gid_attrs/ndevs/0"),
        read_or(tree, f"{CLASS}/{device}/parent"),
        *tree.names(f"{CLASS}/{device}/device/net"),
    ]
    return _said(next(filter(None, shown), ""), "no GID names a netdev")


def _traffic_class(tree: Tree, device: str, number: int) -> int:
    text = read_or(tree, f"{CLASS}/{device}/tc/{number}/traffic_class")
    match = re.search(r"(\d+)", text)
    if match:
        return int(match[1])
    return int(tree.read(f"{_TOS}/{device}/ports/{number}/default_roce_tos"), 0)


def _counters(tree: Tree, base: str, made: Gathering) -> dict[str, int]:
    """Those of the port; one that is no number ("N/A (no PMA)") leaves its text as the reason."""
    values = {}
    for group in ("counters", "hw_counters"):
        for name in tree.names(f"{base}/{group}"):
            if name == "lifespan":
                continue
            key = f"{group}/{name}"
            try:
                text = tree.read(f"{base}/{key}")
            except OSError as exc:
                made.unknown[key] = exc.strerror or "it cannot be read"
                continue
            if text.isascii() and text.isdigit():
                values[key] = int(text)
            else:
                made.unknown[key] = text[:80] or "it is empty"
    return values
