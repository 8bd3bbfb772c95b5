"""The worker's only entry point: requests on stdin, answers on stdout, logs on stderr.

It ends itself, and everything it started, at the end of input, on a signal, or when the controller
has been silent for too long. The main thread only listens; each link has a thread of its own, so
that a heartbeat or a cancel is heard while a loop runs.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, Optional

from rdmabench import wire
from rdmabench.errors import DeviceError, ProtocolError, RdmabenchError
from rdmabench.model import Fabric
from rdmabench.worker import device, facts
from rdmabench.worker.hotloop import face
from rdmabench.worker.session import Bench, LinkSession
from rdmabench.worker.sysfs import RealTree, Tree

_log = logging.getLogger("rdmabench.worker")
_SILENCE_LIMIT_S = 60.0
_CLOSING_LIMIT_S = 3.0
_SCRATCH_PREFIX = "rdmabench-"


class _Lane(threading.Thread):
    """A thread that carries out what is put into its queue, in order."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.session: Optional[LinkSession] = None
        self._queue: SimpleQueue[Optional[Callable[[], None]]] = SimpleQueue()

    def put(self, work: Optional[Callable[[], None]]) -> None:
        """Work to do, or None to end."""
        self._queue.put(work)

    def run(self) -> None:
        """As Thread.run."""
        while True:
            work = self._queue.get()
            if work is None:
                return
            work()


class Worker:
    """One node's end of the control connection."""

    def __init__(
        self,
        *,
        tree: Tree,
        hotloop_path: Optional[Path],
        sha256: str,
        silence_limit_s: float,
    ) -> None:
        self._tree = tree
        self._hotloop_path = hotloop_path
        self._sha256 = sha256
        self._output = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._control = _Lane("control")
        self._control.start()
        self._silence_limit_s = silence_limit_s
        self._bench: Optional[Bench] = None
        self._pyverbs_missing = ""
        self._leaving = False

    def serve(self) -> int:
        """Listen until it is time to end; returns the exit status."""
        deframer = wire.Deframer("controller")
        silent_s = 0.0  # the sum of waits, not a difference of clocks: a virtual node's may leap
        while not self._leaving:
            wait_s = min(self._silence_limit_s / 4, 5.0)
            ready, _, _ = select.select([0], [], [], wait_s)
            silent_s = 0.0 if ready else silent_s + wait_s
            if ready:
                data = os.read(0, 1 << 16)
                if not data:
                    _log.info("end of input")
                    break
                for envelope in deframer.feed(data):
                    self._dispatch(envelope)
            elif silent_s > self._silence_limit_s:
                _log.error("nothing heard for %.0f s: ending", self._silence_limit_s)
                return 1
        return 0

    def _dispatch(self, envelope: wire.Envelope) -> None:
        body, seq = envelope.body, envelope.seq
        if isinstance(body, wire.Heartbeat):
            return
        if isinstance(body, wire.Cancel):
            self._cancel(body.link)
            return
        if isinstance(body, wire.Bye):
            self.answer(seq, wire.Done())
            self._leaving = True
            return
        lane = self._lane_of(body)
        lane.put(lambda: self._carry_out(lane, body, seq))

    def _lane_of(self, body: Any) -> _Lane:
        name = getattr(body, "link", "")
        if not name:
            return self._control
        if name not in self._lanes:
            self._lanes[name] = _Lane(f"link {name}")
            self._lanes[name].start()
        return self._lanes[name]

    def _carry_out(self, lane: _Lane, body: Any, seq: int) -> None:
        try:
            answer = self._answer_to(lane, body)
        except RdmabenchError as exc:
            _log.warning("%s: %s", type(body).__name__, exc)
            answer = wire.Failure(
                kind=type(exc).__name__,
                what=exc.what,
                device=exc.device,
                errno=getattr(exc, "errno", 0),
                remedy=exc.remedy,
            )
        self.answer(seq, answer)

    def _answer_to(self, lane: _Lane, body: Any) -> Any:
        if isinstance(body, wire.Hello):
            return self._welcome(body)
        if self._bench is None:
            raise ProtocolError("the first message must be Hello")
        if isinstance(body, wire.ListEndpoints):
            return self._endpoints(self._bench, body)
        if isinstance(body, wire.Audit):
            return self._audit(self._bench, body)
        if isinstance(body, wire.OpenLink):
            return self._open(self._bench, lane, body)
        if isinstance(body, wire.CloseLink):
            return self._close(lane)
        return _link_answer(lane, body)

    def _welcome(self, hello: wire.Hello) -> wire.Welcome:
        self._silence_limit_s = hello.silence_limit_s
        os.environ.update(hello.env)
        self._pyverbs_missing = facts.pyverbs_problem()
        hotloop = face.Hotloop(self._hotloop_path) if self._hotloop_path else None
        clock = face.Clock("monotonic_raw", face.CLOCK_RAW, 1.0, 0.0)
        if hotloop is not None:
            clock = face.choose_clock(
                hotloop,
                invariant=facts.invariant_counter(self._tree),
                machine=os.uname().machine,
            )
        self._bench = Bench(
            host=hello.host,
            tree=self._tree,
            hotloop=hotloop,
            clock=clock,
            scratch=make_scratch(),
        )
        return wire.Welcome(
            facts.gather(
                self._tree,
                host=hello.host,
                clock=clock,
                pyverbs_missing=self._pyverbs_missing,
                worker_sha256=self._sha256,
            )
        )

    def _endpoints(self, bench: Bench, request: wire.ListEndpoints) -> wire.EndpointList:
        query: device.QueryPort = device.no_verbs
        if not self._pyverbs_missing:
            from rdmabench.worker.verbs import query_port

            query = query_port
        elif request.fabric is not Fabric.TCP:
            raise device.missing_pyverbs(self._pyverbs_missing)
        return wire.EndpointList(
            device.list_endpoints(request, host=bench.host, tree=self._tree, query=query)
        )

    def _audit(self, bench: Bench, request: wire.Audit) -> wire.AuditReport:
        from rdmabench.worker import audit
        from rdmabench.worker.tools import RealTools

        query: device.QueryPort = device.no_verbs
        if not self._pyverbs_missing:
            from rdmabench.worker.verbs import query_port

            query = query_port
        sources = audit.Sources(self._tree, RealTools(), query, self._pyverbs_missing)
        return wire.AuditReport(audit.gather(request.ports, sources, host=bench.host))

    @staticmethod
    def _open(bench: Bench, lane: _Lane, request: wire.OpenLink) -> wire.LinkOpened:
        if lane.session is not None:
            raise ProtocolError(f"link {request.link} is open already")
        lane.session = LinkSession(bench, request)
        return wire.LinkOpened(lane.session.link.address)

    @staticmethod
    def _close(lane: _Lane) -> wire.Done:
        if lane.session is not None:
            lane.session.close()
            lane.session = None
        return wire.Done()

    def _cancel(self, link: str) -> None:
        lane = self._lanes.get(link)
        if lane is not None and lane.session is not None:
            lane.session.stop()

    def answer(self, seq: int, body: Any) -> None:
        """Write one answer; a controller that is gone ends the worker."""
        data = wire.frame(wire.Envelope(body=body, seq=seq))
        with self._output:
            try:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            except OSError:
                self._leaving = True

    def leave(self) -> None:
        """Stop every loop, take every link down within a stated time, remove what was written."""
        for lane in [*self._lanes.values(), self._control]:
            if lane.session is not None:
                lane.session.stop()
            lane.put(partial(_quiet_close, lane))
            lane.put(None)
        limit = time.monotonic() + _CLOSING_LIMIT_S
        for lane in self._lanes.values():
            lane.join(max(0.0, limit - time.monotonic()))
        if self._bench is not None:
            shutil.rmtree(self._bench.scratch, ignore_errors=True)


