from __future__ import annotations

import pytest

from rdmabench.collector.importers import osu
from rdmabench.collector.importers.text import Asked
from rdmabench.errors import InputError
from rdmabench.model import Outcome
from tests.collector.importers.texts import OSU_ALLREDUCE, OSU_LATENCY, recorded, values

BW = "# OSU MPI Bandwidth Test v5.6.2\n# Size      Bandwidth (MB/s)\n"


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        osu.parse(text, name="f.txt")
    assert str(caught.value).startswith("f.txt:")
    assert "expected" in str(caught.value)
    return str(caught.value)


def test_latency_is_a_mean_and_a_message_may_be_empty() -> None:
    rows = osu.parse(OSU_LATENCY, name="f.txt").rows
    assert [row.case.size_bytes for row in rows] == [0, 1, 8192]
    assert values(rows[0]) == pytest.approx({"lat_mean": 1020})
    assert (rows[0].case.op, rows[0].case.transport, rows[0].case.memory) == ("send", "MPI", "host")
    assert rows[0].tool_version == "5.6.2"


def test_minimum_and_maximum_are_of_the_ranks_and_not_of_iterations() -> None:
    rows = osu.parse(OSU_ALLREDUCE, name="f.txt", asked=Asked(ranks=64)).rows
    first = rows[0]
    assert values(first) == pytest.approx(
        {"time": 2350, "time_rank_min": 2100, "time_rank_max": 2600}
    )
    assert (first.case.op, first.case.ranks, first.case.iterations) == ("all_reduce", 64, 1000)
    assert (first.case.memory, first.case.variant) == ("cuda", "MPI_INT")
    assert first.case.pair.endswith(">64 ranks")


@pytest.mark.parametrize(
    ("title", "op", "probe", "direction"),
    [
        ("OSU MPI Bi-Directional Bandwidth Test v3.8", "send", "bandwidth", "bidir"),
        ("OSU MPI-ROCM Bandwidth Test", "send", "bandwidth", "one-way"),
        ("OSU MPI Bandwidth Persistent Test v7.4", "send", "bandwidth", "one-way"),
        ("OSU MPI_Put-CUDA Bandwidth Test v5.9", "put", "bandwidth", "one-way"),
        ("OSU MPI_Get Bandwidth Test v5.9", "get", "bandwidth", "one-way"),
        ("OSU MPI_Put Bi-directional Bandwidth Test v7.4", "put", "bandwidth", "bidir"),
    ],
)
def test_titles_of_bandwidth(title: str, op: str, probe: str, direction: str) -> None:
    text = f"# {title}\n# Size      Bandwidth (MB/s)\n1024   299.62\n"
    (row,) = osu.parse(text, name="f.txt").rows
    assert (row.case.op, row.case.probe, row.case.direction) == (op, probe, direction)


@pytest.mark.parametrize(
    ("title", "op"),
    [
        ("Allgather", "all_gather"),
        ("All-to-All Personalized Exchange", "all_to_all"),
        ("-CUDA Broadcast", "broadcast"),
        ("Reduce_scatter", "reduce_scatter"),
        ("Non-blocking Allreduce", "iall_reduce"),
        ("Non-Blocking Broadcast", "ibroadcast"),
    ],
)
def test_titles_of_collectives(title: str, op: str) -> None:
    gap = "" if title.startswith("-") else " "
    heading = "Overall(us)" if op.startswith("i") else "Avg Latency(us)"
    text = f"# OSU MPI{gap}{title} Latency Test v5.9\n# Size       {heading}\n8      12.5\n"
    (row,) = osu.parse(text, name="f.txt").rows
    assert (row.case.op, row.case.probe) == (op, "collective")
    assert values(row) == pytest.approx({"time": 12500})


def test_a_barrier_has_no_size() -> None:
    text = "# OSU MPI Barrier Latency Test v5.6\n# Avg Latency(us)\n             2.35\n"
    (row,) = osu.parse(text, name="f.txt").rows
    assert (row.case.op, row.case.size_bytes) == ("barrier", 0)


def test_parts_of_a_nonblocking_collective_are_kept_by_name() -> None:
    text = """# OSU MPI Non-blocking Allgather Latency Test v5.6
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Size           Overall(us)       Compute(us)    Coll. Init(us)      Overlap(%)
8                      12.35              2.10              2.60        40.00
"""
    (row,) = osu.parse(text, name="f.txt").rows
    assert values(row) == pytest.approx({"time": 12350})
    assert row.unread == {"Compute (us)": "2.10", "Coll. Init (us)": "2.60", "Overlap (%)": "40.00"}


def test_a_wrong_result_fails_its_row() -> None:
    text = OSU_LATENCY.replace("(us)\n", "(us)    Validation\n").replace("02\n", "02     Pass\n")
    text = text.replace("05\n", "05     Fail\n").replace("11\n", "11     Pass\n")
    outcomes = [row.outcome for row in osu.parse(text, name="f.txt").rows]
    assert outcomes == [Outcome.MEASURED, Outcome.FAILED, Outcome.MEASURED]


def test_several_tests_in_one_file() -> None:
    text = OSU_LATENCY + recorded("C15-osu_bw.txt") + OSU_ALLREDUCE
    assert len(osu.parse(text, name="f.txt").rows) == 3 + 4 + 2


def test_a_bandwidth_above_the_line_rate_is_a_failed_row() -> None:
    asked = Asked(line_rate_gbit_s=10)
    rows = osu.parse(BW + "1024  1200.00\n4096  1300.00\n", name="f.txt", asked=asked).rows
    assert [row.outcome for row in rows] == [Outcome.MEASURED, Outcome.FAILED]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (BW.replace("MB/s", "GB/s") + "1  1.0\n", "Bandwidth in 'GB/s'"),
        (BW + "1  1.0  2.0\n", "3 cells under 2 headings"),
        (BW + "1  1.o\n", "'1.o'"),
        (BW + "1  1.0", "ends in the middle"),
        (BW + "# Datatype: MPI_INT.\n# Datatype: MPI_CHAR.\n1  1.0\n", "second datatype"),
        (BW + "# Size      Bandwidth (MB/s)\n1  1.0\n", "second heading"),
        ("1  1.0\n" + BW, "before any title"),
        ("# OSU MPI Bandwidth Test v5\n1  1.0\n", "before the heading"),
        ("# OSU MPI Init Test v5.9\nnprocs: 2\n", "not known here"),
        ("# OSU MPI Latency Test v5\n# Latency (us)\n1.0\n", "columns Latency"),
        ("", "no result of OSU"),
    ],
)
def test_damage_is_refused(text: str, what: str) -> None:
    assert what in refused(text)
