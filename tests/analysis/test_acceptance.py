"""Acceptance fails closed: whatever is missing, wrong or impossible is never PASS."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rdmabench.analysis import ruleset
from rdmabench.analysis.acceptance import FAIL, INCONCLUSIVE, NOT_TESTED, PASS, Acceptance, accept
from rdmabench.analysis.explaining import explained
from rdmabench.analysis.ruleset import Rule, RuleSet
from rdmabench.analysis.verdict import against
from rdmabench.collector import tables as collected
from rdmabench.collector.tables import Tables
from rdmabench.errors import InputError
from rdmabench.model import Fabric, Outcome
from tests.analysis.fleets import fleet_tables, name
from tests.collector.synthetic import BANDWIDTH, SyntheticRun, case_of

ROCE = ruleset.load("roce")


def one(text: str) -> RuleSet:
    """A file of a single rule."""
    return ruleset.read(f"name: t\nrules:\n  - {{name: r, source: s, {text}}}\n", "t.yml")


def verdicts(result: Acceptance, rule: str) -> set[str]:
    return set(result.rows.loc[result.rows["rule"] == rule, "verdict"])


def changed(tables: Tables, metric: str, **columns: Any) -> Tables:
    """The first pair's rows of a metric with other columns."""
    table = tables.measurements.astype({"unit": "str"})
    mine = (table["metric"] == metric) & (table["pair"] == table["pair"].iloc[0])
    for column, value in columns.items():
        if isinstance(value, str):
            table[column] = table[column].astype(object)
        table.loc[mine, column] = value
    return replace(tables, measurements=table)


# ---- a verdict ----


@pytest.mark.parametrize(
    ("value", "lo", "hi", "verdict"),
    [
        (0.97, 0.96, 0.98, PASS),
        (0.93, 0.91, 0.94, PASS),
        (0.91, 0.89, 0.93, INCONCLUSIVE),
        (0.89, 0.88, 0.91, INCONCLUSIVE),
        (0.85, 0.84, 0.86, FAIL),
        (0.97, math.nan, math.nan, PASS),
        (0.92, math.nan, math.nan, INCONCLUSIVE),
        (0.88, math.nan, math.nan, INCONCLUSIVE),
        (0.80, math.nan, math.nan, FAIL),
        (math.nan, math.nan, math.nan, NOT_TESTED),
        (math.inf, math.inf, math.inf, NOT_TESTED),
    ],
)
def test_a_share_passes_only_where_its_interval_is_above_the_limit(
    value: float, lo: float, hi: float, verdict: str
) -> None:
    rule = Rule(name="r", kind="share", source="s", low=0.90, warn_low=0.95)
    assert against(rule, value, lo, hi)[0] == verdict


def test_between_limit_and_warning_is_a_pass_that_says_so() -> None:
    rule = Rule(name="r", kind="share", source="s", low=0.90, warn_low=0.95)
    assert against(rule, 0.93, 0.92, 0.94) == (PASS, "warning: below 0.95")
    assert against(rule, 0.96, 0.955, 0.97) == (PASS, "")


def test_of_a_latency_less_is_better() -> None:
    rule = Rule(name="r", kind="quantile", source="s", high=2500.0, scale=1000.0)
    assert against(rule, 2000, 1900, 2100)[0] == PASS
    assert against(rule, 2500, 2400, 2600)[0] == INCONCLUSIVE
    assert against(rule, 3000, 2900, 3100)[0] == FAIL


# ---- the whole ----


def test_a_healthy_fleet_passes_every_shipped_rule() -> None:
    result = accept(fleet_tables(6, noise=0.003), ROCE)
    assert set(result.rows["verdict"]) == {PASS}
    assert (result.verdict, result.exit_code) == (PASS, 0)
    assert {"bandwidth", "latency-tail", "retransmissions", "suspects"} <= set(result.rows["rule"])


def test_a_slow_node_fails_and_is_named() -> None:
    tables = fleet_tables(6, slow=lambda s, r, _: np.where((s == 2) | (r == 2), 1.3, 1.0))
    result = accept(tables, ROCE)
    assert result.exit_code == 3
    failed = result.rows[result.rows["verdict"] == FAIL]
    assert failed.loc[failed["rule"] == "suspects", "subject"].tolist() == [name(2)]
    shares = failed[failed["rule"] == "bandwidth"]
    assert len(shares) == 5
    assert shares["value"].between(0.72, 0.77).all()
    assert (shares["limit"] == ">= 0.9").all()
    assert shares["source"].str.contains("published gates").all()


