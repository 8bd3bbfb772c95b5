"""Journals made of model objects with numbers that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rdmabench.collector.journal import Journal
from rdmabench.collector.store import RunDirectory
from rdmabench.model import (
    Case,
    CounterSet,
    Endpoint,
    EndpointRef,
    Evidence,
    Fabric,
    LinkFacts,
    NodeFacts,
    Outcome,
    Parameters,
    Record,
    Role,
    RunEnded,
    RunStarted,
    SideReport,
)

NODE1 = EndpointRef(host="node1", device="rxe0")
NODE2 = EndpointRef(host="node2", device="rxe0")
LATENCY = Parameters(probe="latency", op="send", size_bytes=2, iterations=2000, warmup=100)
BANDWIDTH = Parameters(
    probe="bandwidth", op="write", size_bytes=65536, iterations=5000, depth=128, cq_moderation=16
)
ROCE_LINK = LinkFacts(
    mtu_bytes=1024,
    initiator_gid_index=1,
    responder_gid_index=1,
    gid_type="RoCE v2",
    timeout=18,
    retry_cnt=6,
)


def endpoint(host: str, **changes: Any) -> Endpoint:
    """A 100 Gb/s RoCE v2 port over IPv4."""
    facts: dict[str, Any] = {
        "device": "rxe0",
        "netdev": "eth0",
        "link_layer": "Ethernet",
        "state": "ACTIVE",
        "rate_text": "100 Gb/sec (4X EDR)",
        "rate_gbit_s": 100.0,
        "active_mtu_bytes": 1024,
        "gid_index": 1,
        "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001",
        "gid_type": "RoCE v2",
        "driver": "rxe",
    }
    return Endpoint(host=host, **(facts | changes))


def side(role: Role, host: str, **changes: Any) -> SideReport:
    """One end that moved 327,680,000 bytes in 52,428,800 ns (50 Gb/s), with a CPU half busy."""
    report: dict[str, Any] = {
        "elapsed_ns": 52_428_800,
        "message_count": 5000,
        "payload_bytes": 327_680_000,
        "cpu_ns": 30_000_000,
        "wall_ns": 60_000_000,
        "clock": "monotonic_raw",
        "clock_cost_ns": 21.5,
        "counters_before": CounterSet(values={"hw_counters/sent_pkts": 100, "still": 7}),
        "counters_after": CounterSet(values={"hw_counters/sent_pkts": 5100, "still": 7}),
    }
    return SideReport(role=role, host=host, **(report | changes))


@dataclass
class SyntheticRun:
    """Builds one run event by event; `directory` is ready to be read at any time."""

    root: Path
    fabric: Fabric = Fabric.RXE
    directory: RunDirectory = field(init=False)
    journal: Journal = field(init=False)
    started: int = 0

    def __post_init__(self) -> None:
        self.directory = RunDirectory.create(self.root, self.fabric, "quick")
        self.journal = Journal.create(self.directory.path)

    def begin(self, *endpoints: Endpoint, cases: Iterable[Case] = ()) -> SyntheticRun:
        """RunStarted, then node facts, endpoints and planned cases."""
        ends = endpoints or (endpoint("node1"), endpoint("node2"))
        planned = tuple(cases)
        hosts = tuple(dict.fromkeys(each.host for each in ends))
        self.journal.append(
            RunStarted(
                run=self.directory.name,
                fabric=self.fabric,
                plan="quick",
                version="0.1.0",
                started_at="2026-12-01T03:15:00+00:00",
                user="ops",
                control_host="control",
                hosts=hosts,
            )
        )
        for event in (*(NodeFacts(host=host, cpu_count=4) for host in hosts), *ends, *planned):
            self.journal.append(event)
        return self

    def latency(self, rtt_ns: Iterable[int], *, case: Case | None = None, **changes: Any) -> Record:
        """A measured latency case with these round trips."""
        kept = self._keep(np.array(list(rtt_ns), dtype="<u8").tobytes(), "rtt")
        case = case or case_of(LATENCY)
        record = measured(
            case,
            initiator=side(Role.INITIATOR, case.initiator.host, samples=kept),
            responder=side(Role.RESPONDER, case.responder.host),
        )
        return self.add(replace(record, **changes))

    def bandwidth(
        self,
        *,
        case: Case | None = None,
        initiator: dict[str, Any] | None = None,
        responder: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Record:
        """A measured bandwidth case; 50 Gb/s unless the sides say otherwise."""
        case = case or case_of(BANDWIDTH)
        record = measured(
            case,
            initiator=side(Role.INITIATOR, case.initiator.host, **(initiator or {})),
            responder=side(Role.RESPONDER, case.responder.host, **(responder or {})),
        )
        return self.add(replace(record, **changes))

    def unmeasured(self, outcome: Outcome, reason: str, *, case: Case | None = None) -> Record:
        """A case without numbers."""
        return self.add(
            Record(case=case or case_of(BANDWIDTH), outcome=outcome, reason=reason, link=ROCE_LINK)
        )

    def add(self, record: Record) -> Record:
        """Appends any record."""
        self.journal.append(record)
        return record

    def end(self, status: str = "done") -> RunDirectory:
        """RunEnded, and the journal closed."""
        self.journal.append(RunEnded(status=status, measured=1, failed=0))
        self.journal.close()
        self.directory.set_status(status)
        return self.directory

    def _keep(self, raw: bytes, kind: str) -> Any:
        self.started += 1
        return self.directory.keep_samples(raw, self.started, kind)


def case_of(parameters: Parameters, **changes: Any) -> Case:
    """A case from node1 to node2."""
    ends: dict[str, Any] = {"initiator": NODE1, "responder": NODE2}
    return Case(parameters=parameters, **(ends | changes))


def measured(case: Case, *, initiator: SideReport, responder: SideReport) -> Record:
    """A measured and proved record of a RoCE v2 link with MTU 1024."""
    return Record(
        case=case,
        outcome=Outcome.MEASURED,
        started_at="2026-12-01T03:15:01+00:00",
        link=ROCE_LINK,
        initiator=initiator,
        responder=responder,
        evidence=Evidence.PROVED,
    )
