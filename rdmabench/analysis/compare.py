"""Two or more runs, row by row: the ratio of their medians, or why they are not comparable.

Rows meet by what was measured and between which hosts and rails, so that one pair can be compared
over InfiniBand, RoCE and TCP, whose devices have other names. What the plan chose must be equal.
What a fabric imposes (transport, MTU, GID type, traffic class) may differ between fabrics, and is
then listed as a condition; within one fabric it must be equal too. Against TCP, a byte stream, so
are the parameters of a queue pair's work requests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rdmabench.analysis.keys import (
    CHOSEN,
    FOUND,
    NAMES_ONLY,
    QUESTION,
    WORST_FIRST,
    as_text,
    counted,
    in_order,
)
from rdmabench.analysis.stats import MIN_REPEATS, ratio_intervals
from rdmabench.collector.schema import METRICS
from rdmabench.collector.tables import Tables
from rdmabench.errors import InputError

COMPARED = ("lat_p50", "lat_p99", "bw")
TCP_MAY_DIFFER = ("depth", "cq_moderation", "inline_bytes", "engine")

BETTER, WORSE = "better", "worse"
NO_DIFFERENCE = "no difference"
CANNOT_TELL = "cannot tell"

_PAIR = "hosts"
_ENDS = ("initiator_host", "rail", "responder_host", "responder_rail")
_SUBJECT = (*QUESTION, _PAIR)
_JOIN = (*_SUBJECT, "metric")
_ROW_COLUMNS = (
    *QUESTION,
    _PAIR,
    "metric",
    "base",
    "run",
    "base_median",
    "run_median",
    "ratio",
    "ratio_lo",
    "ratio_hi",
    "base_repeats",
    "run_repeats",
    "verdict",
    "base_evidence",
    "run_evidence",
    "conditions",
    "note",
)
_NOT_COMPARED_COLUMNS = (*QUESTION, _PAIR, "base", "run", "reason")


@dataclass(frozen=True)
class Comparison:
    """Every other run against the first.

    `rows`: medians, ratio run / base with its 95 % interval, verdict. `not_compared`: what has no
    counterpart, or one of unequal parameters. `conditions`: what differs between the fabrics.
    """

    base: str
    others: tuple[str, ...]
    rows: pd.DataFrame
    not_compared: pd.DataFrame
    conditions: pd.DataFrame


@dataclass(frozen=True)
class _Run:
    name: str
    fabric: str
    groups: pd.DataFrame
    conditions: dict[str, str]


def compare(runs: Sequence[Tables], *, metrics: Iterable[str] = COMPARED) -> Comparison:
    """Compares every run with the first one.

    Raises:
        InputError: fewer than two runs, an unknown metric, or a run without measurements.
    """
    wanted = tuple(metrics)
    unknown = [name for name in wanted if name not in METRICS]
    if len(runs) < 2 or unknown:
        what = f"unknown metric {unknown[0]!r}" if unknown else "one run has nothing to compare to"
        raise InputError(what, remedy=", ".join(METRICS) if unknown else "name two runs or more")
    base, *others = (_grouped(tables, wanted) for tables in runs)
    pairs = [_against(base, other) for other in others]
    return Comparison(
        base=base.name,
        others=tuple(other.name for other in others),
        rows=in_order(pd.concat([rows for rows, _ in pairs], ignore_index=True)),
        not_compared=in_order(pd.concat([left for _, left in pairs], ignore_index=True)),
        conditions=pd.concat([_conditions(base, other) for other in others], ignore_index=True),
    )


def _grouped(tables: Tables, metrics: tuple[str, ...]) -> _Run:
    """One row per measurement, pair, parameters and metric; its repeats are in `values`."""
    measured = counted(tables.measurements)
    measured = measured[measured["metric"].isin(metrics)]
    if measured.empty:
        name = str(next(iter(tables.cases["run"]), "")) or "one of the runs"
        raise InputError(f"{name} has no measurement that can be compared")
    scale = measured["metric"].map({name: each.scale for name, each in METRICS.items()})
    proof = measured["evidence"].map({name: place for place, name in enumerate(WORST_FIRST)})
    measured = measured.assign(
        value=measured["value"] * scale.astype("float64"), proof=proof.astype("int64")
    )
    keys = [*QUESTION, *_ENDS, "metric", *CHOSEN, *FOUND]
    found = measured.groupby(keys, observed=True).agg(
        values=("value", tuple), proof=("proof", "min")
    )
    groups = as_text(found.reset_index())
    first = measured.iloc[0]
    return _Run(
        name=str(first["run"]),
        fabric=str(first["fabric"]),
        groups=groups.assign(
            hosts=[_hosts(row) for row in groups.to_dict("records")],
            evidence=[WORST_FIRST[place] for place in groups["proof"]],
        ),
        conditions={
            name: _joined(measured[name].unique())
            for name in ("fabric", *FOUND, *NAMES_ONLY, *TCP_MAY_DIFFER)
        },
    )


def _hosts(row: dict[Any, Any]) -> str:
    """`node1[0]>node2[0]`: the pair by hosts and rails, whatever the devices are called."""
    initiator = f"{row['initiator_host']}[{row['rail']}]"
    return f"{initiator}>{row['responder_host']}[{row['responder_rail']}]"


def _joined(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values}))


def _must_be_equal(base: _Run, other: _Run) -> list[str]:
    names = list(CHOSEN)
    if base.fabric == other.fabric:
        names += FOUND
    elif "tcp" in (base.fabric, other.fabric):
        names = [name for name in names if name not in TCP_MAY_DIFFER]
    return names


def _against(base: _Run, other: _Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    equal = _must_be_equal(base, other)
    met = base.groups.merge(other.groups, on=[*_JOIN, *equal], suffixes=("_base", "_run"))
    names = {"base": base.name, "run": other.name}
    left = [
        {**row, **names}
        for mine, theirs in ((base, other), (other, base))
        for row in _left_over(mine, theirs, met, equal, base_first=mine is base)
    ]
    not_compared = pd.DataFrame(left, columns=list(_NOT_COMPARED_COLUMNS))
    return _rows(met, base, other, equal), not_compared.drop_duplicates(ignore_index=True)


def _rows(met: pd.DataFrame, base: _Run, other: _Run, equal: list[str]) -> pd.DataFrame:
    lo, hi = _intervals(met)
    base_medians = np.array([np.median(values) for values in met["values_base"]], dtype=float)
    run_medians = np.array([np.median(values) for values in met["values_run"]], dtype=float)
    may_differ = [name for name in (*CHOSEN, *FOUND) if name not in equal]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = run_medians / base_medians
    rows = met.assign(
        base=base.name,
        run=other.name,
        metric=[METRICS[name].shown for name in met["metric"]],
        base_median=base_medians,
        run_median=run_medians,
        ratio=ratios,
        ratio_lo=lo,
        ratio_hi=hi,
        base_repeats=[len(values) for values in met["values_base"]],
        run_repeats=[len(values) for values in met["values_run"]],
        base_evidence=met["evidence_base"],
        run_evidence=met["evidence_run"],
        conditions=[_differences(row, may_differ) for row in met.to_dict("records")],
        verdict=[_verdict(name, *ends) for name, *ends in zip(met["metric"], lo, hi, strict=True)],
    )
    notes = [_note(row) for row in rows.to_dict("records")]
    return rows.assign(note=notes)[list(_ROW_COLUMNS)]


def _intervals(met: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Interval ends by row, NaN where a side has too few repeats; rows of equal counts together."""
    lo = np.full(len(met), math.nan)
    hi = np.full(len(met), math.nan)
    base_counts = np.array([len(values) for values in met["values_base"]])
    run_counts = np.array([len(values) for values in met["values_run"]])
    for base_n, run_n in sorted(set(zip(base_counts.tolist(), run_counts.tolist(), strict=True))):
        if min(base_n, run_n) < MIN_REPEATS:
            continue
        places = np.flatnonzero((base_counts == base_n) & (run_counts == run_n))
        lo[places], hi[places] = ratio_intervals(
            np.array(met["values_base"].iloc[places].tolist(), dtype=np.float64),
            np.array(met["values_run"].iloc[places].tolist(), dtype=np.float64),
        )
    return lo, hi