def test_what_failed_worst_comes_first() -> None:
    tables = fleet_tables(6, slow=lambda s, r, _: np.where((s == 2) | (r == 2), 1.3, 1.0))
    rows = accept(tables, one("kind: share")).rows
    values = rows.loc[rows["verdict"] == FAIL, "value"].tolist()
    assert values == sorted(values)
    assert rows["verdict"].tolist()[-1] == PASS


def test_nothing_at_all_is_not_tested() -> None:
    tables = fleet_tables(2)
    empty = replace(
        tables,
        cases=tables.cases.iloc[0:0],
        measurements=tables.measurements.iloc[0:0],
        counters=tables.counters.iloc[0:0],
    )
    result = accept(empty, ROCE)
    assert result.verdict == NOT_TESTED
    assert result.exit_code == 4


def test_a_rule_that_finds_nothing_is_not_tested_unless_it_may() -> None:
    tables = fleet_tables(4)
    needed = accept(tables, one("kind: quantile, quantile: p50, op: read, max: 5, unit: us"))
    assert (needed.verdict, needed.exit_code) == (NOT_TESTED, 4)
    may = accept(
        tables, one("kind: quantile, quantile: p50, op: read, max: 5, unit: us, required: false")
    )
    assert may.not_applied == (("r", "nothing to judge"),)
    assert may.exit_code == 4  # no verdict at all is no pass


# ---- data that cannot pass ----


@pytest.mark.parametrize(
    ("columns", "verdict", "word"),
    [
        ({"value": math.nan}, FAIL, "no usable number"),
        ({"value": math.inf}, FAIL, "no usable number"),
        ({"value": -1.0}, FAIL, "no usable number"),
        ({"value": 0.0}, FAIL, "no usable number"),
        ({"value": "N/A"}, FAIL, "no usable number"),
        ({"unit": "Gb/s"}, FAIL, "not in B/s"),
        ({"value": 52e9}, FAIL, "above what the wire can carry"),
    ],
)
def test_malformed_and_impossible_values_fail(
    columns: dict[str, Any], verdict: str, word: str
) -> None:
    tables = changed(fleet_tables(4), "bw", **columns)
    for rules, rule in ((one("kind: share"), "r"), (ROCE, "plausible")):
        rows = accept(tables, rules).rows
        mine = rows[(rows["rule"] == rule) & (rows["verdict"] != PASS)]
        assert mine["verdict"].tolist() == [verdict]
        assert word in mine["remark"].iloc[0]


def test_a_rate_multiplied_by_the_queue_depth_is_refused() -> None:
    """Case G09: 8765.83 MB/s reported where the limit is 7.88 GB/s; the real rate was 498.31."""
    tables = fleet_tables(4)
    slower = replace(tables, endpoints=tables.endpoints.assign(rate_gbit_s=7.88 * 8 / 0.98015))
    impossible = slower.measurements.assign(value=8765.83e6)
    honest = slower.measurements.assign(value=498.31e6)
    rules = one("kind: absolute, metric: bw, min: 3, unit: Gb/s")
    assert accept(replace(slower, measurements=impossible), rules).exit_code == 3
    assert accept(replace(slower, measurements=honest), rules).exit_code == 0


def test_a_missing_metric_is_not_tested_though_its_case_is_measured() -> None:
    tables = fleet_tables(4)
    table = tables.measurements
    gone = (table["metric"] == "bw") & (table["pair"] == table["pair"].iloc[0])
    rows = accept(replace(tables, measurements=table[~gone]), one("kind: share")).rows
    assert sorted(rows["verdict"].value_counts().items()) == [(NOT_TESTED, 1), (PASS, 5)]


def test_one_lost_repeat_is_enough_not_to_pass() -> None:
    tables = fleet_tables(4)
    table = tables.measurements
    first = table.index[(table["metric"] == "bw")][0]
    rows = accept(replace(tables, measurements=table.drop(index=first)), one("kind: share")).rows
    assert rows.iloc[0]["verdict"] == NOT_TESTED
    assert "a repeat has no value" in rows.iloc[0]["remark"]


