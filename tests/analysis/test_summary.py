from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rdmabench.analysis.summary import summarise
from rdmabench.collector import tables
from rdmabench.model import EndpointRef, Evidence, Fabric, LinkFacts, Outcome
from tests.collector.synthetic import (
    BANDWIDTH,
    LATENCY,
    SyntheticRun,
    case_of,
    endpoint,
)

NODE3 = EndpointRef(host="node3", device="rxe0")
RTT_NS = 20 * [2000]  # one microsecond, 20 samples


def summary_of(run: SyntheticRun) -> pd.DataFrame:
    return summarise(tables.build(run.end()))


def only_row(run: SyntheticRun) -> dict[str, Any]:
    summary = summary_of(run)
    assert len(summary) == 1
    return dict(summary.iloc[0])


def test_a_row_is_the_median_over_repeats_with_its_interval(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    for repeat, rtt_ns in enumerate((2000, 2200, 9000, 2100, 2150)):
        run.latency([rtt_ns] * 20, case=case_of(LATENCY, repeat=repeat))
    row = only_row(run)
    assert row["lat_p50_us"] == 1.075
    assert (row["lat_p50_lo_us"], row["lat_p50_hi_us"]) == (1.0, 4.5)
    assert (row["repeats"], row["samples"], row["pairs"]) == (5, 100, 1)
    assert pd.isna(row["lat_p99_us"])
    assert pd.isna(row["jitter_pct"])
    assert pd.isna(row["worst_lat_p50_us"])


def test_with_several_pairs_the_worst_is_named(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin(*(endpoint(f"node{n}") for n in (1, 2, 3)))
    for repeat in range(3):
        run.latency(RTT_NS, case=case_of(LATENCY, repeat=repeat))
        run.latency([6000] * 20, case=case_of(LATENCY, repeat=repeat, responder=NODE3))
        run.bandwidth(case=case_of(BANDWIDTH, repeat=repeat))
        run.bandwidth(
            case=case_of(BANDWIDTH, repeat=repeat, responder=NODE3),
            initiator={"elapsed_ns": 2 * 52_428_800},
        )
    latency, bandwidth = (dict(row) for _, row in summary_of(run).iterrows())
    assert (latency["lat_p50_us"], latency["worst_lat_p50_us"]) == (2.0, 3.0)
    assert (bandwidth["bw_gbps"], bandwidth["worst_bw_gbps"]) == (37.5, 25.0)
    assert latency["worst_pair"] == bandwidth["worst_pair"] == "node1/rxe0>node3/rxe0"
    assert latency["pairs"] == 2


def test_the_share_is_of_what_the_links_own_mtu_leaves(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    run.bandwidth()
    row = only_row(run)
    attainable = 100 * 65536 / (65536 + 64 * 82 + 16)  # IPv4, MTU 1024, one RETH
    assert row["attainable_gbps"] == pytest.approx(attainable)
    assert row["attainable_pct"] == pytest.approx(100 * 50 / attainable)
    assert row["note"] == ""


def test_a_port_that_does_not_say_its_rate_has_no_share(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin(endpoint("node1", rate_gbit_s=0.0), endpoint("node2"))
    run.bandwidth()
    row = only_row(run)
    assert row["bw_gbps"] == 50.0
    assert pd.isna(row["attainable_pct"])
    assert row["note"] == "node1/rxe0 does not say its rate"


def test_endpoints_that_are_not_in_the_journal_have_no_share(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin(endpoint("node1"))
    run.bandwidth()
    assert only_row(run)["note"] == "the journal does not describe both endpoints"


def test_a_tcp_share_is_of_a_stream(tmp_path: Path) -> None:
    ends = [
        endpoint(host, device="eth0", address="10.0.0.1", active_mtu_bytes=1500, gid="")
        for host in ("node1", "node2")
    ]
    run = SyntheticRun(tmp_path, Fabric.TCP).begin(*ends)
    case = case_of(
        replace(BANDWIDTH, transport="TCP"),
        initiator=EndpointRef(host="node1", device="eth0"),
        responder=EndpointRef(host="node2", device="eth0"),
    )
    run.bandwidth(case=case, link=LinkFacts(mtu_bytes=1500))
    assert only_row(run)["attainable_gbps"] == pytest.approx(100 * 1448 / 1538)


def test_one_bad_proof_marks_the_row(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    run.bandwidth()
    run.bandwidth(case=case_of(BANDWIDTH, repeat=1), evidence=Evidence.ABSENT)
    assert only_row(run)["evidence"] == "absent"


def test_a_fallback_is_worse_than_no_proof(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    for repeat, evidence in enumerate((Evidence.ABSENT, Evidence.FALLBACK, Evidence.PROVED)):
        run.bandwidth(case=case_of(BANDWIDTH, repeat=repeat), evidence=evidence)
    assert only_row(run)["evidence"] == "fallback"


def test_rows_that_were_measured_in_another_way_stay_apart(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    for completion, rtt_ns in (("poll", 2000), ("event", 8000)):
        parameters = replace(LATENCY, completion=completion)
        run.latency([rtt_ns] * 20, case=case_of(parameters))
    summary = summary_of(run).set_index("variant")
    assert summary["lat_p50_us"].to_dict() == {"completion=poll": 1.0, "completion=event": 4.0}


def test_failed_and_replaced_attempts_are_in_no_median(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    run.bandwidth(initiator={"elapsed_ns": 1})
    run.bandwidth()
    run.unmeasured(Outcome.FAILED, "lost", case=case_of(BANDWIDTH, repeat=1))
    row = only_row(run)
    assert (row["bw_gbps"], row["repeats"]) == (50.0, 1)


def test_rows_come_in_the_order_people_read(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    for op in ("read", "send", "write"):
        for size in (65536, 64):
            run.bandwidth(case=case_of(replace(BANDWIDTH, op=op, size_bytes=size)))
            run.latency(RTT_NS, case=case_of(replace(LATENCY, op=op, size_bytes=size)))
    summary = summary_of(run)
    order = list(zip(summary["probe"], summary["op"], summary["size_bytes"], strict=True))
    one = [(op, size) for op in ("send", "write", "read") for size in (64, 65536)]
    assert order == [(probe, *each) for probe in ("latency", "bandwidth") for each in one]


def test_nothing_measured_is_an_empty_summary(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    run.unmeasured(Outcome.FAILED, "lost")
    assert summary_of(run).empty