def _quiet_close(lane: _Lane) -> None:
    try:
        Worker._close(lane)
    except RdmabenchError as exc:
        _log.warning("closing %s: %s", lane.name, exc)


def _link_answer(lane: _Lane, body: Any) -> Any:
    session = lane.session
    if session is None:
        raise DeviceError("the link is not open")
    if isinstance(body, wire.ConnectLink):
        session.connect(body)
    elif isinstance(body, wire.PrepareCase):
        session.prepare(body.case)
    elif isinstance(body, wire.RunCase):
        session.run()
    elif isinstance(body, wire.FinishCase):
        return wire.CaseDone(session.finish())
    else:
        raise ProtocolError(f"a worker is not asked for {type(body).__name__}")
    return wire.Done()


def make_scratch() -> Path:
    """A private directory for sample files, in memory where possible; stale ones are removed."""
    parent = Path("/dev/shm")  # noqa: S108 - mkdtemp below makes it private
    if not os.access(parent, os.W_OK):
        parent = Path(tempfile.gettempdir())
    prefix = f"{_SCRATCH_PREFIX}{os.getuid()}-"
    for stale in parent.glob(f"{prefix}*"):
        pid = stale.name.removeprefix(prefix).split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(stale, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))


def _die_of_defect(arguments: threading.ExceptHookArgs) -> None:
    """A defect in a link's thread ends the worker: the controller sees it go, the log says why."""
    sys.excepthook(arguments.exc_type, arguments.exc_value or SystemExit(), arguments.exc_traceback)
    sys.stderr.flush()
    os._exit(70)


def _on_signal(number: int, _frame: Optional[FrameType]) -> None:
    raise SystemExit(128 + number)


def main(argv: Optional[list[str]] = None) -> None:
    """Serve one controller, then exit without waiting for a loop that does not return."""
    parser = argparse.ArgumentParser(prog="rdmabench-worker")
    parser.add_argument("--hotloop", type=Path)
    parser.add_argument("--sha256", default="")
    parser.add_argument("--silence-limit-s", type=float, default=_SILENCE_LIMIT_S)
    parser.add_argument("--root", type=Path, default=Path("/"))
    options = parser.parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    threading.excepthook = _die_of_defect
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _on_signal)
    worker = Worker(
        tree=RealTree(options.root),
        hotloop_path=options.hotloop,
        sha256=options.sha256,
        silence_limit_s=options.silence_limit_s,
    )
    status = 1
    try:
        status = worker.serve()
    except ProtocolError as exc:
        _log.error("%s", exc)
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 1
    finally:
        worker.leave()
        sys.stderr.flush()
        os._exit(status)
