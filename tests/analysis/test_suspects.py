"""Suspects: the right thing is accused, nothing else, and a run that cannot tell says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rdmabench.analysis.candidates import LINK, NODE
from rdmabench.analysis.causes import explain
from rdmabench.analysis.pairs import Ends, PairMatrix, centres
from rdmabench.analysis.suspects import Suspects, suspects
from rdmabench.collector.tables import Tables
from tests.analysis.fleets import fleet_tables, name
from tests.bench import detection

TENTH = 1 / 0.9


def accused(result: Suspects) -> list[tuple[str, str]]:
    return [(each.kind, each.subject) for each in result.found]


def matrix(logs: np.ndarray, who: Ends, pairs: tuple[np.ndarray, np.ndarray]) -> PairMatrix:
    return PairMatrix("write_bw/65536/1", "bw", "gbps", who, pairs[0], pairs[1], logs)


def with_outcome(tables: Tables, mask: pd.Series, outcome: str, reason: str) -> Tables:
    cases = tables.cases.astype({"outcome": "str", "reason": "str"})
    cases.loc[mask, ["outcome", "reason"]] = [outcome, reason]
    keep = ~tables.measurements["case"].isin(cases.loc[mask, "case"])
    return replace(tables, cases=cases, measurements=tables.measurements[keep])


# ---- what is told apart ----


def test_a_slow_node_is_named_in_every_measurement_that_shows_it_and_as_one_suspect() -> None:
    tables = fleet_tables(12, slow=lambda s, r, _: np.where((s == 3) | (r == 3), TENTH, 1.0))
    result = suspects(tables)
    assert accused(result) == [("node", name(3))]
    found = result.found[0]
    assert found.times_slower == pytest.approx(TENTH, rel=0.02)
    assert len(found.pairs) == 11
    assert found.also
    assert found.pairs[0].ratio == pytest.approx(0.9, abs=0.03)
    assert "not told apart" in found.note


def test_a_node_that_is_slow_only_when_it_sends_is_a_direction() -> None:
    tables = fleet_tables(16, metrics=("bw",), slow=lambda s, _r, _k: np.where(s == 5, TENTH, 1.0))
    assert accused(suspects(tables)) == [("direction", f"{name(5)} sending")]


def test_a_single_slow_pair_points_at_the_path() -> None:
    tables = fleet_tables(
        12,
        repeats=9,
        metrics=("bw",),
        slow=lambda s, r, _: np.where((np.minimum(s, r) == 2) & (np.maximum(s, r) == 7), TENTH, 1),
    )
    result = suspects(tables)
    assert [each.kind for each in result.found] == ["link"]
    assert {name(2), name(7)} == {
        end.split("/")[0] for end in result.found[0].pairs[0].pair.split(">")
    }


def test_one_way_of_a_link_is_a_direction_where_both_were_measured() -> None:
    tables = fleet_tables(
        10,
        both_ways=True,
        metrics=("bw",),
        slow=lambda s, r, _: np.where((s == 2) & (r == 7), TENTH, 1.0),
    )
    assert accused(suspects(tables)) == [("direction", f"{name(2)}/mlx5_0 to {name(7)}/mlx5_0")]


def test_one_nic_of_a_node_with_several_is_the_nic() -> None:
    tables = fleet_tables(
        10,
        rails=2,
        metrics=("bw",),
        slow=lambda s, r, k: np.where(((s == 4) | (r == 4)) & (k == 1), TENTH, 1.0),
    )
    assert accused(suspects(tables)) == [("NIC", f"{name(4)}/mlx5_1")]


def test_a_slow_rail_is_the_rail_in_a_sample_of_random_matchings() -> None:
    rng = np.random.default_rng(4)
    first, second = detection.matchings(15, 1, 4, rng)
    tables = fleet_tables(
        15,
        rails=4,
        pairs=(first, second),
        metrics=("bw",),
        slow=lambda _s, _r, k: np.where(k == 2, TENTH, 1.0),
    )
    assert accused(suspects(tables)) == [("rail", "rail 2")]


def test_a_ring_of_odd_size_names_the_node_between_two_slow_pairs() -> None:
    ring = (np.arange(9), (np.arange(9) + 1) % 9)
    tables = fleet_tables(
        9,
        pairs=ring,
        metrics=("bw",),
        slow=lambda s, r, _: np.where((s == 3) | (r == 3), 1.5, 1.0),
    )
    assert accused(suspects(tables)) == [("node", name(3))]


def test_the_sender_of_a_read_is_its_responder() -> None:
    tables = fleet_tables(12, metrics=("bw",), slow=lambda s, *_: np.where(s == 5, TENTH, 1.0))
    read = {"op": "read"}
    turned = replace(
        tables,
        cases=tables.cases.assign(**read),
        measurements=tables.measurements.assign(**read),
    )
    assert accused(suspects(turned)) == [("direction", f"{name(5)} receiving")]


def test_two_bad_hosts_of_sixteen_with_half_the_bandwidth_are_both_named() -> None:
    """Case G07: pairs of 80 and 40 GB/s; a mean hides it, and one bad value inflates a sigma."""
    slow = {5, 11}
    tables = fleet_tables(
        16,
        repeats=1,
        metrics=("bw",),
        slow=lambda s, r, _: np.where(np.isin(s, list(slow)) | np.isin(r, list(slow)), 2.0, 1.0),
    )
    assert sorted(accused(suspects(tables))) == [("node", name(5)), ("node", name(11))]


def test_half_a_fleet_of_slow_hosts_is_called_bimodal_and_nobody_is_accused() -> None:
    tables = fleet_tables(
        16, repeats=1, metrics=("bw",), slow=lambda s, r, _: np.where((s < 8) | (r < 8), 2.0, 1.0)
    )
    result = suspects(tables)
    assert (result.found, result.answered) == ((), False)
    assert "bimodal" in result.reason


def test_four_nodes_name_a_node_that_is_far_slower_amid_heavy_noise() -> None:
    for seed in range(3):
        tables = fleet_tables(
            4,
            repeats=3,
            noise=0.15,
            metrics=("bw",),
            seed=seed,
            slow=lambda s, r, _: np.where((s == 2) | (r == 2), 8.0, 1.0),
        )
        assert accused(suspects(tables)) == [("node", name(2))]


def test_four_healthy_nodes_with_heavy_noise_are_clean() -> None:
    alarms = [
        suspects(fleet_tables(4, repeats=3, noise=0.2, metrics=("bw",), seed=s)).found
        for s in range(5)
    ]
    assert alarms == [()] * 5


# ---- what cannot be told ----


def test_two_nodes_cannot_tell_a_node_from_the_path() -> None:
    result = suspects(fleet_tables(2))
    assert (result.found, result.answered) == ((), False)
    assert "either node or the path" in result.reason


def test_three_nodes_are_no_fleet() -> None:
    assert not suspects(fleet_tables(3)).answered


def test_a_run_without_numbers_cannot_answer() -> None:
    tables = fleet_tables(4)
    result = suspects(replace(tables, measurements=tables.measurements.iloc[0:0]))
    assert not result.answered


def test_equal_values_everywhere_accuse_nobody() -> None:
    result = suspects(fleet_tables(8, noise=0.0))
    assert (result.found, result.answered) == ((), True)


# ---- failures and evidence ----


def test_a_node_whose_cases_all_failed_is_named_once_with_the_reason() -> None:
    tables = fleet_tables(6, metrics=("bw",))
    mine = (tables.cases["initiator_host"] == name(1)) | (tables.cases["responder_host"] == name(1))
    result = suspects(with_outcome(tables, mine, "failed", "transport retry counter exceeded"))
    assert accused(result) == [("node", name(1))]
    assert result.found[0].symptom == "failed"
    assert "retry counter" in result.found[0].note
    assert result.found[0].failed_cases == int(mine.sum())


def test_one_failed_pair_between_good_nodes_points_at_the_path() -> None:
    tables = fleet_tables(6, metrics=("bw",))
    pair = tables.cases["pair"].iloc[0]
    result = suspects(with_outcome(tables, tables.cases["pair"] == pair, "failed", "timeout"))
    assert accused(result) == [("link", pair)]


def test_rows_on_another_path_are_traced_to_their_node() -> None:
    tables = fleet_tables(6, metrics=("bw",))
    mine = tables.cases["initiator_host"] == name(0)
    cases = tables.cases.astype({"evidence": "str"})
    cases.loc[mine, "evidence"] = "fallback"
    found = suspects(replace(tables, cases=cases)).found
    assert [(each.subject, each.symptom) for each in found] == [(name(0), "fallback")]
    assert found[0].fallback_cases == int(mine.sum())


def test_counters_that_moved_stand_beside_the_suspect_they_belong_to() -> None:
    tables = fleet_tables(
        8, metrics=("bw",), slow=lambda s, r, _: np.where((s == 3) | (r == 3), 1.3, 1.0)
    )
    counters = tables.counters.copy()
    theirs = counters["counter"] == "hw_counters/out_of_sequence"
    counters.loc[theirs & (counters["host"] == name(3)), "delta"] = 7
    counters.loc[theirs & (counters["host"] == name(4)), "delta"] = 1000
    found = suspects(replace(tables, counters=counters)).found
    assert found[0].counters == (f"{name(3)}/mlx5_0 hw_counters/out_of_sequence +49",)


# ---- the estimate ----


def test_one_wild_repeat_of_five_moves_a_pair_hardly() -> None:
    logs = np.zeros((1, 5))
    logs[0, 0] = 3.0
    found, counts = centres(logs)
    assert (found[0], counts[0]) == (0.0, 5)


def test_a_wild_repeat_in_a_healthy_fleet_is_no_alarm() -> None:
    rng = np.random.default_rng(3)
    who, pairs = detection.ends(16), detection.all_pairs(16)
    logs = rng.normal(0, 0.01, (len(pairs[0]), 5))
    logs[::7, 2] += 1.0
    assert explain(matrix(logs, who, pairs)).causes == ()


def test_natural_differences_between_nodes_are_no_fault() -> None:
    rng = np.random.default_rng(5)
    who, pairs = detection.ends(32), detection.all_pairs(32)
    nature = rng.normal(0, 0.015, 32)
    alarms = 0
    for _ in range(8):
        logs = (
            rng.normal(0, 0.01, (len(pairs[0]), 5)) + (nature[pairs[0]] + nature[pairs[1]])[:, None]
        )
        alarms += bool(explain(matrix(logs, who, pairs)).causes)
    assert alarms == 0


def test_a_link_and_a_node_at_once_are_told_apart() -> None:
    rng = np.random.default_rng(6)
    who, pairs = detection.ends(24), detection.all_pairs(24)
    logs = rng.normal(0, 0.01, (len(pairs[0]), 5))
    logs[(pairs[0] == 4) | (pairs[1] == 4)] += 0.1
    link = int(np.flatnonzero((np.minimum(*pairs) == 9) & (np.maximum(*pairs) == 17))[0])
    logs[link] += 0.1
    found = explain(matrix(logs, who, pairs)).causes
    assert [(c.kind.name, len(c.pairs)) for c in found] == [(NODE, 23), (LINK, 1)]


# ---- rates, as tests/bench/detection.py has them with more fleets ----


def test_a_link_a_tenth_slow_is_found_after_a_retest() -> None:
    found = detection.share(
        lambda rng: detection.link_found(rng, repeats=5, retested=True), seed=100, fleets=15
    )
    assert found >= 14 / 15


@pytest.mark.parametrize(
    "trial", [detection.node_found, detection.direction_found, detection.rail_found]
)
def test_nodes_directions_and_rails_are_told_apart(trial: object) -> None:
    assert detection.share(trial, seed=101, fleets=10) >= 0.9  # type: ignore[arg-type]


def test_healthy_fleets_raise_hardly_an_alarm() -> None:
    alarms = detection.share(
        lambda rng: detection.false_alarm(rng, retested=False), seed=102, fleets=30
    )
    assert alarms <= 1 / 30


def test_intervals_hold_the_true_median_as_often_as_they_say() -> None:
    assert 0.93 <= detection.coverage(10, draws=1000) <= 0.97
