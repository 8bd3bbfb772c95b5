"""The endpoints of a node: which ports of which NICs can take part in a fabric, and with what.

Names are never interpreted: the driver comes from the device's link, the layer from the port.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from rdmabench.errors import DeviceError, VerbsError
from rdmabench.model import Endpoint, Fabric
from rdmabench.units import parse_rate
from rdmabench.wire import ListEndpoints
from rdmabench.worker import gid as gids
from rdmabench.worker.selector import select
from rdmabench.worker.sysfs import Tree, read_int, read_or

CLASS = "/sys/class/infiniband"
_SIOCGIFADDR = 0x8915
_LINK_LAYER = {Fabric.IB: "InfiniBand", Fabric.ROCE: "Ethernet", Fabric.RXE: "Ethernet"}


@dataclass(frozen=True)
class PortAttributes:
    """What only a verbs query of the port knows."""

    active_mtu_bytes: int
    gid_table_length: int
    lid: int
    max_qp: int
    max_qp_rd_atom: int


QueryPort = Callable[[str, int], PortAttributes]
"""Asks the device itself for the attributes of one port; raises VerbsError."""


def list_endpoints(
    request: ListEndpoints, *, host: str, tree: Tree, query: QueryPort
) -> tuple[Endpoint, ...]:
    """The node's endpoints for a fabric, in rail order.

    Raises:
        DeviceError: there is none that can be used, and why.
    """
    if request.fabric is Fabric.TCP:
        return _tcp_endpoints(request, host=host, tree=tree)
    candidates = _ports(tree, request)
    if not candidates:
        raise _no_device(tree, request)
    usable = [c for c in candidates if read_state(tree, *c) == "ACTIVE"]
    if not usable:
        raise _no_active_port(tree, candidates)
    return tuple(
        _endpoint(tree, query, request, host=host, device=device, port=port, rail=rail)
        for rail, (device, port) in enumerate(usable)
    )


def driver_of(tree: Tree, device: str) -> str:
    """`mlx5_core`, `bnxt_en` ..., or `rxe` for soft-RoCE, whose device link is its netdev's."""
    if read_or(tree, f"{CLASS}/{device}/parent"):
        return "rxe"
    if read_or(tree, f"{CLASS}/{device}/node_desc").startswith("rxe"):
        return "rxe"
    return tree.link(f"{CLASS}/{device}/device/driver")


def read_state(tree: Tree, device: str, port: int) -> str:
    """`ACTIVE`, `DOWN`, `INIT` ... of `4: ACTIVE`."""
    return read_or(tree, f"{CLASS}/{device}/ports/{port}/state").split(": ")[-1]


def _ports(tree: Tree, request: ListEndpoints) -> list[tuple[str, int]]:
    """Selected ports of the fabric's link layer, whatever their state, in rail order."""
    names = [
        (device, int(port))
        for device in tree.names(CLASS)
        for port in tree.names(f"{CLASS}/{device}/ports")
        if port.isdigit()
    ]
    chosen = [item for item in select(names, request.selector) if _fits(tree, item, request.fabric)]
    return _in_rail_order(chosen, request.rail_order)


def _fits(tree: Tree, item: tuple[str, int], fabric: Fabric) -> bool:
    device, port = item
    layer = read_or(tree, f"{CLASS}/{device}/ports/{port}/link_layer")
    soft = driver_of(tree, device) == "rxe"
    return layer == _LINK_LAYER[fabric] and soft == (fabric is Fabric.RXE)


def _in_rail_order(ports: Sequence[tuple[str, int]], order: Sequence[str]) -> list[tuple[str, int]]:
    place = {name: index for index, name in enumerate(order)}
    return sorted(ports, key=lambda item: place.get(item[0], len(place)))


def _no_device(tree: Tree, request: ListEndpoints) -> DeviceError:
    present = tree.names(CLASS)
    wanted = f" that {request.selector!r} selects" if request.selector else ""
    found = f"it has {', '.join(present)}" if present else "it has no RDMA device at all"
    remedies = {
        Fabric.RXE: "`rdma link add rxe0 type rxe netdev NETDEV` (module rdma_rxe)",
        Fabric.ROCE: "load the NIC's RDMA driver (mlx5_ib, bnxt_re, irdma); for soft-RoCE use "
        "--fabric rxe",
        Fabric.IB: "load the HCA's RDMA driver (mlx5_ib) and ib_uverbs",
    }
    return DeviceError(
        f"no RDMA device for fabric {request.fabric.value}{wanted}: {found}",
        remedy=remedies[request.fabric],
    )


def _no_active_port(tree: Tree, ports: Sequence[tuple[str, int]]) -> DeviceError:
    states = ", ".join(
        f"{device} port {port} is {read_state(tree, device, port) or 'unknown'} "
        f"({read_or(tree, f'{CLASS}/{device}/ports/{port}/phys_state', '?').split(': ')[-1]})"
        for device, port in ports
    )
    return DeviceError(
        f"no active port: {states}",
        device=ports[0][0],
        remedy="check the cable and the switch port; on Ethernet `ip link set NETDEV up`, on "
        "InfiniBand that a subnet manager runs",
    )


