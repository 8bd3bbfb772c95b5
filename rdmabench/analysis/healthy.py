"""A copy of a run as it would be if all were well: its own nodes and pairs, values that pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from rdmabench.analysis.errorcounters import matching
from rdmabench.analysis.functional import patterns_of
from rdmabench.analysis.ruleset import RuleSet
from rdmabench.analysis.subjects import case_numbers, subjects, with_attainable
from rdmabench.collector.schema import METRICS, typed
from rdmabench.collector.tables import Tables
from rdmabench.model import Evidence, Outcome

_RATE_GBIT_S = 100.0
_SHARE = 0.97
_SPREAD = 0.002
LATENCIES = {
    "lat_min": 0.9,
    "lat_mean": 1.0,
    "lat_p50": 1.0,
    "lat_p90": 1.02,
    "lat_p99": 1.05,
    "lat_p99_9": 1.08,
    "lat_p99_99": 1.1,
    "lat_max": 1.2,
}


def healthy_copy(tables: Tables, rules: RuleSet) -> Tables:
    """Every case measured and proved, every value good, error counters still."""
    endpoints = tables.endpoints
    rate = endpoints["rate_gbit_s"].where(endpoints["rate_gbit_s"] > 0, _RATE_GBIT_S)
    mtu = endpoints["active_mtu_bytes"].where(endpoints["active_mtu_bytes"] > 0, 4096)
    endpoints = endpoints.assign(rate_gbit_s=rate, active_mtu_bytes=mtu)
    measured = tables.measurements
    keep = measured["metric"].notna() & ~measured["superseded"]
    keep &= measured["outcome"] == Outcome.MEASURED.value
    measured = measured[keep].reset_index(drop=True)
    known = set(measured["case"].astype("str"))
    cases = tables.cases[tables.cases["case"].astype("str").isin(known)].reset_index(drop=True)
    cases = cases.assign(evidence=Evidence.PROVED.value)
    healthy = replace(tables, endpoints=endpoints, cases=cases, measurements=measured)
    healthy = replace(healthy, measurements=_good_values(healthy, rules), events=_done(tables))
    counters = _with_every_counter(tables, rules)
    return replace(healthy, counters=counters.assign(delta=_still(counters, rules)))


def _with_every_counter(tables: Tables, rules: RuleSet) -> pd.DataFrame:
    """The counters, and one at rest for every port and rule that has none of its names."""
    counters, cases = tables.counters, tables.cases
    if cases.empty:
        return counters
    ports = tables.endpoints[["host", "device", "port", "driver"]].drop_duplicates()
    names = [rule.counters for rule in rules.rules if rule.kind == "counter"]
    rows = []
    for port in ports.to_dict("records"):
        mine = counters[(counters["host"] == port["host"]) & (counters["device"] == port["device"])]
        there = [str(name) for name in mine["counter"].unique()]
        for each in names:
            patterns = patterns_of(each, str(port["driver"]))
            if patterns and not matching(there, patterns):
                name = patterns[0].replace("*", "").replace("?", "")
                rows.append({**port, "counter": f"planted/{name}"})
    if not rows:
        return counters
    common = {"case": str(cases["case"].iloc[0]), "attempt": 0, "role": "initiator"}
    zero = dict.fromkeys(("before", "after", "delta"), 0)
    run = {name: str(cases[name].iloc[0]) for name in ("run", "fabric")}
    added = pd.DataFrame([{**row, **common, **zero, **run} for row in rows])
    return typed("counters", pd.concat([counters, typed("counters", added)], ignore_index=True))


def _done(tables: Tables) -> pd.DataFrame:
    events = tables.events.astype({"type": "str"})
    last = events.tail(1).assign(type="RunEnded", text="done: planted")
    return pd.concat([events[events["type"] != "RunEnded"], last], ignore_index=True)


def _still(counters: pd.DataFrame, rules: RuleSet) -> pd.Series:
    """Deltas with every judged counter at rest."""
    judged = counters["counter"].isin(judged_counters(counters, rules))
    return counters["delta"].where(~judged, 0)


def judged_counters(counters: pd.DataFrame, rules: RuleSet) -> frozenset[str]:
    patterns = [
        name
        for rule in rules.rules
        if rule.kind == "counter"
        for names in rule.counters.values()
        for name in names
    ]
    return matching(map(str, counters["counter"].unique()), patterns)


def _good_values(tables: Tables, rules: RuleSet) -> pd.DataFrame:
    """Bandwidths at 97 % of attainable, latencies well below every limit, hardly any spread."""
    rows = with_attainable(subjects(tables), tables).set_index("subject")
    table = tables.measurements
    number = table["case"].astype("str").map(case_numbers(tables)).to_numpy()
    attainable = rows["attainable"].reindex(number).fillna(_RATE_GBIT_S * 1e9 / 8).to_numpy()
    size = rows["size_bytes"].reindex(number).to_numpy(dtype=np.float64)
    wobble = 1 + _SPREAD * np.sin(np.arange(len(table)) * 1.7)
    least = _latency_level(rules)
    value = table["value"].to_numpy(dtype=np.float64).copy()
    for metric in table["metric"].astype("str").unique():
        mine = (table["metric"] == metric).to_numpy()
        if metric == "bw":
            value[mine] = (_SHARE * attainable * wobble)[mine]
        elif metric == "rate":
            value[mine] = (_SHARE * attainable / size * wobble)[mine]
        elif metric in LATENCIES:
            value[mine] = (least * LATENCIES[metric] * (1 + size / 1e5) * wobble)[mine]
    value = _within_absolute(table, value, rules)
    units = {name: each.unit for name, each in METRICS.items()}
    return table.assign(value=value, unit=table["metric"].astype("str").map(units))


def _latency_level(rules: RuleSet) -> float:
    """A latency in ns that every latency rule accepts."""
    highs = [
        min(each for each in (rule.high, rule.warn_high) if each is not None)
        for rule in rules.rules
        if rule.kind in ("absolute", "quantile")
        and rule.metric in LATENCIES
        and rule.high is not None
    ]
    return 0.5 * min([2000.0, *highs])


def _within_absolute(table: pd.DataFrame, value: np.ndarray, rules: RuleSet) -> np.ndarray:
    """Values of other absolute rules, moved to their good side."""
    for rule in rules.rules:
        if rule.kind != "absolute" or rule.metric in LATENCIES:
            continue
        mine = (table["metric"] == rule.metric).to_numpy()
        mine &= table["size_bytes"].between(rule.select.min_size, rule.select.max_size).to_numpy()
        if rule.low is not None:
            value[mine] = np.maximum(value[mine], 1.1 * max(rule.low, rule.warn_low or 0.0))
        if rule.high is not None:
            value[mine] = np.minimum(value[mine], 0.5 * rule.high)
    return value
