"""Bandwidth: a stream of messages with `depth` outstanding on each queue pair, one way.

Timed on the initiator from the first post to the last completion, which for RC (and for TCP's
receipt) means that the far end has everything. Warm-up messages run before, untimed.
"""

from __future__ import annotations

from rdmabench.model import Role
from rdmabench.worker.end import End, Numbers

OPS = ("send", "write", "read")


def prepare(end: End) -> None:
    """Pattern out, zeros in, receives posted."""
    end.fill()
    if end.parameters.op == "send" and end.role is Role.RESPONDER:
        end.engine.post_receives(end.total)


def run(end: End) -> Numbers:
    """The timed part; write and read have a passive responder."""
    wanted = end.parameters
    if end.role is Role.RESPONDER:
        return _receive(end) if wanted.op == "send" else Numbers()
    if wanted.warmup:
        end.engine.run(f"{wanted.op}_bw", messages=wanted.warmup)
    timing = end.engine.run(f"{wanted.op}_bw", messages=wanted.iterations)
    return _numbers(end, timing.elapsed_ns)


def _receive(end: End) -> Numbers:
    """Verbs receive one stream; over TCP each of the sender's two streams ends with a receipt."""
    wanted = end.parameters
    if wanted.transport != "TCP":
        return _numbers(end, end.engine.run("recv_bw", messages=end.total).elapsed_ns)
    if wanted.warmup:
        end.engine.run("recv_bw", messages=wanted.warmup)
    return _numbers(end, end.engine.run("recv_bw", messages=wanted.iterations).elapsed_ns)


def _numbers(end: End, elapsed_ns: int) -> Numbers:
    wanted = end.parameters
    per_qp = wanted.iterations * wanted.size_bytes
    return Numbers(
        elapsed_ns=elapsed_ns,
        message_count=wanted.iterations * wanted.qps,
        payload_bytes=per_qp * wanted.qps,
        payload_bytes_per_qp=(per_qp,) * wanted.qps,
    )


def check(end: End) -> int:
    """The receiving end (a read's initiator) holds the pattern of every lane."""
    receiver = Role.INITIATOR if end.parameters.op == "read" else Role.RESPONDER
    return end.check_received() if end.role is receiver else 0
