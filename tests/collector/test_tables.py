from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from rdmabench.collector import schema, tables
from rdmabench.collector.store import RunDirectory
from rdmabench.errors import InputError
from rdmabench.model import CounterSet, EndpointRef, Evidence, Notice, Outcome, Role, Samples
from tests.collector.synthetic import (
    BANDWIDTH,
    LATENCY,
    SyntheticRun,
    case_of,
    endpoint,
    measured,
    side,
)


@pytest.fixture
def run(tmp_path: Path) -> SyntheticRun:
    return SyntheticRun(tmp_path).begin(cases=[case_of(LATENCY), case_of(BANDWIDTH)])


def values(built: tables.Tables) -> dict[str, float]:
    return dict(zip(built.measurements["metric"], built.measurements["value"], strict=True))


def test_latency_is_half_the_round_trip(run: SyntheticRun) -> None:
    run.latency(range(2, 4002, 2))  # latencies 1 to 2000 ns
    built = tables.build(run.end())
    row = built.latency.iloc[0]
    assert (row["n"], row["min_ns"], row["max_ns"]) == (2000, 1.0, 2000.0)
    assert (row["p50_ns"], row["p99_ns"]) == (1000.0, 1980.0)
    assert row["jitter_pct"] == pytest.approx(98.0)
    assert pd.isna(row["p99_9_ns"])
    assert row["samples"] == "samples/000001.u64.zst"
    assert values(built)["lat_p99"] == 1980.0
    assert values(built)["lat_n"] == 2000


def test_bandwidth_is_payload_over_the_initiators_time(run: SyntheticRun) -> None:
    run.bandwidth(responder={"elapsed_ns": 1, "payload_bytes": 5})
    found = values(tables.build(run.end()))
    assert found["bw"] == 6.25e9  # 327,680,000 B in 52,428,800 ns: 50 Gb/s
    assert found["bw"] * schema.METRICS["bw"].scale == 50.0
    assert found["rate"] == pytest.approx(95_367.43, abs=0.01)
    assert "lat_p50" not in found


def test_cpu_is_counted_on_each_side_against_what_the_initiator_moved(run: SyntheticRun) -> None:
    run.bandwidth(
        initiator={"cpu_ns": 60_000_000, "wall_ns": 60_000_000, "payload_bytes": 2_000_000_000},
        responder={"cpu_ns": 6_000_000, "wall_ns": 60_000_000, "payload_bytes": 0},
    )
    found = values(tables.build(run.end()))
    assert found["cpu_initiator_pct"] == 100.0
    assert found["cpu_responder_pct"] == 10.0
    assert found["cpu_initiator"] == 0.03
    assert found["cpu_responder"] == 0.003


def test_the_spread_over_queue_pairs_is_seen(run: SyntheticRun) -> None:
    run.bandwidth(initiator={"payload_bytes_per_qp": (80, 100, 100, 120)})
    assert values(tables.build(run.end()))["qp_spread_pct"] == 40.0


def test_every_row_says_how_it_was_measured(run: SyntheticRun) -> None:
    run.bandwidth(evidence=Evidence.FALLBACK, evidence_note="NIC counters stood still")
    row = tables.build(run.end()).measurements.iloc[0].to_dict()
    assert row["pair"] == "node1/rxe0>node2/rxe0"
    expected = {
        "op": "write",
        "size_bytes": 65536,
        "depth": 128,
        "cq_moderation": 16,
        "memory": "host",
        "engine": "hotloop",
        "completion": "poll",
        "loop": "closed",
        "direction": "one-way",
        "mtu_bytes": 1024,
        "initiator_gid_index": 1,
        "gid_type": "RoCE v2",
        "traffic_class": 0,
        "clock": "monotonic_raw",
        "clock_cost_ns": 21.5,
        "outcome": "measured",
        "evidence": "fallback",
        "evidence_note": "NIC counters stood still",
        "unit": "B/s",
    }
    assert {name: row[name] for name in expected} == expected
    assert row["started_at"] == pd.Timestamp("2026-12-01T03:15:01Z")


def test_a_case_without_numbers_has_one_row_with_its_reason(run: SyntheticRun) -> None:
    run.unmeasured(Outcome.UNSUPPORTED, "the device cannot")
    built = tables.build(run.end())
    assert len(built.measurements) == 1
    row = built.measurements.iloc[0]
    assert (row["outcome"], row["reason"]) == ("unsupported", "the device cannot")
    assert pd.isna(row["metric"])
    assert pd.isna(row["value"])


