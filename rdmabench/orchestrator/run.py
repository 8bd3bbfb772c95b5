"""Drives a plan: nodes up, rounds one after the other, every result handed on at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rdmabench.errors import (
    DeviceError,
    HostError,
    InputError,
    RdmabenchError,
    StorageError,
)
from rdmabench.model import (
    Case,
    Endpoint,
    EndpointRef,
    Fabric,
    Host,
    NodeFacts,
    Notice,
    Outcome,
    Record,
    RunEnded,
    Samples,
)
from rdmabench.orchestrator import deploy, plan, schedule
from rdmabench.orchestrator.deploy import Node
from rdmabench.orchestrator.fanout import fanout
from rdmabench.orchestrator.pair import End, KeepSamples, PairRun
from rdmabench.orchestrator.plan import Plan
from rdmabench.orchestrator.ssh import SshOptions

Event = NodeFacts | Endpoint | Case | Record | Notice | RunEnded


class Progress(Protocol):
    """Who watches; calls come from several threads."""

    def bringing_up(self, hosts: Sequence[Host]) -> None:
        """Connections are being made."""

    def node_up(self, node: Node) -> None:
        """A node takes part."""

    def planned(self, count: int, *, already: int, estimate_s: float) -> None:
        """So many cases are to be measured, beside those measured before."""

    def recorded(self, record: Record) -> None:
        """A case has ended."""

    def noticed(self, notice: Notice) -> None:
        """Something a reader must know."""


@dataclass(frozen=True)
class Request:
    """What to measure, on whom, how to reach them."""

    hosts: tuple[Host, ...]
    fabric: Fabric
    plan: Plan
    pairs: str = "ring"
    engine: str = "hotloop"
    ssh: SshOptions = field(default_factory=SshOptions)
    fanout_limit: int = 64
    clean: bool = False
    lab: bool = False
    finished: frozenset[str] = frozenset()
    known: tuple[Endpoint, ...] = ()
    """Of an earlier session: names the cases of a host that does not answer in this one."""


@dataclass(frozen=True)
class Outlet:
    """Where results go: the journal's append and the sample store, given by the caller."""

    append: Callable[[Event], None]
    append_all: Callable[[Sequence[Event]], None]
    keep_samples: KeepSamples
    logs: Path
    progress: Progress


@dataclass
class _Tally:
    """Outcomes so far; several pairs count at once."""

    counts: dict[Outcome, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: Outcome) -> None:
        with self.lock:
            self.counts[outcome] = self.counts.get(outcome, 0) + 1

    def ended(self, status: str) -> RunEnded:
        return RunEnded(
            status=status,
            measured=self.counts.get(Outcome.MEASURED, 0),
            failed=self.counts.get(Outcome.FAILED, 0),
            unsupported=self.counts.get(Outcome.UNSUPPORTED, 0),
            skipped=self.counts.get(Outcome.SKIPPED, 0),
        )


def cases_of(request: Request, pair: schedule.Pair, round_number: int) -> tuple[Case, ...]:
    """The cases of one pair, in order."""
    return plan.expand(
        request.plan,
        initiator=pair.initiator,
        responder=pair.responder,
        fabric=request.fabric,
        engine=request.engine,
        round_number=round_number,
    )


def estimate_s(request: Request, rounds: Sequence[schedule.Round]) -> float:
    """Roughly how long; every pair measures the same, so a round takes what one pair does."""
    one_pair = cases_of(request, rounds[0][0], 0)
    seconds = plan.estimate_s(one_pair, fabric=request.fabric, lab=request.lab)
    return seconds * len(rounds)


def planned_refs(hosts: Sequence[Host], found: Iterable[Endpoint] = ()) -> list[EndpointRef]:
    """Every host's endpoints; a host that has not answered stands with one unnamed endpoint a rail.

    So the schedule is the same whether or not a node was up, and what it would have measured is
    marked, not forgotten.
    """
    by_host: dict[str, list[Endpoint]] = {}
    for endpoint in found:
        by_host.setdefault(endpoint.host, []).append(endpoint)
    rails = max((len(endpoints) for endpoints in by_host.values()), default=1)
    refs = []
    for host in hosts:
        known = by_host.get(host.name)
        if known is None:
            refs += [EndpointRef(host=host.name, device="?", rail=rail) for rail in range(rails)]
        else:
            refs += [
                EndpointRef(host=e.host, device=e.device, port=e.port, rail=e.rail) for e in known
            ]
    return refs


def check(request: Request) -> None:
    """What can be refused before a node is touched.

    Raises:
        InputError: too few hosts, or pairs that cannot be made of them.
    """
    if len(request.hosts) < 2:
        raise InputError(
            f"a sweep needs at least two hosts, and there is {len(request.hosts)}",
            remedy="name more hosts in the inventory, or widen --limit",
        )
    if "/" not in request.pairs:  # devices are known when the nodes have answered
        schedule.pairs(request.pairs, planned_refs(request.hosts))


