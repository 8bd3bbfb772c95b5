from __future__ import annotations

import pytest

from rdmabench.collector.importers import perftest, perftest_json
from rdmabench.collector.importers.text import Asked
from rdmabench.errors import InputError
from rdmabench.model import Outcome
from tests.collector.importers.texts import (
    RULE,
    WRITE_BW,
    dumped,
    perftest_document,
    recorded,
    values,
)

BW_HEADING = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"


def table(*rows: str, heading: str = BW_HEADING) -> str:
    title = "                    RDMA_Write BW Test\n"
    return title + heading + "".join(f" {row}\n" for row in rows) + RULE + "\n"


def refused(text: str, **asked: str) -> str:
    with pytest.raises(InputError) as caught:
        perftest.parse(text, name="f.txt", asked=Asked(**asked))
    assert str(caught.value).startswith("f.txt:")
    assert "expected" in str(caught.value)
    return str(caught.value)


def test_the_parameters_of_the_banner_are_those_of_every_row() -> None:
    first, second = perftest.parse(WRITE_BW, name="f.txt").rows
    case = first.case
    assert (case.tool, case.op, case.transport, case.qps) == ("perftest", "write", "RC", 4)
    assert (case.depth, case.cq_moderation, case.iterations) == (128, 100, 20000)
    assert case.pair == "192.0.2.5/mlx5_0>192.0.2.4"
    assert first.link.mtu_bytes == 4096
    assert first.source == "f.txt:21"
    assert second.case.size_bytes == 131072
    assert values(first)["bw"] == 11728.47 * 2**20
    assert values(first)["bw_peak"] == 11731.10 * 2**20


def test_mib_is_what_newer_versions_call_the_same_unit() -> None:
    newer = perftest.parse(WRITE_BW.replace("MB/sec", "MiB/sec"), name="f.txt")
    older = perftest.parse(WRITE_BW, name="f.txt")
    assert [values(row) for row in newer.rows] == [values(row) for row in older.rows]


def test_several_tests_in_one_file_keep_their_own_banners() -> None:
    text = WRITE_BW + recorded("C06-lat.txt") + recorded("G02-out.txt")
    parsed = perftest.parse(text, name="f.txt")
    assert [row.case.op for row in parsed.rows] == ["write", "write", "read", "write"]
    assert [row.case.direction for row in parsed.rows][-1] == "bidir"
    assert parsed.rows[2].case.pair == "lid7/mlx5_8>lid8"
    assert parsed.fabrics == {"roce", "ib"}


def test_names_given_by_the_person_win() -> None:
    asked = Asked(initiator="gpu01", responder="gpu02")
    row = perftest.parse(WRITE_BW, name="f.txt", asked=asked).rows[0]
    assert row.case.pair == "gpu01/mlx5_0>gpu02"


def test_ends_that_nobody_names_are_of_their_file() -> None:
    pairs = {perftest.parse(recorded("C04-out.txt"), name=n).rows[0].case.pair for n in "ab"}
    assert len(pairs) == 2, "two files never pass for one pair"


def test_an_unknown_column_is_kept_by_name_and_named() -> None:
    heading = BW_HEADING.replace("MsgRate", "Retries[count]   MsgRate")
    row = perftest.parse(
        table("65536 10000 196.02 195.80 7 0.373459", heading=heading), name="f.txt"
    ).rows[0]
    assert row.unread == {"Retries": "7"}
    assert "column 'Retries' is not read" in row.remarks
    assert values(row)["rate"] == pytest.approx(373459)


@pytest.mark.parametrize(
    ("heading", "what"),
    [
        (BW_HEADING.replace("average[Gb/sec]", "average[GB/sec]"), "BW average in 'GB/sec'"),
        (BW_HEADING.replace("Mpps", "pps"), "MsgRate in 'pps'"),
        (BW_HEADING.replace("peak[Gb/sec]", "peak[MB/sec]"), "two units"),
        (BW_HEADING.replace("BW average[Gb/sec]", ""), "a table of"),
        (BW_HEADING.replace("BW peak", "BW average"), "twice"),
        (BW_HEADING.replace("MsgRate[Mpps]", "MsgRate"), "not understood"),
    ],
)
def test_a_heading_that_is_not_known_is_refused(heading: str, what: str) -> None:
    assert what in refused(table("65536 10000 196.02 195.80 0.373459", heading=heading))


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("65536 10000 196.02 195.80", "4 cells under 5 headings"),
        ("65536 10000 196.02 195.80 0.373459 1", "6 cells under 5 headings"),
        ("65536 10000 196.02 195.8x 0.373459", "'195.8x'"),
        ("65536 10000.5 196.02 195.80 0.373459", "'10000.5'"),
        ("65536 10000 196.02 \r195.80 0.373459", "'\\r195.80'"),
        ("65536 10000 196.02 \u0661\u0669\u0665.80 0.373459", "\\u0661"),
        ("65536 10000 196.02 1e300 0.373459", "1e300"),
        ("6" * 5000 + " 10000 196.02 195.80 0.373459", "#bytes is '666"),
    ],
)
def test_a_row_that_does_not_fit_its_heading_is_refused(row: str, what: str) -> None:
    assert what in refused(table(row))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("65536 10000 0.00 295.80 0.373459", "contradictory"),
        ("65536 10000 0.00 -nan 0.373459", "BW average is -nan"),
        ("65536 0 0.00 195.80 0.373459", "0 iterations"),
        ("65536 10000 0.00 19580.00 37.3459", "impossible"),
    ],
)
def test_a_row_that_cannot_be_true_is_a_failed_one(row: str, why: str) -> None:
    (found,) = perftest.parse(table(row), name="f.txt").rows
    assert found.outcome is Outcome.FAILED
    assert why in found.reason


