"""The vocabulary of preflight: what a node is made of, and what is found wrong with it.

In every section None means unknown, and `unknown` holds the reason under the field's name: what
could not be read is never given a default. Standard library only, Python 3.9: pushed to nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Optional

from rdmabench.model import Fabric


class Severity(str, Enum):
    """An error makes measuring pointless or impossible; a warning costs performance."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Section:
    """A part of an audit; `unknown` maps a field (or `counters/NAME`) to why it is not known."""

    unknown: Mapping[str, str] = field(default_factory=dict)

    def why(self, name: str) -> str:
        """Why a field has no value."""
        return self.unknown.get(name, "it was not read")


@dataclass(frozen=True)
class Machine(Section):
    """The node without its NICs. `memlock_bytes` -1: unlimited."""

    product: Optional[str] = None
    machine: Optional[str] = None
    virtual: Optional[bool] = None
    system: Optional[str] = None  # of /etc/os-release
    kernel: Optional[str] = None
    cmdline: Optional[str] = None
    python: Optional[str] = None
    pyverbs: Optional[str] = None
    rdma_core: Optional[str] = None
    ofed: Optional[str] = None  # "inbox" where the kernel's own driver runs
    cpu_model: Optional[str] = None
    cpu_count: Optional[int] = None
    numa_nodes: Optional[int] = None
    numa_balancing: Optional[bool] = None
    smt: Optional[str] = None
    governor: Optional[str] = None  # several, where the CPUs differ: "performance,powersave"
    memory_kib: Optional[int] = None
    hugepages: Optional[str] = None  # "0 x 2048 kB"
    memlock_bytes: Optional[int] = None
    open_files: Optional[int] = None  # -1: unlimited
    default_netdevs: Optional[tuple[str, ...]] = None
    modules: Optional[tuple[str, ...]] = None  # those of RDMA and GPUs that are loaded
    rxe_module: Optional[str] = None  # loaded | available | absent
    rxe_method: Optional[str] = None  # how a soft-RoCE device can be made here; "": not at all
    gpu_direct: Optional[str] = None  # nvidia_peermem | nv_peer_mem | dma-buf | amdgpu | none
    tools: Optional[tuple[str, ...]] = None  # those that this audit would use and found


@dataclass(frozen=True)
class Pci(Section):
    """A PCI device and its way up to the root: `path` runs from the host bridge to the device."""

    address: str = ""
    path: tuple[str, ...] = ()
    speed_gts: Optional[float] = None
    max_speed_gts: Optional[float] = None
    width: Optional[int] = None
    max_width: Optional[int] = None
    slot_speed_gts: Optional[float] = None  # what the bridge above it can do
    slot_width: Optional[int] = None
    numa_node: Optional[int] = None
    iommu: Optional[str] = None  # off | identity | DMA | DMA-FQ
    relaxed_ordering: Optional[bool] = None
    max_read_request_bytes: Optional[int] = None
    max_payload_bytes: Optional[int] = None
    acs_redirect: Optional[tuple[str, ...]] = None  # bridges that send peer traffic to the root


@dataclass(frozen=True)
class GidEntry:
    """One used entry of a GID table."""

    index: int
    gid: str
    kind: str
    netdev: str = ""


@dataclass(frozen=True)
class Port(Section):
    """One port of an RDMA device; `rail` is its place among those of the fabric, -1 outside."""

    number: int = 1
    rail: int = -1
    state: Optional[str] = None
    phys_state: Optional[str] = None
    link_layer: Optional[str] = None
    rate_text: Optional[str] = None
    rate_gbit_s: Optional[float] = None
    lanes: Optional[int] = None
    active_mtu_bytes: Optional[int] = None
    max_mtu_bytes: Optional[int] = None
    lid: Optional[int] = None
    sm_lid: Optional[int] = None
    gids: Optional[tuple[GidEntry, ...]] = None
    gid_index: Optional[int] = None  # the one that a sweep would use, or the best of RoCE v1
    netdev: Optional[str] = None
    traffic_class: Optional[int] = None
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def gid(self) -> Optional[GidEntry]:
        """The chosen entry."""
        return next((g for g in self.gids or () if g.index == self.gid_index), None)

    @property
    def active(self) -> bool:
        """Whether it can carry traffic; the LID and rate of a port that is not are stale."""
        return self.state == "ACTIVE"


@dataclass(frozen=True)
class Device(Section):
    """One RDMA device."""

    name: str = ""
    driver: Optional[str] = None  # rxe for soft-RoCE
    vendor: Optional[str] = None
    part: Optional[str] = None
    firmware: Optional[str] = None
    board: Optional[str] = None
    node_guid: Optional[str] = None
    system_guid: Optional[str] = None
    pci: Optional[Pci] = None
    ports: tuple[Port, ...] = ()

    @property
    def soft(self) -> bool:
        """Whether the CPU does the NIC's work."""
        return self.driver in ("rxe", "siw")


@dataclass(frozen=True)
class Netdev(Section):
    """The Ethernet interface under an RDMA port; priorities are 0 to 7."""

    name: str = ""
    mtu_bytes: Optional[int] = None
    state: Optional[str] = None
    driver: Optional[str] = None
    speed_mbit_s: Optional[int] = None
    max_speed_mbit_s: Optional[int] = None
    vlan: Optional[str] = None  # "100 on eth0"; "" for none
    bond: Optional[str] = None  # "802.3ad: eth0 eth1"; "" for none
    pause_rx: Optional[bool] = None
    pause_tx: Optional[bool] = None
    pfc: Optional[tuple[int, ...]] = None
    trust: Optional[str] = None  # pcp | dscp
    ets: Optional[str] = None
    ecn_np: Optional[tuple[int, ...]] = None  # priorities whose marked packets are answered
    ecn_rp: Optional[tuple[int, ...]] = None  # priorities that slow down when told to
    leaf: Optional[str] = None  # the switch and port that LLDP tells of
    leaf_port: Optional[str] = None
    counters: Mapping[str, int] = field(default_factory=dict)  # of `ethtool -S`, since boot


@dataclass(frozen=True)
class Gpu(Section):
    """One GPU, in the order of PCI addresses."""

    index: int = 0
    name: Optional[str] = None
    driver: Optional[str] = None
    version: Optional[str] = None
    pci: Optional[Pci] = None


@dataclass(frozen=True)
class Audit(Section):
    """Everything preflight knows of one node."""

    host: str = ""
    fabric: Fabric = Fabric.ROCE
    selector: str = ""
    forced_gid_index: Optional[int] = None
    machine: Machine = field(default_factory=Machine)
    devices: tuple[Device, ...] = ()
    netdevs: tuple[Netdev, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()  # what the selector means besides what it seems to

    @cached_property
    def rails(self) -> tuple[tuple[Device, Port], ...]:
        """The ports of the fabric, in rail order, whatever their state."""
        chosen = [(d, p) for d in self.devices for p in d.ports if p.rail >= 0]
        return tuple(sorted(chosen, key=lambda item: item[1].rail))

    def netdev(self, name: Optional[str]) -> Optional[Netdev]:
        """The netdev of that name, if it was looked at."""
        return self._netdevs.get(name or "")

    @cached_property
    def _netdevs(self) -> Mapping[str, Netdev]:
        return {netdev.name: netdev for netdev in self.netdevs}


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be; `device` is empty where the whole node is meant."""

    id: str
    severity: Severity
    host: str
    seen: str
    expected: str
    why: str
    remedy: str
    device: str = ""
