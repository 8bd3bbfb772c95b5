"""One pair of endpoints: connected once, then all its cases one after the other.

A case that fails takes the link with it, and the next case gets a new one; a pair that keeps
failing is given up, so that one bad path among hundreds costs minutes and not the night.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rdmabench import fabrics, wire
from rdmabench.errors import (
    ConnectError,
    HostError,
    ProbeError,
    UnsupportedError,
    WorkerLostError,
)
from rdmabench.model import (
    Case,
    Endpoint,
    Fabric,
    LinkAddress,
    LinkFacts,
    LinkParameters,
    Outcome,
    Record,
    Role,
    Samples,
    SideReport,
)
from rdmabench.orchestrator.agent import Agent, ask_both
from rdmabench.orchestrator.deploy import Node
from rdmabench.units import NS_PER_S

_STEP_LIMIT_S = 60.0
_GRACE_S = 20.0
_FAILURES_IN_A_ROW = 3
_CLOCK_TOLERANCE = 1.05
_CLOCK_SLACK_S = 0.25
_VIRTUAL_TIME_S = 1e6  # a silence limit beyond this says that the node's time is not ours

KeepSamples = Callable[[str, bytes, Samples], Samples]
"""Keeps the raw samples of a case (id, bytes, the node's reference); returns where they lie now."""


@dataclass(frozen=True)
class End:
    """One end of a pair: a node and one of its endpoints."""

    node: Node
    endpoint: Endpoint

    @property
    def agent(self) -> Agent:
        """Who speaks with its worker."""
        return self.node.agent


def _routed_by(endpoint: Endpoint) -> int:
    """The GID index in the packets' header; -1 where there is none: a LID routes InfiniBand."""
    return -1 if endpoint.link_layer == "InfiniBand" else endpoint.gid_index


def check_clock(report: SideReport, *, outer_s: float) -> None:
    """What a node timed lies within what was timed around it here; a longer time is a wrong clock.

    Seen on an emulated node whose kernel had misjudged its counter by a factor of ten: every value
    of it was wrong by that factor.

    Raises:
        ProbeError: the node's clock runs too fast to be believed.
    """
    inner_s = report.wall_ns / NS_PER_S
    if inner_s > _CLOCK_TOLERANCE * outer_s + _CLOCK_SLACK_S:
        raise ProbeError(
            f"the node says that the case took {inner_s:.1f} s, and it took less than "
            f"{outer_s:.1f} s: its clock runs too fast, and nothing that it timed can be believed",
            host=report.host,
            remedy="compare the node's clock source (`dmesg | grep -i tsc`, "
            "/sys/devices/system/clocksource) with its neighbours'; reboot an emulated node",
        )


class PairRun:
    """The cases of one pair, in order."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        initiator: End,
        responder: End,
        parameters: LinkParameters,
        engine: str,
        keep_samples: KeepSamples,
        stopping: threading.Event,
    ) -> None:
        self._fabric = fabric
        self._ends = (initiator, responder)
        self._parameters = parameters
        self._engine = engine
        self._keep_samples = keep_samples
        self._stopping = stopping
        self._link = ""
        self._facts = LinkFacts()
        self._opened = 0
        self._failures: list[HostError] = []
        self.lost: HostError | None = None  # the end of a node, once it came

    def run(self, cases: Sequence[Case], keep: Callable[[Record], None]) -> None:
        """Measure every case and hand each record on as soon as it is there."""
        try:
            for case in cases:
                if self._stopping.is_set():
                    return
                record = self._given_up(case) or self._attempt(case)
                if self._stopping.is_set() and record.outcome is not Outcome.MEASURED:
                    return
                keep(record)
        finally:
            self._close()

    def _given_up(self, case: Case) -> Record | None:
        """A record without a try, once a node is lost or case after case has failed."""
        if self.lost is not None:
            why = f"not tried: {self.lost.brief}"
        elif len(self._failures) >= _FAILURES_IN_A_ROW:
            why = (
                f"not tried: {len(self._failures)} cases of this pair failed in a row; the last: "
                f"{self._failures[-1].brief}"
            )
        else:
            return None
        return Record(case=case, outcome=Outcome.SKIPPED, reason=why)

    def _attempt(self, case: Case) -> Record:
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            if not self._link:
                self._open()
            reports = self._measure(case)
        except UnsupportedError as exc:
            return self._without_numbers(case, Outcome.UNSUPPORTED, exc, started)
        except HostError as exc:
            self._close()
            self._name_the_peer(exc)
            self._failures.append(exc)
            self.lost = exc if isinstance(exc, (WorkerLostError, ConnectError)) else None
            return self._without_numbers(case, Outcome.FAILED, exc, started)
        self._failures.clear()
        verdict = fabrics.judge(self._fabric, case, self._facts, reports)
        return Record(
            case=case,
            outcome=Outcome.MEASURED,
            started_at=started,
            link=self._facts,
            initiator=reports[0],
            responder=reports[1],
            evidence=verdict.evidence,
            evidence_note=verdict.note,
        )

    def _name_the_peer(self, exc: HostError) -> None:
        """A worker does not know the name of the peer that left it waiting."""
        peer = next((end for end in self._ends if end.node.host.name != exc.host), None)
        if peer is None or exc.remedy or not isinstance(exc, ProbeError):
            return
        there = f" ({peer.endpoint.address})" if peer.endpoint.address else ""
        exc.remedy = (
            f"look at {peer.endpoint.label}{there} and the path to it: is its port up, "
            f"{fabrics.path_hint(self._fabric)}"
        )

    def _without_numbers(self, case: Case, outcome: Outcome, why: HostError, at: str) -> Record:
        return Record(case=case, outcome=outcome, reason=str(why), started_at=at, link=self._facts)

    def _open(self) -> None:
        """Connect the two ends; a link that did not come up is taken down again."""
        try:
            self._connect()
        except HostError:
            self._close()
            raise

    def _connect(self) -> None:
        self._opened += 1
        first, second = self._ends
        link = f"{first.endpoint.label}>{second.endpoint.label}#{self._opened}"
        self._link = link
        roles = (Role.INITIATOR, Role.RESPONDER)
        answers = self._ask(
            [
                wire.OpenLink(
                    link=link,
                    endpoint=end.endpoint,
                    role=role,
                    engine=self._engine,
                    parameters=self._parameters,
                )
                for end, role in zip(self._ends, roles, strict=True)
            ]
        )
        addresses: list[LinkAddress] = [answer.address for answer in answers]
        self._ask([wire.ConnectLink(link=link, remote=address) for address in addresses[::-1]])
        self._facts = self._link_facts(addresses)

    def _link_facts(self, addresses: Sequence[LinkAddress]) -> LinkFacts:
        first, second = (end.endpoint for end in self._ends)
        smaller = min(address.mtu_bytes for address in addresses)
        return LinkFacts(
            mtu_bytes=self._parameters.mtu_bytes or smaller,
            traffic_class=self._parameters.traffic_class,
            initiator_gid_index=_routed_by(first),
            responder_gid_index=_routed_by(second),
            gid_type=first.gid_type,
            timeout=self._parameters.timeout,
            retry_cnt=self._parameters.retry_cnt,
        )

    def _measure(self, case: Case) -> tuple[SideReport, SideReport]:
        link = self._link
        cancel = [wire.Cancel(link)] * 2
        limit = 2 * case.parameters.deadline_s + _GRACE_S
        self._ask([wire.PrepareCase(link=link, case=case)] * 2)
        started = time.monotonic()
        self._ask([wire.RunCase(link)] * 2, deadline_s=limit, on_failure=cancel)
        done = self._ask([wire.FinishCase(link)] * 2, deadline_s=limit)
        for end, answer in zip(self._ends, done, strict=True):
            if end.node.host.silence_limit_s < _VIRTUAL_TIME_S:
                check_clock(answer.report, outer_s=time.monotonic() - started)
        reports = [
            self._fetch(case, end, answer.report)
            for end, answer in zip(self._ends, done, strict=True)
        ]
        return reports[0], reports[1]

    def _fetch(self, case: Case, end: End, report: SideReport) -> SideReport:
        if report.samples is None:
            return report
        connection = end.node.connection
        raw = connection.get(report.samples.path)
        kept = self._keep_samples(case.id, raw, report.samples)
        connection.remove(report.samples.path)
        return replace(report, samples=kept)

    def _ask(
        self,
        bodies: Sequence[object],
        *,
        deadline_s: float = _STEP_LIMIT_S,
        on_failure: Sequence[object] = (),
    ) -> list[Any]:
        agents = [end.agent for end in self._ends]
        return ask_both(
            list(zip(agents, bodies, strict=True)), deadline_s=deadline_s, on_failure=on_failure
        )

    def _close(self) -> None:
        """Take the link down where the worker still listens; the answer is not waited for long."""
        link, self._link = self._link, ""
        if not link:
            return
        for end in self._ends:
            try:
                end.agent.ask(wire.CloseLink(link), deadline_s=_GRACE_S)
            except HostError:
                continue
