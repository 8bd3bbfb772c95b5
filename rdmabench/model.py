"""The vocabulary: what every room says about hosts, endpoints, cases and results.

Frozen dataclasses, built by keyword. Standard library only, Python 3.9: this module is pushed to
nodes, and `wire.py` turns its values into JSON and back (so annotations avoid `X | None`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional


class Fabric(str, Enum):
    """Which endpoints take part, and what counts as evidence."""

    IB = "ib"
    ROCE = "roce"
    TCP = "tcp"
    RXE = "rxe"


class Role(str, Enum):
    """The two ends of a pair: the initiator times, the responder answers."""

    INITIATOR = "initiator"
    RESPONDER = "responder"


class Outcome(str, Enum):
    """How a case ended; every missing number has one of these and a reason."""

    MEASURED = "measured"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"
    FAILED = "failed"


class Evidence(str, Enum):
    """Whether counters prove that the bytes went over the asked-for fabric."""

    PROVED = "proved"
    FALLBACK = "fallback"
    ABSENT = "absent"


@dataclass(frozen=True)
class Host:
    """One node of the inventory; empty text and port 0 mean "as ~/.ssh/config says"."""

    name: str
    address: str
    port: int = 0
    user: str = ""
    python: str = "/usr/bin/python3"
    identity_file: str = ""
    ssh_args: tuple[str, ...] = ()
    rdma_devices: str = ""  # NCCL_IB_HCA syntax: prefix, =exact, ^exclude, :port
    gid_index: Optional[int] = None
    rail_order: tuple[str, ...] = ()
    silence_limit_s: float = 60.0  # a worker that hears nothing for so long ends itself
    tcp_netdev: str = ""  # the data network of --fabric tcp; empty: the RDMA device's netdev
    torch_python: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    rack: str = ""


@dataclass(frozen=True)
class Endpoint:
    """One port of one NIC of one host, as found on the node.

    `rate_gbit_s` is the data rate after line encoding, 0.0 where the node does not know it.
    For TCP `device` is the netdev and `address` its IP.
    """

    host: str
    device: str
    port: int = 1
    rail: int = 0
    netdev: str = ""
    address: str = ""
    link_layer: str = ""  # InfiniBand | Ethernet
    state: str = ""  # ACTIVE, DOWN, ...
    rate_text: str = ""
    rate_gbit_s: float = 0.0
    active_mtu_bytes: int = 0
    gid_index: int = -1
    gid: str = ""
    gid_type: str = ""  # IB/RoCE v1 | RoCE v2
    lid: int = 0
    driver: str = ""  # rxe, mlx5_core ...
    firmware: str = ""
    board: str = ""
    numa_node: int = -1
    max_qp: int = 0
    max_qp_rd_atom: int = 0

    @property
    def label(self) -> str:
        """`node1/rxe0`, or `node1/mlx5_0:2` on a second port."""
        port = "" if self.port == 1 else f":{self.port}"
        return f"{self.host}/{self.device}{port}"


@dataclass(frozen=True)
class EndpointRef:
    """An endpoint by name: enough to find it again when a run is resumed."""

    host: str
    device: str
    port: int = 1
    rail: int = 0

    @property
    def label(self) -> str:
        """As `Endpoint.label`."""
        port = "" if self.port == 1 else f":{self.port}"
        return f"{self.host}/{self.device}{port}"


@dataclass(frozen=True)
class Parameters:
    """Everything that fixes one measurement, apart from who takes part in it."""

    probe: str  # latency | bandwidth
    op: str  # send | write | read
    size_bytes: int
    iterations: int
    warmup: int = 0
    transport: str = "RC"  # RC | TCP
    qps: int = 1  # TCP: streams
    depth: int = 1
    cq_moderation: int = 1
    inline_bytes: int = 0
    completion: str = "poll"  # poll | event
    direction: str = "one-way"
    loop: str = "closed"
    memory: str = "host"
    engine: str = "hotloop"  # hotloop | pyverbs
    deadline_s: float = 30.0

    def __post_init__(self) -> None:
        positive = {
            "size_bytes": self.size_bytes,
            "iterations": self.iterations,
            "qps": self.qps,
            "depth": self.depth,
            "cq_moderation": self.cq_moderation,
        }
        for name, value in positive.items():
            if value < 1:
                raise ValueError(f"{name} is {value}, and must be at least 1")
        if self.cq_moderation > self.depth:
            raise ValueError(
                f"cq_moderation {self.cq_moderation} is above depth {self.depth}: the queue "
                "would fill before a completion is asked for"
            )

    @property
    def what(self) -> str:
        """The name used in tables and benchmarks: `send_lat/2/1`, `write_bw/65536/4`."""
        kind = "lat" if self.probe == "latency" else "bw"
        return f"{self.op}_{kind}/{self.size_bytes}/{self.qps}"

    @property
    def digest(self) -> str:
        """Eight hex digits over every parameter: cases of unequal parameters never share an id."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class LinkParameters:
    """How a pair is connected; it stays connected for all cases of the pair.

    `timeout` and `retry_cnt` are the RC attributes of the InfiniBand specification: a request is
    repeated after 4.096 us * 2^timeout. `retry_cnt` 7 is refused: soft-RoCE then retries for ever,
    so a dead peer is never reported.
    """

    qps: int = 1
    depth: int = 128
    recv_depth: int = 256
    buffer_bytes: int = 4096  # of the send half and of the receive half, each
    inline_bytes: int = 0
    mtu_bytes: int = 0  # 0: the smaller active MTU of the two ends
    traffic_class: int = 0
    service_level: int = 0
    timeout: int = 18
    retry_cnt: int = 6
    rnr_retry: int = 7
    min_rnr_timer: int = 12
    memory: str = "host"

    def __post_init__(self) -> None:
        if not 0 <= self.retry_cnt <= 6:
            raise ValueError(
                f"retry_cnt is {self.retry_cnt}, and must be 0 to 6: with 7 a soft-RoCE device "
                "retries for ever and a dead peer is never noticed"
            )
        if not 0 <= self.timeout <= 31:
            raise ValueError(f"timeout is {self.timeout}, and must be 0 to 31")
        if not 0 <= self.traffic_class <= 255:
            raise ValueError(f"traffic_class is {self.traffic_class}, and must be 0 to 255")
        if self.mtu_bytes not in (0, 256, 512, 1024, 2048, 4096):
            raise ValueError(
                f"mtu_bytes is {self.mtu_bytes}: RDMA knows 256, 512, 1024, 2048 and 4096"
            )


