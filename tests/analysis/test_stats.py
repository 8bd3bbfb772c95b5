from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmabench.analysis import stats


def test_nearest_rank_is_one_of_the_values() -> None:
    values = list(range(100, 0, -1))
    assert [stats.nearest_rank(values, q) for q in (0, 0.01, 0.5, 0.99, 1)] == [1, 1, 50, 99, 100]
    assert stats.nearest_rank([5.0], 0.99) == 5.0
    assert stats.nearest_rank([15, 20, 35, 40, 50], 0.3) == 20


def test_a_quantile_is_taken_as_it_is_written() -> None:
    values = range(1, 10_001)
    assert stats.nearest_rank(values, 0.999) == 9990
    assert stats.nearest_rank(values, 0.9999) == 9999


@given(
    values=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60),
    quantile=st.decimals(0, 1, places=3),
)
def test_nearest_rank_has_its_share_of_values_at_or_below_it(
    values: list[float], quantile: object
) -> None:
    found = stats.nearest_rank(values, float(str(quantile)))
    at_or_below = sum(value <= found for value in values)
    below = sum(value < found for value in values)
    assert found in values
    assert at_or_below * 1000 >= round(float(str(quantile)) * 1000) * len(values)
    assert below * 1000 < max(1, round(float(str(quantile)) * 1000)) * len(values)


def test_what_cannot_be_a_quantile_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        stats.nearest_rank([], 0.5)
    with pytest.raises(ValueError, match="not in 0 to 1"):
        stats.nearest_rank([1], 99)
    with pytest.raises(ValueError, match="no values"):
        stats.median([])


def test_median_of_an_even_number_is_between_the_two_in_the_middle() -> None:
    assert stats.median([4, 1, 3, 2]) == 2.5
    assert stats.median([9, 1, 5]) == 5


def test_jitter_is_relative_to_the_median() -> None:
    assert stats.jitter_pct(2.0, 3.0) == 50.0


@pytest.mark.parametrize("repeats", [[], [1.0], [1.0, 2.0]])
def test_too_few_repeats_have_no_interval(repeats: list[float]) -> None:
    for interval in (stats.median_interval(repeats), stats.ratio_interval(repeats, [1, 2, 3])):
        assert not interval.is_available
        assert interval.reason == f"{len(repeats)} repeats; an interval wants at least 3"
        assert math.isnan(interval.lo)
        assert not interval.spans(1)


def test_the_interval_of_few_repeats_is_their_range_and_says_how_much_it_holds() -> None:
    interval = stats.median_interval([3.0, 1.0, 2.0])
    assert (interval.lo, interval.hi, interval.n) == (1.0, 3.0, 3)
    assert interval.reachable_pct == 75.0
    assert stats.median_interval([1, 2, 3, 4, 5]).reachable_pct == 93.75
    assert stats.median_interval(range(10)).reachable_pct == 95.0


def test_the_same_repeats_always_have_the_same_interval() -> None:
    values = np.random.default_rng(3).normal(10, 1, 12)
    assert stats.median_interval(values) == stats.median_interval(values[::-1])
    assert stats.ratio_interval(values, values) == stats.ratio_interval(values, values)


def test_a_group_is_not_moved_by_its_neighbours() -> None:
    groups = np.random.default_rng(4).normal(10, 1, (2500, 5))  # more than one chunk
    lo, hi = stats.median_intervals(groups)
    for row in (0, 1999, 2499):
        alone = stats.median_interval(groups[row])
        assert (alone.lo, alone.hi) == (lo[row], hi[row])


def test_equal_repeats_have_a_ratio_of_exactly_one() -> None:
    interval = stats.ratio_interval([2.0, 2.0, 2.0], [2.0, 2.0, 2.0])
    assert (interval.lo, interval.hi) == (1.0, 1.0)
    assert interval.spans(1.0)


def test_a_ratio_is_of_the_second_to_the_first() -> None:
    interval = stats.ratio_interval([1.0, 1.01, 0.99, 1.0], [2.0, 2.02, 1.98, 2.0])
    assert 1.9 < interval.lo < 2.0 < interval.hi < 2.1
    assert not interval.spans(1)


@pytest.mark.parametrize(
    ("n", "least", "most"),
    [(3, 0.72, 0.78), (5, 0.92, 0.96), (7, 0.95, 1.0), (10, 0.94, 0.98), (25, 0.935, 0.975)],
)
def test_the_interval_holds_the_true_median_as_often_as_it_says(
    n: int, least: float, most: float
) -> None:
    seed = 20261201
    repeats = np.random.default_rng(seed).lognormal(0.0, 0.3, (3000, n))  # true median 1
    lo, hi = stats.median_intervals(repeats)
    held = float(((lo <= 1) & (hi >= 1)).mean())
    assert least <= held <= most, f"seed {seed}: {held}"


@pytest.mark.parametrize(("n", "most"), [(3, 0.12), (4, 0.05), (6, 0.05), (12, 0.05)])
def test_equal_things_are_rarely_told_apart(n: int, most: float) -> None:
    seed = 20261202
    generator = np.random.default_rng(seed)
    base, other = (generator.lognormal(0.0, 0.2, (3000, n)) for _ in range(2))
    lo, hi = stats.ratio_intervals(base, other)
    told_apart = float(((lo > 1) | (hi < 1)).mean())
    assert told_apart <= most, f"seed {seed}: {told_apart}"