class Sweep:
    """One run of a request."""

    def __init__(self, request: Request, outlet: Outlet) -> None:
        check(request)
        self._request = request
        self._outlet = outlet
        self._stopping = threading.Event()
        self._tally = _Tally()
        self._nodes: dict[str, Node] = {}
        self._lost: dict[str, str] = {}

    def run(self) -> RunEnded:
        """Measure everything that is not measured yet; returns what came of it.

        Raises:
            StorageError: a result could not be kept; the nodes are left clean all the same.
            KeyboardInterrupt: the user ended it; what was measured is in the journal.
        """
        try:
            self._bring_up()
            self._measure()
        except BaseException as exc:
            self._take_down()
            interrupted = isinstance(exc, KeyboardInterrupt)
            with contextlib.suppress(StorageError):
                self._outlet.append(
                    self._tally.ended("interrupted" if interrupted else "incomplete")
                )
            raise
        self._take_down()
        bad = self._tally.counts.keys() & {Outcome.FAILED, Outcome.SKIPPED}
        event = self._tally.ended("incomplete" if bad or self._lost else "done")
        self._outlet.append(event)
        return event

    def _bring_up(self) -> None:
        request, outlet = self._request, self._outlet
        outlet.progress.bringing_up(request.hosts)
        endings = fanout(
            self._one_up,
            request.hosts,
            limit=request.fanout_limit,
            deadline_s=None,
            key=lambda host: host.name,
        )
        for host in request.hosts:
            error = endings[host.name].error
            if isinstance(error, StorageError):
                raise error
            if error is not None:
                self._lose(host.name, error)
        if len(self._nodes) < 2:
            raise HostError(
                f"{len(self._nodes)} of {len(request.hosts)} nodes can take part, and it takes two",
                remedy="mend what the errors above name; no case was measured",
            )

    def _one_up(self, host: Host) -> None:
        request, outlet = self._request, self._outlet
        node = deploy.bring_up(host, fabric=request.fabric, options=request.ssh, logs=outlet.logs)
        self._nodes[host.name] = node
        outlet.append(node.facts)
        for endpoint in node.endpoints:
            outlet.append(endpoint)
        outlet.progress.node_up(node)

    def _lose(self, host: str, error: RdmabenchError, *, said: bool = False) -> None:
        """Note, once, why a host takes part no longer; `said`: the user has read it already."""
        why = error.what
        if self._lost.setdefault(host, why) is not why:
            return
        notice = Notice(
            severity="error",
            text=error.what,
            host=host,
            device=error.device,
            remedy=error.remedy,
        )
        self._outlet.append(notice)
        if not said:
            self._outlet.progress.noticed(notice)

    def _measure(self) -> None:
        request, outlet = self._request, self._outlet
        found = [e for node in self._nodes.values() for e in node.endpoints]
        found += [e for e in request.known if e.host not in self._nodes]
        rounds = schedule.pairs(request.pairs, planned_refs(request.hosts, found))
        per_pair = len(cases_of(request, rounds[0][0], 0))
        total = per_pair * sum(len(pairs) for pairs in rounds)
        already = min(len(request.finished), total)
        share = (total - already) / total
        planned = f"planned: {total} cases of {per_pair} a pair, in {len(rounds)} rounds"
        outlet.append(Notice(severity="info", text=planned))
        outlet.progress.planned(
            total - already, already=already, estimate_s=estimate_s(request, rounds) * share
        )
        for number, pairs in enumerate(rounds):
            self._round(number, pairs)

    def _round(self, number: int, pairs: schedule.Round) -> None:
        """All pairs of a round at once; what was measured before is left out."""
        finished = self._request.finished
        work = []
        for pair in pairs:
            cases = cases_of(self._request, pair, number)
            missing = [case for case in cases if case.id not in finished]
            if missing:
                work.append(missing)
        self._outlet.append_all([case for cases in work for case in cases])
        endings = fanout(
            self._pair,
            work,
            limit=max(len(work), 1),
            deadline_s=None,
            key=lambda cases: cases[0].id,
        )
        for ending in endings.values():
            ending.get()

    def _pair(self, cases: Sequence[Case]) -> None:
        first = cases[0]
        for ref in (first.initiator, first.responder):
            if ref.host in self._lost:
                for case in cases:
                    reason = f"{ref.host} does not take part: {self._lost[ref.host]}"
                    self._keep(Record(case=case, outcome=Outcome.SKIPPED, reason=reason))
                return
        pair = PairRun(
            fabric=self._request.fabric,
            initiator=self._end(first.initiator),
            responder=self._end(first.responder),
            parameters=plan.link_parameters(self._request.plan, cases),
            engine=self._request.engine,
            keep_samples=self._keep_samples,
            stopping=self._stopping,
        )
        pair.run(cases, self._keep)
        if pair.lost is not None and not self._stopping.is_set():
            self._lose(pair.lost.host, pair.lost, said=True)

    def _end(self, ref: EndpointRef) -> End:
        node = self._nodes[ref.host]
        for endpoint in node.endpoints:
            if (endpoint.device, endpoint.port) == (ref.device, ref.port):
                return End(node=node, endpoint=endpoint)
        raise DeviceError("the endpoint is gone", host=ref.host, device=ref.device)

    def _keep_samples(self, case_id: str, raw: bytes, samples: Samples) -> Samples:
        with self._stopping_when_full():
            return self._outlet.keep_samples(case_id, raw, samples)

    @contextlib.contextmanager
    def _stopping_when_full(self) -> Iterator[None]:
        """The other pairs of the round stop too: their results could not be kept either."""
        try:
            yield
        except StorageError:
            self._stopping.set()
            raise

    def _keep(self, record: Record) -> None:
        with self._stopping_when_full():
            self._outlet.append(record)
        self._tally.add(record.outcome)
        self._outlet.progress.recorded(record)

    def _take_down(self) -> None:
        """Every worker hears the end of its input; a node that does not answer is left behind."""
        self._stopping.set()
        fanout(
            lambda node: node.close(clean=self._request.clean),
            list(self._nodes.values()),
            limit=self._request.fanout_limit,
            deadline_s=None,
            key=lambda node: node.host.name,
        )
