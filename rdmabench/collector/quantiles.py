"""What is computed from the raw samples of one case, and when there are too few for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

QUANTILES: Mapping[str, Fraction] = {
    "p50": Fraction(50, 100),
    "p90": Fraction(90, 100),
    "p99": Fraction(99, 100),
    "p99_9": Fraction(999, 1000),
    "p99_99": Fraction(9999, 10000),
}
MIN_SAMPLES_BEYOND = 10
_PARTS_OF_ROUND_TRIP = {"rtt": 2, "completion": 1}


def rank(n: int, quantile: Fraction) -> int:
    """The nearest rank, 1 to n: the smallest whole number that is at least `quantile * n`."""
    return max(1, -(-quantile.numerator * n // quantile.denominator))


def is_supported(n: int, quantile: Fraction) -> bool:
    """Whether at least 10 of n samples lie beyond the quantile: p99 wants 1,000, p99.9 10,000."""
    return n > 0 and n - rank(n, quantile) >= MIN_SAMPLES_BEYOND


@dataclass(frozen=True)
class LatencyStatistics:
    """One case's latency in nanoseconds; a quantile that n does not support is not in the map.

    `jitter_pct` is 100 (p99 - p50) / p50 and `cv_pct` is 100 stdev / mean; both are absent (a
    missing key) where a part of them is. `stdev` is that of a sample, divided by n - 1.
    """

    n: int
    min_ns: float
    mean_ns: float
    max_ns: float
    optional: Mapping[str, float]

    def columns(self) -> dict[str, float]:
        """By column name of the latency table; what is absent is left out."""
        always = {"min_ns": self.min_ns, "mean_ns": self.mean_ns, "max_ns": self.max_ns}
        return {"n": self.n, **always, **self.optional}


def latency_statistics(samples_ns: npt.NDArray[np.uint64], kind: str) -> LatencyStatistics:
    """The statistics of samples of a kind: half of each `rtt`, the whole of each `completion`.

    Raises:
        ValueError: no samples.
    """
    n = len(samples_ns)
    if n == 0:
        raise ValueError("no samples")
    latency_ns = np.sort(samples_ns).astype(np.float64) / _PARTS_OF_ROUND_TRIP[kind]
    optional = {
        f"{name}_ns": float(latency_ns[rank(n, quantile) - 1])
        for name, quantile in QUANTILES.items()
        if is_supported(n, quantile)
    }
    mean_ns = float(latency_ns.mean())
    optional.update(_spread(latency_ns, mean_ns, optional))
    return LatencyStatistics(
        n=n,
        min_ns=float(latency_ns[0]),
        mean_ns=mean_ns,
        max_ns=float(latency_ns[-1]),
        optional=optional,
    )


def _spread(
    latency_ns: npt.NDArray[Any], mean_ns: float, quantiles: Mapping[str, float]
) -> dict[str, float]:
    spread: dict[str, float] = {}
    if len(latency_ns) > 1:
        spread["stdev_ns"] = float(latency_ns.std(ddof=1))
        if mean_ns > 0:
            spread["cv_pct"] = 100 * spread["stdev_ns"] / mean_ns
    p50, p99 = quantiles.get("p50_ns", 0.0), quantiles.get("p99_ns", 0.0)
    if p50 > 0 and p99 > 0:
        spread["jitter_pct"] = 100 * (p99 - p50) / p50
    return spread
