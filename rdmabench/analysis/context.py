"""A run under judgement, and the rows of it that a rule is about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from rdmabench.analysis.ruleset import Rule
from rdmabench.analysis.subjects import (
    WIRE_TOLERANCE,
    case_numbers,
    is_nominal,
    subjects,
    with_attainable,
    with_values,
)
from rdmabench.analysis.suspects import Suspects, suspects
from rdmabench.analysis.verdict import NOT_TESTED
from rdmabench.collector.schema import METRICS
from rdmabench.collector.tables import Tables

NO_VALUE = "a repeat has no value"
DEFINITE = {"not measured": NOT_TESTED, NO_VALUE: NOT_TESTED}  # any other defect is a FAIL


@dataclass(frozen=True)
class Context:
    """A run under judgement; what several rules need is worked out once."""

    tables: Tables
    baseline: Tables | None = None

    @cached_property
    def subjects(self) -> pd.DataFrame:
        """Every pair and measurement, with the rate that its link can carry."""
        return with_attainable(subjects(self.tables), self.tables)

    @cached_property
    def numbers(self) -> pd.Series:
        """The subject's number by case."""
        return case_numbers(self.tables)

    @cached_property
    def suspects(self) -> Suspects:
        """What stands out of the fleet."""
        return suspects(self.tables)

    @cached_property
    def is_nominal(self) -> bool:
        """Whether the port rate says nothing of what the wire can carry."""
        return is_nominal(self.tables)


def selected(rule: Rule, context: Context) -> pd.DataFrame:
    rows = context.subjects
    wanted = rule.select
    probe = probe_of(rule.metric)
    keep = rows["size_bytes"].between(wanted.min_size, wanted.max_size)
    if probe:
        keep &= rows["probe"] == probe
    if wanted.ops:
        keep &= rows["op"].isin(wanted.ops)
    if wanted.qps:
        keep &= rows["qps"].isin(wanted.qps)
    return rows[keep]


def probe_of(metric: str) -> str:
    """The probe that makes a metric; empty where several do (CPU, collectives)."""
    if metric.startswith(("lat_", "jitter", "cv_")):
        return "latency"
    return "bandwidth" if metric in ("bw", "rate", "qp_spread_pct") else ""


def measured(rule: Rule, context: Context) -> pd.DataFrame:
    """The rule's subjects with values; of several numbers of queue pairs the best where asked."""
    rows = with_values(selected(rule, context), context.tables, rule.metric, context.numbers)
    if METRICS[rule.metric].unit == "B/s" and not context.is_nominal and len(rows):
        above = rows["most"] > WIRE_TOLERANCE * rows["attainable"]
        rows.loc[above, "defect"] = "impossible: above what the wire can carry"
    if not rule.best_of_qps or rows.empty:
        return rows
    defects = rows.assign(_bad=rows["defect"].isin(DEFINITE), _value=rows["value"].fillna(-1.0))
    wrong = rows["defect"].ne("") & ~rows["defect"].isin(DEFINITE)
    best = defects.sort_values(["_bad", "_value"], ascending=[True, False], kind="stable")
    best = best.drop_duplicates(["pair", "op", "size_bytes", "direction"])
    chosen = rows.index.isin(best.index) | wrong  # a defect is never hidden by a better value
    return rows[chosen]
