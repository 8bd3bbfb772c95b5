"""Runs of one plan over time: what changed, since which run, by how much.

Per measurement the value of a run is the median over its repeats of the median over its pairs.
Runs of unequal plans, fabrics or parameters are never in one series, nor is a run that lacks pairs
that most runs have. Change points and their false-alarm rate: see `changepoint`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from rdmabench.analysis.changepoint import Change, Floats, changes, runs_needed
from rdmabench.analysis.compare import BETTER, COMPARED, WORSE
from rdmabench.analysis.keys import CHOSEN, FOUND, QUESTION, as_text, counted, in_order
from rdmabench.analysis.stats import ratio_interval
from rdmabench.collector.schema import METRICS
from rdmabench.collector.tables import Tables
from rdmabench.errors import InputError
from rdmabench.model import Evidence

FALSE_ALARM = 0.05
SMALLEST = 0.02

NO_CHANGE = "no change"
SMALL = "small change"
TOO_FEW = "too few runs"

_SERIES = ("plan", "fabric", *QUESTION, *CHOSEN, *FOUND, "metric")
_SET_APART = ("plan", "fabric", *CHOSEN, *FOUND)
_USED = (
    *("run", "fabric", "outcome", "superseded", "evidence", "repeat", "metric", "value"),
    *("initiator_host", "rail", "responder_host", "responder_rail"),
    *QUESTION,
    *CHOSEN,
    *FOUND,
)
_ROW_COLUMNS = (
    "plan",
    "fabric",
    *QUESTION,
    "metric",
    "runs",
    "pairs",
    "level",
    "before",
    "after",
    "ratio",
    "ratio_lo",
    "ratio_hi",
    "since",
    "since_earliest",
    "since_latest",
    "p",
    "verdict",
    "is_last",
)
_POINT_COLUMNS = ("series", "plan", "fabric", *QUESTION, "metric", "run", "value", "segment")


@dataclass(frozen=True)
class TrendRun:
    """One run, with what orders and groups it."""

    name: str
    plan: str
    started_at: str
    tables: Tables


@dataclass(frozen=True)
class Trend:
    """What changed.

    `rows`: one row per change, and one per series without any; the last change of a series has
    `is_last`. `points`: every series, one row per run. `notes`: what is not in a series, and why.
    `runs_needed`: how many runs a change beyond all noise takes to be found.
    """

    rows: pd.DataFrame
    points: pd.DataFrame
    notes: tuple[str, ...]
    runs_needed: int
    false_alarm: float

    @property
    def regressions(self) -> pd.DataFrame:
        """The series whose last change was for the worse."""
        return self.rows[self.rows["is_last"] & (self.rows["verdict"] == WORSE)]

    @property
    def is_judged(self) -> bool:
        """Whether any series had enough runs."""
        return bool((self.rows["verdict"] != TOO_FEW).any())


@dataclass(frozen=True)
class _Series:
    key: dict[str, Any]
    runs: tuple[str, ...]
    values: Floats
    pairs: int


@dataclass(frozen=True)
class _Judged:
    series: _Series
    found: tuple[Change, ...]
    enough: bool

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The runs between the changes, as first and beyond-last place."""
        edges = [0, *(change.place for change in self.found), len(self.series.runs)]
        return list(pairwise(edges))


def trend(
    runs: Sequence[TrendRun],
    *,
    metrics: Iterable[str] = COMPARED,
    false_alarm: float = FALSE_ALARM,
    smallest: float = SMALLEST,
) -> Trend:
    """The change points of every measurement, runs in the order of their start.

    `smallest` is the ratio below which a change is reported and not judged (0.02: 2 %).

    Raises:
        InputError: an unknown metric, or nothing measured.
    """
    wanted = tuple(metrics)
    unknown = [name for name in wanted if name not in METRICS]
    if unknown:
        raise InputError(f"unknown metric {unknown[0]!r}", remedy=", ".join(METRICS))
    ordered = sorted(runs, key=lambda run: (run.started_at or run.name, run.name))
    values, notes = _values(ordered, wanted)
    if values.empty:
        raise InputError("these runs have no measurement that can be followed over time")
    series, lacking = _series(values, [run.name for run in ordered])
    judged = _judged(series, false_alarm=false_alarm)
    rows = [row for each in judged for row in _rows(each, smallest)]
    points = [point for number, each in enumerate(judged) for point in _points(number, each)]
    return Trend(
        rows=in_order(pd.DataFrame(rows, columns=list(_ROW_COLUMNS))),
        points=pd.DataFrame(points, columns=list(_POINT_COLUMNS)),
        notes=(*notes, *lacking, *_mixed(values)),
        runs_needed=runs_needed(len(series), false_alarm),
        false_alarm=false_alarm,
    )


def _values(runs: Sequence[TrendRun], metrics: tuple[str, ...]) -> tuple[pd.DataFrame, list[str]]:
    """One row per run, series, pair and repeat, in the units that people read."""
    parts, notes = [], []
    for run in runs:
        measured = counted(run.tables.measurements[list(_USED)])
        measured = as_text(measured[measured["metric"].isin(metrics)])
        fallback = measured["evidence"] == Evidence.FALLBACK.value
        if fallback.any():
            notes.append(
                f"{run.name}: {int(fallback.sum())} values are left out: their bytes did not go "
                "over the asked-for fabric"
            )
        parts.append(measured[~fallback].assign(plan=run.plan, run=run.name))
        if measured.empty:
            notes.append(f"{run.name}: nothing measured, so it is in no series")
    if not parts:
        return pd.DataFrame(), notes
    values = pd.concat(parts, ignore_index=True)
    scale = values["metric"].map({name: each.scale for name, each in METRICS.items()})
    ends = (
        values["initiator_host"]
        + "["
        + values["rail"].astype("str")
        + "]>"
        + values["responder_host"]
        + "["
        + values["responder_rail"].astype("str")
        + "]"
    )
    return values.assign(value=values["value"] * scale.astype("float64"), hosts=ends), notes


