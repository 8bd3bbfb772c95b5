"""Latency: one outstanding message, every iteration timed.

`send` and `write` are ping-pongs and their samples are round trips (latency is half of one);
`read` samples are whole times from post to completion, and its responder does nothing.
"""

from __future__ import annotations

from rdmabench.model import Role
from rdmabench.worker.end import End, Numbers

OPS = ("send", "write", "read")


def prepare(end: End) -> None:
    """Pattern out, zeros in, receives posted."""
    end.fill()
    if end.parameters.op == "send":
        end.engine.post_receives(end.total)


def run(end: End) -> Numbers:
    """The timed part; a read's responder is passive."""
    op, first = end.parameters.op, end.role is Role.INITIATOR
    if op == "read" and not first:
        return Numbers()
    timing = end.engine.run(f"{op}_lat", messages=end.total, first=first, timed=True)
    return Numbers(
        elapsed_ns=timing.elapsed_ns,
        message_count=end.parameters.iterations,
        payload_bytes=end.parameters.iterations * end.parameters.size_bytes,
        samples=timing.samples[8 * end.parameters.warmup :] if first else b"",
        sample_kind="completion" if op == "read" else "rtt",
    )


def check(end: End) -> int:
    """The bytes that must have arrived here are here; returns how many were looked at."""
    op = end.parameters.op
    if op == "read":
        return end.check_received() if end.role is Role.INITIATOR else 0
    return end.check_received(last_byte=end.total & 0xFF if op == "write" else None)