@dataclass(frozen=True)
class LinkAddress:
    """What the other end must know to connect: travels over the control connection."""

    qpns: tuple[int, ...] = ()
    psns: tuple[int, ...] = ()
    gid: str = ""
    gid_index: int = -1
    lid: int = 0
    mtu_bytes: int = 0
    buffer_address: int = 0
    rkey: int = 0
    max_rd_atomic: int = 1
    tcp_address: str = ""
    tcp_port: int = 0
    tcp_token: str = ""


@dataclass(frozen=True)
class Case:
    """One measurement to make: who, what, which repeat."""

    initiator: EndpointRef
    responder: EndpointRef
    parameters: Parameters
    repeat: int = 0
    round: int = 0

    @property
    def id(self) -> str:
        """Unique within a run, and the same again when the run is resumed."""
        return (
            f"{self.parameters.what} {self.initiator.label}>{self.responder.label} "
            f"r{self.repeat} {self.parameters.digest}"
        )


@dataclass(frozen=True)
class Samples:
    """Where the timed iterations of one case lie: little-endian u64 nanoseconds.

    `kind` is `rtt` (ping-pong: latency is half of it) or `completion` (post to completion).
    On the wire `path` is the node's file; in the journal it is relative to the run's directory.
    """

    path: str
    count: int
    kind: str
    sha256: str


@dataclass(frozen=True)
class CounterSet:
    """NIC and netdev counters at one moment: `hw_counters/sent_pkts`, `netdev/tx_bytes` ..."""

    values: Mapping[str, int] = field(default_factory=dict)

    def delta(self, later: CounterSet) -> dict[str, int]:
        """What moved between this set and a later one; counters absent from either are left out."""
        return {
            name: later.values[name] - value
            for name, value in self.values.items()
            if name in later.values and later.values[name] != value
        }


@dataclass(frozen=True)
class SideReport:
    """What one end measured in one case.

    `elapsed_ns` runs from the first post to the last completion; `message_count` and
    `payload_bytes` are what this end completed in it. `cpu_ns` is this process's user and system
    time in `wall_ns`.
    """

    host: str
    role: Role
    elapsed_ns: int
    message_count: int
    payload_bytes: int
    cpu_ns: int
    wall_ns: int
    payload_bytes_per_qp: tuple[int, ...] = ()
    clock: str = ""  # tsc | cntvct | monotonic_raw
    clock_cost_ns: float = 0.0
    inline_bytes: int = 0
    checked_bytes: int = 0
    samples: Optional[Samples] = None
    counters_before: CounterSet = field(default_factory=CounterSet)
    counters_after: CounterSet = field(default_factory=CounterSet)


@dataclass(frozen=True)
class LinkFacts:
    """The conditions of a link that its rows must carry."""

    mtu_bytes: int = 0
    traffic_class: int = 0
    initiator_gid_index: int = -1
    responder_gid_index: int = -1
    gid_type: str = ""
    timeout: int = 0
    retry_cnt: int = 0


