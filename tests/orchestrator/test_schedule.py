"""Rounds of pairs: disjoint, complete, no pair twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmabench.errors import InputError
from rdmabench.model import EndpointRef
from rdmabench.orchestrator.schedule import Round, pairs


def nodes(count: int, *, rails: int = 1) -> list[EndpointRef]:
    return [
        EndpointRef(host=f"n{node}", device=f"mlx5_{rail}", rail=rail)
        for node in range(count)
        for rail in range(rails)
    ]


def hosts_of(made: Round) -> list[str]:
    return [ref.host for pair in made for ref in (pair.initiator, pair.responder)]


def met(rounds: Sequence[Round]) -> Counter[frozenset[str]]:
    return Counter(
        frozenset((p.initiator.label, p.responder.label)) for made in rounds for p in made
    )


@settings(deadline=None, max_examples=15)
@given(
    count=st.integers(2, 40) | st.sampled_from([255, 256, 511, 512]),
    kind=st.sampled_from(["ring", "all", "bisection"]),
)
def test_no_node_is_twice_in_a_round_and_no_pair_twice_at_all(count: int, kind: str) -> None:
    rounds = pairs(kind, nodes(count))
    for made in rounds:
        hosts = hosts_of(made)
        assert len(hosts) == len(set(hosts))
        assert made
    assert set(met(rounds).values()) == {1}


@settings(deadline=None, max_examples=20)
@given(count=st.integers(2, 64))
def test_all_is_every_two_nodes_in_the_fewest_rounds(count: int) -> None:
    rounds = pairs("all", nodes(count))
    assert len(rounds) == (count - 1 if count % 2 == 0 else count)
    wanted = {frozenset((a.label, b.label)) for a, b in combinations(nodes(count), 2)}
    assert set(met(rounds)) == wanted
    begun = Counter(pair.initiator.host for made in rounds for pair in made)
    assert all(abs(begun[f"n{n}"] - (count - 1) / 2) <= 1 for n in range(count))


@pytest.mark.parametrize(("count", "rounds"), [(2, 1), (3, 3), (4, 2), (5, 3), (512, 2)])
def test_a_ring_takes_two_rounds_or_three(count: int, rounds: int) -> None:
    made = pairs("ring", nodes(count))
    assert len(made) == rounds
    assert sum(len(each) for each in made) == (1 if count == 2 else count)
    if count > 2:
        assert {pair.initiator.host for each in made for pair in each} == {
            f"n{n}" for n in range(count)
        }


@settings(deadline=None, max_examples=20)
@given(count=st.integers(2, 9), rails=st.integers(1, 8), kind=st.sampled_from(["ring", "all"]))
def test_rails_meet_their_own_kind_and_no_node_is_twice_in_a_round(
    count: int, rails: int, kind: str
) -> None:
    made = pairs(kind, nodes(count, rails=rails))
    for each in made:
        assert len(hosts_of(each)) == len(set(hosts_of(each)))
        assert all(pair.initiator.rail == pair.responder.rail for pair in each)
    one = pairs(kind, nodes(count))
    assert len(met(made)) == rails * len(met(one))


def test_rails_come_one_after_the_other() -> None:
    made = pairs("rails", nodes(4, rails=2))
    assert [each[0].initiator.rail for each in made] == [0, 0, 1, 1]
    made = pairs("ring", nodes(4, rails=2))
    assert [each[0].initiator.rail for each in made] == [0, 1, 0, 1]


def test_a_node_without_a_rail_rests_on_it() -> None:
    some = [*nodes(2, rails=2), EndpointRef(host="n2", device="mlx5_0", rail=0)]
    made = pairs("all", some)
    assert Counter(pair.initiator.rail for each in made for pair in each) == {0: 3, 1: 1}


def test_of_an_odd_number_the_last_node_rests_in_the_bisection() -> None:
    (made,) = pairs("bisection", nodes(5))
    assert [(p.initiator.host, p.responder.host) for p in made] == [("n0", "n2"), ("n1", "n3")]


def test_a_given_list_keeps_its_order_and_shares_rounds() -> None:
    made = pairs("n0:n1,n2:n3,n1:n2,n0/mlx5_1:n3/mlx5_1", nodes(4, rails=2))
    assert [[(p.initiator.label, p.responder.label) for p in each] for each in made] == [
        [("n0/mlx5_0", "n1/mlx5_0"), ("n2/mlx5_0", "n3/mlx5_0")],
        [("n1/mlx5_0", "n2/mlx5_0"), ("n0/mlx5_1", "n3/mlx5_1")],
    ]
    second = EndpointRef(host="n9", device="mlx5_0", port=2)
    (only,) = pairs("n9/mlx5_0:2:n0", [*nodes(1), second])
    assert only[0].initiator == second


@pytest.mark.parametrize(
    ("kind", "count", "said"),
    [
        ("all", 0, "a pair needs two nodes"),
        ("all", 1, "a pair needs two nodes"),
        ("rings", 2, "unknown pairs 'rings'"),
        ("n0:n0", 2, "pairs n0 with itself"),
        ("n0:n7", 2, "no endpoint 'n7'"),
        ("n0:n1:n2", 3, "is no pair"),
    ],
)
def test_what_cannot_be_paired_is_said(kind: str, count: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        pairs(kind, nodes(count))


def test_two_devices_on_one_rail_are_refused() -> None:
    doubled = [*nodes(2), EndpointRef(host="n0", device="mlx5_9", rail=0)]
    with pytest.raises(InputError, match="both on rail 0"):
        pairs("ring", doubled)
