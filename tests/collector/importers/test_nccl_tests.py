from __future__ import annotations

import json

import pytest

from rdmabench.collector.importers import nccl_json, nccl_tests
from rdmabench.collector.importers.text import Asked
from rdmabench.errors import InputError
from rdmabench.model import Outcome
from tests.collector.importers.texts import (
    ALL_GATHER,
    BROADCAST_2019,
    dumped,
    nccl_document,
    recorded,
    values,
)

OLD_ALL_GATHER = ALL_GATHER.replace("357.91  268.44", "268.44  268.44").replace(
    "362.75  272.06", "272.06  272.06"
)


def refused(text: str, **asked: str) -> str:
    with pytest.raises(InputError) as caught:
        nccl_tests.parse(text, name="f.txt", asked=Asked(**asked))
    assert str(caught.value).startswith("f.txt:")
    assert "expected" in str(caught.value)
    return str(caught.value)


def test_out_of_place_and_in_place_are_values_of_one_row() -> None:
    parsed = nccl_tests.parse(ALL_GATHER, name="f.txt")
    last = parsed.rows[-1]
    case = last.case
    assert (case.op, case.size_bytes, case.ranks) == ("all_gather", 1 << 30, 4)
    assert (case.iterations, case.warmup, last.tool_version) == (20, 5, "2.17.6")
    assert case.pair == "gpu01,gpu02>4 ranks"
    expected = {
        "time": 3e6,
        "algbw": 357.91e9,
        "busbw": 268.44e9,
        "wrong": 0,
        "time_in_place": 2.96e6,
        "algbw_in_place": 362.75e9,
        "busbw_in_place": 272.06e9,
    }
    assert values(last) == pytest.approx(expected)
    assert "algbw as defined since June 2020: size / time" in last.remarks
    assert parsed.warnings == ()


def test_the_layout_of_2019_has_no_redop_and_an_error_for_a_count() -> None:
    asked = Asked(op="broadcast")
    (row,) = nccl_tests.parse(BROADCAST_2019, name="f.txt", asked=asked).rows
    assert row.case.variant == "float, root 2"
    assert row.case.ranks == 2
    assert values(row)["busbw_in_place"] == pytest.approx(5e9)
    assert row.unread == {"error": "0e+00", "error_in_place": "0e+00"}


def test_the_old_definition_of_algbw_is_seen_said_and_left_out() -> None:
    for row in nccl_tests.parse(OLD_ALL_GATHER, name="f.txt").rows:
        assert row.outcome is Outcome.MEASURED
        assert "busbw" in values(row)
        assert "algbw" not in values(row)
        assert any("before June 2020" in remark for remark in row.remarks)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("1500.0  357.91", "1500.0  457.91", "contradictory"),
        ("357.91  268.44", "357.91  357.90", "contradictory"),
        ("268.44       0   1480", "268.44      12   1480", "12 wrong elements"),
        ("1500.0  357.91", "-500.0  357.91", "negative"),
        ("1500.0  357.91", "1500.0     nan", "algbw is nan"),
    ],
)
def test_a_row_that_cannot_be_true_is_a_failed_one(old: str, new: str, why: str) -> None:
    row = nccl_tests.parse(ALL_GATHER.replace(old, new, 1), name="f.txt").rows[0]
    assert row.outcome is Outcome.FAILED
    assert why in row.reason


def test_values_out_of_bounds_fail_every_row_of_the_test() -> None:
    text = ALL_GATHER.replace("values : 0 OK", "values : 3 FAILED")
    rows = nccl_tests.parse(text, name="f.txt").rows
    assert {row.outcome for row in rows} == {Outcome.FAILED}


def test_the_ranks_are_as_many_as_expected() -> None:
    rows = nccl_tests.parse(ALL_GATHER, name="f.txt", asked=Asked(ranks=8)).rows
    assert "expected 8 ranks, the text has 4" in rows[0].reason


def test_every_ranks_own_table_is_read_apart() -> None:
    lines = ALL_GATHER.replace("all_gather", "all_reduce").splitlines()
    lone = [line for line in lines if "Rank  1" not in line and "Rank  2" not in line]
    lone = [line for line in lone if "Rank  3" not in line]
    text = "".join(f"[1,{rank}]<stdout>:{line}\n" for line in lone for rank in range(2))
    rows = nccl_tests.parse(text, name="f.txt").rows
    assert len(rows) == 4
    assert all("single rank" in row.reason for row in rows)


def test_a_name_before_every_line_is_taken_off() -> None:
    text = "".join(f"gpu01: {line}\n" for line in ALL_GATHER.splitlines())
    assert [values(row) for row in nccl_tests.parse(text, name="f.txt").rows] == [
        values(row) for row in nccl_tests.parse(ALL_GATHER, name="f.txt").rows
    ]


