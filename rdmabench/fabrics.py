"""What differs between fabrics: which counters prove that the bytes went where they were sent.

A new fabric is a row here, its endpoints in `worker/device.py`, and a value of `model.Fabric`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rdmabench.model import Case, Evidence, Fabric, LinkFacts, SideReport

_WORD_BYTES = 4  # port_xmit_data counts 4-byte words (IBTA PortCounters)
_STANDS_STILL = (
    "sent_pkts",
    "rcvd_pkts",
    "port_xmit_data",
    "port_rcv_data",
    "tx_bytes",
    "rx_bytes",
)


@dataclass(frozen=True)
class Verdict:
    """What the counters say of one case, with the numbers."""

    evidence: Evidence
    note: str


def judge(
    fabric: Fabric, case: Case, link: LinkFacts, ends: tuple[SideReport, SideReport]
) -> Verdict:
    """Whether the counters of the two ends (initiator, responder) prove the asked-for path.

    The end that sends the payload is looked at: the responder of a read, else the initiator.
    """
    sender = ends[1] if case.parameters.op == "read" else ends[0]
    return _JUDGES[fabric](case, link, sender)


def path_hint(fabric: Fabric) -> str:
    """What to ask about the path when a peer does not answer on it."""
    return _PATH_HINTS[fabric]


def payload_sent(case: Case) -> tuple[int, int]:
    """Messages and bytes that one end sent, the warm-up included."""
    wanted = case.parameters
    messages = (wanted.warmup + wanted.iterations) * wanted.qps
    return messages, messages * wanted.size_bytes


def _rxe(case: Case, link: LinkFacts, sender: SideReport) -> Verdict:
    messages, _ = payload_sent(case)
    per_message = -(-case.parameters.size_bytes // max(link.mtu_bytes, 1))
    return _at_least(sender, "hw_counters/sent_pkts", messages * per_message, "packets", scale=1)


def _port_data(case: Case, _link: LinkFacts, sender: SideReport) -> Verdict:
    _, payload = payload_sent(case)
    return _at_least(sender, "counters/port_xmit_data", payload, "bytes", scale=_WORD_BYTES)


def _tcp(case: Case, _link: LinkFacts, sender: SideReport) -> Verdict:
    moved = _rdma_traffic(sender)
    if moved:
        return Verdict(Evidence.FALLBACK, f"RDMA counters moved during a TCP case: {moved}")
    _, payload = payload_sent(case)
    return _at_least(sender, "netdev/tx_bytes", payload, "bytes", scale=1)


def _rdma_traffic(sender: SideReport) -> str:
    delta = sender.counters_before.delta(sender.counters_after)
    return ", ".join(
        f"{name} +{moved}"
        for name, moved in sorted(delta.items())
        if name.startswith("rdma/") and name.rsplit("/", 1)[-1] in _STANDS_STILL
    )


def _at_least(sender: SideReport, name: str, expected: int, unit: str, *, scale: int) -> Verdict:
    before, after = sender.counters_before.values, sender.counters_after.values
    if name not in before or name not in after:
        return Verdict(Evidence.ABSENT, f"{sender.host} has no counter {name}")
    found = (after[name] - before[name]) * scale
    note = f"{sender.host} {name}: {found} {unit}, at least {expected} were sent"
    if found >= expected:
        return Verdict(Evidence.PROVED, note)
    return Verdict(Evidence.FALLBACK, note)


_PATH_HINTS = {
    Fabric.IB: "does the subnet manager route it, and are its error counters clean (`perfquery`)?",
    Fabric.ROCE: "does a firewall or a switch drop UDP 4791, and do both ends agree on the VLAN?",
    Fabric.RXE: "does a firewall drop UDP 4791, and does `ping` work over its netdev?",
    Fabric.TCP: "does a firewall drop TCP on the data network?",
}
_JUDGES: dict[Fabric, Callable[[Case, LinkFacts, SideReport], Verdict]] = {
    Fabric.IB: _port_data,
    Fabric.ROCE: _port_data,
    Fabric.RXE: _rxe,
    Fabric.TCP: _tcp,
}
