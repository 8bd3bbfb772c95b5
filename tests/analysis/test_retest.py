"""What is measured again, and the bisection of a slow group."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmabench.analysis.bisection import Bisection
from rdmabench.analysis.causes import explain
from rdmabench.analysis.retest import combined, pairs_option, plan_retest
from rdmabench.model import EndpointRef
from rdmabench.orchestrator import schedule
from tests.bench.detection import all_pairs, ends, fleet

RNG = np.random.default_rng(1)


def slow_node(node: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    first, second = all_pairs(16)
    return first, second, (first == node) | (second == node)


def test_an_accused_node_is_measured_again_with_two_different_healthy_partners() -> None:
    first, second, slow = slow_node(3)
    matrix = fleet(ends(16), (first, second), RNG, noise=0.01, slow=slow)
    plan = plan_retest(matrix, explain(matrix))
    partners = {int(host) for pair in plan.with_healthy for host in (first[pair], second[pair])} - {
        3
    }
    assert len(plan.with_healthy) == len(partners) == 2
    assert not any(slow[pair] for pair in plan.controls)
    assert len(set(plan.pairs)) == len(plan.pairs)


def test_an_accused_link_comes_first_and_the_slowest_after_it() -> None:
    pairs = all_pairs(16)
    slow = np.zeros(len(pairs[0]), dtype=bool)
    slow[40] = True
    matrix = fleet(ends(16), pairs, RNG, noise=0.005, slow=slow)
    plan = plan_retest(matrix, explain(matrix))
    assert plan.suspected[0] == 40
    assert len(plan.suspected) <= 33


def test_the_list_is_what_sweep_takes() -> None:
    matrix = fleet(ends(4), all_pairs(4), RNG)
    text = pairs_option(matrix, [0, 5])
    refs = [EndpointRef(host=label.split("/")[0], device="mlx5_0") for label in matrix.ends.labels]
    assert sum(len(each) for each in schedule.pairs(text, refs)) == 2


def test_several_nics_are_named_with_their_device() -> None:
    who = ends(4, rails=2)
    matrix = fleet(who, (np.array([0, 1]), np.array([2, 3])), RNG)
    assert pairs_option(matrix, [1]) == "n000/mlx5_1:n001/mlx5_1"


def test_drift_between_the_runs_is_told_by_the_ordinary_pairs() -> None:
    pairs = all_pairs(16)
    first = fleet(ends(16), pairs, RNG)
    found = explain(first)
    again = np.array(plan_retest(first, found).pairs)
    second = fleet(ends(16), (pairs[0][again], pairs[1][again]), RNG, repeats=10)
    drifted = replace(second, logs=second.logs + 0.2)
    both = combined(first, drifted, found)
    assert both.logs.shape == (len(pairs[0]), 15)
    added = both.logs[again][:, 5:]
    assert abs(float(np.median(added)) - found.level) < 0.02
    assert explain(both).causes == ()


# ---- bisection ----


def search(nodes: int, is_slow: Callable[[set[str]], bool]) -> Bisection:
    state = Bisection.start([f"n{i}" for i in range(nodes)])
    for _ in range(10 * nodes):
        group = state.next_run
        if not group:
            return state
        assert len(group) >= 2
        state = state.after(slow=is_slow(set(group)))
    raise AssertionError("it does not end")


@settings(max_examples=40, deadline=None)
@given(nodes=st.integers(3, 70), place=st.integers(0, 69))
def test_one_culprit_takes_a_run_per_halving_and_two_to_confirm(nodes: int, place: int) -> None:
    culprit = f"n{place % nodes}"
    state = search(nodes, lambda group: culprit in group)
    assert state.culprits == (culprit,)
    assert state.runs <= math.ceil(math.log2(nodes)) + 2
    assert state.verdict == f"slow: {culprit}"


@settings(max_examples=40, deadline=None)
@given(nodes=st.integers(12, 40), places=st.sets(st.integers(0, 39), min_size=2, max_size=3))
def test_several_culprits_are_all_found(nodes: int, places: set[int]) -> None:
    culprits = {f"n{place % nodes}" for place in places}
    state = search(nodes, lambda group: bool(culprits & group))
    assert set(state.culprits) == culprits


def test_halves_that_are_slow_only_together_point_at_the_paths_between() -> None:
    state = search(16, lambda group: {"n1", "n12"} <= group)
    assert state.culprits == ()
    assert "paths" in state.verdict


def test_two_nodes_cannot_be_bisected() -> None:
    with pytest.raises(ValueError, match="three or more"):
        Bisection.start(["n0", "n1"])
