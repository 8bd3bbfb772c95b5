"""Which rail, node, NIC, direction or link explains slow pairs: one cause after the other.

The logarithm of a pair's value is the fleet's level, plus small natural effects of its two ends,
plus noise, plus what is wrong. Natural effects come from a median polish and are shrunk by how much
of their spread sampling explains; the scale of the noise is the median absolute deviation of what
is left. Then the one cause is sought that explains most: every candidate is a set of pairs with one
effect, the median over the set against the rest. It counts only where

- its z (effect over its standard error) is above Student's quantile for the false-alarm rate
  divided by the number of candidates (Bonferroni), so the rate holds for the fleet as a whole,
- the effect is at least `LEAST_EFFECT`, since a difference nobody would act on is no fault,
- for a node or a NIC: it shows with two different partners that are not accused themselves.

Its effect is taken off, and the search goes on until nothing counts. `tests/bench/detection.py`
measures the rate and the power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import chi2, norm
from scipy.stats import t as student_t

from rdmabench.analysis.candidates import LINK, NIC, NODE, Family, Kind
from rdmabench.analysis.candidates import families as candidate_families
from rdmabench.analysis.pairs import Ends, Floats, Ints, PairMatrix, centres

PROMISED_RATE = 0.01  # of healthy fleets that are accused of anything
FALSE_ALARM_RATE = 0.002  # asked of each run: a retest looks twice, and no noise is quite normal
LEAST_EFFECT = 0.03
POWER = 0.99
_MAD = 1.4826
_EFFICIENCY = 0.4  # of the MAD: its degrees of freedom against those of the standard deviation
_HODGES_LEHMANN = 0.95  # its efficiency for normal values
_HUBER = 3.0
_SMALL = 400  # pairs up to which every candidate is held against the rest
_TINY = 20  # pairs below which the median absolute deviation says too little
_FEW = 4
_MOST_STEPS = 60
_NATURAL_GROUPS = 8
_OVERLAP = 0.25


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong: `key` is a rail, host or endpoint number, or the two of a link.

    `effect` is the logarithm of how many times slower; `pairs` are rows of the matrix.
    """

    kind: Kind
    key: tuple[int, ...]
    effect: float
    z: float
    pairs: Ints

    @property
    def ratio(self) -> float:
        """Times slower than the rest."""
        return math.exp(self.effect)


@dataclass(frozen=True)
class Explanation:
    """What was found in one matrix, and how fine it could see.

    `noise` is the standard deviation of a pair's logarithm, `threshold` the least z that counts,
    `link_z` what is left of each pair in units of its noise, after all causes.
    """

    causes: tuple[Cause, ...]
    centre: Floats
    level: float
    noise: float
    threshold: float
    candidates: int
    link_z: Floats

    @property
    def smallest_link(self) -> float:
        """How many times slower one link must be to be found in 99 of 100 runs."""
        return math.exp((self.threshold + float(norm.ppf(POWER))) * self.noise)


@dataclass(frozen=True)
class _Scores:
    """One number per candidate of a family."""

    family: Family
    effect: Floats
    z: Floats
    gain: Floats


@dataclass
class _Search:
    """The state of a search: what is left of every pair, and which are explained already."""

    families: tuple[Family, ...]
    ends: Ends
    sender: Ints
    receiver: Ints
    share: Floats  # of the pairs' noise, as a factor of the scale: fewer repeats, more noise
    rest: Floats
    live: np.ndarray
    threshold: float = math.inf
    noise: float = math.nan
    spent: float = 1.0
    least_noise: float = 1e-9


