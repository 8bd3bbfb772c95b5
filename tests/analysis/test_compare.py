from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdmabench.analysis.compare import compare
from rdmabench.collector import tables
from rdmabench.errors import InputError
from rdmabench.model import EndpointRef, Evidence, Fabric, LinkFacts, Outcome, Parameters
from tests.collector.synthetic import BANDWIDTH, LATENCY, ROCE_LINK, SyntheticRun, case_of, endpoint

TCP_ENDS = {
    "initiator": EndpointRef(host="node1", device="eth0"),
    "responder": EndpointRef(host="node2", device="eth0"),
}


def run_of(
    root: Path,
    rtts_ns: Sequence[int],
    *,
    fabric: Fabric = Fabric.ROCE,
    parameters: Parameters = LATENCY,
    ends: dict[str, EndpointRef] | None = None,
    **changes: Any,
) -> tables.Tables:
    """A run of one latency case, a repeat per round trip."""
    run = SyntheticRun(root, fabric).begin()
    for repeat, rtt_ns in enumerate(rtts_ns):
        case = case_of(parameters, repeat=repeat, **(ends or {}))
        run.latency([rtt_ns] * 20, case=case, **changes)
    return tables.build(run.end())


BASE = (2000, 2010, 1990, 2005, 1995)


def test_twice_the_latency_is_worse_with_a_ratio_of_two(tmp_path: Path) -> None:
    base, other = run_of(tmp_path, BASE), run_of(tmp_path, [2 * rtt for rtt in BASE])
    result = compare([base, other])
    assert len(result.rows) == 1
    row = result.rows.iloc[0]
    assert (row["metric"], row["hosts"]) == ("lat_p50_us", "node1[0]>node2[0]")
    assert (row["base_median"], row["run_median"], row["ratio"]) == (1.0, 2.0, 2.0)
    assert 1.95 < row["ratio_lo"] < 2.0 < row["ratio_hi"] < 2.05
    assert (row["base_repeats"], row["run_repeats"]) == (5, 5)
    assert row["verdict"] == "worse"
    assert (row["conditions"], row["note"]) == ("", "")
    assert result.not_compared.empty
    assert result.conditions.empty


def test_more_bandwidth_is_better(tmp_path: Path) -> None:
    runs = []
    for elapsed_ns in (52_428_800, 26_214_400):
        run = SyntheticRun(tmp_path).begin()
        for repeat in range(3):
            case = case_of(BANDWIDTH, repeat=repeat)
            run.bandwidth(case=case, initiator={"elapsed_ns": elapsed_ns + repeat})
        runs.append(tables.build(run.end()))
    row = compare(runs).rows.iloc[0]
    assert (row["metric"], row["verdict"]) == ("bw_gbps", "better")
    assert row["base_median"] == pytest.approx(50.0, rel=1e-6)
    assert row["ratio"] == pytest.approx(2.0, rel=1e-6)


def test_an_interval_that_spans_one_is_no_difference(tmp_path: Path) -> None:
    base, other = run_of(tmp_path, BASE), run_of(tmp_path, [2003, 1992, 2008, 2001, 1997])
    row = compare([base, other]).rows.iloc[0]
    assert row["ratio_lo"] < 1 < row["ratio_hi"]
    assert row["verdict"] == "no difference"


