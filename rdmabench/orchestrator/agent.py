"""The other end of one worker: request, answer, heartbeat, deadline."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from pathlib import Path
from typing import Any, Protocol

from rdmabench import errors, wire
from rdmabench.errors import DeadlineError, HostError, ProtocolError, WorkerLostError
from rdmabench.model import NodeFacts

SILENCE_LIMIT_S = 60.0
_READ_SLICE_S = 3600.0
_LOG_TAIL_BYTES = 2000
_CANCEL_LIMIT_S = 5.0
_STATUS_LIMIT_S = 2.0
_STATUS_POLL_S = 0.02
_NOT_STARTED = (126, 127)  # the shell's: found and not executable, not found


class Process(Protocol):
    """A started worker, wherever it runs: bytes in, bytes out."""

    def write(self, data: bytes) -> None:
        """To its stdin."""

    def read(self, timeout_s: float) -> bytes:
        """From its stdout; b"" at the end; DeadlineError when nothing came."""

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""

    def close(self) -> None:
        """End of its input; it then ends itself."""


class Agent:
    """Speaks with one worker; any thread may ask, answers come back by number."""

    def __init__(self, process: Process, *, host: str, log: Path) -> None:
        self.host = host
        self._process = process
        self._log = log
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._seq = 0
        self._lost: HostError | None = None
        self._closing = threading.Event()
        self._beat_s = SILENCE_LIMIT_S / 4
        threading.Thread(target=self._listen, daemon=True, name=f"listen {host}").start()
        threading.Thread(target=self._beat, daemon=True, name=f"beat {host}").start()

    def hello(
        self,
        env: Mapping[str, str],
        *,
        deadline_s: float,
        silence_limit_s: float = SILENCE_LIMIT_S,
    ) -> NodeFacts:
        """First exchange: the node's facts."""
        request = wire.Hello(host=self.host, silence_limit_s=silence_limit_s, env=env)
        self._beat_s = silence_limit_s / 4
        answer: wire.Welcome = self.ask(request, deadline_s=deadline_s)
        return answer.facts

    def send(self, body: Any) -> Future[Any]:
        """Ask; the future holds the answer, or one of our errors.

        Raises:
            WorkerLostError, ConnectError: the worker is gone already.
        """
        with self._lock:
            if self._lost is not None:
                raise self._lost
            self._seq += 1
            seq = self._seq
            future: Future[Any] = Future()
            self._waiting[seq] = future
        self._process.write(wire.frame(wire.Envelope(body=body, seq=seq)))
        return future

    def tell(self, body: Any) -> None:
        """Say something that has no answer; a worker that is gone does not hear it."""
        try:
            self._process.write(wire.frame(wire.Envelope(body=body)))
        except HostError:
            return

    def ask(self, body: Any, *, deadline_s: float) -> Any:
        """Ask and wait.

        Raises:
            HostError: the worker's failure, or no answer in time.
        """
        return self.wait_for(self.send(body), body, deadline_s=deadline_s)

    def wait_for(self, future: Future[Any], body: Any, *, deadline_s: float) -> Any:
        """The answer of a request sent before.

        Raises:
            HostError: the worker's failure, or no answer in time.
        """
        try:
            return future.result(timeout=deadline_s)
        except TimeoutError as exc:
            raise self.too_late(body, deadline_s) from exc

    def too_late(self, body: Any, deadline_s: float) -> DeadlineError:
        """The error for a worker that is there and has not answered."""
        return DeadlineError(
            f"the worker did not answer {type(body).__name__} within {deadline_s:.0f} s",
            host=self.host,
            remedy=f"see whether the node hangs or is overloaded (`dmesg`, `top`); {self._log} "
            "has what the worker said",
        )

    def close(self) -> None:
        """End the worker: by its end of input, which it hears even while a loop runs."""
        self._closing.set()
        self._process.close()

    def _listen(self) -> None:
        deframer = wire.Deframer(self.host)
        while True:
            try:
                data = self._process.read(_READ_SLICE_S)
                if not data:
                    self._lose(self._why_it_ended(deframer.noise))
                    return
                for envelope in deframer.feed(data):
                    self._resolve(envelope)
            except DeadlineError:
                continue
            except HostError as exc:
                self._lose(exc)
                return

    def _resolve(self, envelope: wire.Envelope) -> None:
        with self._lock:
            future = self._waiting.pop(envelope.seq, None)
        if future is None:
            return
        if isinstance(envelope.body, wire.Failure):
            future.set_exception(as_error(envelope.body, self.host))
        else:
            future.set_result(envelope.body)

    def _lose(self, why: HostError) -> None:
        with self._lock:
            self._lost = why
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(why)

    def _why_it_ended(self, noise: bytes) -> HostError:
        status = self._status_soon()
        said = self._log_tail() or noise.decode(errors="replace").strip()[-300:]
        detail = f"; its last words: {said}" if said else ""
        if status in _NOT_STARTED:
            return WorkerLostError(
                f"the worker did not start (status {status}){detail}",
                host=self.host,
                remedy="install Python 3.9 or later there, or point ansible_python_interpreter at "
                "it",
            )
        if status is not None and status >= 0:
            how = f"the worker ended by itself with status {status}{detail}"
            return WorkerLostError(how, host=self.host, remedy=f"{self._log} has all that it said")
        return WorkerLostError(
            f"the connection to the node ended, or its worker was killed{detail}",
            host=self.host,
            remedy="see whether the node is up and can be reached, and in its `dmesg` whether the "
            "worker was killed for want of memory",
        )

    def _status_soon(self) -> int | None:
        """The exit status, which comes a little after the end of the output."""
        for _ in range(round(_STATUS_LIMIT_S / _STATUS_POLL_S)):
            if self._process.exit_status is not None or self._closing.wait(_STATUS_POLL_S):
                break
        return self._process.exit_status

    def _log_tail(self) -> str:
        try:
            text = self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
        except OSError:
            return ""
        return " | ".join(text.strip().splitlines()[-3:])

    def _beat(self) -> None:
        while not self._closing.wait(min(self._beat_s, SILENCE_LIMIT_S / 4)):
            if self._lost is not None:
                return
            self.tell(wire.Heartbeat())