def _verdict(metric: str, lo: float, hi: float) -> str:
    if not (math.isfinite(lo) and math.isfinite(hi)):
        return CANNOT_TELL
    if lo <= 1 <= hi:
        return NO_DIFFERENCE
    return BETTER if (hi < 1) == METRICS[metric].lower_is_better else WORSE


def _note(row: dict[Any, Any]) -> str:
    notes = []
    repeats = min(row["base_repeats"], row["run_repeats"])
    if repeats < MIN_REPEATS:
        notes.append(f"{repeats} repeats; an interval wants at least {MIN_REPEATS}")
    for side in ("base", "run"):
        if row[f"{side}_evidence"] != "proved":
            notes.append(f"evidence of {row[side]}: {row[f'{side}_evidence']}")
    return "; ".join(notes)


def _differences(row: dict[Any, Any], names: Iterable[str]) -> str:
    """`transport RC / TCP, gid_type RoCE v2 / (none)`: those that differ, base first."""
    return ", ".join(
        f"{name} {_said(row[f'{name}_base'])} / {_said(row[f'{name}_run'])}"
        for name in names
        if row[f"{name}_base"] != row[f"{name}_run"]
    )


def _left_over(
    mine: _Run, theirs: _Run, met: pd.DataFrame, equal: list[str], *, base_first: bool
) -> Iterator[dict[str, Any]]:
    """Measurements of one run that met none of the other, with the reason."""
    counterparts: dict[tuple[Any, ...], list[dict[Any, Any]]] = defaultdict(list)
    for row in theirs.groups.to_dict("records"):
        counterparts[tuple(row[name] for name in _SUBJECT)].append(row)
    keys = [*_SUBJECT, *equal]
    joined = mine.groups.drop_duplicates(keys).merge(
        met[keys].drop_duplicates(), on=keys, how="left", indicator=True
    )
    for row in joined[joined["_merge"] == "left_only"].to_dict("records"):
        subject = {name: row[name] for name in _SUBJECT}
        differences = _nearest(row, counterparts[tuple(subject.values())], equal, base_first)
        reason = f"unequal parameters: {differences}" if differences else f"only in {mine.name}"
        yield {**subject, "reason": reason}


def _nearest(
    row: dict[Any, Any], candidates: list[dict[Any, Any]], equal: list[str], base_first: bool
) -> str:
    """What sets the row apart from the counterpart that is most like it; empty without any."""
    ways = [[name for name in equal if row[name] != other[name]] for other in candidates]
    if not ways:
        return ""
    place = min(range(len(ways)), key=lambda each: len(ways[each]))
    other = candidates[place]
    first, second = (row, other) if base_first else (other, row)
    return ", ".join(f"{name} {_said(first[name])} / {_said(second[name])}" for name in ways[place])


def _said(value: object) -> str:
    return "(none)" if value == "" else str(value)


def _conditions(base: _Run, other: _Run) -> pd.DataFrame:
    """What the runs were made under, where it differs: one row per name."""
    chosen_equal = set(CHOSEN).intersection(_must_be_equal(base, other))
    rows = [
        (name, base.name, value, other.name, other.conditions[name])
        for name, value in base.conditions.items()
        if value != other.conditions[name] and name not in chosen_equal
    ]
    return pd.DataFrame(rows, columns=["condition", "base", "base_value", "run", "run_value"])
