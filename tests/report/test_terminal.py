from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from rdmabench.analysis.compare import compare
from rdmabench.collector import store, tables
from rdmabench.model import EndpointRef, Evidence, Fabric, Notice, Outcome
from rdmabench.report import terminal
from tests.collector.synthetic import BANDWIDTH, LATENCY, SyntheticRun, case_of, endpoint

NODE3 = EndpointRef(host="node3", device="rxe0")
HOSTILE = "node\x1b[31m[bold red]x[/] :boom: \u202e\r\n" + "y" * 90
WIDTHS = (80, 120)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tables.Tables:
    """Three operations, three sizes, two pairs, three repeats, and what went wrong."""
    run = SyntheticRun(tmp_path_factory.mktemp("results"))
    lost = case_of(BANDWIDTH, responder=NODE3, repeat=9)
    run.begin(*(endpoint(f"node{n}") for n in (1, 2, 3)), cases=[case_of(LATENCY, repeat=9)])
    for repeat in range(3):
        for responder in (EndpointRef(host="node2", device="rxe0"), NODE3):
            ends = {"repeat": repeat, "responder": responder}
            for size in (2, 4096):
                case = case_of(replace(LATENCY, size_bytes=size), **ends)
                run.latency(range(3000 + size, 5000 + size), case=case)
            for qps in (1, 4):
                run.bandwidth(case=case_of(replace(BANDWIDTH, qps=qps), **ends))
    read = replace(BANDWIDTH, op="read", size_bytes=8 << 20)
    run.bandwidth(case=case_of(read), evidence=Evidence.FALLBACK)
    run.bandwidth(case=case_of(replace(read, op="send")), evidence=Evidence.ABSENT)
    run.unmeasured(
        Outcome.FAILED, "node3 rxe0: retry counter exceeded\n  try: the switch", case=lost
    )
    for repeat in range(5):
        case = case_of(replace(BANDWIDTH, op="atomic"), repeat=repeat)
        run.unmeasured(Outcome.UNSUPPORTED, "no atomics", case=case)
    return tables.build(run.end())


