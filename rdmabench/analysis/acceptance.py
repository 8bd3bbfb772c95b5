"""Is this fabric what was asked for: every rule against everything it is about, fail closed.

Verdicts: PASS; FAIL; INCONCLUSIVE where the 95 % interval spans the limit, or where there is none
and the value is within 5 % of it; NOT TESTED where there is nothing to judge. A value that is
missing, no number, of another unit or above the wire is never PASS. A rule of severity `warn`, and
a value between the limit and the warning, is PASS with a remark.

The whole: passed only if every verdict is PASS and there is at least one. FAIL means that limits
were missed (exit 3); without one, INCONCLUSIVE and NOT TESTED mean that the run cannot tell (exit
4): measure again, with more repeats or what was left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from rdmabench.analysis.context import Context
from rdmabench.analysis.judging import JUDGES
from rdmabench.analysis.ruleset import Rule, RuleSet
from rdmabench.analysis.verdict import COLUMNS, FAIL, INCONCLUSIVE, NOT_TESTED, PASS, row
from rdmabench.collector.tables import Tables
from rdmabench.errors import EXIT_DONE, EXIT_INCOMPLETE, EXIT_LIMITS_MISSED

__all__ = ["FAIL", "INCONCLUSIVE", "NOT_TESTED", "PASS", "Acceptance", "accept"]

_ORDER = {FAIL: 0, INCONCLUSIVE: 1, NOT_TESTED: 2, PASS: 3}


@dataclass(frozen=True)
class Acceptance:
    """Every verdict, the worst first; `not_applied` are rules that were off, and why."""

    run: str
    fabric: str
    rules: str
    origin: str
    rows: pd.DataFrame
    not_applied: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    baseline: str = ""

    def count(self, verdict: str) -> int:
        """How many rows have that verdict."""
        return int((self.rows["verdict"] == verdict).sum())

    @property
    def verdict(self) -> str:
        """The worst of all; NOT TESTED where there is none."""
        found = set(self.rows["verdict"])
        return next((each for each in _ORDER if each in found), NOT_TESTED)

    @property
    def exit_code(self) -> int:
        """0 passed, 3 limits missed, 4 the run cannot tell."""
        codes = {PASS: EXIT_DONE, FAIL: EXIT_LIMITS_MISSED}
        return codes.get(self.verdict, EXIT_INCOMPLETE)


def accept(
    tables: Tables,
    rules: RuleSet,
    *,
    baseline: Tables | None = None,
    force_performance: bool = False,
) -> Acceptance:
    """Judges a run by rules.

    Limits of performance stay off where the rules say so, unless they are forced on (the self-test
    does that).
    """
    context = Context(tables=tables, baseline=baseline)
    performance = rules.performance or force_performance
    rows: list[dict[str, object]] = []
    not_applied: list[tuple[str, str]] = []
    for rule in rules.rules:
        reason = _off(rule, performance=performance, has_baseline=baseline is not None)
        made = [] if reason else list(_judged(rule, context))
        if made:
            rows += made
        else:
            not_applied.append((rule.name, reason or "nothing to judge"))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    order = frame["verdict"].map(_ORDER)
    frame = frame.assign(_order=order).sort_values(["_order", "rank"], kind="stable")
    notes = (rules.performance_note,) if not performance and rules.performance_note else ()
    return Acceptance(
        run=_name(tables),
        fabric=str(next(iter(tables.cases["fabric"].astype("str")), "")),
        rules=rules.name,
        origin=rules.origin,
        rows=frame.drop(columns=["_order", "rank"]).reset_index(drop=True),
        not_applied=tuple(not_applied),
        notes=notes,
        baseline="" if baseline is None else _name(baseline),
    )


def _name(tables: Tables) -> str:
    for frame in (tables.cases, tables.events, tables.nodes):
        for name in frame["run"].astype("str"):
            return str(name)
    return ""


def _off(rule: Rule, *, performance: bool, has_baseline: bool) -> str:
    if rule.is_performance and not performance:
        return "performance is not judged on this fabric"
    if rule.kind == "baseline" and not has_baseline:
        return "no --baseline was given"
    return ""


def _judged(rule: Rule, context: Context) -> Iterator[dict[str, object]]:
    """The rule's rows; a rule that must find something and does not has one, NOT TESTED."""
    found = False
    for each in JUDGES[rule.kind](rule, context):
        found = True
        if each["verdict"] == FAIL and rule.severity == "warn":
            yield {**each, "verdict": PASS, "remark": f"warning: {each['remark']}"}
        else:
            yield each
    if not found and rule.required:
        yield row(rule, subject="run", verdict=NOT_TESTED, remark="the run has nothing of the kind")
