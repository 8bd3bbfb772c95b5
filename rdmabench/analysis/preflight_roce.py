"""Rules about RoCE: GIDs, MTU, and what keeps Ethernet from dropping."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from rdmabench.analysis.preflight_kinds import KINDS, Expectations
from rdmabench.analysis.preflight_link import label
from rdmabench.audit import Audit, Device, Finding, Netdev, Port, Severity
from rdmabench.model import Fabric

ROCE_V2 = "RoCE v2"
MTU_FOR_4096 = 4200
_TOOLS = ("pfc", "trust")


def check(audit: Audit, wanted: Expectations) -> Iterator[Finding]:
    """All of them, on Ethernet fabrics."""
    if wanted.fabric not in (Fabric.ROCE, Fabric.RXE):
        return
    for device, port in audit.rails:
        if port.active:
            yield from _gid(audit, device, port)
            yield from _mtu(audit, device, port)
    if wanted.fabric is Fabric.ROCE:
        for netdev in _netdevs(audit):
            yield from _pause(audit, netdev, wanted)
            yield from _marking(audit, netdev, wanted)
        yield from _unknown(audit)
    yield from _plane(audit)


def _netdevs(audit: Audit) -> Iterator[Netdev]:
    """Each interface of an active port, once."""
    names = dict.fromkeys(port.netdev for _, port in audit.rails if port.active)
    yield from (found for name in names if (found := audit.netdev(name)) is not None)


def _gid(audit: Audit, device: Device, port: Port) -> Iterator[Finding]:
    name, table = label(device, port), port.gids
    if table is None:
        return
    if not table:
        yield KINDS["gid-none"].at(audit, "the GID table is empty", device=name)
        return
    if audit.forced_gid_index is not None and port.gid is None:
        yield KINDS["gid-missing"].at(audit, port.why("gid_index"), device=name)
        return
    chosen = port.gid
    if chosen is None:
        return
    if chosen.kind != ROCE_V2:
        seen = f"v1 only: the best of {len(table)} entries is {chosen.index}, {chosen.kind}"
        severity = Severity.WARNING if any(g.kind == ROCE_V2 for g in table) else None
        yield KINDS["gid-v1-only"].at(audit, seen, device=name, severity=severity)
    elif _link_local(chosen.gid):
        seen = f"GID {chosen.index} is {chosen.gid}, and there is no better one"
        yield KINDS["gid-link-local"].at(audit, seen, device=name)


def _link_local(gid: str) -> bool:
    try:
        return ipaddress.IPv6Address(gid).is_link_local
    except ValueError:
        return False


def path_mtu(one: Port, other: Port) -> int | None:
    """What two ports can use between them: the smaller active MTU."""
    if one.active_mtu_bytes is None or other.active_mtu_bytes is None:
        return None
    return min(one.active_mtu_bytes, other.active_mtu_bytes)


def _mtu(audit: Audit, device: Device, port: Port) -> Iterator[Finding]:
    netdev = audit.netdev(port.netdev)
    if netdev is None or netdev.mtu_bytes is None or netdev.mtu_bytes >= MTU_FOR_4096:
        return
    active = f": RDMA uses {port.active_mtu_bytes}" if port.active_mtu_bytes else ""
    yield KINDS["mtu-low"].at(
        audit,
        f"{netdev.name} has MTU {netdev.mtu_bytes}{active}",
        device=label(device, port),
        remedy=f"`ip link set {netdev.name} mtu {MTU_FOR_4096}` (and the switch ports: 9216), "
        "made to last in the network configuration"
        + (
            f"; playbooks/rxe.yml -e rdma_netdev={netdev.name} -e rdma_mtu={MTU_FOR_4096}"
            if device.soft
            else ""
        ),
    )


def _pause(audit: Audit, netdev: Netdev, wanted: Expectations) -> Iterator[Finding]:
    if netdev.pfc is None:
        return
    others = tuple(p for p in netdev.pfc if p != wanted.priority)
    expected = f"PFC on priority {wanted.priority}, and on no other"
    seen = f"PFC on {_listed(netdev.pfc)}" if netdev.pfc else "PFC is off"
    kind, severity = "", None
    if not netdev.pfc and (netdev.pause_rx or netdev.pause_tx):
        kind, seen = "global-pause", "global pause (802.3x) is on and PFC is off"
    elif not netdev.pfc:
        lossy = bool(netdev.ecn_np and netdev.ecn_rp)
        kind, severity = "pfc-off", Severity.WARNING if lossy else None
        seen += ", ECN is on: a lossy fabric" if lossy else ""
    elif wanted.priority not in netdev.pfc:
        kind = "pfc-wrong-priority"
    elif others:
        kind = "pfc-too-wide"
    if kind:
        yield KINDS[kind].at(audit, seen, device=netdev.name, expected=expected, severity=severity)


def _listed(priorities: tuple[int, ...]) -> str:
    return f"priorit{'y' if len(priorities) == 1 else 'ies'} {', '.join(map(str, priorities))}"


def _marking(audit: Audit, netdev: Netdev, wanted: Expectations) -> Iterator[Finding]:
    if netdev.trust is not None and netdev.trust != "dscp":
        yield KINDS["trust-pcp"].at(audit, f"trust mode {netdev.trust}", device=netdev.name)
    roles = {"np (answers marks)": netdev.ecn_np, "rp (slows down)": netdev.ecn_rp}
    off = [r for r, on in roles.items() if on is not None and wanted.priority not in on]
    if off:
        seen = f"off on priority {wanted.priority}: {' and '.join(off)}"
        yield KINDS["ecn-off"].at(audit, seen, device=netdev.name)
    yield from _unused(audit, netdev, wanted)


def traffic_by_priority(counters: dict[str, int]) -> dict[int, int]:
    """Bytes received and sent by priority, where the driver counts them."""
    totals: dict[int, int] = {}
    for priority in range(8):
        names = [f"{way}_prio{priority}_bytes" for way in ("rx", "tx")]
        if any(name in counters for name in names):
            totals[priority] = sum(counters.get(name, 0) for name in names)
    return totals


def _unused(audit: Audit, netdev: Netdev, wanted: Expectations) -> Iterator[Finding]:
    """Only a hint: counters are since boot, and management shares the port here and there."""
    traffic = traffic_by_priority(dict(netdev.counters))
    used = [priority for priority, size in traffic.items() if size]
    if used and traffic.get(wanted.priority) == 0:
        seen = f"all traffic since boot in {_listed(tuple(used))}, none in {wanted.priority}"
        yield KINDS["priority-unused"].at(audit, seen, device=netdev.name)


def _unknown(audit: Audit) -> Iterator[Finding]:
    reasons: dict[str, str] = {}
    for netdev in _netdevs(audit):
        for name in _TOOLS:
            if getattr(netdev, name) is None:
                reasons.setdefault(name, netdev.why(name))
    if reasons:
        seen = "; ".join(f"{name} is not known: {why}" for name, why in reasons.items())
        yield KINDS["qos-unknown"].at(audit, seen)


def _plane(audit: Audit) -> Iterator[Finding]:
    names = {netdev.name for netdev in _netdevs(audit)}
    shared = names & set(audit.machine.default_netdevs or ())
    for name in sorted(shared):
        yield KINDS["shared-plane"].at(audit, f"the default route is over {name}", device=name)
