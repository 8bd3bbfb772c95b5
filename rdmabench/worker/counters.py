"""Counters of a port and of its netdev, as the kernel keeps them.

A counter that cannot be read, or is not a number ("N/A (no PMA)"), is left out, never zero.
"""

from __future__ import annotations

from rdmabench.model import CounterSet, Endpoint
from rdmabench.worker.device import CLASS
from rdmabench.worker.sysfs import Tree

_NETDEV = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_dropped", "tx_dropped")
_NETDEV_MORE = ("rx_errors", "tx_errors")


def read(tree: Tree, endpoint: Endpoint) -> CounterSet:
    """`hw_counters/NAME` and `counters/NAME` of the port, `netdev/NAME` of its netdev.

    For a TCP endpoint every RDMA port's as `rdma/DEVICE/PORT/...`: they must stand still.
    """
    values: dict[str, int] = {}
    rdma = endpoint.device in tree.names(CLASS)
    if rdma:
        values.update(_port_counters(tree, endpoint.device, endpoint.port))
    else:
        values.update(_all_ports(tree))
    if endpoint.netdev:
        values.update(_netdev_counters(tree, endpoint.netdev))
    return CounterSet(values=values)


def _port_counters(tree: Tree, device: str, port: int) -> dict[str, int]:
    values: dict[str, int] = {}
    for group in ("hw_counters", "counters"):
        base = f"{CLASS}/{device}/ports/{port}/{group}"
        for name in tree.names(base):
            if name == "lifespan":
                continue
            _put(values, tree, f"{group}/{name}", f"{base}/{name}")
    return values


def _all_ports(tree: Tree) -> dict[str, int]:
    """Every RDMA port's counters under its name, for the ends that must not use them."""
    return {
        f"rdma/{device}/{port}/{name}": value
        for device in tree.names(CLASS)
        for port in tree.names(f"{CLASS}/{device}/ports")
        for name, value in _port_counters(tree, device, int(port)).items()
    }


def _netdev_counters(tree: Tree, netdev: str) -> dict[str, int]:
    values: dict[str, int] = {}
    for name in _NETDEV + _NETDEV_MORE:
        _put(values, tree, f"netdev/{name}", f"/sys/class/net/{netdev}/statistics/{name}")
    return values


def _put(values: dict[str, int], tree: Tree, key: str, path: str) -> None:
    try:
        values[key] = int(tree.read(path))
    except (OSError, ValueError):
        return
