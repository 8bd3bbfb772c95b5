"""Where a series of nightly values changed, with a stated false-alarm rate.

Each series is replaced by the normal scores of its ranks, so one wild night weighs little. Every
stretch of runs is set against the rest, and the largest standardised difference is judged, apart
for steps (a stretch at an end) and for excursions (one in the middle; circular binary
segmentation: A. Olshen et al., Biostatistics 5, 2004). What is large is found by permuting the
order of the runs, for all series at once: the largest statistic of any series in any order is the
yardstick. So the false-alarm rate is that of all series together, however many there are and
however much they move together (P. Westfall and S. Young, Resampling-Based Multiple Testing,
1993). What lies between changes is searched again. Where a change came is then read from the
values: the split that leaves the smallest absolute deviations.

Runs must be exchangeable where nothing changed: a slow drift is a change too, found somewhere in
its middle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, rankdata

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

MIN_SIDE = 3
PERMUTATIONS = 2000
STEPS_SHARE = 0.8  # of the false alarms; the rest is for excursions
_RELOCATIONS = 500
_SEED = 20_260_101
_CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Change:
    """The runs from `place` on (counted from 0) differ from those before it.

    `earliest` and `latest` bound where it came: in about 9 of 10 changes of twice the noise, in
    more of larger ones. `p` is of all series together; `start` and `stop` bound the runs that were
    compared.
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
        first, last, p = _most_likely(series, yardsticks[start, stop])
        if p > false_alarm:
            continue
        mine = list(_located(series, first, last))
        found[row] += [
            Change(start + at, start + lo, start + hi, start, stop, p) for at, lo, hi in mine
        ]
        edges = [start, *(start + at for at, _, _ in mine), stop]
        windows += [(row, *ends) for ends in pairwise(edges)]
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
    scores = scores - scores.mean(axis=1, keepdims=True)
    spread = scores.std(axis=1, keepdims=True)
    even = np.zeros_like(scores)
    return np.asarray(np.divide(scores, spread, out=even, where=spread > 0))


@cache
def _stretches(runs: int) -> tuple[Places, Places, Floats]:
    """First and beyond-last run of every stretch that is judged, and its weight.

    A stretch, the rest, and each piece of the rest have `MIN_SIDE` runs or more. A stretch
    at the end is the rest of one at the start, which stands for both.
    """
    ends = [
        (first, last)
        for first in (0, *range(MIN_SIDE, runs))
        for last in range(first + MIN_SIDE, runs - MIN_SIDE + 1)
    ]
    firsts, lasts = np.array(ends).T
    inside = lasts - firsts
    return firsts, lasts, np.sqrt((runs - 1) / (inside * (runs - inside)))


def _statistics(scores: Floats) -> Floats:
    """For each stretch (last axis): how far its scores are from those of the rest."""
    firsts, lasts, weights = _stretches(scores.shape[-1])
    sums = np.concatenate([np.zeros((*scores.shape[:-1], 1)), np.cumsum(scores, axis=-1)], axis=-1)
    return np.asarray(np.abs(sums[..., lasts] - sums[..., firsts]) * weights)


def _most_likely(series: Floats, yardstick: Floats) -> tuple[int, int, float]:
    """The step or excursion that chance explains worst, and how well it does."""
    statistics = _statistics(_scores(series[np.newaxis, :])[0])
    firsts, lasts, _ = _stretches(len(series))
    likely = []
    for kind, (is_kind, share) in enumerate(_kinds(len(series))):
        place = int(np.where(is_kind, statistics, -1.0).argmax())
        beyond = int((yardstick[:, kind] >= statistics[place] - 1e-9).sum())
        p = min(1.0, (1 + beyond) / (1 + PERMUTATIONS) / share)
        likely.append((p, int(firsts[place]), int(lasts[place])))
    p, first, last = min(likely, key=lambda each: each[0])
    return first, last, p


def _kinds(runs: int) -> Iterator[tuple[npt.NDArray[np.bool_], float]]:
    """Which stretches are steps, then which are excursions, each with its share of alarms."""
    firsts, _, _ = _stretches(runs)
    is_step = firsts == 0
    yield is_step, STEPS_SHARE if not is_step.all() else 1.0
    if not is_step.all():
        yield ~is_step, 1 - STEPS_SHARE


def _yardstick(scores: Floats) -> Floats:
    """The largest statistic of any series by kind (columns), in every permutation of the runs."""
    runs = scores.shape[1]
    kinds = list(_kinds(runs))
    rng = np.random.default_rng([_SEED, runs])
    orders = rng.permuted(np.tile(np.arange(runs), (PERMUTATIONS, 1)), axis=1)
    step = max(1, _CELLS_AT_ONCE // (len(scores) * len(_stretches(runs)[0])))
    parts = []
    for first in range(0, PERMUTATIONS, step):
        statistics = _statistics(scores[:, orders[first : first + step]]).max(axis=0)
        parts.append(np.column_stack([statistics[:, is_kind].max(axis=1) for is_kind, _ in kinds]))
    return np.concatenate(parts)


def _located(series: Floats, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The changes at the ends of a stretch: the place, and where else each might have been."""
    if first == 0:
        split = _split(series)
        yield (split, *_elsewhere(series, split))
        return
    opening = _split(series[:last])
    yield (opening, *_elsewhere(series[:last], opening))
    closing = _split(series[opening:])
    lo, hi = _elsewhere(series[opening:], closing)
    yield (opening + closing, opening + lo, opening + hi)


def _split(series: Floats) -> int:
    return int(_splits(series[np.newaxis, :])[0])


def _splits(series: Floats) -> Places:
    """For each series the split with the smallest absolute deviations from the sides' medians."""
    candidates = range(MIN_SIDE, series.shape[1] - MIN_SIDE + 1)
    costs = [_deviations(series[:, :at]) + _deviations(series[:, at:]) for at in candidates]
    return np.asarray(np.argmin(np.array(costs), axis=0) + MIN_SIDE)


def _deviations(series: Floats) -> Floats:
    return np.asarray(np.abs(series - np.median(series, axis=1, keepdims=True)).sum(axis=1))


def _elsewhere(series: Floats, split: int) -> tuple[int, int]:
    """Where the change might have been: 95 % of what resampled noise around it gives."""
    rng = np.random.default_rng([_SEED, len(series), split])
    sides = (series[:split], series[split:])
    drawn = np.concatenate(
        [rng.choice(side, size=(_RELOCATIONS, len(side))) for side in sides], axis=1
    )
    earliest, latest = np.quantile(_splits(drawn), [0.025, 0.975], method="inverted_cdf")
    return min(int(earliest), split), max(int(latest), split)
