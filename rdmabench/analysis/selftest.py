"""Gates that must go red: faults planted into a healthy copy of a run, in memory.

The copy has the run's own nodes, pairs and measurements, but values that pass (a gate that is
always red proves nothing). Every rule is judged, limits of performance too, and the copy itself is
its baseline. Each fault must turn red every gate that looks at what it spoils.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from rdmabench.analysis.acceptance import PASS, accept
from rdmabench.analysis.healthy import LATENCIES, healthy_copy, judged_counters
from rdmabench.analysis.ruleset import Rule, RuleSet
from rdmabench.analysis.subjects import is_nominal
from rdmabench.collector.tables import Tables
from rdmabench.errors import EXIT_DONE, EXIT_INCOMPLETE, EXIT_LIMITS_MISSED
from rdmabench.model import Evidence, Outcome

RED, GREEN, NO_GATE = "red", "GREEN", "no gate"


@dataclass(frozen=True)
class Planted:
    """One fault: which gates had to go red, and which did."""

    fault: str
    expected: tuple[str, ...]
    red: tuple[str, ...]

    @property
    def result(self) -> str:
        """`red` where all did, `GREEN` where one stayed green, `no gate` where none looks."""
        if not self.expected:
            return NO_GATE
        return RED if set(self.expected) <= set(self.red) else GREEN


@dataclass(frozen=True)
class SelfTest:
    """Every fault, the gates that the healthy copy does not pass, and those nothing was tried on.

    Exit code: 3 where a gate stayed green, or the healthy copy is not accepted; 4 where a rule of
    the set was tried by no fault; else 0: here 0 means that every gate went red.
    """

    planted: tuple[Planted, ...]
    control: tuple[str, ...]
    untried: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """As the class says."""
        if self.control or any(each.result == GREEN for each in self.planted):
            return EXIT_LIMITS_MISSED
        return EXIT_INCOMPLETE if self.untried else EXIT_DONE

    def frame(self) -> pd.DataFrame:
        """A row per fault."""
        return pd.DataFrame(
            [
                {
                    "fault": each.fault,
                    "result": each.result,
                    "gates_red": ", ".join(each.red),
                    "stayed_green": ", ".join(sorted(set(each.expected) - set(each.red))),
                }
                for each in self.planted
            ]
        )


def selftest(tables: Tables, rules: RuleSet) -> SelfTest:
    """Plants every fault, one at a time, and judges each copy."""
    healthy = healthy_copy(tables, rules)
    applied, control = _gates(healthy, healthy, rules)
    planted = []
    for fault, (spoil, touches) in _FAULTS.items():
        spoiled = spoil(healthy, rules)
        if spoiled is None:
            continue
        looking = tuple(r for r in rules.rules if r.name in applied and touches(r))
        _, red = _gates(spoiled, healthy, replace(rules, rules=looking))
        expected = tuple(rule.name for rule in looking)
        planted.append(Planted(fault, expected, tuple(name for name in red if name not in control)))
    tried = {name for each in planted for name in each.red}
    untried = tuple(name for name in applied if name not in tried and _can_fail(rules, name))
    return SelfTest(planted=tuple(planted), control=control, untried=untried)


def _can_fail(rules: RuleSet, name: str) -> bool:
    """Whether a rule may go red at all: one of severity `warn` only remarks."""
    return next(rule for rule in rules.rules if rule.name == name).severity == "fail"


def _gates(
    tables: Tables, baseline: Tables, rules: RuleSet
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rules that found something to judge, and those of them that are not all PASS."""
    result = accept(tables, rules, baseline=baseline, force_performance=True)
    rows = result.rows
    applied = tuple(dict.fromkeys(rows["rule"]))
    red = set(rows.loc[rows["verdict"] != PASS, "rule"])
    red |= {name for name in (r.name for r in rules.rules) if _warned(rows, name)}
    return applied, tuple(name for name in applied if name in red)


def _warned(rows: pd.DataFrame, name: str) -> bool:
    """A rule of severity `warn` is red where it says so."""
    mine = rows[rows["rule"] == name]
    return bool(mine["remark"].astype("str").str.startswith("warning: ").any())


# ---- faults ----

_Spoil = Callable[[Tables, RuleSet], "Tables | None"]


def _values(rule: Rule) -> bool:
    return rule.kind in ("share", "absolute", "quantile", "baseline", "fleet")


def _is_bandwidth(rule: Rule) -> bool:
    return rule.metric == "bw"


def _is_latency(rule: Rule) -> bool:
    return rule.metric.startswith("lat_")


def _first_pair(tables: Tables, metric: str) -> np.ndarray | None:
    """Rows of a metric of the first pair that has it."""
    table = tables.measurements
    mine = (table["metric"] == metric).to_numpy()
    if not mine.any():
        return None
    pair = table["pair"].astype("str").to_numpy()
    return np.asarray(mine & (pair == pair[mine][0]))


