"""Plans: what is refused, and what is measured in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from rdmabench.errors import InputError
from rdmabench.model import Case, EndpointRef, Fabric
from rdmabench.orchestrator import plan as plans
from rdmabench.orchestrator.plan import Plan

A, B = EndpointRef(host="a", device="rxe0"), EndpointRef(host="b", device="rxe0")
LATENCY = "{probe: latency, op: [send], sizes: [2], iterations: 10}"


def written(tmp_path: Path, text: str) -> Plan:
    path = tmp_path / "plan.yml"
    path.write_text(text)
    return plans.load(str(path))


def one(tmp_path: Path, measurement: str, head: str = "") -> Plan:
    return written(tmp_path, f"name: x\n{head}\nmeasurements:\n  - {measurement}\n")


def cases(plan: Plan, fabric: Fabric = Fabric.RXE) -> tuple[Case, ...]:
    return plans.expand(plan, initiator=A, responder=B, fabric=fabric, engine="pyverbs")


def test_the_packaged_plans_load_and_their_cases_differ() -> None:
    assert plans.names() == ("quick", "standard")
    for name in plans.names():
        for fabric in Fabric:
            made = cases(plans.load(name), fabric)
            assert len({case.id for case in made}) == len(made)


def test_quick_is_a_minute_on_the_lab_and_standard_minutes_on_hardware() -> None:
    quick, standard = plans.load("quick"), plans.load("standard")
    assert 20 < plans.estimate_s(cases(quick), fabric=Fabric.RXE) < 90
    assert plans.estimate_s(cases(quick), fabric=Fabric.IB) < 10
    assert 60 < plans.estimate_s(cases(standard), fabric=Fabric.IB) < 600


def test_standard_has_samples_for_a_far_quantile_where_messages_are_small() -> None:
    small = [
        case.parameters
        for case in cases(plans.load("standard"), Fabric.IB)
        if case.parameters.probe == "latency" and case.parameters.size_bytes <= 4096
    ]
    assert min(parameters.iterations for parameters in small) >= 10_000
    assert {parameters.size_bytes for parameters in small} == {2**n for n in range(1, 13)}


def test_repeats_are_interleaved_with_the_other_cases() -> None:
    made = cases(plans.load("quick"))
    each = len(made) // 3
    assert [case.repeat for case in made] == [0] * each + [1] * each + [2] * each
    whats = [case.parameters.what for case in made]
    assert whats[:each] == whats[each : 2 * each]
    assert whats[:each] == [
        *("send_lat/2/1", "send_lat/4096/1", "write_lat/2/1", "write_lat/4096/1"),
        *("read_lat/2/1", "read_lat/4096/1"),
        *("write_bw/65536/1", "write_bw/65536/4", "send_bw/65536/1"),
    ]


def test_over_tcp_everything_is_send_and_nothing_twice() -> None:
    made = [case.parameters for case in cases(plans.load("quick"), Fabric.TCP) if not case.repeat]
    assert [each.what for each in made] == [
        *("send_lat/2/1", "send_lat/4096/1", "send_bw/65536/1", "send_bw/65536/4"),
    ]
    assert {each.transport for each in made} == {"TCP"}
    assert {each.engine for each in made} == {"pyverbs"}


def test_the_link_is_large_enough_for_every_case() -> None:
    quick = plans.load("quick")
    link = plans.link_parameters(quick, cases(quick))
    assert (link.qps, link.depth, link.recv_depth) == (4, 128, 256)
    assert link.buffer_bytes == 4 * 65536
    standard = plans.load("standard")
    link = plans.link_parameters(standard, cases(standard))
    assert (link.buffer_bytes, link.inline_bytes) == (4 * (8 << 20), 64)


def test_a_small_message_still_takes_a_page(tmp_path: Path) -> None:
    plan = one(tmp_path, LATENCY)
    assert plans.link_parameters(plan, cases(plan)).buffer_bytes == 4096


def test_large_messages_are_repeated_less_often(tmp_path: Path) -> None:
    plan = one(
        tmp_path,
        "{probe: latency, op: [send], sizes: [1, 1M, 1G], iterations: 1000, warmup: 100,"
        " max_bytes: 64M, min_iterations: 8}",
        "repeats: 1",
    )
    counts = [(case.parameters.iterations, case.parameters.warmup) for case in cases(plan)]
    assert counts == [(1000, 100), (64, 64), (8, 8)]


def test_sizes_may_be_a_span(tmp_path: Path) -> None:
    plan = one(tmp_path, LATENCY.replace("[2]", "{from: 2, to: 1K, factor: 4}"))
    assert plan.measurements[0].sizes == (2, 8, 32, 128, 512)


@pytest.mark.parametrize(
    ("measurement", "head", "said"),
    [
        (
            LATENCY.replace("iterations", "itreations"),
            "",
            r"itreations: unknown key; did you mean iterations",
        ),
        (LATENCY, "repeat: 2", "repeat: unknown key; did you mean repeats"),
        (LATENCY.replace("latency", "lat"), "", r"measurements\.0\.probe: "),
        (LATENCY.replace("send", "atomic"), "", r"measurements\.0\.op\.0: "),
        (LATENCY.replace("[2]", "[2K, 2T]"), "", r"measurements\.0\.sizes\.1: '2T' is not a size"),
        (LATENCY.replace("[2]", "[0]"), "", r"sizes\.0: .*greater than or equal to 1"),
        (LATENCY.replace("[2]", "[2G]"), "", r"sizes\.0: .*less than or equal to 1073741824"),
        (LATENCY.replace("[2]", "[]"), "", r"measurements\.0\.sizes: "),
        (LATENCY.replace("[2]", "{from: 8, to: 4}"), "", "from 8 is above to 4"),
        (LATENCY.replace("[2]", "{from: 8}"), "", r"measurements\.0\.sizes.*"),
        (LATENCY.replace("10", "10.5"), "", r"measurements\.0\.iterations: "),
        (LATENCY.replace("10", "yes"), "", r"measurements\.0\.iterations: "),
        (LATENCY.replace("}", ", depth: 4, cq_moderation: 8}"), "", "measurements.0: cq_moder"),
        (LATENCY, "link: {retry_cnt: 7}", "link: retry_cnt is 7.*dead peer"),
        (LATENCY, "link: {retry_count: 6}", "link.retry_count: unknown key; did you mean retry_"),
        (LATENCY, "name: y", "'name' is there twice"),
        (LATENCY, "repeats: 0", "repeats: "),
        ("[", "", "not YAML"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(
    tmp_path: Path, measurement: str, head: str, said: str
) -> None:
    with pytest.raises(InputError, match=r"(?s)plan\.yml: .*" + said):
        one(tmp_path, measurement, head)


@pytest.mark.parametrize("text", ["", "just words", "- a list", "name: x\n"])
def test_a_file_that_is_no_plan_is_an_input_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"plan\.yml: "):
        written(tmp_path, text)


def test_an_unknown_name_brings_the_close_match_and_the_list() -> None:
    with pytest.raises(InputError, match=r"did you mean quick\? choose quick, standard"):
        plans.load("quik")
