"""The sections of what was measured: probes, counters, and claims beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from rdmabench.analysis import reference
from rdmabench.analysis.summary import INTERVALS, WORST
from rdmabench.report.blocks import DOUBT, GOOD, NEUTRAL, Block, Column, Note, Table
from rdmabench.report.chart import Figure
from rdmabench.report.columns import both, question, span, tenths, toned
from rdmabench.report.figures import is_trouble, moved_counters
from rdmabench.report.formats import texts
from rdmabench.report.view import ReportRun


def probe_blocks(runs: Sequence[ReportRun], drawn: Sequence[Figure], probe: str) -> Iterator[Block]:
    yield from (figure for figure in drawn if figure.name.startswith(f"{probe}-"))
    for run in runs:
        rows = run.summary[run.summary["probe"] == probe]
        if rows.empty:
            continue
        makers = {"latency": _latency_columns, "bandwidth": _bandwidth_columns}
        columns = [*question(rows), *makers[probe](rows), *_proof_columns(rows, probe)]
        yield Table(f"{run.label}: {probe} by operation and size", tuple(columns))
        for note in dict.fromkeys(note for note in rows["note"] if note):
            yield Note(f"{run.label}: the attainable rate is not known: {note}.", DOUBT)


def _latency_columns(rows: pd.DataFrame) -> list[Column]:
    return [
        Column("p50 us", texts(rows, "lat_p50_us")),
        Column("95 %", _interval(rows, "latency")),
        Column("p99 us", texts(rows, "lat_p99_us")),
        Column("jitter %", tenths(rows["jitter_pct"])),
        Column("cv %", tenths(rows["cv_pct"])),
        Column("CPU %", _cpu(rows)),
        Column("samples", [f"{count:,}" for count in rows["samples"]]),
    ]


def _bandwidth_columns(rows: pd.DataFrame) -> list[Column]:
    per_gb = both(texts(rows, "cpu_initiator_s_per_GB"), texts(rows, "cpu_responder_s_per_GB"))
    return [
        Column("Gb/s", texts(rows, "bw_gbps")),
        Column("95 %", _interval(rows, "bandwidth")),
        Column("at best Gb/s", texts(rows, "attainable_gbps")),
        Column("share %", tenths(rows["attainable_pct"])),
        Column("Mmsg/s", texts(rows, "rate_mpps")),
        Column("CPU %", _cpu(rows)),
        Column("CPU s/GB", per_gb),
    ]


def _cpu(rows: pd.DataFrame) -> list[str]:
    shares = (tenths(rows[f"cpu_{side}_pct"], 0) for side in ("initiator", "responder"))
    return both(*shares)


def _interval(rows: pd.DataFrame, probe: str) -> list[str]:
    lo, hi = INTERVALS[probe]
    return span(rows[lo], rows[hi])


def _proof_columns(rows: pd.DataFrame, probe: str) -> list[Column]:
    columns = [
        toned("evidence", list(rows["evidence"])),
        Column("n", [f"{r} x {p}" for r, p in zip(rows["repeats"], rows["pairs"], strict=True)]),
    ]
    if (rows["worst_pair"] != "").any():
        unit = "us" if probe == "latency" else "Gb/s"
        columns.append(Column(f"worst {unit}", texts(rows, WORST[probe])))
        columns.append(Column("worst pair", list(rows["worst_pair"]), right=False))
    return columns


def counter_blocks(runs: Sequence[ReportRun], drawn: Sequence[Figure]) -> Iterator[Block]:
    for run in runs:
        moved = moved_counters(run)
        yield from (f for f in drawn if f.name == f"counters-{run.name}")
        if moved.empty:
            if len(run.tables.counters):
                yield Note(f"{run.label}: no counter moved.", DOUBT)
            continue
        yield _counter_table(run, moved)
        if not moved["counter"].map(is_trouble).any():
            yield Note(f"{run.label}: no counter that tells of trouble moved.", GOOD)


def _counter_table(run: ReportRun, moved: pd.DataFrame) -> Table:
    rows = sorted(
        (
            (not is_trouble(str(name)), str(name), group)
            for name, group in moved.groupby("counter", sort=True)
        ),
        key=lambda row: (row[0], row[1]),
    )
    most = [group.iloc[int(group["delta"].abs().argmax())] for *_, group in rows]
    return Table(
        f"{run.label}: counters that moved, those of trouble first",
        (
            Column(
                "counter",
                [name for _, name, _ in rows],
                right=False,
                tones=[NEUTRAL if calm else DOUBT for calm, *_ in rows],
            ),
            Column("in cases", [f"{group['case'].nunique():,}" for *_, group in rows]),
            Column("sum", [f"{int(group['delta'].sum()):,}" for *_, group in rows]),
            Column("most in a case", [f"{int(row['delta']):,}" for row in most]),
            Column("on", [f"{row['host']}/{row['device']}" for row in most], right=False),
            Column("in case", [str(row["case"]).rsplit(" ", 1)[0] for row in most], right=False),
        ),
    )


def claim_blocks(runs: Sequence[ReportRun]) -> Iterator[Block]:
    for run in runs:
        rows = reference.beside(run.tables)
        if rows.empty:
            continue
        yield Table(
            f"{run.label}: what others claim or measured",
            (
                Column("quantity", list(rows["quantity"]), right=False),
                Column("claimed", _claimed(rows)),
                Column("at Gb/s", texts(rows, "rate_gbit_s")),
                Column("measured", texts(rows, "measured")),
                Column("95 %", span(rows["measured_lo"], rows["measured_hi"])),
                toned("verdict", list(rows["verdict"])),
                Column("measured row", [text or "-" for text in rows["row"]], right=False),
                Column("scope of the claim", list(rows["scope"]), right=False),
                Column("source", list(rows["source"]), right=False),
                Column("note", list(rows["note"]), right=False),
            ),
        )
        yield Note(
            "A claim for another link speed, one that is no bound, and what was not measured here "
            "are not judged (-)."
        )


def _claimed(rows: pd.DataFrame) -> list[str]:
    return [f"{row['bound']} {row['claimed']:g}" for row in rows.to_dict("records")]