def explain(matrix: PairMatrix, *, false_alarm_rate: float = FALSE_ALARM_RATE) -> Explanation:
    """The causes in one matrix, the strongest first."""
    centre, counts = centres(matrix.logs)
    families = tuple(candidate_families(matrix))
    search = _Search(
        families=families,
        ends=matrix.ends,
        sender=matrix.sender,
        receiver=matrix.receiver,
        share=_shares(matrix.logs, centre, counts),
        rest=centre - float(np.median(centre)),
        live=np.ones(len(centre), dtype=bool),
        least_noise=max(matrix.least_noise, 1e-9),
    )
    candidates = sum(int(family.usable.sum()) for family in families)
    causes: list[Cause] = []
    for _ in range(_MOST_STEPS):
        natural = _natural(search)
        _set_noise(search, natural, rate=false_alarm_rate / max(candidates, 1))
        found = _step(search, natural, causes)
        if not found:
            break
        causes += found
        _take_off(search, found)
    natural = _natural(search)
    _set_noise(search, natural, rate=false_alarm_rate / max(candidates, 1))
    left = search.rest - natural
    causes = _refitted(causes, centre)
    return Explanation(
        causes=tuple(sorted(causes, key=lambda cause: -abs(cause.z))),
        centre=centre,
        level=float(np.median((centre - _total(causes, len(centre)))[search.live])),
        noise=search.noise,
        threshold=search.threshold,
        candidates=candidates,
        link_z=left / np.maximum(search.noise * search.share, 1e-12),
    )


def _shares(logs: Floats, centre: Floats, counts: Ints) -> Floats:
    """The noise of each pair over that of one with the usual number of repeats.

    Only what varies between repeats falls with their number; what the pair itself is stays.
    """
    usual = float(np.median(counts))
    if (counts == usual).all() or usual < 2:
        return np.ones(len(counts))
    repeated = counts > 1
    spread = np.nanvar(logs[repeated], axis=1, ddof=1)
    freedom = counts[repeated] - 1
    expected = chi2.median(freedom) / freedom  # of a variance from so few values
    within = float(np.median(spread / expected)) / (_HODGES_LEHMANN * usual)
    total = (_MAD * float(np.median(np.abs(centre - np.median(centre))))) ** 2
    inherent = max(0.0, total - within)
    share = np.sqrt((inherent + within * usual / counts) / max(inherent + within, 1e-300))
    return np.asarray(share)


# ---- one step ----


def _natural(search: _Search) -> Floats:
    """The small effects that ends have by nature, shrunk; nothing where they cannot be told."""
    total = np.zeros(len(search.rest))
    spent = 1.0
    for numbers in (search.sender, search.receiver):
        size = np.bincount(numbers)
        if (size > 0).sum() < _NATURAL_GROUPS or np.median(size[size > 0]) < _FEW:
            continue
        effect = _group_medians(search.rest - total, numbers, size)
        met = size > 0
        effect = effect - float(np.median(effect[met]))
        error = _scale(search.rest - total - effect[numbers], 0.0) ** 2 * 1.57 / np.maximum(size, 1)
        spread = (_MAD * float(np.median(np.abs(effect[met])))) ** 2
        nature = max(0.0, spread - float(np.median(error[met])))
        shrink = nature / (nature + error) if nature > 0 else np.zeros(len(size))
        total = total + (shrink * effect)[numbers]
        spent += float(shrink[met].sum())
    search.spent = spent
    return total


def _set_noise(search: _Search, natural: Floats, *, rate: float) -> None:
    left = ((search.rest - natural) / search.share)[search.live]
    search.noise = max(_scale(left - np.median(left), search.spent), search.least_noise)
    efficiency = 1.0 if len(search.rest) < _TINY else _EFFICIENCY
    freedom = max(1.0, efficiency * (len(left) - search.spent - 1))
    search.threshold = float(student_t.isf(rate, freedom))


def _scale(centred: Floats, spent: float) -> float:
    """The standard deviation as the median absolute deviation tells it."""
    count = len(centred)
    correction = math.sqrt(count / max(count - spent, 1.0))
    return _MAD * float(np.median(np.abs(centred))) * correction


