"""The values of the public reports: kinds C (output of other tools) and G (units)."""

from __future__ import annotations

import json

import pytest

from rdmabench.collector.importers import nccl_tests, osu, perftest
from rdmabench.collector.importers.nccl_rows import NEW, OLD, algbw_style
from rdmabench.collector.importers.perftest_rows import BANDWIDTH_UNITS, above_line_rate
from rdmabench.collector.importers.text import Asked, Number
from rdmabench.model import Imported, Outcome
from rdmabench.units import GIGA, MIB
from tests.collector.importers.texts import DATA, recorded, values

GBIT = 8e-9


def only(name: str, **asked: str) -> Imported:
    parsed = perftest.parse(recorded(name), name=name, asked=Asked(**asked))
    (row,) = parsed.rows
    return row


def test_c02_a_negative_average_is_an_invalid_result() -> None:
    row = only("C02-out.txt")
    assert row.outcome is Outcome.FAILED
    assert "negative value" in row.reason
    assert row.values == ()
    assert row.unread["BW average"] == "-3.31"


def test_c03_a_peak_of_zero_was_not_measured_and_the_columns_are_found_by_name() -> None:
    row = only("C03-out.txt")
    found = values(row)
    assert row.outcome is Outcome.MEASURED
    assert row.case.size_bytes == 65536
    assert found["messages"] == 186641
    assert "bw_peak" not in found
    assert found["bw"] * GBIT == pytest.approx(195.69)
    assert found["rate"] == pytest.approx(0.373258e6)
    assert found["cpu_util_pct"] == 4.17
    assert row.link.initiator_gid_index == 3
    assert row.case.responder.host == "192.0.2.4"
    assert row.case.size_bytes * 8 * found["rate"] / 1e9 == pytest.approx(195.69, abs=0.005)
    assert row.case.iterations == 0, "by duration: iterations are a result"


def test_c04_the_rate_is_the_printed_one_and_agrees_with_the_bandwidth() -> None:
    row = only("C04-out.txt")
    found = values(row)
    assert row.outcome is Outcome.MEASURED
    assert found["bw"] * GBIT == pytest.approx(0.48)
    assert found["rate"] == pytest.approx(7.498617e6)
    assert row.case.size_bytes * 8 * found["rate"] / 1e9 == pytest.approx(0.47991, abs=1e-5)
    assert row.case.variant.startswith("post list 128")


def test_c06_nine_values_under_eleven_words() -> None:
    row = only("C06-lat.txt")
    found = values(row)
    assert (row.case.op, row.case.size_bytes, row.case.iterations) == ("read", 2, 1000)
    expected = {
        "lat_n": 1000,
        "lat_min": 1840,
        "lat_max": 12200,
        "lat_p50": 1900,
        "lat_mean": 1970,
        "lat_stdev_printed": 470,
        "lat_p99": 2240,
    }
    assert found == pytest.approx(expected)
    assert row.unread == {"99.9% percentile": "12.20"}, "of 1,000 iterations: no quantile here"


def test_c06_the_duration_variant_has_four() -> None:
    row = only("C06-lat_dur.txt", op="send")
    assert row.case.size_bytes == 2
    assert values(row) == pytest.approx({"lat_n": 1e6, "lat_mean": 1970, "tps": 253807.11})


def test_c08_a_minimum_between_average_and_rate() -> None:
    found = values(only("C08-out.txt", op="write"))
    assert found["bw_peak"] * GBIT == pytest.approx(196.02)
    assert found["bw"] * GBIT == pytest.approx(195.8)
    assert found["bw_min"] * GBIT == pytest.approx(171.35)
    assert found["rate"] == pytest.approx(0.373459e6)


def test_c10_one_rank_measures_no_network() -> None:
    parsed = nccl_tests.parse(recorded("C10-out.txt"), name="C10")
    assert len(parsed.rows) == 2
    last = parsed.rows[-1]
    assert last.case.ranks == 1
    assert values(last)["algbw_in_place"] == 1e6 * 1e9
    assert {row.outcome for row in parsed.rows} == {Outcome.FAILED}
    assert last.reason.startswith("invalid: single rank")
    assert parsed.facts == {"Avg bus bandwidth": "0"}
    expecting = nccl_tests.parse(recorded("C10-out.txt"), name="C10", asked=Asked(ranks=16))
    assert "expected 16" in expecting.rows[0].reason


