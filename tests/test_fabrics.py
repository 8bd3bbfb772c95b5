from __future__ import annotations

import pytest

from rdmabench.fabrics import judge
from rdmabench.model import (
    Case,
    CounterSet,
    EndpointRef,
    Evidence,
    Fabric,
    LinkFacts,
    Parameters,
    Role,
    SideReport,
)

LINK = LinkFacts(mtu_bytes=4096)


def a_case(op: str = "write", size: int = 65536, qps: int = 2) -> Case:
    return Case(
        initiator=EndpointRef("a", "d"),
        responder=EndpointRef("b", "d"),
        parameters=Parameters(
            probe="bandwidth", op=op, size_bytes=size, iterations=90, warmup=10, qps=qps
        ),
    )


def a_report(role: Role, **moved: int) -> SideReport:
    before = dict.fromkeys(moved, 1000)
    return SideReport(
        host="a" if role is Role.INITIATOR else "b",
        role=role,
        elapsed_ns=1,
        message_count=1,
        payload_bytes=1,
        cpu_ns=0,
        wall_ns=1,
        counters_before=CounterSet(before),
        counters_after=CounterSet({name: 1000 + by for name, by in moved.items()}),
    )


def verdict(fabric: Fabric, case: Case, *, sender: Role, **moved: int) -> Evidence:
    ends = tuple(
        a_report(role, **(moved if role is sender else {}))
        for role in (Role.INITIATOR, Role.RESPONDER)
    )
    return judge(fabric, case, LINK, (ends[0], ends[1])).evidence


PACKETS = 100 * 2 * 16  # messages with the warm-up, queue pairs, packets of 4096 B in 64 KiB
BYTES = 100 * 2 * 65536


@pytest.mark.parametrize(
    ("moved", "right"),
    [
        ({"hw_counters/sent_pkts": PACKETS}, Evidence.PROVED),
        ({"hw_counters/sent_pkts": PACKETS - 1}, Evidence.FALLBACK),
        ({"hw_counters/sent_pkts": 0}, Evidence.FALLBACK),
        ({"netdev/tx_bytes": BYTES}, Evidence.ABSENT),
    ],
)
def test_soft_roce_is_proved_by_every_packet(moved: dict[str, int], right: Evidence) -> None:
    assert verdict(Fabric.RXE, a_case(), sender=Role.INITIATOR, **moved) is right


def test_a_read_is_proved_on_the_end_that_sends_the_bytes() -> None:
    case = a_case(op="read")
    moved = {"hw_counters/sent_pkts": PACKETS}
    assert verdict(Fabric.RXE, case, sender=Role.RESPONDER, **moved) is Evidence.PROVED
    assert verdict(Fabric.RXE, case, sender=Role.INITIATOR, **moved) is Evidence.ABSENT


@pytest.mark.parametrize("fabric", [Fabric.IB, Fabric.ROCE])
def test_port_data_counts_words_of_four_bytes(fabric: Fabric) -> None:
    enough = {"counters/port_xmit_data": BYTES // 4}
    short = {"counters/port_xmit_data": BYTES // 4 - 1}
    assert verdict(fabric, a_case(), sender=Role.INITIATOR, **enough) is Evidence.PROVED
    assert verdict(fabric, a_case(), sender=Role.INITIATOR, **short) is Evidence.FALLBACK


def test_tcp_is_proved_by_its_netdev_while_rdma_stands_still() -> None:
    case = a_case(op="send")
    moved = {"netdev/tx_bytes": BYTES, "rdma/rxe0/1/hw_counters/sent_pkts": 0}
    assert verdict(Fabric.TCP, case, sender=Role.INITIATOR, **moved) is Evidence.PROVED
    moved["rdma/rxe0/1/hw_counters/sent_pkts"] = 1
    assert verdict(Fabric.TCP, case, sender=Role.INITIATOR, **moved) is Evidence.FALLBACK


def test_the_note_holds_the_numbers() -> None:
    ends = (
        a_report(Role.INITIATOR, **{"hw_counters/sent_pkts": 5}),
        a_report(Role.RESPONDER),
    )
    note = judge(Fabric.RXE, a_case(), LINK, ends).note
    assert note == f"a hw_counters/sent_pkts: 5 packets, at least {PACKETS} were sent"
