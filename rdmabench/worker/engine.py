"""The engine that times: C loops of hotloop.c over the link's queue pairs or sockets.

`engine_pyverbs` offers the same methods in pure Python, as a cross-check.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from array import array
from dataclasses import dataclass
from typing import Any, Optional, Protocol

from rdmabench.errors import ProbeError
from rdmabench.model import Endpoint, LinkAddress, LinkParameters, Parameters, Role
from rdmabench.units import NS_PER_S
from rdmabench.worker import abi
from rdmabench.worker.hotloop import face
from rdmabench.worker.memory import LaneSpec, Memory


class Link(Protocol):
    """One end of a pair, as probes and engines see it: `VerbsLink` or `TcpLink`."""

    transport: str
    endpoint: Endpoint
    role: Role
    parameters: LinkParameters
    memory: Memory
    inline_bytes: int
    mtu_bytes: int

    @property
    def address(self) -> LinkAddress:
        """What the other end needs to connect."""

    def connect(self, remote: LinkAddress) -> None:
        """Bring the link up."""

    def lanes(self, *, size_bytes: int, count: int, reads_remote: bool) -> tuple[LaneSpec, ...]:
        """Buffers of the first `count` queue pairs or streams."""

    def close(self) -> None:
        """Take it down."""


@dataclass(frozen=True)
class Timing:
    """What one loop took. `samples` are u64 nanoseconds, little-endian; empty for streams."""

    elapsed_ns: int
    samples: bytes = b""


class Engine(Protocol):
    """One case on one end of a link."""

    name: str
    clock_name: str
    clock_cost_ns: float

    def post_receives(self, messages: int) -> None:
        """Post receives for so many messages per lane; more are posted as they are used."""

    def run(self, loop: str, *, messages: int, first: bool = False, timed: bool = False) -> Timing:
        """Run a loop: send_lat, write_lat, read_lat, write_bw, read_bw, send_bw, recv_bw."""

    def stop(self) -> None:
        """End the loop that runs, from another thread."""


_TCP_LOOPS = {"send_lat": "tcp_lat", "send_bw": "tcp_send_bw", "recv_bw": "tcp_recv_bw"}
_CALLS = {
    face.POST_SEND: "posting a send",
    face.POST_RECV: "posting a receive",
    face.POLL: "polling the completion queue",
    face.SOCKET: "the socket",
}


class HotloopEngine:
    """Runs the C loops; verbs and TCP alike."""

    name = "hotloop"

    def __init__(
        self,
        link: Link,
        parameters: Parameters,
        *,
        hotloop: face.Hotloop,
        clock: face.Clock,
    ) -> None:
        self._link = link
        self._parameters = parameters
        self._hotloop = hotloop
        self._clock = clock
        self.clock_name = clock.name
        self.clock_cost_ns = clock.cost_ns
        self._stop = ctypes.c_int32(0)
        specs = link.lanes(
            size_bytes=parameters.size_bytes,
            count=parameters.qps,
            reads_remote=parameters.op == "read",
        )
        self._lanes = (face.Lane * len(specs))(*(self._lane(spec) for spec in specs))
        self._run = self._new_run()

    def _lane(self, spec: LaneSpec) -> face.Lane:
        base = self._link.memory.address
        lane = face.Lane(
            send_addr=base + spec.send_offset,
            recv_addr=base + spec.recv_offset,
            remote_addr=spec.remote_addr,
            lkey=spec.lkey,
            rkey=spec.rkey,
        )
        if self._link.transport == "TCP":
            lane.fd = spec.handle
        else:
            lane.qp = spec.handle
        return lane

    def _new_run(self) -> face.Run:
        wanted = self._parameters
        inline = _inline(self._link, wanted)
        return face.Run(
            abi=face.ABI,
            lane_count=len(self._lanes),
            lanes=self._lanes,
            size=wanted.size_bytes,
            depth=wanted.depth,
            recv_depth=self._link.parameters.recv_depth,
            cq_moderation=wanted.cq_moderation,
            send_flags=abi.SEND_INLINE if inline else 0,
            clock=self._clock.code,
            stop=ctypes.pointer(self._stop),
        )

    def post_receives(self, messages: int) -> None:
        """As `Engine.post_receives`; sockets need none."""
        if self._link.transport == "TCP":
            return
        self._run.messages = messages
        self._check(self._hotloop.post_receives(self._run))

    def run(self, loop: str, *, messages: int, first: bool = False, timed: bool = False) -> Timing:
        """As `Engine.run`.

        Raises:
            ProbeError: the loop did not end well.
        """
        stamps = self._reset(messages, timed=timed, keep_receives=loop in ("send_lat", "recv_bw"))
        name = _TCP_LOOPS[loop] if self._link.transport == "TCP" else loop
        self._check(self._hotloop.loop(name, self._run, first=first))
        elapsed = self._run.last_ns - self._run.first_ns
        if stamps is None:
            return Timing(elapsed)
        durations = self._hotloop.durations(stamps, self._clock.ns_per_tick)
        return Timing(elapsed, little_endian(array("Q", durations)))

    def _reset(self, messages: int, *, timed: bool, keep_receives: bool) -> Optional[Any]:
        for lane in self._lanes:
            lane.posted = lane.completed = 0
            if not keep_receives or self._link.transport == "TCP":
                lane.received = 0
        self._run.messages = messages
        self._run.deadline_ns = time.monotonic_ns() + int(self._parameters.deadline_s * NS_PER_S)
        if not timed:
            return None
        stamps = (ctypes.c_uint64 * (messages + 1))()
        self._run.stamps = ctypes.cast(stamps, ctypes.POINTER(ctypes.c_uint64))
        return stamps

    def stop(self) -> None:
        """As `Engine.stop`."""
        self._stop.value = 1

    def _check(self, where: int) -> None:
        if where != face.DONE:
            raise self._ending(where)

    def _ending(self, where: int) -> ProbeError:
        run, what = self._run, self._parameters.what
        done = sum(lane.completed for lane in self._lanes)
        total = run.messages * len(self._lanes)
        progress = f"{what}: after {done} of {total} messages"
        if where == face.COMPLETION:
            reason = abi.wc_status_text(run.wc_status)
            if run.vendor_err:
                reason += f" (vendor error {run.vendor_err:#x})"
        elif where == face.DEADLINE:
            reason = f"not finished within its deadline of {self._parameters.deadline_s:g} s"
        elif where == face.STOPPED:
            reason = "stopped by the controller"
        elif where == face.PEER_CLOSED:
            reason = "the peer closed the connection"
        else:
            call = _CALLS.get(where, "the loop")
            reason = f"{call} failed: {abi.errno_text(run.error)} {os.strerror(run.error)}"
        return ProbeError(f"{progress}: {reason}", device=self._link.endpoint.device)


def _inline(link: Link, parameters: Parameters) -> bool:
    fits = parameters.size_bytes <= min(parameters.inline_bytes, link.inline_bytes)
    return fits and parameters.op != "read"


def inline_used(link: Link, parameters: Parameters) -> int:
    """Bytes posted inline in this case: the message size, or 0."""
    return parameters.size_bytes if _inline(link, parameters) else 0


def little_endian(values: array[int]) -> bytes:
    """The bytes of u64 values in the order that sample files have."""
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
