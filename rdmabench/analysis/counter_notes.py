"""What moved counters mean for a measurement: throttled, dropped, resent, or nothing.

Counters are since boot, so only what moved between two readings says something about a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rdmabench.analysis.counter_names import deltas
from rdmabench.analysis.preflight_roce import traffic_by_priority

_RETRY_EXCEEDED = 12  # IBV_WC_RETRY_EXC_ERR
_DROPS = ("received_discards", "sent_discards", "out_of_buffer")
_RESENT = ("out_of_sequence", "sequence_errors", "ack_timeouts", "duplicate_requests")


@dataclass(frozen=True)
class Note:
    """One thing that a row must say; `kind` is paused, dropped, resent, corrupted or congested."""

    kind: str
    text: str
    amount: int


def notes(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Note, ...]:
    """What happened between two readings of one port; empty where nothing did."""
    changes = deltas(before, after)
    return (
            *_paused(changes),
            *_summed(changes, "dropped", _DROPS, "packets were dropped"),
            *_summed(changes, "resent", _RESENT, "signs of loss and resending"),
            *_summed(changes, "corrupted", ("icrc_errors", "symbol_errors"), "packets or symbols "
                     "were corrupt"),
            *_summed(changes, "congested", ("ecn_marked", "cnp_handled"), "marks of congestion"),
    )  # fmt: skip


def _paused(changes: Mapping[tuple[str, int], int]) -> Iterator[Note]:
    """Received: the far end throttles us. Sent: our own receiver is too slow."""
    ways = {
        "received": "throttled by received pause",
        "sent": "this receiver is slow: it sent pause",
    }
    for way, text in ways.items():
        for (name, priority), frames in sorted(changes.items()):
            if name == f"{way}_pause" and frames:
                where = f" on priority {priority}" if priority >= 0 else " (global)"
                yield Note("paused", f"{text}{where}: {frames} frames during the run", frames)


def _summed(
    changes: Mapping[tuple[str, int], int], kind: str, names: tuple[str, ...], text: str
) -> Iterator[Note]:
    found = {name: changes[name, -1] for name in names if changes.get((name, -1))}
    if found:
        parts = ", ".join(f"{name} {amount}" for name, amount in found.items())
        yield Note(kind, f"{text}: {parts}", sum(found.values()))


def priority_note(counters: Mapping[str, int], priority: int) -> str:
    """Whether traffic went where it belongs; empty where it did, or is not counted."""
    traffic = traffic_by_priority(dict(counters))
    used = [number for number, size in traffic.items() if size]
    if not used or traffic.get(priority, 1):
        return ""
    return (
        f"no traffic in priority {priority}, all of it in {', '.join(map(str, used))}: the traffic "
        "class or DSCP does not map to the lossless class"
    )


def timeout_meaning(moved: int, *, status: int, retry_cnt: int = 7) -> str:
    """What so many ack timeouts during a case mean, with the status of its failed completion.

    A queue pair that fails sends once and repeats `retry_cnt` times, so each adds 1 + retry_cnt.
    """
    tries = retry_cnt + 1
    if moved == 0:
        return "the error is the peer's" if status == _RETRY_EXCEEDED else "clean"
    if status == _RETRY_EXCEEDED and moved % tries == 0:
        queues = moved // tries
        return f"{'one QP' if queues == 1 else f'{queues} QPs'} exhausted {retry_cnt} retries"
    return f"{moved} requests were repeated after a timeout"
