"""Where a series of nightly values changed, with a stated false-alarm rate.

Each series is replaced by the normal scores of its ranks, so one wild night weighs little. For
every split the standardised difference of the two sides is taken, and the largest of them judged.
What is large is found by permuting the order of the runs, for all series at once: the largest
statistic of any series in any order is the yardstick. So the false-alarm rate is that of all
series together, however many there are and however much they move together (P. Westfall and
S. Young, Resampling-Based Multiple Testing, 1993). After a change both sides are searched again.

Runs must be exchangeable where nothing changed: a slow drift is a change too, found somewhere in
its middle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, rankdata

Floats = npt.NDArray[np.float64]

MIN_SIDE = 3
PERMUTATIONS = 2000
_RELOCATIONS = 500
_SEED = 20_260_101
_CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Change:
    """The runs from `place` on (counted from 0) differ from those before it.

    The change came at one of the places `earliest` to `latest`: in about 95 of 100 changes that
    stand out clearly, in fewer of those that only just do. `start` and
    `stop` bound the runs that were compared. `p` is of all series together.
    """

    place: int
    earliest: int
    latest: int
    start: int
    stop: int
    p: float


def changes(values: Floats, *, false_alarm: float) -> list[list[Change]]:
    """The changes of each series, in the order of the runs.

    `values` has a row per series and a column per run, without gaps. Where nothing changed in any
    series, a change is found in any of them with probability `false_alarm` at most.
    """
    found: list[list[Change]] = [[] for _ in values]
    if not len(values):
        return found
    yardsticks: dict[tuple[int, int], Floats] = {}
    windows = [(row, 0, values.shape[1]) for row in range(len(values))]
    while windows:
        row, start, stop = windows.pop()
        if stop - start < runs_needed(1, false_alarm):
            continue
        if (start, stop) not in yardsticks:
            yardsticks[start, stop] = _yardstick(_scores(values[:, start:stop]))
        series = values[row, start:stop]
        split, statistic = _largest(_scores(series[np.newaxis, :]))
        beyond = int((yardsticks[start, stop] >= statistic[0] - 1e-9).sum())
        p = (1 + beyond) / (1 + PERMUTATIONS)
        if p > false_alarm:
            continue
        place = start + int(split[0])
        earliest, latest = (start + end for end in _located(series, int(split[0])))
        found[row].append(Change(place, earliest, latest, start, stop, p))
        windows += [(row, start, place), (row, place, stop)]
    return [sorted(each, key=lambda change: change.place) for each in found]


def runs_needed(series: int, false_alarm: float) -> int:
    """With how many runs a change in the middle, beyond all noise, is sure to be found.

    Of n runs, 2 of the C(n, n/2) ways to take half have all the lowest or all the highest; with
    independent series the chance that any of them looks like it is at most so many times higher.
    """
    runs = 2 * MIN_SIDE
    while 2 * max(1, series) / math.comb(runs, runs // 2) > false_alarm:
        runs += 1
    return runs


def _scores(values: Floats) -> Floats:
    """Normal scores of the ranks in each row, of mean 0 and variance 1; 0 for a constant row."""
    ranks = rankdata(values, axis=1)
    scores = np.asarray(norm.ppf(ranks / (values.shape[1] + 1)), dtype=np.float64)
    scores -= scores.mean(axis=1, keepdims=True)
    spread = scores.std(axis=1, keepdims=True)
    return np.divide(scores, spread, out=np.zeros_like(scores), where=spread > 0)


@cache
def _weights(runs: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Every allowed split, and what makes its sum of scores one of variance 1."""
    splits = np.arange(MIN_SIDE, runs - MIN_SIDE + 1)
    return splits, np.sqrt((runs - 1) / (splits * (runs - splits)))


def _statistics(scores: Floats) -> Floats:
    """For each series (rows) and split (columns): how far apart its two sides are."""
    splits, weights = _weights(scores.shape[-1])
    return np.asarray(np.abs(np.cumsum(scores, axis=-1)[..., splits - 1]) * weights)


def _largest(scores: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    statistics = _statistics(scores)
    places = statistics.argmax(axis=1)
    return _weights(scores.shape[1])[0][places], statistics.max(axis=1)


def _yardstick(scores: Floats) -> Floats:
    """The largest statistic of any series and split, in every permutation of the runs."""
    runs = scores.shape[1]
    rng = np.random.default_rng([_SEED, runs])
    orders = rng.permuted(np.tile(np.arange(runs), (PERMUTATIONS, 1)), axis=1)
    step = max(1, _CELLS_AT_ONCE // scores.size)
    return np.concatenate(
        [
            _statistics(scores[:, orders[first : first + step]]).max(axis=(0, 2))
            for first in range(0, PERMUTATIONS, step)
        ]
    )


def _located(series: Floats, split: int) -> tuple[int, int]:
    """Where else the change might have been: 95 % of what resampled noise around it gives."""
    rng = np.random.default_rng([_SEED, len(series), split])
    sides = (series[:split], series[split:])
    drawn = np.concatenate(
        [rng.choice(side, size=(_RELOCATIONS, len(side))) for side in sides], axis=1
    )
    places, _ = _largest(_scores(drawn))
    earliest, latest = np.quantile(places, [0.025, 0.975], method="inverted_cdf")
    return min(int(earliest), split), max(int(latest), split)


def segments(found: list[Change], runs: int) -> Iterator[tuple[int, int]]:
    """The stretches of runs between the changes, as first and beyond-last place."""
    edges = [0, *(change.place for change in found), runs]
    yield from zip(edges, edges[1:], strict=False)