def test_an_unknown_port_rate_is_not_tested() -> None:
    tables = fleet_tables(4)
    tables = replace(tables, endpoints=tables.endpoints.assign(rate_gbit_s=0.0))
    result = accept(tables, one("kind: share"))
    assert set(result.rows["verdict"]) == {NOT_TESTED}
    assert "does not say its rate" in result.rows["remark"].iloc[0]


def test_a_defect_is_not_hidden_by_a_better_number_of_queue_pairs() -> None:
    tables = fleet_tables(4, metrics=("bw",))
    more = {"qps": 4}
    several = replace(
        tables,
        cases=_both(tables.cases, more),
        measurements=_both(tables.measurements.assign(value=math.nan), more),
    )
    several = replace(
        several,
        measurements=several.measurements.assign(
            value=several.measurements["value"].where(
                several.measurements["qps"] != 1, tables.measurements["value"].max()
            )
        ),
    )
    assert FAIL in verdicts(accept(several, one("kind: share")), "r")


def _both(frame: Any, more: dict[str, int]) -> Any:
    import pandas as pd

    text = frame["case"].astype("str")
    return pd.concat([frame, frame.assign(case=text + " more", **more)], ignore_index=True)


# ---- function ----


@pytest.mark.parametrize(("evidence", "verdict"), [("fallback", FAIL), ("absent", NOT_TESTED)])
def test_one_case_without_proof_is_enough(evidence: str, verdict: str) -> None:
    tables = fleet_tables(4)
    cases = tables.cases.astype({"evidence": "str"})
    cases.loc[0, "evidence"] = evidence
    assert verdicts(accept(replace(tables, cases=cases), one("kind: evidence")), "r") == {
        verdict,
        PASS,
    }


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        ("failed", FAIL),
        ("skipped", NOT_TESTED),
        ("unsupported", NOT_TESTED),
        ("not reached", NOT_TESTED),
    ],
)
def test_every_planned_case_must_be_measured(outcome: str, verdict: str) -> None:
    tables = fleet_tables(4)
    cases = tables.cases.astype({"outcome": "str", "reason": "str"})
    cases.loc[0, ["outcome", "reason"]] = [outcome, "why"]
    result = accept(replace(tables, cases=cases), one("kind: coverage"))
    assert result.verdict == verdict
    assert result.rows.iloc[0]["remark"] == f"1 {outcome}: why"


def test_an_unsupported_operation_may_be_allowed() -> None:
    tables = fleet_tables(4)
    cases = tables.cases.astype({"outcome": "str"})
    cases.loc[0, "outcome"] = "unsupported"
    rules = one("kind: coverage, allow_unsupported: true")
    assert accept(replace(tables, cases=cases), rules).exit_code == 0


def test_a_node_that_was_found_and_never_measured_is_not_tested() -> None:
    tables = fleet_tables(4)
    fifth = fleet_tables(5)
    more = replace(tables, nodes=fifth.nodes, endpoints=fifth.endpoints)
    rows = accept(more, one("kind: coverage")).rows
    assert rows.iloc[0][["subject", "verdict"]].tolist() == [name(4), NOT_TESTED]


def test_a_second_port_that_was_never_measured_is_not_tested() -> None:
    tables = fleet_tables(4)
    more = replace(tables, endpoints=fleet_tables(4, rails=2).endpoints)
    rows = accept(more, one("kind: coverage")).rows
    assert (rows["verdict"] == NOT_TESTED).sum() == 4


def test_a_run_without_an_end_is_not_tested() -> None:
    tables = fleet_tables(4)
    events = tables.events[tables.events["type"] != "RunEnded"]
    assert accept(replace(tables, events=events), one("kind: coverage")).exit_code == 4


@pytest.mark.parametrize(("delta", "verdict"), [(0, PASS), (1, FAIL), (-5, INCONCLUSIVE)])
def test_a_counter_that_moved_fails_and_one_that_went_back_tells_nothing(
    delta: int, verdict: str
) -> None:
    tables = fleet_tables(4)
    counters = tables.counters.copy()
    counters.loc[counters.index[0], "delta"] = delta
    rules = one("kind: counter, counters: {mlx5: [out_of_sequence]}")
    result = accept(replace(tables, counters=counters), rules)
    assert result.verdict == verdict
    assert len(result.rows) == 4


