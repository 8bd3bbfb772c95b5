"""Trends over runs: series, what is not mixed, verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rdmabench.analysis.trend import NO_CHANGE, SMALL, TOO_FEW, TrendRun, trend
from rdmabench.collector import tables as collected
from rdmabench.collector.tables import Tables
from rdmabench.errors import InputError
from rdmabench.model import EndpointRef
from tests.collector.synthetic import BANDWIDTH, LATENCY, SyntheticRun, case_of

NIGHTS = 16


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Two pairs, three repeats of one latency and one bandwidth."""
    run = SyntheticRun(tmp_path_factory.mktemp("trend")).begin()
    back = {
        "initiator": EndpointRef(host="node2", device="rxe0"),
        "responder": EndpointRef(host="node1", device="rxe0"),
    }
    for repeat in range(3):
        for ends in ({}, back):
            run.latency([2000] * 1000, case=case_of(LATENCY, repeat=repeat, **ends))
            run.bandwidth(case=case_of(BANDWIDTH, repeat=repeat, **ends))
    return collected.build(run.end())


def history(
    night: Tables,
    factor: Callable[[int], float],
    *,
    runs: int = NIGHTS,
    change: Callable[[int, pd.DataFrame], pd.DataFrame] = lambda _, frame: frame,
) -> list[TrendRun]:
    rng = np.random.default_rng(7)
    made = []
    for number in range(runs):
        frame = night.measurements
        noise = rng.normal(1, 0.01, len(frame))
        frame = frame.assign(value=frame["value"] * noise * factor(number))
        tables = replace(night, measurements=change(number, frame))
        made.append(TrendRun(f"night{number:02d}", "quick", f"2026-12-{number + 1:02d}", tables))
    return made


def verdicts(rows: pd.DataFrame) -> dict[str, str]:
    return dict(zip(rows["metric"], rows["verdict"], strict=True))


def test_a_quiet_history_has_no_change(night: Tables) -> None:
    found = trend(history(night, lambda _: 1.0))
    assert set(found.rows["verdict"]) == {NO_CHANGE}
    assert found.is_judged
    assert found.regressions.empty
    assert found.rows["pairs"].tolist() == [2, 2, 2]


def test_a_step_says_since_when_by_how_much_and_in_which_direction(night: Tables) -> None:
    found = trend(history(night, lambda number: 1.3 if number >= 9 else 1.0))
    assert verdicts(found.rows) == {
        "lat_p50_us": "worse",
        "lat_p99_us": "worse",
        "bw_gbps": "better",
    }
    row = found.rows.iloc[0]
    assert (row["since"], row["since_earliest"], row["since_latest"]) == ("night09",) * 3
    assert row["ratio_lo"] <= 1.3 <= row["ratio_hi"]
    assert row["before"] == pytest.approx(1.0, rel=0.02)
    assert len(found.regressions) == 2
    points = found.points[found.points["metric"] == "bw_gbps"]
    assert points["segment"].tolist() == [0] * 9 + [1] * 7


def test_a_change_that_was_undone_is_no_regression(night: Tables) -> None:
    found = trend(history(night, lambda n: 1.5 if 10 <= n < 20 else 1.0, runs=30))
    latency = found.rows[found.rows["metric"] == "lat_p50_us"]
    assert latency["verdict"].tolist() == ["worse", "better"]
    assert latency["is_last"].tolist() == [False, True]
    assert set(found.regressions["metric"]) == {"bw_gbps"}


def test_a_small_change_is_told_and_not_judged(night: Tables) -> None:
    found = trend(history(night, lambda n: 1.03 if n >= 8 else 1.0), smallest=0.1)
    assert set(found.rows["verdict"]) == {SMALL}
    assert found.regressions.empty


def test_too_few_runs_are_said_and_how_many_it_takes(night: Tables) -> None:
    found = trend(history(night, lambda _: 1.0, runs=5))
    assert set(found.rows["verdict"]) == {TOO_FEW}
    assert not found.is_judged
    assert found.runs_needed > 5


def test_runs_of_other_parameters_are_not_mixed(night: Tables) -> None:
    def smaller_mtu(number: int, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(mtu_bytes=4096) if number >= 8 else frame

    found = trend(history(night, lambda n: 2.0 if n >= 8 else 1.0, change=smaller_mtu))
    assert set(found.rows["verdict"]) == {NO_CHANGE}
    assert set(found.rows["runs"]) == {8}
    assert any("mtu_bytes differs" in note for note in found.notes)


def test_runs_of_another_plan_are_not_mixed(night: Tables) -> None:
    runs = [
        replace(run, plan="quick" if number % 2 else "soak")
        for number, run in enumerate(history(night, lambda _: 1.0))
    ]
    found = trend(runs)
    assert set(found.rows["plan"]) == {"quick", "soak"}
    assert any(note.startswith("plan differs") for note in found.notes)


def test_a_run_that_lacks_a_pair_is_left_out_and_named(night: Tables) -> None:
    def without_a_pair(number: int, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["initiator_host"] == "node1"] if number == 3 else frame

    found = trend(history(night, lambda _: 1.0, change=without_a_pair))
    assert set(found.rows["runs"]) == {NIGHTS - 1}
    assert any(note.startswith("night03 lacks pairs") for note in found.notes)


def test_a_fallback_is_not_a_value(night: Tables) -> None:
    def fallback(number: int, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(evidence="fallback") if number == 2 else frame

    found = trend(history(night, lambda _: 1.0, change=fallback))
    assert set(found.rows["runs"]) == {NIGHTS - 1}
    assert any("night02" in note and "asked-for fabric" in note for note in found.notes)


def test_an_unknown_metric_and_nothing_measured_are_wrong_input(
    night: Tables, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="unknown metric"):
        trend(history(night, lambda _: 1.0, runs=2), metrics=["speed"])
    empty = collected.build(SyntheticRun(tmp_path).begin().end())
    with pytest.raises(InputError, match="no measurement"):
        trend([TrendRun("a", "quick", "", empty)])
