"""Rules of performance: values against a share, a number, a baseline or the fleet."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from rdmabench.analysis.compare import compare
from rdmabench.analysis.context import DEFINITE, NO_VALUE, Context, measured, selected
from rdmabench.analysis.ruleset import Rule
from rdmabench.analysis.verdict import FAIL, NOT_TESTED, Row, against, limit_text, row
from rdmabench.collector.tables import Tables
from rdmabench.errors import InputError

_LEAST_FLEET = 3


def _limited(rule: Rule, rows: pd.DataFrame) -> Iterator[Row]:
    """Verdicts on `value`, `lo` and `hi` of each row, in the rule's unit."""
    text = limit_text(rule)
    for each in rows.to_dict("records"):
        subject = {"subject": each["pair"], "measurement": each["what"], "limit": text}
        if each["defect"]:
            verdict = DEFINITE.get(each["defect"], FAIL)
            remark = _defect_text(rule, each["defect"])
            yield row(rule, verdict=verdict, remark=remark, n=int(each["n"]), **subject)
            continue
        verdict, remark = against(rule, each["value"], each["lo"], each["hi"])
        numbers = {name: each[name] / rule.scale for name in ("value", "lo", "hi")}
        rank = _rank(rule, each["value"])
        yield row(
            rule, verdict=verdict, remark=remark, n=int(each["n"]), rank=rank, **numbers, **subject
        )


def _defect_text(rule: Rule, defect: str) -> str:
    if defect == NO_VALUE and rule.kind == "quantile":
        return "no value: a repeat has too few samples for this quantile"
    return defect


def _rank(rule: Rule, value: float) -> float:
    """How far on the good side, as a share of the limit: the worst comes first."""
    if not math.isfinite(value):
        return math.inf
    if rule.low:
        return value / rule.low
    return rule.high / value if rule.high and value > 0 else 0.0


def share(rule: Rule, context: Context) -> Iterator[Row]:
    rows = measured(rule, context)
    unknown = rows["attainable"].isna() & (rows["defect"] == "")
    for each in rows[unknown].to_dict("records"):
        yield row(
            rule,
            subject=each["pair"],
            measurement=each["what"],
            verdict=NOT_TESTED,
            limit=limit_text(rule),
            n=int(each["n"]),
            remark=f"the attainable rate is not known: {each['unknown']}",
        )
    known = rows[~unknown]
    shares = {name: known[name] / known["attainable"] for name in ("value", "lo", "hi")}
    yield from _limited(rule, known.assign(**shares))


def absolute(rule: Rule, context: Context) -> Iterator[Row]:
    yield from _limited(rule, measured(rule, context))


def fleet(rule: Rule, context: Context) -> Iterator[Row]:
    """Each pair against the median of all pairs of the same measurement."""
    rows = measured(rule, context)
    for what, group in rows.groupby("what", sort=False):
        told = group["value"].notna().sum() >= _LEAST_FLEET
        middle = group["value"].median() if told else math.nan
        if len(group) < _LEAST_FLEET:
            if rule.required:
                few = f"{len(group)} pairs are no fleet"
                yield row(
                    rule,
                    subject="fleet",
                    measurement=str(what),
                    verdict=NOT_TESTED,
                    limit=limit_text(rule),
                    remark=few,
                )
            continue
        ratios = {name: group[name] / middle for name in ("value", "lo", "hi")}
        yield from _limited(rule, group.assign(**ratios))


def baseline(rule: Rule, context: Context) -> Iterator[Row]:
    """Ratios to the baseline as `rdmabench compare` works them out."""
    if context.baseline is None:
        return
    wanted = selected(rule, context)
    keys = set(zip(wanted["op"], wanted["probe"], wanted["size_bytes"], wanted["qps"], strict=True))
    try:
        result = compare(
            [_numeric(context.baseline), _numeric(context.tables)], metrics=(rule.metric,)
        )
    except InputError as exc:
        yield row(rule, subject="run", verdict=NOT_TESTED, remark=exc.what)
        return

    def mine(frame: pd.DataFrame) -> list[dict[Any, Any]]:
        return [
            each
            for each in frame.to_dict("records")
            if (each["op"], each["probe"], each["size_bytes"], each["qps"]) in keys
        ]

    kind = "bw" if rule.metric == "bw" else "lat"
    good = _sound(rule, context)
    for each in mine(result.rows):
        what = f"{each['op']}_{kind}/{each['size_bytes']}/{each['qps']}"
        verdict, remark = against(rule, each["ratio"], each["ratio_lo"], each["ratio_hi"])
        defect = good.get((each["hosts"], what), "")
        if defect:
            verdict, remark = DEFINITE.get(defect, FAIL), defect
        yield row(
            rule,
            subject=each["hosts"],
            measurement=what,
            verdict=verdict,
            remark=remark,
            value=each["ratio"],
            lo=each["ratio_lo"],
            hi=each["ratio_hi"],
            n=int(each["run_repeats"]),
            limit=limit_text(rule),
            rank=_rank(rule, each["ratio"]),
        )
    for each in mine(result.not_compared):
        what = f"{each['op']}_{kind}/{each['size_bytes']}/{each['qps']}"
        yield row(
            rule,
            subject=each["hosts"],
            measurement=what,
            verdict=NOT_TESTED,
            limit=limit_text(rule),
            remark=str(each["reason"]),
        )


def _numeric(tables: Tables) -> Tables:
    """The tables with text among the values as no value; `_sound` says what was wrong."""
    value = pd.to_numeric(tables.measurements["value"], errors="coerce")
    return replace(tables, measurements=tables.measurements.assign(value=value))


def _sound(rule: Rule, context: Context) -> dict[tuple[str, str], str]:
    """What is wrong with this run's own values, by hosts and measurement."""
    rows = measured(replace(rule, best_of_qps=False), context)
    bad = rows[rows["defect"] != ""]
    return {
        (
            f"{each['initiator_host']}[{each['rail']}]>"
            f"{each['responder_host']}[{each['responder_rail']}]",
            str(each["what"]).split(" ")[0],
        ): str(each["defect"])
        for each in bad.to_dict("records")
    }