def test_two_repeats_cannot_tell(tmp_path: Path) -> None:
    base, other = run_of(tmp_path, BASE), run_of(tmp_path, [4000, 4010])
    row = compare([base, other]).rows.iloc[0]
    assert row["ratio"] == pytest.approx(2.0025)
    assert row["verdict"] == "cannot tell"
    assert row["note"] == "2 repeats; an interval wants at least 3"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completion": "event"}, "completion poll / event"),
        ({"memory": "host-hugepage"}, "memory host / host-hugepage"),
        ({"engine": "pyverbs"}, "engine hotloop / pyverbs"),
        ({"inline_bytes": 64}, "inline_bytes 0 / 64"),
        ({"iterations": 99, "warmup": 9}, "iterations 2000 / 99, warmup 100 / 9"),
    ],
)
def test_unequal_parameters_are_never_compared_and_are_named(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    base = run_of(tmp_path, BASE)
    other = run_of(tmp_path, BASE, parameters=replace(LATENCY, **change))
    result = compare([base, other])
    assert result.rows.empty
    assert list(result.not_compared["reason"]) == [f"unequal parameters: {said}"]


def test_within_one_fabric_another_mtu_is_not_compared(tmp_path: Path) -> None:
    base = run_of(tmp_path, BASE)
    other = run_of(tmp_path, BASE, link=replace(ROCE_LINK, mtu_bytes=4096))
    result = compare([base, other])
    assert result.rows.empty
    assert list(result.not_compared["reason"]) == ["unequal parameters: mtu_bytes 1024 / 4096"]


def test_what_the_fabric_imposes_may_differ_between_fabrics_and_is_listed(tmp_path: Path) -> None:
    base = run_of(tmp_path, BASE)
    other = run_of(
        tmp_path,
        [8 * rtt for rtt in BASE],
        fabric=Fabric.TCP,
        parameters=replace(LATENCY, transport="TCP"),
        ends=TCP_ENDS,
        link=LinkFacts(mtu_bytes=1500),
    )
    result = compare([base, other])
    row = result.rows.iloc[0]
    assert (row["ratio"], row["verdict"]) == (8.0, "worse")
    assert (
        row["conditions"] == "transport RC / TCP, mtu_bytes 1024 / 1500, gid_type RoCE v2 / (none)"
    )
    listed = result.conditions.set_index("condition")
    assert listed.loc["fabric", ["base_value", "run_value"]].to_list() == ["roce", "tcp"]
    assert listed.loc["initiator_device", ["base_value", "run_value"]].to_list() == ["rxe0", "eth0"]
    assert listed.loc["mtu_bytes", ["base_value", "run_value"]].to_list() == ["1024", "1500"]


def test_a_tcp_stream_has_no_queue_depth_to_be_equal(tmp_path: Path) -> None:
    runs = []
    for fabric, parameters in (
        (Fabric.ROCE, BANDWIDTH),
        (Fabric.TCP, replace(BANDWIDTH, transport="TCP", depth=1, cq_moderation=1)),
    ):
        run = SyntheticRun(tmp_path, fabric).begin()
        run.bandwidth(case=case_of(parameters))
        runs.append(tables.build(run.end()))
    result = compare(runs)
    assert list(result.rows["conditions"]) == [
        "depth 128 / 1, cq_moderation 16 / 1, transport RC / TCP"
    ]
    listed = result.conditions.set_index("condition")["run_value"].to_dict()
    assert listed == {"fabric": "tcp", "transport": "TCP", "depth": "1", "cq_moderation": "1"}


def test_what_only_one_run_has_is_said(tmp_path: Path) -> None:
    base = run_of(tmp_path, BASE)
    other = run_of(tmp_path, BASE, parameters=replace(LATENCY, op="read"))
    result = compare([base, other])
    assert result.rows.empty
    said = dict(zip(result.not_compared["op"], result.not_compared["reason"], strict=True))
    assert said == {"send": f"only in {result.base}", "read": f"only in {result.others[0]}"}


def test_an_extra_variant_is_left_over_and_the_common_one_is_compared(tmp_path: Path) -> None:
    base = run_of(tmp_path, BASE)
    run = SyntheticRun(tmp_path, Fabric.ROCE).begin()
    for repeat, rtt_ns in enumerate(BASE):
        for completion in ("poll", "event"):
            case = case_of(replace(LATENCY, completion=completion), repeat=repeat)
            run.latency([rtt_ns] * 20, case=case)
    result = compare([base, tables.build(run.end())])
    assert len(result.rows) == 1
    assert list(result.not_compared["reason"]) == ["unequal parameters: completion poll / event"]


@pytest.mark.parametrize("evidence", [Evidence.FALLBACK, Evidence.ABSENT])
def test_a_row_without_proof_is_marked(tmp_path: Path, evidence: Evidence) -> None:
    base, other = run_of(tmp_path, BASE), run_of(tmp_path, BASE, evidence=evidence)
    result = compare([base, other])
    row = result.rows.iloc[0]
    assert (row["base_evidence"], row["run_evidence"]) == ("proved", evidence.value)
    assert row["note"] == f"evidence of {result.others[0]}: {evidence.value}"


def test_every_later_run_is_compared_with_the_first(tmp_path: Path) -> None:
    runs = [run_of(tmp_path, [factor * rtt for rtt in BASE]) for factor in (1, 2, 4)]
    result = compare(runs)
    assert list(result.rows["ratio"]) == [2.0, 4.0]
    assert list(result.rows["run"]) == list(result.others)


def test_pairs_are_compared_one_by_one(tmp_path: Path) -> None:
    runs = []
    for factor in (1, 3):
        run = SyntheticRun(tmp_path).begin(*(endpoint(f"node{n}") for n in (1, 2, 3)))
        for repeat, rtt_ns in enumerate(BASE):
            run.latency([rtt_ns] * 20, case=case_of(LATENCY, repeat=repeat))
            slow = case_of(
                LATENCY, repeat=repeat, responder=EndpointRef(host="node3", device="rxe0")
            )
            run.latency([factor * rtt_ns] * 20, case=slow)
        runs.append(tables.build(run.end()))
    rows = compare(runs).rows.set_index("hosts")
    assert rows["verdict"].to_dict() == {
        "node1[0]>node2[0]": "no difference",
        "node1[0]>node3[0]": "worse",
    }


def test_other_metrics_can_be_asked_for(tmp_path: Path) -> None:
    runs = [run_of(tmp_path, BASE) for _ in range(2)]
    rows = compare(runs, metrics=["cpu_initiator_pct", "lat_max"]).rows
    assert set(rows["metric"]) == {"cpu_initiator_pct", "lat_max_us"}
    with pytest.raises(InputError, match="unknown metric 'speed'"):
        compare(runs, metrics=["speed"])


def test_one_run_or_an_empty_one_is_wrong_input(tmp_path: Path) -> None:
    base = run_of(tmp_path, BASE)
    with pytest.raises(InputError, match="nothing to compare"):
        compare([base])
    run = SyntheticRun(tmp_path).begin()
    run.unmeasured(Outcome.FAILED, "lost")
    with pytest.raises(InputError, match="has no measurement"):
        compare([base, tables.build(run.end())])
