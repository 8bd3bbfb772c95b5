"""Runs of one plan over time: what changed, since which run, by how much.

Per measurement the value of a run is the median over its repeats of the median over its pairs.
Runs of unequal plans, fabrics or parameters are never in one series, nor is a run that lacks pairs
that most runs have. Change points and their false-alarm rate: see `changepoint`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rdmabench.analysis.changepoint import Change, changes, runs_needed, segments
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
    values: np.ndarray
    pairs: int


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
    series = _series(values, [run.name for run in ordered], notes)
    notes += _mixed(values)
    needed = runs_needed(len(series), false_alarm)
    rows = [
        row
        for family in _families(series)
        for row in _judged(family, false_alarm=false_alarm, smallest=smallest)
    ]
    frame = pd.DataFrame(rows, columns=[*_ROW_COLUMNS, "is_last", "edges"])
    return Trend(
        rows=_ordered(frame.drop(columns="edges")),
        points=pd.DataFrame(_points(series, frame), columns=list(_POINT_COLUMNS)),
        notes=tuple(dict.fromkeys(notes)),
        runs_needed=needed,
        false_alarm=false_alarm,
    )


def _values(
    runs: Sequence[TrendRun], metrics: tuple[str, ...]
) -> tuple[pd.DataFrame, list[str]]:
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
        values["initiator_host"] + "[" + values["rail"].astype("str") + "]>"
        "" + values["responder_host"] + "[" + values["responder_rail"].astype("str") + "]"
    )
    return values.assign(value=values["value"] * scale.astype("float64"), hosts=ends), notes


def _series(values: pd.DataFrame, order: list[str], notes: list[str]) -> list[_Series]:
    """Each series with the runs that have all the pairs that most of its runs have."""
    found = []
    for key, group in values.groupby(list(_SERIES), observed=True):
        runs_with = group.groupby("hosts")["run"].nunique()
        count = group["run"].nunique()
        usual = set(runs_with[2 * runs_with > count].index) or set(runs_with.index)
        group = group[group["hosts"].isin(usual)]
        complete = group.groupby("run")["hosts"].nunique() == len(usual)
        lacking = [run for run in order if run in complete.index and not complete[run]]
        notes += [f"{run} is in no series whose pairs it does not have all" for run in lacking]
        kept = group[group["run"].isin(complete[complete].index)]
        per_repeat = kept.groupby(["run", "repeat"])["value"].median()
        per_run = per_repeat.groupby(level="run").median()
        runs = tuple(run for run in order if run in per_run.index)
        found.append(
            _Series(
                key=dict(zip(_SERIES, key, strict=True)),
                runs=runs,
                values=per_run.loc[list(runs)].to_numpy(dtype=np.float64),
                pairs=len(usual),
            )
        )
    return found


def _mixed(values: pd.DataFrame) -> list[str]:
    """What keeps rows that ask one question apart, in words."""
    notes = []
    for name in _SET_APART:
        runs = values.groupby(name, observed=True)["run"].nunique()
        if len(runs) < 2:
            continue
        spread = values.groupby([*QUESTION, "metric"], observed=True)[name].nunique()
        if (spread > 1).any():
            ways = ", ".join(f"{value or '(none)'} in {count}" for value, count in runs.items())
            notes.append(f"{name} differs, and such runs are not mixed: {ways} runs")
    return notes


def _families(series: list[_Series]) -> Iterator[list[_Series]]:
    """Series of the same runs, which are judged together."""
    by_runs: dict[tuple[str, ...], list[_Series]] = {}
    for each in series:
        by_runs.setdefault(each.runs, []).append(each)
    yield from by_runs.values()


def _judged(
    family: list[_Series], *, false_alarm: float, smallest: float
) -> Iterator[dict[str, Any]]:
    enough = len(family[0].runs) >= runs_needed(1, false_alarm)
    found: list[list[Change]] = [[] for _ in family]
    if enough:
        found = changes(np.array([each.values for each in family]), false_alarm=false_alarm)
    for each, mine in zip(family, found, strict=True):
        common = {
            **each.key,
            "metric": METRICS[each.key["metric"]].shown,
            "runs": len(each.runs),
            "pairs": each.pairs,
            "edges": tuple(change.place for change in mine),
        }
        if not mine:
            level = float(np.median(each.values))
            verdict = NO_CHANGE if enough else TOO_FEW
            yield {**common, "level": level, "verdict": verdict, "is_last": True}
        for place, change in enumerate(mine):
            row = _change_row(each, mine, place, smallest)
            yield {**common, **row, "p": change.p, "is_last": place == len(mine) - 1}


def _change_row(
    series: _Series, found: list[Change], place: int, smallest: float
) -> dict[str, Any]:
    """The two stretches on both sides of one change, side by side."""
    change = found[place]
    stretches = list(segments(found, len(series.runs)))
    before = series.values[slice(*stretches[place])]
    after = series.values[slice(*stretches[place + 1])]
    interval = ratio_interval(before, after)
    ratio = float(np.median(after) / np.median(before)) if np.median(before) else math.nan
    verdict = SMALL
    if not abs(ratio - 1) < smallest:
        lower_is_better = METRICS[series.key["metric"]].lower_is_better
        verdict = BETTER if (ratio < 1) == lower_is_better else WORSE
    return {
        "level": float(np.median(after)),
        "before": float(np.median(before)),
        "after": float(np.median(after)),
        "ratio": ratio,
        "ratio_lo": interval.lo,
        "ratio_hi": interval.hi,
        "since": series.runs[change.place],
        "since_earliest": series.runs[change.earliest],
        "since_latest": series.runs[change.latest],
        "verdict": verdict,
    }


def _points(series: list[_Series], rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    edges = {
        tuple(row[name] for name in (*_SERIES[:-1], "metric")): row["edges"]
        for row in rows.assign(**_keys_of(series, rows)).to_dict("records")
    }
    for number, each in enumerate(series):
        shown = {**each.key, "metric": METRICS[each.key["metric"]].shown}
        mine = edges.get(tuple(shown[name] for name in _SERIES), ())
        for place, (run, value) in enumerate(zip(each.runs, each.values, strict=True)):
            segment = sum(edge <= place for edge in mine)
            yield {**shown, "series": number, "run": run, "value": value, "segment": segment}


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    return in_order(frame)
