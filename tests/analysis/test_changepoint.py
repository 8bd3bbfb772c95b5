"""The change points, by simulation with fixed seeds: 20 nights, 5 % noise, steps of 10 %."""

from __future__ import annotations

import numpy as np
import pytest

from rdmabench.analysis.changepoint import MIN_SIDE, changes, runs_needed

NIGHTS = 20


def nights(rng: np.random.Generator, *, series: int = 1, step: float = 1.0, at: int = 10):
    values = rng.lognormal(0, 0.05, (series, NIGHTS))
    values[:, at:] *= step
    return values


def test_false_alarms_are_as_rare_as_stated() -> None:
    rng = np.random.default_rng(101)
    draws = 120
    alarms = sum(bool(changes(nights(rng), false_alarm=0.05)[0]) for _ in range(draws))
    assert alarms / draws <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / draws)


def test_the_stated_rate_is_that_of_all_series_together() -> None:
    rng = np.random.default_rng(102)
    draws = 25
    alarms = sum(any(changes(nights(rng, series=8), false_alarm=0.05)) for _ in range(draws))
    assert alarms / draws <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / draws)


def test_a_step_of_ten_percent_is_found_where_it_was() -> None:
    rng = np.random.default_rng(103)
    draws = 60
    found = [changes(nights(rng, step=1.1), false_alarm=0.05)[0] for _ in range(draws)]
    detected = [each[0] for each in found if each]
    assert len(detected) >= 0.85 * draws
    assert np.mean([abs(each.place - 10) <= 2 for each in detected]) >= 0.85
    assert np.mean([each.earliest <= 10 <= each.latest for each in detected]) >= 0.85


def test_a_step_in_several_series_is_surer_to_be_found() -> None:
    rng = np.random.default_rng(104)
    draws = 15
    found = [any(changes(nights(rng, series=6, step=1.1), false_alarm=0.05)) for _ in range(draws)]
    assert np.mean(found) >= 0.95


def test_two_steps_are_told_apart() -> None:
    rng = np.random.default_rng(106)
    levels = np.repeat([1.0, 1.6, 1.0], 10)
    values = (levels * rng.lognormal(0, 0.03, 30))[np.newaxis, :]
    assert [change.place for change in changes(values, false_alarm=0.05)[0]] == [10, 20]


def test_one_wild_night_is_no_change() -> None:
    values = nights(np.random.default_rng(107))
    values[0, 7] *= 50
    assert changes(values, false_alarm=0.05) == [[]]


def test_a_constant_series_has_no_change() -> None:
    assert changes(np.ones((2, NIGHTS)), false_alarm=0.05) == [[], []]


@pytest.mark.parametrize(("series", "needed"), [(1, 8), (20, 12)])
def test_more_series_want_more_runs(series: int, needed: int) -> None:
    assert runs_needed(series, 0.05) == needed
    assert needed >= 2 * MIN_SIDE


def test_fewer_runs_than_needed_are_not_judged() -> None:
    assert changes(np.array([[1.0, 1, 1, 9, 9, 9]]), false_alarm=0.05) == [[]]