def lines_of(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_sweep_fits_the_terminal_with_one_line_a_row(sweep: tables.Tables, width: int) -> None:
    text = terminal.to_text(terminal.sweep_summary(sweep), width=width)
    assert max(cell_len(line) for line in lines_of(text)) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    rows = [line.split() for line in lines_of(text)]
    assert ["send", "2", "B"] in [row[:3] for row in rows]
    write_rows = [row for row in rows if row[0] == "write"]
    assert [row[:5] for row in write_rows] == [
        ["write", "64", "KiB", "1", "50.00"],
        ["write", "64", "KiB", "4", "50.00"],
    ]
    assert all(row[-2:] == ["proved", "3"] for row in write_rows)


def test_a_latency_row_shows_the_hand_computed_numbers(sweep: tables.Tables) -> None:
    text = terminal.to_text(terminal.sweep_summary(sweep), width=120)
    row = next(
        line.split() for line in lines_of(text) if line.startswith("send") and " 2 B" in line
    )
    # round trips 3002 to 5001: p50 is (3002 + 999) / 2 ns, p99 is (3002 + 1979) / 2 ns
    assert row[3:5] == ["2.00", "2.00..2.00"]
    assert row[5:7] == ["2.49", "24.5"]
    assert "50/50" in row


def test_the_share_of_the_wire_is_shown(sweep: tables.Tables) -> None:
    text = terminal.to_text(terminal.sweep_summary(sweep), width=80)
    row = next(line.split() for line in lines_of(text) if line.startswith("write"))
    assert row[5] == "54.0"  # 50 of 92.56 Gb/s


def test_wide_terminals_name_the_worst_pair(sweep: tables.Tables) -> None:
    wide = terminal.to_text(terminal.sweep_summary(sweep), width=150)
    assert "worst pair" in wide
    assert "worst pair" not in terminal.to_text(terminal.sweep_summary(sweep), width=80)


def test_what_failed_is_listed_with_its_reason_and_what_is_left_to_do(
    sweep: tables.Tables,
) -> None:
    text = terminal.to_text(terminal.sweep_summary(sweep), width=120)
    assert "1 failed: node3 rxe0: retry counter exceeded try: the switch" in text
    assert "    write_bw/65536/1 node1/rxe0>node3/rxe0\n" in text
    assert (
        "5 unsupported: no atomics\n    atomic_bw/65536/1 node1/rxe0>node2/rxe0 (5 times)" in text
    )
    assert "1 not reached; `rdmabench sweep --resume " in text


def test_missing_proof_is_explained(sweep: tables.Tables) -> None:
    text = terminal.to_text(terminal.sweep_summary(sweep), width=120)
    assert "FALLBACK: the counters say" in text
    assert "absent: no counter proves" in text


def test_soft_roce_is_said_to_prove_function_only(sweep: tables.Tables, tmp_path: Path) -> None:
    said = "Soft-RoCE proves function, never performance"
    assert said in terminal.to_text(terminal.sweep_summary(sweep), width=120)
    run = SyntheticRun(tmp_path, Fabric.ROCE).begin()
    run.bandwidth()
    other = terminal.to_text(terminal.sweep_summary(tables.build(run.end())), width=120)
    assert said not in other
    assert "FALLBACK" not in other


def test_few_repeats_and_few_samples_are_explained(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin(endpoint("node1", rate_gbit_s=0.0), endpoint("node2"))
    run.latency(range(1, 101))
    run.bandwidth()
    text = terminal.to_text(terminal.sweep_summary(tables.build(run.end())), width=120)
    assert "No 95 % interval where n is below 3." in text
    assert "p99 and jitter want at least 1,000 samples a case." in text
    assert "The attainable rate is not known: node1/rxe0 does not say its rate." in text


def test_a_sweep_that_measured_nothing_says_so(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    assert "no cases" in terminal.to_text(terminal.sweep_summary(tables.build(run.directory)))
    run.unmeasured(Outcome.FAILED, "lost")
    text = terminal.to_text(terminal.sweep_summary(tables.build(run.end())))
    assert "Nothing was measured." in text
    assert "1 failed: lost" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_a_hostile_node_changes_no_terminal_and_no_layout(tmp_path: Path, width: int) -> None:
    run = SyntheticRun(tmp_path)
    run.begin(endpoint("node1"), endpoint(HOSTILE, firmware=HOSTILE, rate_text=HOSTILE))
    case = case_of(LATENCY, responder=EndpointRef(host=HOSTILE, device="rxe0"))
    run.latency(range(1, 2001), case=case)
    run.latency(range(1, 2001), case=case_of(LATENCY))
    run.unmeasured(Outcome.FAILED, HOSTILE, case=case_of(BANDWIDTH))
    run.journal.append(Notice(severity="error", text=HOSTILE, host=HOSTILE))
    directory = run.end()
    built = tables.build(directory)
    for shown in (
        terminal.sweep_summary(built),
        terminal.run_details(directory, built),
        terminal.comparison(compare([built, built])),
    ):
        text = terminal.to_text(shown, width=width)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert max(cell_len(line) for line in lines_of(text)) <= width
        assert all(line.isprintable() for line in text.splitlines())
    assert "[bold red]x[/] :boom:" in terminal.to_text(terminal.sweep_summary(built), width=width)


def test_runs_are_listed_with_status_and_time(tmp_path: Path) -> None:
    assert "No runs yet" in terminal.to_text(terminal.runs_list(store.list_runs(tmp_path)))
    run = SyntheticRun(tmp_path).begin()
    run.end()
    damaged = SyntheticRun(tmp_path, Fabric.IB).begin().end()
    (damaged.path / "run.json").write_text("{")
    runs = store.list_runs(tmp_path)
    for width in WIDTHS:
        text = terminal.to_text(terminal.runs_list(runs), width=width)
        assert len(list(lines_of(text))) == 4
        assert f"{run.directory.name}" in text
        assert "unknown" in text
    frame = terminal.runs_frame(runs)
    assert list(frame["status"]) in (["done", "unknown"], ["unknown", "done"])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_is_shown_with_its_nodes_ports_and_notices(tmp_path: Path, width: int) -> None:
    run = SyntheticRun(tmp_path).begin()
    run.bandwidth()
    run.journal.append(Notice(severity="warning", text="was lost for 3 s", host="node2"))
    directory = run.end()
    text = terminal.to_text(terminal.run_details(directory, tables.build(directory)), width=width)
    assert f"run        {directory.name}" in text
    assert "1 measured" in text
    assert "100 Gb/sec (4X EDR)" in text
    assert "warning: node2: was lost for 3 s" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_a_comparison_shows_both_medians_the_ratio_and_the_verdict(
    tmp_path: Path, width: int
) -> None:
    built = []
    for fabric, factor in ((Fabric.ROCE, 1), (Fabric.TCP, 8)):
        run = SyntheticRun(tmp_path, fabric).begin()
        evidence = Evidence.PROVED if fabric is Fabric.ROCE else Evidence.ABSENT
        for repeat in range(5):
            rtts = [factor * (2000 + repeat)] * 20
            run.latency(rtts, case=case_of(LATENCY, repeat=repeat), evidence=evidence)
        run.bandwidth(case=case_of(replace(BANDWIDTH, iterations=5000 * factor)))
        built.append(tables.build(run.end()))
    text = terminal.to_text(terminal.comparison(compare(built)), width=width)
    row = next(line.split() for line in lines_of(text) if line.startswith("send"))
    assert row == [
        *("send", "2", "B", "lat_p50_us", "1.00", "8.01*", "8.000"),
        *("7.984..8.016", "worse", "5/5"),
    ]
    said = "not compared: unequal parameters: iterations 5000 / 40000: write bandwidth 64 KiB"
    assert f"{said} (1 in all)" in " ".join(text.split())
    assert "*: not every repeat has proof" in text