def test_a_driver_without_names_and_counters_that_were_not_read_are_not_tested() -> None:
    tables = fleet_tables(4)
    other = accept(tables, one("kind: counter, counters: {rxe: [rcvd_seq_err]}"))
    assert set(other.rows["verdict"]) == {NOT_TESTED}
    unread = replace(tables, counters=tables.counters.iloc[0:0])
    assert accept(unread, one("kind: counter, counters: {any: ['*']}")).exit_code == 4


def test_a_rule_that_only_warns_passes_with_a_remark() -> None:
    tables = fleet_tables(4)
    counters = tables.counters.copy()
    counters.loc[counters.index[0], "delta"] = 9
    rules = one("kind: counter, severity: warn, counters: {mlx5: [out_of_sequence]}")
    result = accept(replace(tables, counters=counters), rules)
    assert result.exit_code == 0
    assert result.rows["remark"].str.startswith("warning: hw_counters/out_of_sequence +9").any()


# ---- baseline and fleet ----


def test_a_loss_against_the_baseline_fails_and_a_pair_it_lacks_is_not_tested() -> None:
    rules = one("kind: baseline, metric: bw, min_ratio: 0.95")
    good = fleet_tables(4, seed=1)
    assert accept(fleet_tables(4, seed=2), rules, baseline=good).exit_code == 0
    slow = fleet_tables(4, seed=2, slow=lambda s, *_: np.full(len(s), 1.2))
    assert verdicts(accept(slow, rules, baseline=good), "r") == {FAIL}
    assert NOT_TESTED in verdicts(accept(fleet_tables(5, seed=2), rules, baseline=good), "r")


def test_without_a_baseline_its_rules_are_named_as_not_applied() -> None:
    result = accept(fleet_tables(4), ROCE)
    assert ("baseline-bandwidth", "no --baseline was given") in result.not_applied


def test_against_the_fleet_one_slow_pair_fails() -> None:
    tables = fleet_tables(
        6, slow=lambda s, r, _: np.where((np.minimum(s, r) == 1) & (np.maximum(s, r) == 4), 1.2, 1)
    )
    rows = accept(tables, one("kind: fleet, metric: bw, min_ratio: 0.93")).rows
    assert (rows["verdict"] == FAIL).sum() == 1


# ---- soft-RoCE ----


def test_on_soft_roce_performance_is_off_and_function_is_not(tmp_path: Any) -> None:
    run = SyntheticRun(tmp_path).begin(cases=[case_of(BANDWIDTH, repeat=r) for r in range(3)])
    for repeat in range(3):
        run.bandwidth(case=case_of(BANDWIDTH, repeat=repeat), initiator={"elapsed_ns": 10**9})
    tables = collected.load(run.end())
    rules = ruleset.load("rxe")
    quiet = {"counter": "hw_counters/retry_exceeded_err", "delta": 0}
    tables = replace(tables, counters=tables.counters.assign(**quiet))
    result = accept(tables, rules)
    assert result.notes == (rules.performance_note,)
    assert dict(result.not_applied)["bandwidth"] == "performance is not judged on this fabric"
    assert {"coverage", "evidence", "plausible", "lost-connections"} <= set(result.rows["rule"])
    forced = accept(tables, rules, force_performance=True)
    assert verdicts(forced, "bandwidth") == {FAIL}


def test_a_failed_case_of_a_real_journal_fails(tmp_path: Any) -> None:
    run = SyntheticRun(tmp_path, Fabric.RXE).begin()
    run.unmeasured(Outcome.FAILED, "transport retry counter exceeded")
    result = accept(collected.load(run.end("incomplete")), ruleset.load("rxe"))
    assert result.exit_code == 3
    assert "coverage" in set(result.rows.loc[result.rows["verdict"] == FAIL, "rule"])


# ---- how a rate is explained ----


def test_the_sum_behind_a_rate_is_explained(tmp_path: Any) -> None:
    run = SyntheticRun(tmp_path).begin()
    run.bandwidth()
    tables = collected.load(run.end())
    text = "\n".join(explained(tables, "write_bw/65536"))
    assert "per packet: 82 B" in text
    assert "measured: 50.00 Gb/s, 54.0 % of attainable" in text
    with pytest.raises(InputError, match="no measured bandwidth case fits 'read_bw'"):
        list(explained(tables, "read_bw"))
