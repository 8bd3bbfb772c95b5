"""One verdict, and how a value with its interval is held against a limit."""

from __future__ import annotations

import math
from typing import Any

from rdmabench.analysis.ruleset import Rule

PASS, FAIL = "PASS", "FAIL"
INCONCLUSIVE, NOT_TESTED = "INCONCLUSIVE", "NOT TESTED"
NEAR = 0.05  # without an interval, a value this near to its limit decides nothing

Row = dict[str, object]

COLUMNS = (
    "rule",
    "kind",
    "subject",
    "measurement",
    "verdict",
    "value",
    "lo",
    "hi",
    "n",
    "limit",
    "unit",
    "source",
    "remark",
    "rank",
)


def row(
    rule: Rule,
    *,
    subject: str,
    verdict: str,
    measurement: str = "",
    remark: str = "",
    **numbers: Any,
) -> Row:
    """A row of the result; numbers are in the rule's unit."""
    empty = {"value": math.nan, "lo": math.nan, "hi": math.nan, "n": 0, "limit": "", "rank": 0.0}
    return {
        "rule": rule.name,
        "kind": rule.kind,
        "subject": subject,
        "measurement": measurement,
        "verdict": verdict,
        **empty,
        "unit": rule.unit,
        "source": rule.source,
        "remark": remark,
        **numbers,
    }


def limit_text(rule: Rule) -> str:
    """`>= 0.9`, `<= 2.5`, as the rule says it."""
    parts = []
    if rule.low is not None:
        parts.append(f">= {rule.low / rule.scale:.6g}")
    if rule.high is not None:
        parts.append(f"<= {rule.high / rule.scale:.6g}")
    return ", ".join(parts)


def against(rule: Rule, value: float, lo: float, hi: float) -> tuple[str, str]:
    """The verdict on a value with its interval (NaN: none), and the remark."""
    if not math.isfinite(value):
        return NOT_TESTED, "no value"
    verdicts = []
    if rule.low is not None:
        verdicts.append(_against(rule.low, value, lo, hi))
    if rule.high is not None:
        verdicts.append(_against(-rule.high, -value, -hi, -lo))
    if not verdicts:
        return NOT_TESTED, "the rule has no limit"
    for verdict in (FAIL, INCONCLUSIVE):
        if verdict in verdicts:
            return verdict, _why(verdict, lo)
    return PASS, _warning(rule, value)


def _against(least: float, value: float, lo: float, hi: float) -> str:
    """At least so much: with the interval, or without one only well away from the limit."""
    if math.isfinite(lo) and math.isfinite(hi):
        if lo >= least:
            return PASS
        return FAIL if hi < least else INCONCLUSIVE
    margin = NEAR * abs(least)
    if value >= least + margin:
        return PASS
    return FAIL if value < least - margin else INCONCLUSIVE


def _why(verdict: str, lo: float) -> str:
    if verdict == FAIL:
        return "limit missed"
    if math.isfinite(lo):
        return "the 95 % interval spans the limit: more repeats would tell"
    return "near the limit, and too few repeats for an interval"


def _warning(rule: Rule, value: float) -> str:
    low = rule.warn_low is not None and value < rule.warn_low
    high = rule.warn_high is not None and value > rule.warn_high
    if not low and not high:
        return ""
    bound = rule.warn_low if low else rule.warn_high
    assert bound is not None  # noqa: S101 -- one of the two was compared
    return f"warning: {'below' if low else 'above'} {bound / rule.scale:.6g}"
