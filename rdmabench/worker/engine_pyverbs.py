"""The same loops in pure pyverbs: an independent cross-check of the C engine.

It adds microseconds per completion (Python objects per work request and completion), so it is
chosen by name only and every row says so. One loop per operation, as in hotloop.c.
"""

from __future__ import annotations

import time
from array import array
from typing import Any

from pyverbs.wr import SGE, RecvWR, SendWR

from rdmabench.errors import ProbeError
from rdmabench.model import Parameters
from rdmabench.worker import abi
from rdmabench.worker.engine import Timing, inline_used, little_endian
from rdmabench.worker.memory import LaneSpec
from rdmabench.worker.verbs import VerbsLink, translated

_OPCODE = {"write": abi.WR_RDMA_WRITE, "send": abi.WR_SEND, "read": abi.WR_RDMA_READ}
_BATCH = 16


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


class PyverbsEngine:
    """One case on one end, posted and polled through pyverbs."""

    name = "pyverbs"
    clock_name = "monotonic_raw"

    def __init__(self, link: VerbsLink, parameters: Parameters) -> None:
        self._link = link
        self._parameters = parameters
        self._stopped = False
        self._deadline = 0.0
        self.clock_cost_ns = _clock_cost_ns()
        self._lanes = link.lanes(
            size_bytes=parameters.size_bytes,
            count=parameters.qps,
            reads_remote=parameters.op == "read",
        )
        self._requests = [
            {signalled: self._request(i, lane, signalled) for signalled in (False, True)}
            for i, lane in enumerate(self._lanes)
        ]
        self._receives = [self._receive(i, lane) for i, lane in enumerate(self._lanes)]
        self._posted_receives = [0] * len(self._lanes)
        self._messages = 0

    def _sge(self, offset: int, key: int) -> Any:
        return SGE(self._link.memory.address + offset, self._parameters.size_bytes, key)

    def _request(self, index: int, lane: LaneSpec, signalled: bool) -> Any:
        op = self._parameters.op
        flags = abi.SEND_SIGNALED if signalled else 0
        flags |= abi.SEND_INLINE if inline_used(self._link, self._parameters) else 0
        offset = lane.recv_offset if op == "read" else lane.send_offset
        request = SendWR(
            wr_id=index,
            opcode=_OPCODE[op],
            num_sge=1,
            sg=[self._sge(offset, lane.lkey)],
            send_flags=flags,
        )
        if op != "send":
            request.set_wr_rdma(lane.rkey, lane.remote_addr)
        return request

    def _receive(self, index: int, lane: LaneSpec) -> Any:
        return RecvWR(wr_id=index, num_sge=1, sg=[self._sge(lane.recv_offset, lane.lkey)])

    def post_receives(self, messages: int) -> None:
        """As `Engine.post_receives`."""
        self._messages = messages
        for index in range(len(self._lanes)):
            while self._posted_receives[index] < min(messages, self._link.parameters.recv_depth):
                self._post_receive(index)

    def _post_receive(self, index: int) -> None:
        with translated(self._link.endpoint.device, "posting a receive"):
            self._link.qps[index].post_recv(self._receives[index])
        self._posted_receives[index] += 1

    def run(self, loop: str, *, messages: int, first: bool = False, timed: bool = False) -> Timing:
        """As `Engine.run`.

        Raises:
            ProbeError: the loop did not end well.
        """
        self._deadline = time.monotonic() + self._parameters.deadline_s
        self._messages = messages
        start = _now_ns()
        if loop == "recv_bw":
            self._receive_stream(messages)
        elif loop.endswith("_bw"):
            self._stream(messages)
        else:
            stamps = self._ping_pong(loop, messages, first=first)
            samples = array("Q", (b - a for a, b in zip(stamps, stamps[1:])))
            return Timing(_now_ns() - start, little_endian(samples) if timed else b"")
        return Timing(_now_ns() - start)

    def stop(self) -> None:
        """As `Engine.stop`."""
        self._stopped = True

    def _ping_pong(self, loop: str, messages: int, *, first: bool) -> list[int]:
        give = {"send_lat": self._give_send, "write_lat": self._give_write}.get(loop)
        take = {"send_lat": self._take_send, "write_lat": self._take_write}.get(loop)
        stamps = []
        for number in range(1, messages + 1):
            stamps.append(_now_ns())
            if give is None or take is None:
                self._post_and_wait()
            elif first:
                give(number)
                take(number)
            else:
                take(number)
                give(number)
        stamps.append(_now_ns())
        return stamps

    def _post_and_wait(self) -> None:
        self._post(0, signalled=True)
        self._wait(self._link.send_cq)

    def _give_send(self, _number: int) -> None:
        self._post_and_wait()

    def _take_send(self, _number: int) -> None:
        self._wait(self._link.recv_cq)
        if self._posted_receives[0] < self._messages:
            self._post_receive(0)

    def _give_write(self, number: int) -> None:
        last = self._lanes[0].send_offset + self._parameters.size_bytes - 1
        self._link.memory.view[last] = number & 0xFF
        self._post_and_wait()

    def _take_write(self, number: int) -> None:
        last = self._lanes[0].recv_offset + self._parameters.size_bytes - 1
        view, value, spins = self._link.memory.view, number & 0xFF, 0
        while view[last] != value:
            spins += 1
            if spins % 1024 == 0:
                self._look_at_deadline()

    def _post(self, index: int, *, signalled: bool) -> None:
        with translated(self._link.endpoint.device, "posting a send"):
            self._link.qps[index].post_send(self._requests[index][signalled])

    def _wait(self, queue: Any) -> None:
        while True:
            count, completions = queue.poll(1)
            if count:
                self._judge(completions[0])
                return
            self._look_at_deadline()

    def _stream(self, messages: int) -> None:
        wanted = self._parameters
        posted, completed = [0] * wanted.qps, [0] * wanted.qps
        while min(completed) < messages:
            for index in range(wanted.qps):
                while posted[index] < messages and posted[index] - completed[index] < wanted.depth:
                    posted[index] += 1
                    number = posted[index]
                    ask = number % wanted.cq_moderation == 0 or number == messages
                    self._post(index, signalled=ask)
            for index in self._reap(self._link.send_cq):
                completed[index] = min(completed[index] + wanted.cq_moderation, messages)

    def _receive_stream(self, messages: int) -> None:
        left = messages * self._parameters.qps
        while left:
            for index in self._reap(self._link.recv_cq):
                left -= 1
                if self._posted_receives[index] < messages:
                    self._post_receive(index)

    def _reap(self, queue: Any) -> list[int]:
        count, completions = queue.poll(_BATCH)
        if not count:
            self._look_at_deadline()
            return []
        for completion in completions:
            self._judge(completion)
        return [int(completion.wr_id) for completion in completions]

    def _judge(self, completion: Any) -> None:
        if completion.status:
            vendor = int(completion.vendor_err)
            detail = f" (vendor error {vendor:#x})" if vendor else ""
            raise ProbeError(
                f"{self._parameters.what}: {abi.wc_status_text(int(completion.status))}{detail}",
                device=self._link.endpoint.device,
            )

    def _look_at_deadline(self) -> None:
        if self._stopped:
            raise ProbeError(f"{self._parameters.what}: stopped by the controller")
        if time.monotonic() > self._deadline:
            raise ProbeError(
                f"{self._parameters.what}: not finished within its deadline of "
                f"{self._parameters.deadline_s:g} s",
                device=self._link.endpoint.device,
            )


def _clock_cost_ns() -> float:
    start = _now_ns()
    for _ in range(1000):
        _now_ns()
    return (_now_ns() - start) / 1001