def _step(search: _Search, natural: Floats, before: list[Cause]) -> list[Cause]:
    """The cause that explains most, and those that count beside it and share hardly a pair."""
    scores = [
        _scored_small(search, family)
        if len(search.rest) <= _SMALL
        else _scored_large(search, family, natural)
        for family in search.families
    ]
    ranked = sorted(
        (
            (float(each.gain[group]), number, int(group))
            for number, each in enumerate(scores)
            for group in np.flatnonzero(_counts(each, search.threshold))
        ),
        key=lambda item: (-item[0], item[1], item[2]),
    )
    chosen: list[Cause] = []
    taken = np.zeros(len(search.rest), dtype=bool)
    for gain, number, group in ranked:
        if chosen and len(search.rest) <= _SMALL:
            break  # in a small fleet one cause shifts all others
        cause = _cause(scores[number], group)
        if gain <= 0 or taken[cause.pairs].mean() > _OVERLAP:
            continue
        if not _has_healthy_partners(search, cause, (*before, *chosen)):
            continue
        chosen.append(cause)
        taken[cause.pairs] = True
    return chosen


def _counts(scores: _Scores, threshold: float) -> np.ndarray:
    return np.asarray(
        scores.family.usable & (scores.z > threshold) & (scores.effect > LEAST_EFFECT)
    )


def _cause(scores: _Scores, group: int) -> Cause:
    return Cause(
        kind=scores.family.kind,
        key=(int(scores.family.keys[group]),),
        effect=float(scores.effect[group]),
        z=float(scores.z[group]),
        pairs=scores.family.members(group),
    )


def _has_healthy_partners(search: _Search, cause: Cause, accused: tuple[Cause, ...]) -> bool:
    """A node or NIC is accused only by two partners that are not accused themselves."""
    if cause.kind.name not in (NODE, NIC):
        return True
    host = search.ends.host
    me = cause.key[0] if cause.kind.name == NODE else int(host[cause.key[0]])
    ends = np.concatenate([search.sender[cause.pairs], search.receiver[cause.pairs]])
    partners = set(host[ends].tolist()) - {me}
    for other in accused:
        if other.kind.name == NODE:
            partners.discard(other.key[0])
    return len(partners) >= 2


def _scored_large(search: _Search, family: Family, natural: Floats) -> _Scores:
    """Effects against the fleet's level, which one candidate among many hardly moves."""
    rest, noise = search.rest, search.noise
    of_links = family.kind.name == LINK
    left = rest - natural if of_links else rest
    if of_links:
        effect = np.bincount(family.group, weights=left[family.pair]) / family.size
    else:
        effect = _group_medians(left[family.pair], family.group, family.size)
    share = np.bincount(family.group, weights=search.share[family.pair] ** 2) / family.size
    error = noise**2 * share * _median_cost(family.size) / family.size
    if of_links:
        error = noise**2 * share / family.size
    elif len(effect) >= _NATURAL_GROUPS:
        spread = (_MAD * float(np.median(np.abs(effect - np.median(effect))))) ** 2
        error = error + max(0.0, spread - float(np.median(error)))
    inside = left[family.pair] / noise
    better = _loss(inside) - _loss(inside - effect[family.group] / noise)
    gain = np.asarray(np.bincount(family.group, weights=better), dtype=np.float64)
    return _Scores(family=family, effect=effect, z=effect / np.sqrt(error), gain=gain)