def test_c12_a_rank_before_every_line() -> None:
    parsed = nccl_tests.parse(recorded("C12-out.txt"), name="C12", asked=Asked(op="all_reduce"))
    assert len(parsed.rows) == 3
    assert parsed.facts == {"Avg bus bandwidth": "92.3405"}
    assert [values(row)["time"] for row in parsed.rows] == pytest.approx([12900, 12880, 22250])


def test_c14_rows_of_size_zero_are_counted_and_not_used() -> None:
    parsed = nccl_tests.parse(recorded("C14-out.txt"), name="C14", asked=Asked(op="all_reduce"))
    outcomes = [row.outcome for row in parsed.rows]
    assert len(outcomes) == 7
    assert outcomes.count(Outcome.MEASURED) == 2
    assert outcomes.count(Outcome.SKIPPED) == 5
    assert "size 0" in parsed.rows[0].reason


def test_c15_osu_counts_megabytes_of_a_million() -> None:
    rows = osu.parse(recorded("C15-osu_bw.txt"), name="C15").rows
    last = rows[-1]
    assert last.case.size_bytes == 33554432
    assert values(last)["bw"] / GIGA == pytest.approx(93.13052)
    assert last.case.memory == "cuda D D"
    assert last.tool_version == "7.2"
    assert last.case.variant == "MPI_CHAR"


def test_c15_osu_over_many_pairs() -> None:
    rows = osu.parse(recorded("C15-osu_mbw_mr.txt"), name="C15").rows
    last = rows[-1]
    assert last.case.size_bytes == 4096
    assert values(last)["bw_total"] == pytest.approx(168173.26e6)
    assert "bw" not in values(last), "an aggregate is no link's bandwidth"
    assert (last.case.ranks, last.case.variant) == (96, "48 pairs, window 64")


def test_c17_error_text_is_a_failed_case_without_numbers() -> None:
    client, server = only("C17-client.txt"), only("C17-server.txt")
    assert client.outcome is server.outcome is Outcome.FAILED
    assert client.values == server.values == ()
    expected = {"status": "12", "syndrome": "0x81", "scnt": "128", "ccnt": "0"}
    assert client.unread == expected
    assert "Completion with error" in client.reason
    assert "Couldn't read remote address" in server.reason


def test_g01_every_tool_has_its_own_megabyte() -> None:
    lines = [line.split("\t") for line in recorded("G01-conv.tsv").splitlines()[1:]]
    factors = {
        ("perftest", "MB/sec"): BANDWIDTH_UNITS["MB/sec"],
        ("perftest", "Gb/sec"): BANDWIDTH_UNITS["Gb/sec"],
        ("nccl-tests", "GB/s"): float(GIGA),
        ("osu_bw", "MB/s"): osu.MEGA,
        ("ucx_perftest", "MB/s"): float(MIB),
    }
    for tool, value, unit, gbps in lines:
        shown = float(value) * factors[tool, unit] * GBIT
        assert shown == pytest.approx(float(gbps), rel=0.001), tool
    assert BANDWIDTH_UNITS["MB/sec"] == 1048576
    assert BANDWIDTH_UNITS["Gb/sec"] / MIB == pytest.approx(119.2093, rel=1e-6)


def test_g02_both_directions_are_summed_and_say_so() -> None:
    row = only("G02-out.txt")
    gbps = values(row)["bw"] * GBIT
    assert (row.case.direction, row.case.qps) == ("bidir", 2)
    assert gbps == pytest.approx(390.0)
    assert gbps / 2 / 200 == pytest.approx(0.975)
    within = Asked(line_rate_gbit_s=200)
    parsed = perftest.parse(recorded("G02-out.txt"), name="G02", asked=within)
    assert parsed.rows[0].outcome is Outcome.MEASURED


def test_g04_the_definition_of_algbw_is_told_by_its_ratio() -> None:
    lines = [line.split("\t") for line in recorded("G04-rows.tsv").splitlines()[1:]]
    rates = {
        name: [(Number(alg, float(alg), 0.005), Number(bus, float(bus), 0.005))]
        for name, _, _, _, alg, bus in lines
    }
    assert algbw_style("all_gather", 8, rates["old"]) == OLD
    assert algbw_style("reduce_scatter", 8, rates["new"]) == NEW
    assert algbw_style("all_gather", 0, rates["old"]) == OLD


def test_g09_a_rate_above_the_line_is_impossible() -> None:
    for case in json.loads((DATA / "G09-cases.json").read_text()):
        reason = above_line_rate(case["MBps"] * 1e6 * GBIT, case["limit_GBps"] * 8)
        assert ("impossible" if "impossible" in reason else "ok") == case["verdict"]