@dataclass(frozen=True)
class Record:
    """One finished case: its outcome, what both ends measured, and the proof of the path."""

    case: Case
    outcome: Outcome
    reason: str = ""
    started_at: str = ""  # ISO 8601, UTC
    link: LinkFacts = field(default_factory=LinkFacts)
    initiator: Optional[SideReport] = None
    responder: Optional[SideReport] = None
    evidence: Evidence = Evidence.ABSENT
    evidence_note: str = ""

    def __post_init__(self) -> None:
        measured = self.outcome is Outcome.MEASURED
        if measured and (self.initiator is None or self.responder is None):
            raise ValueError("a measured record needs the reports of both ends")
        if not measured and not self.reason:
            raise ValueError(f"{self.outcome.value}: a record without numbers needs a reason")


@dataclass(frozen=True)
class NodeFacts:
    """What a node is, as its worker found it at the start."""

    host: str
    hostname: str = ""
    kernel: str = ""
    machine: str = ""
    cpu_model: str = ""
    cpu_count: int = 0
    python: str = ""
    pyverbs: str = ""
    rdma_core: str = ""
    memlock_bytes: int = -1  # -1: unlimited
    clock: str = ""
    clock_cost_ns: float = 0.0
    worker_sha256: str = ""


@dataclass(frozen=True)
class RunStarted:
    """First event of a journal: what was asked for, by whom, with which versions."""

    run: str
    fabric: Fabric
    plan: str
    version: str
    started_at: str
    user: str = ""
    control_host: str = ""
    engine: str = "hotloop"
    pairs: str = "ring"
    inventory: str = ""
    limit: str = ""
    plan_sha256: str = ""
    hosts: tuple[str, ...] = ()
    resumed: bool = False


@dataclass(frozen=True)
class ImportedFile:
    """A file of another tool's output, as it was when it was read."""

    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class ImportStarted:
    """First event of a run that was not measured here; `fabric` is empty where nobody said it."""

    run: str
    tool: str  # perftest | nccl-tests | osu
    fabric: str
    version: str
    started_at: str
    user: str = ""
    control_host: str = ""
    files: tuple[ImportedFile, ...] = ()


@dataclass(frozen=True)
class ImportedValue:
    """One number of another tool: `value` in the metric's unit, and `text` as `column` has it."""

    metric: str
    value: float
    unit: str
    column: str
    text: str


@dataclass(frozen=True)
class ImportedCase:
    """Who took part and with which parameters, as far as the text says.

    A number that the text does not say is 0 (a GID index -1), a word that it does not say is empty.
    `variant` is what sets rows of one operation apart and has no field of its own.
    """

    tool: str
    probe: str  # latency | bandwidth | collective
    op: str
    initiator: EndpointRef
    responder: EndpointRef
    size_bytes: int = 0
    iterations: int = 0
    warmup: int = 0
    transport: str = ""
    qps: int = 0
    depth: int = 0
    cq_moderation: int = 0
    inline_bytes: int = 0
    completion: str = ""
    direction: str = "one-way"
    loop: str = "closed"
    memory: str = ""
    ranks: int = 0
    variant: str = ""
    repeat: int = 0

    @property
    def pair(self) -> str:
        """`initiator>responder`; a device that is not known is left out."""
        return f"{self.initiator.label.rstrip('/')}>{self.responder.label.rstrip('/')}"

    @property
    def id(self) -> str:
        """Unique within a run: the parameters are in its digest."""
        kind = {"latency": "lat", "bandwidth": "bw"}.get(self.probe, self.probe)
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:8]
        return f"{self.op}_{kind}/{self.size_bytes}/{self.qps} {self.pair} r{self.repeat} {digest}"


@dataclass(frozen=True)
class Imported:
    """One row of another tool's output, as a finished case: text proves no path.

    `source` is `file:line`; `unread` are columns that have no metric here, by name, as printed;
    `remarks` are what a reader of the values must know.
    """

    case: ImportedCase
    outcome: Outcome
    source: str
    reason: str = ""
    tool_version: str = ""
    link: LinkFacts = field(default_factory=LinkFacts)
    values: tuple[ImportedValue, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        measured = self.outcome is Outcome.MEASURED
        if measured == bool(self.reason) or (measured and not self.values):
            raise ValueError(
                f"{self.outcome.value}: {len(self.values)} values, reason {self.reason!r}"
            )


@dataclass(frozen=True)
class Notice:
    """Something a reader of the run must know: a node that was lost, a fallback, a warning."""

    severity: str  # info | warning | error
    text: str
    host: str = ""
    device: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class RunEnded:
    """Last event of a run that ended by itself: status `done`, `incomplete` or `interrupted`."""

    status: str
    measured: int
    failed: int
    unsupported: int = 0
    skipped: int = 0