def test_timestamps_and_times_of_iterations_have_their_columns() -> None:
    text = recorded("all_reduce_per_iteration.txt")
    (row,) = nccl_tests.parse(text, name="f.txt").rows
    found = values(row)
    assert found["time_p99"] == pytest.approx(119e3)
    assert found["time_max_in_place"] == pytest.approx(121e3)
    assert found["time_cv_pct"] == 3.1


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("(us)  (GB/s)", "(ms)  (GB/s)", "units"),
        ("algbw   busbw  #wrong     time", "algbw   bosbw  #wrong     time", "heading"),
        ("# Collective test starting", "   1  2  3  4  5  6\n#", "outside"),
        ("268.44       0   1480", "268.44    1480", "12 cells"),
        ("    float    none", "    fl?at    none", "type is"),
        ("33554432     float", "33554.32     float", "count is"),
        ("concluded: all_gather", "concluded: all_reduce", "the end of"),
        ("values : 0 OK", "values : 0 FAILED", "0 FAILED"),
    ],
)
def test_damage_is_refused(old: str, new: str, what: str) -> None:
    assert old in ALL_GATHER
    assert what in refused(ALL_GATHER.replace(old, new, 1))


def test_a_text_that_ends_in_a_row_is_refused_and_one_without_ending_is_warned_of() -> None:
    cut = ALL_GATHER.index("# Out of bounds")
    assert "ends in the middle" in refused(ALL_GATHER[: cut - 1])
    parsed = nccl_tests.parse(ALL_GATHER[:cut], name="f.txt")
    assert "cut?" in parsed.warnings[0]


def test_what_was_printed_before_2019_names_no_units() -> None:
    assert "names no units" in refused("#  bytes             N    type      op     time  algbw\n")


def test_an_operation_is_named_by_text_name_or_person() -> None:
    text = recorded("C14-out.txt")
    assert "--op all_reduce" in refused(text)
    named = nccl_tests.parse(text, name="logs/alltoall_perf.16.log")
    assert named.rows[0].case.op == "all_to_all"
    assert "as --op says" in refused(ALL_GATHER, op="broadcast")


def test_a_crash_is_a_failed_case() -> None:
    text = ALL_GATHER[: ALL_GATHER.index("   536870912")]
    text += "gpu02: Test NCCL failure all_gather.cu:44 'unhandled system error'\n"
    (row,) = nccl_tests.parse(text, name="f.txt").rows
    assert row.outcome is Outcome.FAILED
    assert "Test NCCL failure" in row.reason


def test_a_foreign_text_is_refused_and_recognised() -> None:
    assert "import osu" in refused("# OSU MPI Latency Test v5\n")
    assert "import perftest" in refused(" #bytes #iterations\n")


@pytest.mark.parametrize("version", [1, 3])
def test_json_says_the_same_as_text(version: int) -> None:
    parsed = nccl_json.parse(dumped(nccl_document(version=version)), name="f.json")
    (row,) = parsed.rows
    assert (row.case.op, row.case.ranks, row.case.iterations) == ("all_reduce", 2, 20)
    assert row.case.pair == "gpu01,gpu02>2 ranks"
    assert values(row) == pytest.approx(
        {
            "time": 1e6,
            "algbw": 100e9,
            "busbw": 100e9,
            "wrong": 0,
            "time_in_place": 1e6,
            "algbw_in_place": 100e9,
            "busbw_in_place": 100e9,
        }
    )
    assert parsed.facts == {"Avg bus bandwidth": "100.0"}
    assert "hunter2" not in repr(parsed), "the environment is not read"


def test_json_with_out_of_bounds_values_or_of_one_rank_fails() -> None:
    bad = nccl_json.parse(dumped(nccl_document(out_of_bounds={"count": 2})), name="f").rows
    assert "2 values out of bounds" in bad[0].reason
    config = {"devices": [{"group": 0, "hostname": "gpu01"}]}
    lone = nccl_json.parse(dumped(nccl_document(config=config)), name="f").rows
    assert "single rank" in lone[0].reason


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 4},
        {"config": None},
        {"results": []},
        {"results": [1]},
        {"args": ["./other"]},
        {"results": [{"size": 1, "out_of_place": {"time": 1, "alg_bw": 1}}]},
        {"results": [{"size": 1, "out_of_place": {"alg_bw": 1, "bus_bw": 1, "new": 1}}]},
    ],
)
def test_json_that_is_not_understood_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"^f.json:1: .*expected"):
        nccl_json.parse(dumped(nccl_document(**changes)), name="f.json")
    with pytest.raises(InputError, match="not JSON"):
        nccl_json.parse(json.dumps(nccl_document())[:-40], name="f.json")