def _endpoint(
    tree: Tree,
    query: QueryPort,
    request: ListEndpoints,
    *,
    host: str,
    device: str,
    port: int,
    rail: int,
) -> Endpoint:
    base = f"{CLASS}/{device}/ports/{port}"
    layer = read_or(tree, f"{base}/link_layer")
    attributes = query(device, port)
    table = _gid_table(tree, device, port, attributes.gid_table_length)
    gid = gids.choose(table, link_layer=layer, device=device, forced=request.gid_index)
    rate_text = read_or(tree, f"{base}/rate")
    return Endpoint(
        host=host,
        device=device,
        port=port,
        rail=rail,
        netdev=gid.netdev,
        address=_ip_of(gid),
        link_layer=layer,
        state=read_state(tree, device, port),
        rate_text=rate_text,
        rate_gbit_s=data_rate(rate_text, layer),
        active_mtu_bytes=attributes.active_mtu_bytes,
        gid_index=gid.index,
        gid=gid.gid,
        gid_type=gid.kind,
        lid=attributes.lid,
        driver=driver_of(tree, device),
        firmware=read_or(tree, f"{CLASS}/{device}/fw_ver"),
        board=read_or(tree, f"{CLASS}/{device}/board_id"),
        numa_node=read_int(tree, f"{CLASS}/{device}/device/numa_node", -1),
        max_qp=attributes.max_qp,
        max_qp_rd_atom=attributes.max_qp_rd_atom,
    )


def _gid_table(tree: Tree, device: str, port: int, length: int) -> tuple[gids.Gid, ...]:
    base = f"{CLASS}/{device}/ports/{port}"
    return gids.read_table(lambda path: tree.read(f"{base}/{path}"), length)


def data_rate(rate_text: str, link_layer: str) -> float:
    """The port's data rate in Gb/s, 0.0 where its text cannot be read."""
    try:
        return parse_rate(rate_text).data_gbit_s(link_layer)
    except ValueError:
        return 0.0


def _ip_of(gid: gids.Gid) -> str:
    return str(gid.ipv4) if gid.ipv4 else ""


def _tcp_endpoints(request: ListEndpoints, *, host: str, tree: Tree) -> tuple[Endpoint, ...]:
    netdevs = [request.netdev] if request.netdev else _rdma_netdevs(tree, request)
    if not netdevs:
        up = [n for n in tree.names("/sys/class/net") if n != "lo" and _is_up(tree, n)]
        raise DeviceError(
            f"no RDMA device names a data network, and rdma_tcp_netdev is not set; netdevs that "
            f"are up: {', '.join(up) or 'none'}",
            remedy="set rdma_tcp_netdev for this host in the inventory",
        )
    return tuple(
        _tcp_endpoint(tree, host=host, netdev=netdev, rail=rail)
        for rail, netdev in enumerate(netdevs)
    )


def _rdma_netdevs(tree: Tree, request: ListEndpoints) -> list[str]:
    """The netdevs under the Ethernet ports: the same wire that RoCE uses."""
    found: list[str] = []
    ports = [
        (device, int(port))
        for device in tree.names(CLASS)
        for port in tree.names(f"{CLASS}/{device}/ports")
        if port.isdigit()
    ]
    for device, port in _in_rail_order(select(ports, request.selector), request.rail_order):
        table = _gid_table(tree, device, port, 16)
        name = next((gid.netdev for gid in sorted(table, key=lambda g: g.rank) if gid.netdev), "")
        if name and name not in found:
            found.append(name)
    return found


def _is_up(tree: Tree, netdev: str) -> bool:
    return read_or(tree, f"/sys/class/net/{netdev}/operstate") in ("up", "unknown")


def _tcp_endpoint(tree: Tree, *, host: str, netdev: str, rail: int) -> Endpoint:
    if netdev not in tree.names("/sys/class/net"):
        raise DeviceError(
            "there is no such netdev",
            device=netdev,
            remedy="correct rdma_tcp_netdev in the inventory (`ip -br link` lists them)",
        )
    if not _is_up(tree, netdev):
        raise DeviceError(
            f"the netdev is {read_or(tree, f'/sys/class/net/{netdev}/operstate') or 'not up'}",
            device=netdev,
            remedy=f"ip link set {netdev} up",
        )
    speed = read_int(tree, f"/sys/class/net/{netdev}/speed", 0)
    return Endpoint(
        host=host,
        device=netdev,
        rail=rail,
        netdev=netdev,
        address=ipv4_of(netdev),
        link_layer="Ethernet",
        state="ACTIVE",
        rate_text=f"{speed} Mb/s" if speed > 0 else "",
        rate_gbit_s=max(speed, 0) / 1000,
        active_mtu_bytes=read_int(tree, f"/sys/class/net/{netdev}/mtu", 0),
        driver=tree.link(f"/sys/class/net/{netdev}/device/driver"),
        numa_node=read_int(tree, f"/sys/class/net/{netdev}/device/numa_node", -1),
    )


def ipv4_of(netdev: str) -> str:
    """The netdev's first IPv4 address.

    Raises:
        DeviceError: it has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", netdev.encode()[:15])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as exc:
            raise DeviceError(
                f"the netdev has no IPv4 address ({exc.strerror})",
                device=netdev,
                remedy=f"ip address add ADDRESS/PREFIX dev {netdev}",
            ) from exc
    return socket.inet_ntoa(answer[20:24])


def no_verbs(_device: str, _port: int) -> PortAttributes:
    """The query of a node without pyverbs."""
    raise missing_pyverbs()


def missing_pyverbs(detail: Optional[str] = None) -> VerbsError:
    """pyverbs does not import on this node."""
    return VerbsError(
        "pyverbs is missing for this Python" + (f" ({detail})" if detail else ""),
        remedy="install the distribution's package (Debian, Ubuntu: python3-pyverbs; RHEL, Rocky: "
        "python3-pyverbs; SUSE: python3-pyverbs) and point ansible_python_interpreter at the "
        "distribution's /usr/bin/python3",
    )