def test_a_planned_case_that_was_not_reached_is_in_the_table_of_cases(run: SyntheticRun) -> None:
    run.bandwidth()
    cases = tables.build(run.end("interrupted")).cases
    assert list(cases["outcome"]) == ["not reached", "measured"]
    assert list(cases["attempts"]) == [0, 1]


def test_a_retry_is_kept_and_only_the_last_attempt_counts(run: SyntheticRun) -> None:
    run.unmeasured(Outcome.FAILED, "lost")
    run.bandwidth()
    built = tables.build(run.end())
    failed = built.measurements[built.measurements["outcome"] == "failed"].iloc[0]
    assert (failed["attempt"], failed["superseded"]) == (0, True)
    kept = built.measurements[~built.measurements["superseded"]]
    assert set(kept["outcome"]) == {"measured"}
    assert set(kept["attempt"]) == {1}
    assert built.cases.set_index("probe").loc["bandwidth", "attempts"] == 2


def test_samples_that_cannot_be_read_make_their_case_failed_and_no_other(
    run: SyntheticRun,
) -> None:
    record = run.latency(range(1, 101))
    run.bandwidth()
    directory = run.end()
    assert record.initiator is not None
    assert record.initiator.samples is not None
    (directory.path / record.initiator.samples.path).unlink()
    built = tables.build(directory)
    failed = built.measurements[built.measurements["outcome"] == "failed"]
    assert len(failed) == 1
    assert "No such file" in failed["reason"].iloc[0]
    assert "bw" in values(built)
    assert built.cases.set_index("probe")["outcome"].to_dict() == {
        "latency": "failed",
        "bandwidth": "measured",
    }


def test_a_latency_without_samples_and_a_bandwidth_without_time_are_failed(
    run: SyntheticRun,
) -> None:
    run.add(
        measured(
            case_of(LATENCY),
            initiator=side(Role.INITIATOR, "node1"),
            responder=side(Role.RESPONDER, "node2"),
        )
    )
    run.bandwidth(initiator={"elapsed_ns": 0})
    run.bandwidth(
        case=case_of(LATENCY, repeat=1),
        initiator={"samples": Samples(path="x", count=1, kind="odd", sha256="")},
    )
    rows = tables.build(run.end()).measurements
    assert list(rows["reason"]) == [
        "the record has no samples",
        "327680000 bytes in 0 ns are not a bandwidth",
        "1 samples of kind 'odd' are not a latency",
    ]
    assert set(rows["outcome"]) == {"failed"}


def test_counters_have_before_after_and_delta_on_both_sides(run: SyntheticRun) -> None:
    wrapped = {
        "counters_before": CounterSet(values={"c": 2**64 - 10, "gone": 1}),
        "counters_after": CounterSet(values={"c": 5, "new": 1}),
    }
    run.bandwidth(responder=wrapped)
    counters = tables.build(run.end()).counters
    rows = {
        (row.role, row.counter): (row.host, row.before, row.after, row.delta)
        for row in counters.itertuples()
    }
    assert rows == {
        ("initiator", "hw_counters/sent_pkts"): ("node1", 100, 5100, 5000),
        ("initiator", "still"): ("node1", 7, 7, 0),
        ("responder", "c"): ("node2", 2**64 - 10, 5, 15),
    }


def test_endpoints_and_nodes_are_the_latest_of_a_resumed_run(run: SyntheticRun) -> None:
    run.journal.append(endpoint("node1", firmware="2.0"))
    built = tables.build(run.end())
    assert built.endpoints[["host", "firmware"]].to_numpy().tolist() == [
        ["node1", "2.0"],
        ["node2", ""],
    ]
    assert list(built.nodes["cpu_count"]) == [4, 4]


def test_events_tell_what_happened_when(run: SyntheticRun) -> None:
    run.journal.append(Notice(severity="error", text="lost", host="node2", remedy="look"))
    events = tables.build(run.end()).events
    assert list(events["type"]) == ["RunStarted", "Notice", "RunEnded"]
    assert events.loc[1, ["severity", "host", "text", "remedy"]].to_list() == [
        "error",
        "node2",
        "lost",
        "look",
    ]
    assert events["at"].is_monotonic_increasing