def _series(values: pd.DataFrame, order: list[str]) -> tuple[list[_Series], list[str]]:
    """Each series with the runs that have all the pairs that most of its runs have."""
    found = []
    lacking: Counter[str] = Counter()
    for key, group in values.groupby(list(_SERIES), observed=True):
        runs_with = group.groupby("hosts")["run"].nunique()
        usual = runs_with[2 * runs_with > group["run"].nunique()].index
        usual = usual if len(usual) else runs_with.index
        of_usual = group[group["hosts"].isin(usual)]
        pairs = of_usual.groupby("run")["hosts"].nunique().reindex(group["run"].unique())
        complete = set(pairs[pairs == len(usual)].index)
        lacking.update(set(group["run"]) - complete)
        kept = of_usual[of_usual["run"].isin(complete)]
        per_repeat = kept.groupby(["run", "repeat"])["value"].median()
        per_run = per_repeat.groupby(level="run").median()
        runs = tuple(run for run in order if run in complete)
        if runs:
            level = per_run.loc[list(runs)].to_numpy(dtype=np.float64)
            named = dict(zip(_SERIES, key, strict=True))
            found.append(_Series(key=named, runs=runs, values=level, pairs=len(usual)))
    notes = [
        f"{run} lacks pairs that most runs have, and is left out of {lacking[run]} series"
        for run in order
        if run in lacking
    ]
    return found, notes


def _mixed(values: pd.DataFrame) -> list[str]:
    """What keeps rows that ask one question apart, in words."""
    notes = []
    for name in _SET_APART:
        runs = values.groupby(name, observed=True)["run"].nunique()
        if len(runs) < 2:
            continue
        spread = values.groupby([*QUESTION, "metric"], observed=True)[name].nunique()
        if (spread > 1).any():
            ways = ", ".join(
                f"{'(none)' if value == '' else value} in {count}" for value, count in runs.items()
            )
            notes.append(f"{name} differs, and such runs are not mixed: {ways} runs")
    return notes


def _judged(series: list[_Series], *, false_alarm: float) -> list[_Judged]:
    """Series of the same runs are judged together; the false-alarm rate is shared out."""
    families: dict[tuple[str, ...], list[_Series]] = defaultdict(list)
    for each in series:
        families[each.runs].append(each)
    least = runs_needed(1, false_alarm)
    share = false_alarm / max(1, sum(len(runs) >= least for runs in families))
    judged = []
    for runs, family in families.items():
        enough = len(runs) >= least
        found: list[list[Change]] = [[] for _ in family]
        if enough:
            found = changes(np.array([each.values for each in family]), false_alarm=share)
        judged += [
            _Judged(each, tuple(mine), enough) for each, mine in zip(family, found, strict=True)
        ]
    return judged


def _rows(judged: _Judged, smallest: float) -> Iterator[dict[str, Any]]:
    series, found = judged.series, judged.found
    common = {
        **series.key,
        "metric": METRICS[series.key["metric"]].shown,
        "runs": len(series.runs),
        "pairs": series.pairs,
    }
    if not found:
        verdict = NO_CHANGE if judged.enough else TOO_FEW
        level = float(np.median(series.values))
        yield {**common, "level": level, "verdict": verdict, "is_last": True}
    for place in range(len(found)):
        last = place == len(found) - 1
        yield {**common, **_change(judged, place, smallest), "is_last": last}


def _change(judged: _Judged, place: int, smallest: float) -> dict[str, Any]:
    """The two stretches on both sides of one change, side by side."""
    series, change = judged.series, judged.found[place]
    before, after = (series.values[first:end] for first, end in judged.stretches[place : place + 2])
    interval = ratio_interval(before, after)
    middles = float(np.median(before)), float(np.median(after))
    ratio = middles[1] / middles[0] if middles[0] else math.nan
    return {
        "level": middles[1],
        "before": middles[0],
        "after": middles[1],
        "ratio": ratio,
        "ratio_lo": interval.lo,
        "ratio_hi": interval.hi,
        "since": series.runs[change.place],
        "since_earliest": series.runs[change.earliest],
        "since_latest": series.runs[change.latest],
        "p": change.p,
        "verdict": _verdict(series.key["metric"], ratio, smallest),
    }


def _verdict(metric: str, ratio: float, smallest: float) -> str:
    if abs(ratio - 1) < smallest:
        return SMALL
    return BETTER if (ratio < 1) == METRICS[metric].lower_is_better else WORSE


def _points(number: int, judged: _Judged) -> Iterator[dict[str, Any]]:
    series = judged.series
    shown = {**series.key, "metric": METRICS[series.key["metric"]].shown, "series": number}
    for segment, (first, end) in enumerate(judged.stretches):
        for run, value in zip(series.runs[first:end], series.values[first:end], strict=True):
            yield {**shown, "run": run, "value": float(value), "segment": segment}