def test_a_row_above_the_line_rate_is_a_failed_one() -> None:
    text = table("65536 10000 0.00 195.80 0.373459")
    slow, quick = (
        perftest.parse(text, name="f", asked=Asked(line_rate_gbit_s=rate)).rows[0]
        for rate in (100.0, 200.0)
    )
    assert (slow.outcome, quick.outcome) == (Outcome.FAILED, Outcome.MEASURED)
    assert "above the line rate of 100 Gb/s" in slow.reason


def test_a_table_of_latencies_that_do_not_rise_is_a_failed_row() -> None:
    text = recorded("C06-lat.txt").replace("1.84 ", "1.94 ")
    (row,) = perftest.parse(text, name="f.txt").rows
    assert row.outcome is Outcome.FAILED
    assert "do not rise" in row.reason


def test_a_text_that_ends_in_a_row_is_refused() -> None:
    text = table("65536 10000 196.02 195.80 0.373459")
    assert "ends in the middle" in refused(text[: text.index("0.373459") + 4])


def test_rows_without_their_heading_are_refused() -> None:
    assert "outside of a table" in refused(" 65536 10000 196.02 195.80 0.373459\n")
    assert "outside of a table" in refused(table("65536 1 1 1 1") + " 65536 1 1 1 1\n")
    assert "without a test's title" in refused(table("65536 1 1 1 1") + BW_HEADING)


def test_a_foreign_text_is_refused_and_recognised() -> None:
    assert "import nccl-tests" in refused("# size algbw\n")
    assert "import osu" in refused(recorded("C15-osu_bw.txt").split("\n1  ")[0])
    assert "no result of perftest" in refused("")
    assert "client" in refused(WRITE_BW.split(" #bytes")[0])


def test_what_a_server_counts_is_set_apart_and_runs_the_other_way() -> None:
    text = WRITE_BW.replace("RDMA_Write", "Send").replace("TX depth ", "RX depth ")
    row = perftest.parse(text, name="f.txt").rows[0]
    assert row.case.variant == "counted by the responder"
    assert row.case.pair == "192.0.2.4>192.0.2.5/mlx5_0"


def test_lines_between_rows_that_are_not_understood_are_named() -> None:
    text = table("65536 10000 196.02 195.80 0.373459")
    parsed = perftest.parse(text.replace(" 65536", "what is this\n 65536"), name="f.txt")
    assert len(parsed.rows) == 1
    assert "'what is this'" in parsed.warnings[0]


def test_a_test_that_fails_after_some_rows_keeps_them() -> None:
    text = WRITE_BW.rstrip("-\n") + "\n Completion with error at client\n"
    rows = perftest.parse(text, name="f.txt").rows
    assert [row.outcome.value for row in rows] == ["measured", "measured", "failed"]


def test_the_operation_is_taken_from_a_command_line_or_the_files_name() -> None:
    bare = recorded("C08-out.txt")
    assert perftest.parse("$ ib_read_bw -F gpu02\n" + bare, name="f").rows[0].case.op == "read"
    assert perftest.parse(bare, name="d/ib_send_bw.log").rows[0].case.op == "send"
    assert "--op write" in refused(bare)
    assert "as --op says" in refused(WRITE_BW, op="read")


def test_json_has_no_unit_and_the_message_rate_tells_it() -> None:
    gbit = perftest_json.parse(dumped(perftest_document()), name="f.json").rows[0]
    assert values(gbit)["bw"] == pytest.approx(195.8e9 / 8)
    mib = perftest_document(BW_peak=0, BW_average=23341.19)
    row = perftest_json.parse(dumped(mib), name="f.json").rows[0]
    assert values(row)["bw"] == 23341.19 * 2**20
    assert (row.case.qps, row.case.op, row.case.iterations) == (2, "write", 0)
    with pytest.raises(InputError, match="has no unit"):
        perftest_json.parse(dumped(perftest_document(BW_average=500)), name="f.json")


def test_json_before_2024_has_bare_keys() -> None:
    text = """{
test_info: {
test: RDMA_Read_Latency_Test,
Dual_port: OFF,
Device: "mlx5_0",
Number_of_qps: 1,
Transport_type: IB,
Connection_type: RC,
TX_depth : 1,
Mtu: 4096,
Link_type: IB,
Outstand_reads: 16,
Data_ex_method: Ethernet,
},
results: {
MsgSize: 2,
n_iterations: 10000,
t_min: 1.84,
t_max: 12.20,
t_typical: 1.90,
t_avg: 1.97,
t_stdev: 0.47,
percentile_99: 2.24,
percentile_99.9: 9.10,
},
}
"""
    parsed = perftest_json.parse(text, name="f.json")
    found = values(parsed.rows[0])
    assert found["lat_p50"] == pytest.approx(1900)
    assert found["lat_p99_9"] == pytest.approx(9100), "10,000 iterations carry this quantile"
    assert parsed.fabrics == {"ib"}
    for cut in (text[:-20], text.replace("MsgSize", "Msg Size?"), text.replace("test: ", "tst: ")):
        with pytest.raises(InputError):
            perftest_json.parse(cut, name="f.json")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"test_info": {}, "results": {}}',
        '{"test_info": {"test": "RDMA_Write_BW_Test"}, "results": {"bw_avg": 195.8}}',
        '{"test_info": {"test": "RDMA_Write_BW_Test"}, "results": {"BW_average": [1]}}',
        '{"a": 1, "a": 2}',
        "[" * 100000,
    ],
)
def test_json_that_is_not_perftests_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^f.json:1: .*expected"):
        perftest_json.parse(text, name="f.json")