def _scored_small(search: _Search, family: Family) -> _Scores:
    """Every candidate against the rest of the pairs, with the scale that is left if it is true."""
    rest, live = search.rest, search.live
    mask = np.zeros((len(family.size), len(rest)), dtype=bool)
    mask[family.group, family.pair] = True
    usable = family.usable & (mask & live).any(axis=1) & (~mask & live).any(axis=1)
    effect, z, gain = (np.zeros(len(family.size)) for _ in range(3))
    inside, outside = mask[usable] & live, ~mask[usable] & live
    if not len(inside):
        return _Scores(family=family, effect=effect, z=z, gain=gain)
    middle_in = _low_medians(np.where(inside, rest, np.nan))
    middle_out = np.nanmedian(np.where(outside, rest, np.nan), axis=1)
    fitted = np.where(inside, middle_in[:, None], middle_out[:, None])
    left = np.where(live, (rest - fitted) / search.share, np.nan)
    count = int(live.sum())
    freedom = max(count - 1 - search.spent, 1.0)
    if len(rest) < _TINY:
        scale = np.sqrt(np.nansum(left**2, axis=1) / freedom)
    else:
        scale = _MAD * np.nanmedian(np.abs(left), axis=1) * math.sqrt(count / freedom)
    scale = np.maximum(scale, search.least_noise)
    least = float(scale.min())
    size_in, size_out = inside.sum(axis=1), outside.sum(axis=1)
    error = scale**2 * (_median_cost(size_in) / size_in + _median_cost(size_out) / size_out)
    whole = (rest - np.median(rest[live])) / search.share / least
    effect[usable] = middle_in - middle_out
    z[usable] = effect[usable] / np.sqrt(error)
    gain[usable] = _loss(whole[live]).sum() - np.nansum(_loss(left / least), axis=1)
    return _Scores(family=family, effect=effect, z=z, gain=gain)


def _low_medians(rows: Floats) -> Floats:
    """Medians by row; of two values the lower, so that one slow pair does not stand for two."""
    two = np.isfinite(rows).sum(axis=1) == 2
    return np.asarray(np.where(two, np.nanmin(rows, axis=1), np.nanmedian(rows, axis=1)))


def _group_medians(values: Floats, group: Ints, size: Ints) -> Floats:
    """The median of every group, the lower of two; 0 for a group without values."""
    by_value = np.argsort(values)
    narrow = np.uint16 if len(size) <= np.iinfo(np.uint16).max else np.int64  # 16 bits: radix sort
    ordered = values[by_value[np.argsort(group[by_value].astype(narrow), kind="stable")]]
    start = np.cumsum(size) - size
    last = max(len(ordered) - 1, 0)
    low = ordered[np.minimum(start + np.maximum(size - 1, 0) // 2, last)]
    high = ordered[np.minimum(start + size // 2, last)]
    middle = np.where(size == 2, low, (low + high) / 2)
    return np.asarray(np.where(size > 0, middle, 0.0))


def _median_cost(size: Ints) -> Floats:
    """The variance of a median of so many normal values, over that of their mean."""
    return np.asarray([_median_cost_of(count) for count in np.minimum(size, 12).tolist()])


@cache
def _median_cost_of(count: int) -> float:
    known = {1: 1.0, 2: 1.0, 3: 1.35, 4: 1.19, 5: 1.43, 6: 1.29, 7: 1.47, 8: 1.35, 9: 1.49}
    return known.get(count, math.pi / 2)


def _loss(z: Floats) -> Floats:
    """Huber's: a wild pair counts for its distance, not for its square."""
    size = np.abs(z)
    return np.asarray(np.where(size <= _HUBER, size**2 / 2, _HUBER * (size - _HUBER / 2)))


def _take_off(search: _Search, found: list[Cause]) -> None:
    for cause in found:
        if cause.kind.name == LINK:
            search.rest[cause.pairs] = 0.0
            search.live[cause.pairs] = False
        else:
            search.rest[cause.pairs] -= cause.effect
    if search.live.any():
        search.rest[search.live] -= float(np.median(search.rest[search.live]))


def _refitted(causes: list[Cause], centre: Floats) -> list[Cause]:
    """Every effect once more, given all others."""
    total = _total(causes, len(centre))
    refitted = []
    for cause in causes:
        without = centre - total
        without[cause.pairs] += cause.effect
        outside = np.ones(len(centre), dtype=bool)
        outside[cause.pairs] = False
        level = float(np.median(without[outside])) if outside.any() else 0.0
        effect = float(np.median(without[cause.pairs])) - level
        if effect > LEAST_EFFECT:
            fitted = Cause(cause.kind, cause.key, effect, cause.z, cause.pairs)
            refitted.append(fitted)
    return refitted


def _total(causes: list[Cause], count: int) -> Floats:
    total = np.zeros(count)
    for cause in causes:
        total[cause.pairs] += cause.effect
    return total