def as_error(failure: wire.Failure, host: str) -> HostError:
    """The worker's failure as the error class it names."""
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, HostError)):
        return ProtocolError(f"{failure.kind}: {failure.what}", host=host)
    error = kind(failure.what, host=host, device=failure.device, remedy=failure.remedy)
    if isinstance(error, errors.VerbsError):
        error.errno = failure.errno
    return error


def ask_both(
    requests: Sequence[tuple[Agent, Any]], *, deadline_s: float, on_failure: Sequence[Any] = ()
) -> list[Any]:
    """Ask several workers at once; the first failure is told to all (`on_failure`) and raised.

    Raises:
        HostError: the first failure, or that of the worker which did not answer in time.
    """
    futures: list[Future[Any]] = []
    try:
        for agent, body in requests:
            futures.append(agent.send(body))
    except HostError:
        _tell_all(requests, on_failure, futures)
        raise
    _done, late = wait(futures, timeout=deadline_s, return_when=FIRST_EXCEPTION)
    failed = [future for future in futures if future.done() and future.exception() is not None]
    if failed or late:
        _tell_all(requests, on_failure, futures)
    if failed:
        failed[0].result()
    for future, (agent, body) in zip(futures, requests, strict=True):
        if future in late:
            raise agent.too_late(body, deadline_s)
    return [future.result() for future in futures]


def _tell_all(
    requests: Sequence[tuple[Agent, Any]], messages: Sequence[Any], futures: Sequence[Future[Any]]
) -> None:
    """Tell every worker, and give those that were asked a moment to end what they do."""
    for (agent, _body), message in zip(requests, messages, strict=False):
        agent.tell(message)
    if messages:
        wait(futures, timeout=_CANCEL_LIMIT_S)
