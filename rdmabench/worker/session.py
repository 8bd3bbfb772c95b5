"""One link of this worker: the requests of its pair, carried out one after the other."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Optional, cast

from rdmabench import wire
from rdmabench.errors import ProtocolError, UnsupportedError
from rdmabench.model import Case, CounterSet, Samples, SideReport
from rdmabench.worker import counters
from rdmabench.worker.end import End, Numbers
from rdmabench.worker.engine import Engine, HotloopEngine, Link, inline_used
from rdmabench.worker.hotloop import face
from rdmabench.worker.probes import bandwidth, latency
from rdmabench.worker.sysfs import Tree
from rdmabench.worker.tcp import TcpLink

PROBES: dict[str, ModuleType] = {"latency": latency, "bandwidth": bandwidth}


@dataclass(frozen=True)
class Bench:
    """What all links of a worker share."""

    host: str
    tree: Tree
    hotloop: Optional[face.Hotloop]
    clock: face.Clock
    scratch: Path


@dataclass
class _Running:
    """The case in hand, between its prepare and its finish."""

    end: End
    probe: ModuleType
    before: CounterSet
    numbers: Numbers
    cpu_start_ns: int = 0
    wall_start_ns: int = 0
    cpu_ns: int = 0
    wall_ns: int = 0


class LinkSession:
    """One end of a pair, from OpenLink to CloseLink."""

    def __init__(self, bench: Bench, request: wire.OpenLink) -> None:
        self._bench = bench
        self._engine_name = request.engine
        self._running: Optional[_Running] = None
        self._sample_files = 0
        self.link = self._open(request)

    @staticmethod
    def _open(request: wire.OpenLink) -> Link:
        if request.endpoint.gid_index < 0:
            kind: Callable[..., Link] = TcpLink
        else:
            from rdmabench.worker.verbs import VerbsLink

            kind = VerbsLink
        return kind(endpoint=request.endpoint, role=request.role, parameters=request.parameters)

    def connect(self, request: wire.ConnectLink) -> None:
        """Bring the link up."""
        self.link.connect(request.remote)

    def prepare(self, case: Case) -> None:
        """Buffers, receives, and the counters as they are before anything is sent.

        Raises:
            UnsupportedError: no such probe, or the operation does not exist on this transport.
        """
        probe = PROBES.get(case.parameters.probe)
        if probe is None or case.parameters.op not in probe.OPS:
            raise UnsupportedError(f"this worker has no probe {case.parameters.what}")
        if case.parameters.completion != "poll":
            raise UnsupportedError(f"completion mode {case.parameters.completion} is not there yet")
        end = End(link=self.link, case=case, engine=self._engine(case))
        probe.prepare(end)
        before = counters.read(self._bench.tree, self.link.endpoint)
        self._running = _Running(end=end, probe=probe, before=before, numbers=Numbers())

    def _engine(self, case: Case) -> Engine:
        if case.parameters.transport == "TCP" and case.parameters.op != "send":
            raise UnsupportedError(f"TCP has no {case.parameters.op}")
        if self._engine_name == "pyverbs" and self.link.transport != "TCP":
            return self._pyverbs_engine(case)
        if self._bench.hotloop is None:
            raise UnsupportedError(
                "the timed loops are not on this node", remedy="use --engine pyverbs"
            )
        if self.link.transport != "TCP":
            from rdmabench.worker.verbs import VerbsLink

            cast(VerbsLink, self.link).verify_pointers()
        return HotloopEngine(
            self.link, case.parameters, hotloop=self._bench.hotloop, clock=self._bench.clock
        )

    def _pyverbs_engine(self, case: Case) -> Engine:
        from rdmabench.worker.engine_pyverbs import PyverbsEngine
        from rdmabench.worker.verbs import VerbsLink

        return PyverbsEngine(cast(VerbsLink, self.link), case.parameters)

    def run(self) -> None:
        """The timed part of the prepared case."""
        running = self._current()
        running.cpu_start_ns, running.wall_start_ns = time.process_time_ns(), time.monotonic_ns()
        running.numbers = running.probe.run(running.end)
        if running.numbers.message_count:
            self._stop_clocks(running)

    @staticmethod
    def _stop_clocks(running: _Running) -> None:
        running.cpu_ns = time.process_time_ns() - running.cpu_start_ns
        running.wall_ns = time.monotonic_ns() - running.wall_start_ns

    def finish(self) -> SideReport:
        """Both ends have run: counters, then the check of the bytes, then the report."""
        running = self._current()
        if not running.wall_ns:
            self._stop_clocks(running)
        after = counters.read(self._bench.tree, self.link.endpoint)
        checked = running.probe.check(running.end)
        self._running = None
        return self._report(running, after, checked)

    def _report(self, running: _Running, after: CounterSet, checked: int) -> SideReport:
        numbers, engine = running.numbers, running.end.engine
        return SideReport(
            host=self._bench.host,
            role=self.link.role,
            elapsed_ns=numbers.elapsed_ns,
            message_count=numbers.message_count,
            payload_bytes=numbers.payload_bytes,
            cpu_ns=running.cpu_ns,
            wall_ns=running.wall_ns,
            payload_bytes_per_qp=numbers.payload_bytes_per_qp,
            clock=engine.clock_name,
            clock_cost_ns=engine.clock_cost_ns,
            inline_bytes=inline_used(self.link, running.end.parameters),
            checked_bytes=checked,
            samples=self._keep(numbers) if numbers.samples else None,
            counters_before=running.before,
            counters_after=after,
        )

    def _keep(self, numbers: Numbers) -> Samples:
        self._sample_files += 1
        path = self._bench.scratch / f"{id(self):x}-{self._sample_files}.u64"
        path.write_bytes(numbers.samples)
        return Samples(
            path=str(path),
            count=len(numbers.samples) // 8,
            kind=numbers.sample_kind,
            sha256=hashlib.sha256(numbers.samples).hexdigest(),
        )

    def _current(self) -> _Running:
        if self._running is None:
            raise ProtocolError("no case is prepared on this link")
        return self._running

    def stop(self) -> None:
        """End the loop that runs; called from another thread."""
        running = self._running
        if running is not None:
            running.end.engine.stop()

    def close(self) -> None:
        """Take the link down."""
        self._running = None
        self.link.close()
