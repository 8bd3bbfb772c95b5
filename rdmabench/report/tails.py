"""The distribution of single latencies, from the samples that the run kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from rdmabench.collector import journal
from rdmabench.errors import RdmabenchError
from rdmabench.model import Outcome, Record, Samples
from rdmabench.report.chart import Trace, plain
from rdmabench.report.formats import number_text
from rdmabench.report.view import ReportRun
from rdmabench.units import NS_PER_US

log = logging.getLogger(__name__)

POINTS = 300
CASES_READ = 200
_LEAST_BEYOND = 1
_PARTS_OF_ROUND_TRIP = {"rtt": 2, "completion": 1}


@dataclass(frozen=True)
class Tail:
    """The pooled latencies of one operation and size in one run, thinned to a bounded number."""

    op: str
    size_bytes: int
    label: str
    color: str
    n: int
    read: int
    cases: int
    latency_us: tuple[float, ...]
    slower_pct: tuple[float, ...]

    @property
    def count_text(self) -> str:
        """`rxe 3,000 samples of 3 cases`, and of how many where not all were read."""
        of_all = f" (of {self.cases:,})" if self.read < self.cases else ""
        return f"{self.label} n = {self.n:,} samples of {self.read:,} cases{of_all}"

    def trace(self) -> Trace:
        """The share of messages that took as long or longer, against the latency."""
        pairs = zip(self.latency_us, self.slower_pct, strict=True)
        return {
            "type": "scatter",
            "mode": "lines",
            "name": f"{plain(self.label)} (n = {self.n:,})",
            "x": list(self.latency_us),
            "y": list(self.slower_pct),
            "line": {"color": self.color, "width": 2, "shape": "hv"},
            "text": [
                f"{plain(self.label)}<br>{number_text(share)} % took {number_text(us)} us or more"
                for us, share in pairs
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }


def tails(run: ReportRun) -> Iterator[Tail]:
    """Of each operation the smallest message that was measured.

    At most `CASES_READ` cases of each are read, spread evenly; samples that cannot be read are
    left out and logged.
    """
    records = _records(run)
    for op in sorted({op for op, _ in records}):
        size = min(size for each, size in records if each == op)
        kept = records[op, size]
        step = -(-len(kept) // CASES_READ)
        pooled = [part for part in (_latencies(run, each) for each in kept[::step]) if len(part)]
        if pooled:
            yield _tail(run, op, size, pooled, cases=len(kept))


def _records(run: ReportRun) -> dict[tuple[str, int], list[Samples]]:
    """The samples of every closed-loop case by operation and size, of its last attempt only."""
    last = {
        envelope.body.case.id: envelope.body
        for envelope in journal.read(run.directory.path)
        if isinstance(envelope.body, Record)
    }
    found: dict[tuple[str, int], list[Samples]] = {}
    for record in last.values():
        if record.outcome is not Outcome.MEASURED or record.case.parameters.probe != "latency":
            continue
        sides = (side.samples for side in (record.initiator, record.responder) if side)
        samples = next((each for each in sides if each), None)
        if samples and samples.kind in _PARTS_OF_ROUND_TRIP:
            key = (record.case.parameters.op, record.case.parameters.size_bytes)
            found.setdefault(key, []).append(samples)
    return found


def _latencies(run: ReportRun, samples: Samples) -> npt.NDArray[np.float64]:
    try:
        raw = run.directory.load_samples(samples)
    except RdmabenchError as exc:
        log.warning("a picture lacks samples: %s", exc)
        return np.empty(0)
    return np.asarray(raw.astype(np.float64) / _PARTS_OF_ROUND_TRIP[samples.kind])


def _tail(
    run: ReportRun, op: str, size: int, pooled: list[npt.NDArray[np.float64]], *, cases: int
) -> Tail:
    ordered = np.sort(np.concatenate(pooled))
    n = len(ordered)
    places = _places(n)
    return Tail(
        op=op,
        size_bytes=size,
        label=run.label,
        color=run.color,
        n=n,
        read=len(pooled),
        cases=cases,
        latency_us=tuple(float(value) for value in ordered[places] / NS_PER_US),
        slower_pct=tuple(float(share) for share in 100 * (n - places) / n),
    )


@cache
def _places(n: int) -> npt.NDArray[np.int64]:
    """Which order statistics are drawn: evenly in the logarithm of the share beyond them."""
    beyond = np.geomspace(_LEAST_BEYOND, n, min(POINTS, n))
    return np.unique(n - np.round(beyond).astype(np.int64))
