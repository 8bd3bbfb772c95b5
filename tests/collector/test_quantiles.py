from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmabench.collector.quantiles import QUANTILES, is_supported, latency_statistics, rank


@pytest.mark.parametrize(
    ("name", "least"),
    [("p50", 20), ("p90", 100), ("p99", 1000), ("p99_9", 10_000), ("p99_99", 100_000)],
)
def test_a_quantile_wants_ten_samples_beyond_it(name: str, least: int) -> None:
    assert is_supported(least, QUANTILES[name])
    assert not is_supported(least - 1, QUANTILES[name])


@given(n=st.integers(1, 10**7), hundredth=st.integers(0, 10_000))
def test_rank_is_the_smallest_that_is_not_below_the_share(n: int, hundredth: int) -> None:
    quantile = Fraction(hundredth, 10_000)
    found = rank(n, quantile)
    assert 1 <= found <= n
    assert found >= quantile * n
    assert found == 1 or found - 1 < quantile * n


def test_statistics_of_round_trips_are_of_half_of_each() -> None:
    samples = np.arange(2, 2002, 2, dtype=np.uint64)[::-1]  # latencies 1 to 1000, unordered
    columns = latency_statistics(samples, "rtt").columns()
    assert {name: columns[name] for name in ("n", "min_ns", "mean_ns", "max_ns")} == {
        "n": 1000,
        "min_ns": 1.0,
        "mean_ns": 500.5,
        "max_ns": 1000.0,
    }
    assert (columns["p50_ns"], columns["p90_ns"], columns["p99_ns"]) == (500.0, 900.0, 990.0)
    assert columns["stdev_ns"] == pytest.approx((1000 * 1001 / 12) ** 0.5)
    assert columns["jitter_pct"] == pytest.approx(98.0)
    assert columns["cv_pct"] == pytest.approx(100 * (1000 * 1001 / 12) ** 0.5 / 500.5)
    assert "p99_9_ns" not in columns


def test_a_completion_time_is_taken_whole() -> None:
    columns = latency_statistics(np.array([3, 1, 2], dtype=np.uint64), "completion").columns()
    assert (columns["min_ns"], columns["mean_ns"], columns["max_ns"]) == (1.0, 2.0, 3.0)


def test_an_odd_round_trip_keeps_its_half_nanosecond() -> None:
    columns = latency_statistics(np.array([1401] * 20, dtype=np.uint64), "rtt").columns()
    assert columns["p50_ns"] == 700.5


def test_one_sample_has_no_spread() -> None:
    columns = latency_statistics(np.array([10], dtype=np.uint64), "rtt").columns()
    assert set(columns) == {"n", "min_ns", "mean_ns", "max_ns"}


def test_no_samples_have_no_statistics() -> None:
    with pytest.raises(ValueError, match="no samples"):
        latency_statistics(np.array([], dtype=np.uint64), "rtt")