def test_every_table_has_exactly_the_columns_and_types_of_the_schema(run: SyntheticRun) -> None:
    run.latency(range(1, 101))
    built = tables.build(run.end())
    described = tables.schema()
    for name, frame in built.named().items():
        of_table = described[described["table"] == name]
        assert list(frame.columns) == list(of_table["column"])
        assert [str(dtype) for dtype in frame.dtypes] == list(of_table["dtype"])
    assert (described["meaning"] != "").all()


def test_every_metric_of_a_row_is_described(run: SyntheticRun) -> None:
    run.latency(range(1, 3000))
    run.bandwidth(initiator={"payload_bytes_per_qp": (1, 1)})
    found = tables.build(run.end()).measurements
    for metric, unit in set(zip(found["metric"], found["unit"], strict=True)):
        assert schema.METRICS[metric].unit == unit


def test_what_is_loaded_is_what_was_built(run: SyntheticRun) -> None:
    run.latency(range(1, 101))
    run.unmeasured(Outcome.FAILED, "lost")
    directory = run.end()
    built = tables.build(directory)
    for loaded in (tables.load(directory), tables.load(directory)):
        for name, frame in built.named().items():
            pd.testing.assert_frame_equal(frame, loaded.named()[name])


def test_an_empty_journal_gives_empty_typed_tables(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path)
    run.journal.close()
    built, loaded = tables.load(run.directory), tables.load(run.directory)
    assert all(frame.empty for frame in built.named().values())
    for name, frame in built.named().items():
        pd.testing.assert_frame_equal(frame, loaded.named()[name])


def test_tables_are_built_again_when_the_journal_has_grown(run: SyntheticRun) -> None:
    run.bandwidth()
    assert len(tables.load(run.directory).cases) == 2
    run.bandwidth(case=case_of(BANDWIDTH, repeat=1))
    assert len(tables.load(run.directory).cases) == 3
    run.end()


def test_tables_that_stand_are_not_built_again(run: SyntheticRun) -> None:
    run.bandwidth()
    directory = run.end()
    tables.load(directory)
    written = {path: path.stat().st_mtime_ns for path in directory.tables.iterdir()}
    tables.load(directory)
    assert {path: path.stat().st_mtime_ns for path in directory.tables.iterdir()} == written


@pytest.mark.parametrize("damage", ["absent", "garbage", "other schema"])
def test_damaged_tables_are_built_again(run: SyntheticRun, damage: str) -> None:
    run.bandwidth()
    directory = run.end()
    tables.load(directory)
    if damage == "absent":
        (directory.tables / "cases.parquet").unlink()
    elif damage == "garbage":
        (directory.tables / "cases.parquet").write_bytes(b"PAR1 not")
    else:
        built = json.loads((directory.tables / "built.json").read_text())
        (directory.tables / "built.json").write_text(json.dumps(built | {"schema": 0}))
        (directory.tables / "cases.parquet").write_bytes(b"of another time")
    assert len(tables.load(directory).cases) == 2
    assert len(pd.read_parquet(directory.tables / "cases.parquet")) == 2


def test_a_directory_that_is_no_run_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no journal\.jsonl"):
        tables.load(RunDirectory(tmp_path))


def test_export_writes_every_table_in_each_format(run: SyntheticRun, tmp_path: Path) -> None:
    run.latency(range(1, 101))
    built = tables.load(run.end())
    for fmt in tables.FORMATS:
        paths = tables.export(built, fmt, tmp_path / fmt)
        assert [path.name for path in paths] == [f"{name}.{fmt}" for name in built.named()]
    csv = pd.read_csv(tmp_path / "csv" / "measurements.csv")
    parquet = pd.read_parquet(tmp_path / "parquet" / "measurements.parquet")
    plain = json.loads((tmp_path / "json" / "measurements.json").read_text())
    assert list(csv["value"]) == list(parquet["value"]) == list(built.measurements["value"])
    assert [row["metric"] for row in plain] == list(built.measurements["metric"])
    with pytest.raises(InputError, match="unknown format 'xls'"):
        tables.export(built, "xls", tmp_path)


def test_two_ports_and_rails_of_a_host_are_told_apart(run: SyntheticRun) -> None:
    case = replace(
        case_of(BANDWIDTH), initiator=EndpointRef(host="node1", device="mlx5_0", port=2, rail=3)
    )
    run.bandwidth(case=case)
    row = tables.build(run.end()).measurements.iloc[0]
    assert row["pair"] == "node1/mlx5_0:2>node2/rxe0"
    assert (row["initiator_port"], row["rail"], row["responder_rail"]) == (2, 3, 0)
