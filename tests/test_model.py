from __future__ import annotations

from dataclasses import replace

import pytest

from rdmabench.model import (
    Case,
    CounterSet,
    Endpoint,
    EndpointRef,
    LinkParameters,
    Outcome,
    Parameters,
    Record,
)

PARAMETERS = Parameters(probe="bandwidth", op="write", size_bytes=64, iterations=10, depth=8)


def test_retry_count_seven_is_refused_since_soft_roce_then_retries_for_ever() -> None:
    with pytest.raises(ValueError, match="retries for ever"):
        LinkParameters(retry_cnt=7)
    assert LinkParameters(retry_cnt=6).retry_cnt == 6


@pytest.mark.parametrize("wrong", [{"mtu_bytes": 1500}, {"timeout": 32}, {"traffic_class": 256}])
def test_a_link_attribute_outside_of_its_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LinkParameters(**wrong)


def test_moderation_above_the_depth_would_never_ask_for_a_completion() -> None:
    with pytest.raises(ValueError, match="cq_moderation"):
        replace(PARAMETERS, cq_moderation=9)


def test_cases_that_differ_in_any_parameter_have_different_ids() -> None:
    case = Case(EndpointRef("a", "x"), EndpointRef("b", "x"), PARAMETERS)
    others = [
        replace(case, repeat=1),
        replace(case, responder=EndpointRef("c", "x")),
        replace(case, responder=EndpointRef("b", "x", port=2)),
        replace(case, parameters=replace(PARAMETERS, depth=16)),
        replace(case, parameters=replace(PARAMETERS, engine="pyverbs")),
    ]
    assert len({case.id, *(other.id for other in others)}) == 6
    assert replace(case, round=3).id == case.id, "the round is when, not what"


def test_a_record_without_numbers_needs_a_reason() -> None:
    case = Case(EndpointRef("a", "x"), EndpointRef("b", "x"), PARAMETERS)
    with pytest.raises(ValueError, match="needs a reason"):
        Record(case=case, outcome=Outcome.FAILED)
    with pytest.raises(ValueError, match="both ends"):
        Record(case=case, outcome=Outcome.MEASURED)


def test_a_counter_that_vanished_is_not_a_movement() -> None:
    before = CounterSet({"a": 1, "b": 2, "c": 3})
    assert before.delta(CounterSet({"a": 1, "b": 5, "d": 9})) == {"b": 3}


def test_a_second_port_is_named() -> None:
    assert Endpoint(host="n", device="mlx5_0").label == "n/mlx5_0"
    assert Endpoint(host="n", device="mlx5_0", port=2).label == "n/mlx5_0:2"
