"""Two or more runs compared as wholes: each measurement over all pairs that every run has.

`compare` answers pair by pair. Here the value of a repeat is the median over the common pairs, so
that a fabric of many pairs is one row with one interval; how the single pairs fared is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from rdmabench.analysis.compare import COMPARED, Comparison, compare
from rdmabench.analysis.keys import (
    CHOSEN,
    FOUND,
    NAMES_ONLY,
    QUESTION,
    as_text,
    counted,
    worst_evidence,
)
from rdmabench.collector.tables import Tables

_ROW = (*QUESTION, "metric", "run")


@dataclass(frozen=True)
class Overall:
    """`rows` as those of `compare`, over all common pairs, with `pair_verdicts` (`3 worse`).

    `pairs` are those in every run; `by_pair` is the comparison of each pair by itself.
    """

    pairs: tuple[str, ...]
    rows: pd.DataFrame
    by_pair: Comparison


def compare_overall(runs: Sequence[Tables], *, metrics: Iterable[str] = COMPARED) -> Overall:
    """Every run against the first, over the pairs of hosts that all of them have.

    Raises:
        InputError: as `compare`.
    """
    wanted = tuple(metrics)
    by_pair = compare(runs, metrics=wanted)
    measured = [_measured(tables, wanted) for tables in runs]
    common = set.intersection(*(set(each["hosts"]) for each in measured))
    rows = by_pair.rows.head(0)
    if common:
        joined = [
            replace(tables, measurements=_joined(values[values["hosts"].isin(common)]))
            for tables, values in zip(runs, measured, strict=True)
        ]
        rows = compare(joined, metrics=wanted).rows
    verdicts = by_pair.rows.groupby(list(_ROW))["verdict"].agg(_counts)
    counts = pd.DataFrame(verdicts.rename("pair_verdicts")).reset_index()
    return Overall(
        pairs=tuple(sorted(common)),
        rows=rows.merge(counts, on=list(_ROW), how="left"),
        by_pair=by_pair,
    )


def _measured(tables: Tables, metrics: tuple[str, ...]) -> pd.DataFrame:
    measured = counted(tables.measurements)
    measured = as_text(measured[measured["metric"].isin(metrics)])
    sides = [
        measured[f"{side}_host"] + "[" + measured[rail].astype("str") + "]"
        for side, rail in (("initiator", "rail"), ("responder", "responder_rail"))
    ]
    return measured.assign(hosts=sides[0] + ">" + sides[1])


def _joined(values: pd.DataFrame) -> pd.DataFrame:
    """One row per repeat, with the median over pairs and the worst evidence of any of them."""
    keys = [*QUESTION, *CHOSEN, *FOUND, "metric", "repeat"]
    same = ("run", "fabric", "outcome", "superseded", *NAMES_ONLY)
    joined = values.groupby(keys).agg(
        value=("value", "median"),
        evidence=("evidence", worst_evidence),
        **{name: (name, "first") for name in same},
    )
    return joined.reset_index().assign(
        initiator_host="all", rail=0, responder_host="all", responder_rail=0
    )


def _counts(verdicts: pd.Series) -> str:
    """`54 no difference, 2 worse`, the commonest first."""
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.value_counts().items())