def _with_value(metrics: tuple[str, ...], change: Callable[[Any], Any]) -> _Spoil:
    def spoil(tables: Tables, _rules: RuleSet) -> Tables | None:
        table = tables.measurements
        value = table["value"].astype(object)
        touched = False
        for metric in metrics:
            mine = _first_pair(tables, metric)
            if mine is not None:
                value = value.where(~mine, value.map(change))
                touched = True
        return replace(tables, measurements=table.assign(value=value)) if touched else None

    return spoil


def _numbers(metrics: tuple[str, ...], factor: float) -> _Spoil:
    """As `_with_value`, and the column stays a column of numbers."""
    spoil = _with_value(metrics, lambda value: value * factor)

    def numeric(tables: Tables, rules: RuleSet) -> Tables | None:
        found = spoil(tables, rules)
        if found is None:
            return None
        table = found.measurements
        return replace(found, measurements=table.assign(value=table["value"].astype("float64")))

    return numeric


def _above_the_wire(tables: Tables, rules: RuleSet) -> Tables | None:
    """A rate multiplied by the queue depth, as some benchmarks have it."""
    return None if is_nominal(tables) else _numbers(("bw",), 17.6)(tables, rules)


def _missing(metric: str) -> _Spoil:
    def spoil(tables: Tables, _rules: RuleSet) -> Tables | None:
        mine = _first_pair(tables, metric)
        return None if mine is None else replace(tables, measurements=tables.measurements[~mine])

    return spoil


def _wrong_unit(metric: str) -> _Spoil:
    def spoil(tables: Tables, _rules: RuleSet) -> Tables | None:
        mine = _first_pair(tables, metric)
        unit = tables.measurements["unit"].astype("str")
        if mine is None:
            return None
        return replace(
            tables, measurements=tables.measurements.assign(unit=unit.where(~mine, "furlong"))
        )

    return spoil


def _case_text(column: str, text: str) -> _Spoil:
    """One case, the first, with another outcome or evidence."""

    def spoil(tables: Tables, _rules: RuleSet) -> Tables | None:
        if tables.cases.empty:
            return None
        values = tables.cases[column].astype("str").to_numpy(dtype=object)
        values[0] = text
        return replace(tables, cases=tables.cases.assign(**{column: values}))

    return spoil


def _moved(tables: Tables, rules: RuleSet) -> Tables | None:
    """Every judged counter of the first port, in one case, by five."""
    counters = tables.counters
    names = judged_counters(counters, rules)
    mine = counters["counter"].isin(names).to_numpy()
    if not mine.any():
        return None
    moved = mine & ~counters.assign(mine=mine).duplicated(["mine", "counter"]).to_numpy()
    return replace(tables, counters=counters.assign(delta=counters["delta"].mask(moved, 5)))


def _no_counters(tables: Tables, _rules: RuleSet) -> Tables | None:
    return replace(tables, counters=tables.counters.iloc[0:0])


def _no_end(tables: Tables, _rules: RuleSet) -> Tables | None:
    events = tables.events
    return replace(tables, events=events[events["type"] != "RunEnded"])


def _kind(*kinds: str) -> Callable[[Rule], bool]:
    return lambda rule: rule.kind in kinds


def _plausible_or(test: Callable[[Rule], bool]) -> Callable[[Rule], bool]:
    return lambda rule: rule.kind == "plausible" or (_values(rule) and test(rule))


_SLOWER = tuple(LATENCIES)
_FAULTS: Mapping[str, tuple[_Spoil, Callable[[Rule], bool]]] = {
    "low bandwidth": (_numbers(("bw",), 0.4), lambda r: _values(r) and _is_bandwidth(r)),
    "high latency": (_numbers(_SLOWER, 20.0), lambda r: _values(r) and _is_latency(r)),
    "a missing bandwidth": (_missing("bw"), _plausible_or(_is_bandwidth)),
    "a missing latency": (_missing("lat_p50"), _plausible_or(lambda r: r.metric == "lat_p50")),
    "unparsable text": (_with_value(("bw",), lambda _v: "N/A"), _plausible_or(_is_bandwidth)),
    "not a number": (_numbers(("bw",), float("nan")), _plausible_or(_is_bandwidth)),
    "a negative value": (_numbers(("bw",), -1.0), _plausible_or(_is_bandwidth)),
    "a rate above the wire": (
        _above_the_wire,
        _plausible_or(_is_bandwidth),
    ),
    "a wrong unit": (_wrong_unit("bw"), _plausible_or(_is_bandwidth)),
    "a fallback row": (
        _case_text("evidence", Evidence.FALLBACK.value),
        _kind("evidence", "suspects"),
    ),
    "no evidence": (_case_text("evidence", Evidence.ABSENT.value), _kind("evidence")),
    "a failed case": (
        _case_text("outcome", Outcome.FAILED.value),
        _kind("coverage", "suspects"),
    ),
    "a case not reached": (_case_text("outcome", "not reached"), _kind("coverage")),
    "a run without an end": (_no_end, _kind("coverage")),
    "a moved counter": (_moved, _kind("counter")),
    "counters not read": (_no_counters, _kind("counter")),
}
