"""Nodes against each other: the majority's value of every fact, and who differs.

Nodes of one product are compared with each other; what both ends of a path must agree on is
compared over all of them. A node that a rule named for the same reason is not named again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rdmabench.analysis.preflight_kinds import KINDS
from rdmabench.analysis.rails import in_pci_order, rail_map
from rdmabench.audit import Audit, Device, Finding, Port, Severity
from rdmabench.units import size_text

Cells = Mapping[str, str]
"""A fact of one node: its value for the node (""), or for each rail by its number."""

_LEAF_SHARE = 0.8
_VALUES_SHOWN = 3
_NAMES_SHOWN = 4
_OWN_PARAMETERS = ("BOOT_IMAGE", "root", "resume", "initrd", "ip", "hostname", "crashkernel")


@dataclass(frozen=True)
class Fact:
    """Something to compare; `covered` are the findings that say the same."""

    name: str
    read: Callable[[Audit], Cells]
    severity: Severity = Severity.WARNING
    covered: tuple[str, ...] = ()
    everywhere: bool = False  # compared over all nodes, not only those of one product
    headline: bool = False  # shown even where all agree
    kind: str = "differs"


@dataclass(frozen=True)
class Row:
    """One fact of one group of nodes: `others` maps each other value to the nodes that have it."""

    group: str
    fact: str
    majority: str
    count: int
    total: int
    headline: bool
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Fleet:
    """What comparing found."""

    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]


def _machine(name: str) -> Callable[[Audit], Cells]:
    def read(audit: Audit) -> Cells:
        value = getattr(audit.machine, name)
        return {} if value is None else {"": str(value)}

    return read


def _rail(read: Callable[[Audit, Device, Port], object]) -> Callable[[Audit], Cells]:
    """Of each active port; what is not known is left out."""

    def cells(audit: Audit) -> Cells:
        values = {p.rail: read(audit, d, p) for d, p in audit.rails if p.active}
        return {str(rail): str(value) for rail, value in values.items() if value is not None}

    return cells


def _netdev(name: str) -> Callable[[Audit], Cells]:
    def read(audit: Audit, _device: Device, port: Port) -> object:
        found = audit.netdev(port.netdev)
        value = getattr(found, name) if found is not None else None
        return ",".join(map(str, value)) or "none" if isinstance(value, tuple) else value

    return _rail(read)


def _pci(audit: Audit, device: Device, port: Port) -> object:
    del audit, port
    pci = device.pci
    if pci is None or pci.speed_gts is None or pci.width is None:
        return None
    return f"{pci.speed_gts:g} GT/s x{pci.width}"


def _gid_kind(_audit: Audit, _device: Device, port: Port) -> object:
    return port.gid.kind if port.gid else None


def _memory(audit: Audit) -> Cells:
    size = audit.machine.memory_kib
    return {} if size is None else {"": f"{round(size / (1 << 20) / 8) * 8 or 1} GiB"}


def _memlock(audit: Audit) -> Cells:
    limit = audit.machine.memlock_bytes
    return {} if limit is None else {"": "unlimited" if limit < 0 else size_text(limit)}


def _parameters(audit: Audit) -> Cells:
    """The kernel's command line without what is each node's own."""
    line = audit.machine.cmdline
    if line is None:
        return {}
    kept = [word for word in line.split() if word.split("=")[0] not in _OWN_PARAMETERS]
    return {"": " ".join(sorted(kept)) or "none"}


def _gpus(audit: Audit) -> Cells:
    names = Counter(gpu.name or "unknown GPU" for gpu in audit.gpus)
    return {"": ", ".join(f"{n} x {name}" for name, n in sorted(names.items())) or "none"}


def _gpu_versions(audit: Audit) -> Cells:
    found = sorted({gpu.version for gpu in audit.gpus if gpu.version})
    return {"": ", ".join(found)} if found else {}


def _rails_text(audit: Audit) -> Cells:
    places = "; ".join(rail.place for rail in rail_map(audit))
    return {"": places} if audit.rails else {}


def _order(audit: Audit) -> Cells:
    pci = [d.pci for d, _ in audit.rails if d.pci is not None]
    return {"": "by PCI address" if in_pci_order(audit) else "by name"} if len(pci) > 1 else {}


_W, _I = Severity.WARNING, Severity.INFO
FACTS: tuple[Fact, ...] = (
    Fact("rails", lambda a: {"": str(len(a.rails))}, covered=("no-device",), headline=True),
    Fact("rate", _rail(lambda _a, _d, p: p.rate_text), headline=True,
         covered=("link-narrow", "link-slow", "rates-differ")),
    Fact("RDMA MTU", _rail(lambda _a, _d, p: p.active_mtu_bytes), covered=("mtu-low",),
         everywhere=True, headline=True),
    Fact("netdev MTU", _netdev("mtu_bytes"), _I, covered=("mtu-low", "differs-rdma-mtu")),
    Fact("GID type", _rail(_gid_kind), Severity.ERROR, covered=("gid-v1-only",),
         everywhere=True, headline=True),
    Fact("GID index", _rail(lambda _a, _d, p: p.gid_index), _I, headline=True,
         covered=("gid-v1-only", "gid-link-local", "gid-missing", "differs-gid-type")),
    Fact("firmware", _rail(lambda _a, d, _p: d.firmware), headline=True),
    Fact("board", _rail(lambda _a, d, _p: d.board)),
    Fact("driver", _rail(lambda _a, d, _p: d.driver), headline=True),
    Fact("PCIe", _rail(_pci), covered=("pcie-degraded", "pcie-slot", "pcie-below-link")),
    Fact("PFC priorities", _netdev("pfc"), everywhere=True,
         covered=("pfc-off", "pfc-wrong-priority", "pfc-too-wide", "global-pause")),
    Fact("trust mode", _netdev("trust"), everywhere=True, covered=("trust-pcp",)),
    Fact("ECN (np)", _netdev("ecn_np"), everywhere=True, covered=("ecn-off",)),
    Fact("ECN (rp)", _netdev("ecn_rp"), everywhere=True, covered=("ecn-off",)),
    Fact("traffic class", _rail(lambda _a, _d, p: p.traffic_class), everywhere=True),
    Fact("kernel", _machine("kernel"), headline=True),
    Fact("system", _machine("system"), _I),
    Fact("rdma-core", _machine("rdma_core"), headline=True),
    Fact("OFED", _machine("ofed")),
    Fact("CPUs", _machine("cpu_count")),
    Fact("NUMA nodes", _machine("numa_nodes")),
    Fact("SMT", _machine("smt")),
    Fact("governor", _machine("governor"), covered=("governor",)),
    Fact("NUMA balancing", _machine("numa_balancing"), _I, covered=("numa-balancing",)),
    Fact("huge pages", _machine("hugepages"), _I),
    Fact("memory", _memory),
    Fact("memlock", _memlock, covered=("memlock",)),
    Fact("kernel parameters", _parameters, covered=("iommu-translates",)),
    Fact("GPUs", _gpus),
    Fact("GPU driver", _gpu_versions, covered=("gpu-driver",)),
    Fact("GPUDirect", _machine("gpu_direct"), covered=("gpudirect-off",)),
    Fact("rail order", _order, kind="rail-order"),
    Fact("rail map", _rails_text, kind="rail-map",
         covered=("rail-order", "no-device", "differs-rails", "differs-gpus")),
)  # fmt: skip
IDS = frozenset(
    fact.kind if fact.kind != "differs" else f"differs-{fact.name.lower().replace(' ', '-')}"
    for fact in FACTS
) | {"rail-leaf"}


def _id(fact: Fact) -> str:
    return fact.kind if fact.kind != "differs" else f"differs-{fact.name.lower().replace(' ', '-')}"


def compare(audits: Sequence[Audit], found: Sequence[Finding]) -> Fleet:
    """The rows of the fleet view, and findings about the nodes that differ."""
    named: dict[str, set[str]] = {}
    for finding in found:
        named.setdefault(finding.id, set()).add(finding.host)
    rows: list[Row] = []
    findings: list[Finding] = []
    for fact in FACTS:
        for group, members in _groups(audits, fact).items():
            row, more = _compared(fact, group, members, named)
            rows += row
            findings += more
        for finding in findings:
            named.setdefault(finding.id, set()).add(finding.host)
    if len(audits) > 1:
        findings += _leaves(audits)
    return Fleet(tuple(rows), tuple(findings))


def product(audit: Audit) -> str:
    """What kind of node it is."""
    machine = audit.machine
    return machine.product or machine.cpu_model or "nodes"


def _groups(audits: Sequence[Audit], fact: Fact) -> dict[str, list[Audit]]:
    groups: dict[str, list[Audit]] = {}
    for audit in audits:
        groups.setdefault("" if fact.everywhere else product(audit), []).append(audit)
    return groups


@dataclass
class _Tally:
    """Values of one fact by rail, and who has them."""

    by_rail: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, cells: Cells) -> None:
        for rail, value in cells.items():
            self.by_rail.setdefault(rail, Counter())[value] += 1

    def majority(self, rail: str) -> str | None:
        """The value of more than half; None where there is none."""
        counts = self.by_rail[rail]
        value, count = counts.most_common(1)[0]
        return value if 2 * count > sum(counts.values()) else None


def _compared(
    fact: Fact, group: str, members: Sequence[Audit], named: Mapping[str, set[str]]
) -> tuple[list[Row], list[Finding]]:
    cells = {audit.host: fact.read(audit) for audit in members}
    tally = _Tally()
    for each in cells.values():
        tally.add(each)
    if not tally.by_rail:
        return [], []
    majority = {rail: tally.majority(rail) for rail in tally.by_rail}
    covered = set().union(*(named.get(name, set()) for name in fact.covered))
    findings = []
    split = False
    for audit in members:
        off = {r: v for r, v in cells[audit.host].items() if majority[r] not in (None, v)}
        if off and audit.host not in covered:
            findings.append(_outlier(fact, audit, off, majority))
        split = split or any(majority[r] is None for r in cells[audit.host])
    if split:
        findings += _split(fact, {h: c for h, c in cells.items() if h not in covered})
    return [_row(fact, group, cells, tally)], findings


def _outlier(fact: Fact, audit: Audit, off: Cells, majority: Mapping[str, str | None]) -> Finding:
    names = {str(p.rail): d.name for d, p in audit.rails}
    devices = list(dict.fromkeys(names.get(rail, "") for rail in off))
    shown = ", ".join(devices[:_NAMES_SHOWN]) + (" ..." if len(devices) > _NAMES_SHOWN else "")
    first = next(iter(off))
    usual, seen = str(majority[first]), off[first]
    if fact.name == "kernel parameters":
        usual, seen = _word_difference(usual, seen)
    return _finding(fact, audit.host, f"{fact.name} {seen}", f"{usual}, as most", shown)


def _word_difference(usual: str, seen: str) -> tuple[str, str]:
    """Only the words that differ of two command lines."""
    a, b = set(usual.split()), set(seen.split())
    lacking, extra = " ".join(sorted(a - b)), " ".join(sorted(b - a))
    return lacking or "nothing more", extra or "lack a word"


def _finding(fact: Fact, host: str, seen: str, expected: str, device: str = "") -> Finding:
    kind = KINDS[fact.kind]
    return Finding(
        id=_id(fact),
        severity=fact.severity,
        host=host,
        device=device,
        seen=seen,
        expected=expected,
        why=kind.why,
        remedy=kind.remedy,
    )


def _split(fact: Fact, cells: Mapping[str, Cells]) -> list[Finding]:
    """No value has the majority: one finding that names the values."""
    by_value: dict[str, list[str]] = {}
    for host, each in cells.items():
        for value in dict.fromkeys(each.values()):
            by_value.setdefault(value, []).append(host)
    if len(by_value) < 2:
        return []
    ranked = sorted(by_value.items(), key=lambda item: -len(item[1]))
    shown = [f"{value} ({_some(hosts)})" for value, hosts in ranked[:_VALUES_SHOWN]]
    more = f" and {len(ranked) - _VALUES_SHOWN} more" if len(ranked) > _VALUES_SHOWN else ""
    return [_finding(fact, "", f"{fact.name}: {', '.join(shown)}{more}", "one value")]


def _some(hosts: Sequence[str]) -> str:
    if len(hosts) <= _VALUES_SHOWN:
        return ", ".join(hosts)
    return f"{len(hosts)} nodes"


def _row(fact: Fact, group: str, cells: Mapping[str, Cells], tally: _Tally) -> Row:
    """Over all rails together: a node that differs in one differs."""
    total: Counter[str] = Counter()
    for counts in tally.by_rail.values():
        total.update(counts)
    value, count = total.most_common(1)[0]
    others: dict[str, list[str]] = {}
    for host, each in cells.items():
        for rail, found in each.items():
            usual = tally.by_rail[rail].most_common(1)[0][0]
            if found != usual and host not in others.setdefault(found, []):
                others[found].append(host)
    values = {counts.most_common(1)[0][0] for counts in tally.by_rail.values()}
    return Row(
        group=group,
        fact=fact.name,
        majority=value if len(values) == 1 else f"{value} (and {len(values) - 1} more by rail)",
        count=count if len(values) == 1 else sum(total.values()),
        total=sum(total.values()),
        headline=fact.headline,
        others={v: tuple(hosts) for v, hosts in others.items()},
    )


def _leaves(audits: Sequence[Audit]) -> Iterator[Finding]:
    """A rail whose leaf differs from where nearly all nodes have it: a crossed cable."""
    read = _netdev("leaf")
    tally = _Tally()
    cells = {audit.host: read(audit) for audit in audits}
    for each in cells.values():
        tally.add(each)
    for audit in audits:
        for rail, leaf in cells[audit.host].items():
            usual, count = tally.by_rail[rail].most_common(1)[0]
            if leaf != usual and count > _LEAF_SHARE * sum(tally.by_rail[rail].values()):
                device = next(d.name for d, p in audit.rails if str(p.rail) == rail)
                yield KINDS["rail-leaf"].at(
                    audit, f"rail {rail} is on {leaf}", device=device, expected=f"{usual}, as most"
                )
