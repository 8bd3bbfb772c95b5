"""Statistics over repeats. The unit of inference is the repeat, never the iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from scipy.stats import t as student_t

from rdmabench.collector.quantiles import is_supported, rank

__all__ = [
    "MIN_REPEATS",
    "Interval",
    "jitter_pct",
    "median",
    "median_interval",
    "median_intervals",
    "nearest_rank",
    "quantile_is_supported",
    "ratio_interval",
    "ratio_intervals",
]

Floats = npt.NDArray[np.float64]

MIN_REPEATS = 3
CONFIDENCE_PCT = 95.0
RESAMPLES = 2000
_SEED = 20_260_101
_CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Interval:
    """A 95 % bootstrap interval; where `reason` is not empty there is none, and both ends are NaN.

    `reachable_pct` is the most that any interval inside the range of so few repeats can hold:
    100 (1 - 2^(1-n)), which is 75 for three repeats, 93.75 for five and above 95 from six on.
    """

    lo: float
    hi: float
    n: int
    reason: str = ""
    reachable_pct: float = CONFIDENCE_PCT

    @property
    def is_available(self) -> bool:
        """Whether there are enough repeats for an interval."""
        return not self.reason

    def spans(self, value: float) -> bool:
        """Whether the value lies in the interval; false where there is none."""
        return self.is_available and self.lo <= value <= self.hi


def nearest_rank(values: npt.ArrayLike, quantile: float) -> float:
    """The nearest-rank quantile, which is always one of the values.

    Of n values in rising order it is the one at rank ceil(quantile * n), counted from 1 (and the
    first for quantile 0). No interpolation: of 1 to 100, the 0.99 quantile is 99. The quantile is
    taken as it is written in decimals, so 0.999 of 10,000 values is rank 9,990 exactly.

    Raises:
        ValueError: no values, or a quantile that is not in 0 to 1.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if not len(ordered):
        raise ValueError("no values")
    if not 0 <= quantile <= 1:
        raise ValueError(f"quantile {quantile} is not in 0 to 1")
    return float(ordered[rank(len(ordered), Fraction(str(quantile))) - 1])


def quantile_is_supported(n: int, quantile: float) -> bool:
    """Whether at least 10 of n samples lie beyond the quantile."""
    return is_supported(n, Fraction(str(quantile)))


def median(values: npt.ArrayLike) -> float:
    """The middle value; of an even number of values, the mean of the two in the middle.

    Raises:
        ValueError: no values.
    """
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        raise ValueError("no values")
    return float(np.median(array))


def jitter_pct(p50: float, p99: float) -> float:
    """100 (p99 - p50) / p50, for a p50 above 0."""
    return 100 * (p99 - p50) / p50


def median_interval(repeats: npt.ArrayLike) -> Interval:
    """The 95 % interval of the median of these repeats."""
    values = np.asarray(repeats, dtype=np.float64)
    n = len(values)
    if n < MIN_REPEATS:
        return _unavailable(n)
    lo, hi = median_intervals(values[np.newaxis, :])
    return Interval(lo=float(lo[0]), hi=float(hi[0]), n=n, reachable_pct=reachable_pct(n))


def ratio_interval(base: npt.ArrayLike, other: npt.ArrayLike) -> Interval:
    """The 95 % interval of median(other) / median(base), from independent repeats.

    With three repeats on each side, two equal things are told apart by chance in about one
    comparison of ten (the ranges do not overlap in 2 of 20 orders); with four in 3 of 100.
    """
    base_values = np.asarray(base, dtype=np.float64)
    other_values = np.asarray(other, dtype=np.float64)
    n = min(len(base_values), len(other_values))
    if n < MIN_REPEATS:
        return _unavailable(n)
    lo, hi = ratio_intervals(base_values[np.newaxis, :], other_values[np.newaxis, :])
    return Interval(lo=float(lo[0]), hi=float(hi[0]), n=n, reachable_pct=reachable_pct(n))


def reachable_pct(n: int) -> float:
    """How often the range of n repeats holds the true median, at most 95."""
    return min(CONFIDENCE_PCT, 100 * (1 - 2.0 ** (1 - n)))


def _unavailable(n: int) -> Interval:
    return Interval(
        lo=math.nan,
        hi=math.nan,
        n=n,
        reason=f"{n} repeats; an interval wants at least {MIN_REPEATS}",
        reachable_pct=0.0,
    )


def median_intervals(groups: Floats) -> tuple[Floats, Floats]:
    """As `median_interval`, for many groups of the same number of repeats, one group a row.

    The resamples are drawn once from a fixed seed and serve every group, so a group's interval
    depends on nothing but its own values.
    """
    n = groups.shape[1]
    ordered, middle = np.sort(groups, axis=1), _middle_picks(n, stream=0)
    return _by_chunks(lambda rows: _medians(ordered[rows], middle), len(groups), n=n)


def ratio_intervals(base: Floats, other: Floats) -> tuple[Floats, Floats]:
    """As `ratio_interval`, row by row of two arrays of groups."""
    base_ordered, base_middle = np.sort(base, axis=1), _middle_picks(base.shape[1], stream=1)
    other_ordered, other_middle = np.sort(other, axis=1), _middle_picks(other.shape[1], stream=2)

    def ratios(rows: slice) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(
                _medians(other_ordered[rows], other_middle)
                / _medians(base_ordered[rows], base_middle)
            )

    return _by_chunks(ratios, len(base), n=min(base.shape[1], other.shape[1]))


def _middle_picks(n: int, *, stream: int) -> npt.NDArray[np.int64]:
    """Of each resample of n ordered values, the two in its middle: one and the same for odd n."""
    draws = np.random.default_rng([_SEED, stream, n]).integers(0, n, size=(RESAMPLES, n))
    draws.sort(axis=1)
    return draws[:, [(n - 1) // 2, n // 2]]


def _medians(ordered: Floats, middle: npt.NDArray[np.int64]) -> Floats:
    """The median of every resample (columns) of every group (rows)."""
    return np.asarray((ordered[:, middle[:, 0]] + ordered[:, middle[:, 1]]) / 2)


def _by_chunks(
    resampled: Callable[[slice], Floats], count: int, *, n: int
) -> tuple[Floats, Floats]:
    """Both ends for every group, a bounded number of groups in memory at a time."""
    tail = _tail(n)
    step = max(1, _CELLS_AT_ONCE // RESAMPLES)
    los, his = [np.empty(0)], [np.empty(0)]
    for start in range(0, count, step):
        values = resampled(slice(start, start + step))
        lo, hi = np.quantile(values, [tail, 1 - tail], axis=1, method="inverted_cdf")
        los.append(lo)
        his.append(hi)
    return np.concatenate(los), np.concatenate(his)


@cache
def _tail(n: int) -> float:
    """The share of resamples beyond each end: the expanded percentile interval.

    The plain 2.5 % make too short an interval of few repeats (of seven it holds the median in 87
    of 100 runs). T. Hesterberg, What Teachers Should Know about the Bootstrap, The American
    Statistician 69 (2015).
    """
    expected = 1 - (100 - CONFIDENCE_PCT) / 200
    return float(norm.cdf(-math.sqrt(n / (n - 1)) * student_t.ppf(expected, n - 1)))
