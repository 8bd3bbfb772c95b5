"""What a person sees after a sweep, of a run, and of a comparison."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

import pandas as pd
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rdmabench.analysis.keys import as_text, uncounted
from rdmabench.analysis.stats import MIN_REPEATS
from rdmabench.analysis.summary import INTERVALS, WORST, summarise
from rdmabench.collector.store import RunDirectory
from rdmabench.collector.tables import NOT_REACHED, Tables
from rdmabench.model import Evidence, Fabric
from rdmabench.report.comparing import comparison
from rdmabench.report.formats import FORMATS, number_text, qps_fields, render, texts
from rdmabench.report.layout import Adaptive, Field, line, table, to_text
from rdmabench.units import size_text

__all__ = [
    "FORMATS",
    "comparison",
    "render",
    "run_details",
    "runs_frame",
    "runs_list",
    "sweep_summary",
    "to_text",
]

_RXE_LINE = (
    "Soft-RoCE proves function, never performance: no limit is applied, and the share of "
    "attainable is of the port's nominal rate."
)
_EVIDENCE_LINES = {
    Evidence.ABSENT.value: (
        "absent: no counter proves that these bytes went over the asked-for fabric."
    ),
    Evidence.FALLBACK.value: (
        "FALLBACK: the counters say that these bytes did not go over the asked-for fabric; "
        "such a row fails acceptance."
    ),
}
CASES_NAMED = 3


def sweep_summary(tables: Tables) -> RenderableType:
    """What a sweep found: latency, bandwidth, and what could not be measured and why."""
    summary = summarise(tables)
    return Adaptive(lambda width: _summary_parts(tables, summary, width))


def _summary_parts(tables: Tables, summary: pd.DataFrame, width: int) -> Iterator[RenderableType]:
    yield line(_heading(tables), "bold")
    makers = {"latency": _latency_fields, "bandwidth": _bandwidth_fields}
    for probe, fields in makers.items():
        rows = summary[summary["probe"] == probe]
        if not rows.empty:
            yield Text()
            yield line(probe.capitalize(), "bold")
            yield table(fields(rows), width)
    yield Text()
    yield from _notes(tables, summary)
    yield from _unmeasured(tables)


def _heading(tables: Tables) -> str:
    cases = tables.cases
    if cases.empty:
        return "no cases"
    counts = cases["outcome"].astype("str").value_counts()
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return f"{cases['run'].iloc[0]}: fabric {cases['fabric'].iloc[0]}, {outcomes}"


def _row_fields(rows: pd.DataFrame) -> list[Field]:
    """What names a row: the operation, the size, the queue pairs where it is not one."""
    return [
        Field("op", list(rows["op"]), right=False),
        Field("variant", list(rows["variant"]), drop=1, right=False, elastic=True),
        Field("size", [size_text(size) for size in rows["size_bytes"]]),
        *qps_fields(rows),
    ]


def _latency_fields(rows: pd.DataFrame) -> list[Field]:
    return [
        *_row_fields(rows),
        Field("p50 us", texts(rows, "lat_p50_us")),
        Field("95 %", _intervaltexts(rows, "latency"), drop=6),
        Field("p99 us", texts(rows, "lat_p99_us")),
        Field("jitter %", _tenths(rows, "jitter_pct")),
        Field("CPU i/r %", _cpu_shares(rows), drop=2),
        *_worst_fields(rows, "latency", "worst us"),
        *_proof_fields(rows),
        Field("samples", [str(count) for count in rows["samples"]], drop=5),
    ]


def _bandwidth_fields(rows: pd.DataFrame) -> list[Field]:
    per_gb = _both(texts(rows, "cpu_initiator_s_per_GB"), texts(rows, "cpu_responder_s_per_GB"))
    return [
        *_row_fields(rows),
        Field("Gb/s", texts(rows, "bw_gbps")),
        Field("95 %", _intervaltexts(rows, "bandwidth"), drop=6),
        Field("attainable %", _tenths(rows, "attainable_pct")),
        Field("Mmsg/s", texts(rows, "rate_mpps"), drop=4),
        Field("CPU i/r %", _cpu_shares(rows), drop=2),
        Field("CPU i/r s/GB", per_gb, drop=7),
        *_worst_fields(rows, "bandwidth", "worst Gb/s"),
        *_proof_fields(rows),
    ]


def _worst_fields(rows: pd.DataFrame, probe: str, heading: str) -> list[Field]:
    return [
        Field(heading, texts(rows, WORST[probe]), drop=3),
        Field("worst pair", list(rows["worst_pair"]), drop=8, right=False),
    ]


def _proof_fields(rows: pd.DataFrame) -> list[Field]:
    shown = [name.upper() if name == Evidence.FALLBACK.value else name for name in rows["evidence"]]
    return [
        Field("evidence", shown, right=False, style=_evidence_style),
        Field("n", [str(count) for count in rows["repeats"]]),
    ]


def _evidence_style(cell: str) -> str:
    return {"FALLBACK": "bold red", "absent": "yellow", "proved": "green"}.get(cell, "")


def _tenths(rows: pd.DataFrame, name: str, digits: int = 1) -> list[str]:
    return ["-" if math.isnan(value) else f"{value:.{digits}f}" for value in rows[name]]


def _cpu_shares(rows: pd.DataFrame) -> list[str]:
    """Initiator and responder, in whole percent of a processor."""
    return _both(_tenths(rows, "cpu_initiator_pct", 0), _tenths(rows, "cpu_responder_pct", 0))


def _both(first: list[str], second: list[str]) -> list[str]:
    return ["-" if (a, b) == ("-", "-") else f"{a}/{b}" for a, b in zip(first, second, strict=True)]


def _intervaltexts(rows: pd.DataFrame, probe: str) -> list[str]:
    lo, hi = INTERVALS[probe]
    return [
        "-" if math.isnan(low) else f"{number_text(low)}..{number_text(high)}"
        for low, high in zip(rows[lo], rows[hi], strict=True)
    ]


def _notes(tables: Tables, summary: pd.DataFrame) -> Iterator[RenderableType]:
    """What a reader must know to read the rows right."""
    if summary.empty:
        yield line("Nothing was measured.", "bold")
        return
    yield line("n is the number of repeats; CPU is that of the initiator / the responder.")
    if (summary["repeats"] < MIN_REPEATS).any():
        yield line(f"No 95 % interval where n is below {MIN_REPEATS}.")
    latency = summary[summary["probe"] == "latency"]
    if latency["lat_p99_us"].isna().any():
        yield line("p99 and jitter want at least 1,000 samples a case.")
    for note in dict.fromkeys(note for note in summary["note"] if note):
        yield line(f"The attainable rate is not known: {note}.")
    for evidence, text in _EVIDENCE_LINES.items():
        if (summary["evidence"] == evidence).any():
            yield line(text, "yellow")
    if Fabric.RXE.value in set(tables.cases["fabric"]):
        yield line(_RXE_LINE, "yellow")


def _unmeasured(tables: Tables) -> Iterator[RenderableType]:
    """Cases without numbers, those of one reason together."""
    cases = uncounted(tables.measurements)
    not_reached = int((tables.cases["outcome"] == NOT_REACHED).sum())
    if len(cases) or not_reached:
        yield Text()
        yield line("Not measured", "bold")
    for (outcome, reason), group in cases.groupby(["outcome", "reason"], sort=False):
        what = f"{len(group)} {outcome}: {' '.join(str(reason).split())}"
        yield line(what, "red" if outcome == "failed" else "")
        yield from _case_lines(str(case).rsplit(" ", 2)[0] for case in group["case"])
    if not_reached:
        run = tables.cases["run"].iloc[0]
        yield line(f"{not_reached} not reached; `rdmabench sweep --resume {run}` goes on.")


def _case_lines(names: Iterable[str]) -> Iterator[RenderableType]:
    """The first few cases, repeats of one together."""
    counts = Counter(names)
    for name, count in list(counts.items())[:CASES_NAMED]:
        yield line(f"    {name}" + (f" ({count} times)" if count > 1 else ""))
    if len(counts) > CASES_NAMED:
        yield line(f"    and {len(counts) - CASES_NAMED} more")


def runs_frame(runs: Iterable[RunDirectory]) -> pd.DataFrame:
    """One row per run, as they come."""
    columns = ["run", "fabric", "plan", "status", "started_at", "user", "control_host"]
    infos = [(run.name, run.info()) for run in runs]
    rows = [[name, *(getattr(info, each) for each in columns[1:])] for name, info in infos]
    return pd.DataFrame(rows, columns=columns, dtype="str")


def runs_list(runs: Iterable[RunDirectory]) -> RenderableType:
    """The runs of a results directory."""
    frame = runs_frame(runs)
    if frame.empty:
        return line("No runs yet; `rdmabench sweep` makes one.")
    fields = [
        Field("run", list(frame["run"]), right=False),
        Field("fabric", list(frame["fabric"]), right=False),
        Field("status", list(frame["status"]), right=False, style=_status_style),
        Field(
            "started (UTC)",
            [text[:19].replace("T", " ") for text in frame["started_at"]],
            drop=2,
            right=False,
        ),
        Field("plan", list(frame["plan"]), drop=4, right=False, elastic=True),
        Field("user", list(frame["user"]), drop=3, right=False),
    ]
    return Adaptive(lambda width: [table(fields, width)])


def _status_style(status: str) -> str:
    return {"done": "green", "running": "cyan"}.get(status, "yellow")


def run_details(run: RunDirectory, tables: Tables) -> RenderableType:
    """One run: who, when, with what, on which nodes and ports, and what was noticed."""
    return Adaptive(lambda width: _detail_parts(run, tables, width))


def _detail_parts(run: RunDirectory, tables: Tables, width: int) -> Iterator[RenderableType]:
    info = run.info()
    facts = {
        "run": run.name,
        "directory": str(run.path),
        "fabric": info.fabric,
        "plan": info.plan,
        "status": info.status,
        "started": info.started_at,
        "ended": info.ended_at or "-",
        "by": f"{info.user} on {info.control_host}",
        "versions": ", ".join(f"{name} {text}" for name, text in info.versions.items()),
        "cases": _heading(tables).partition(", ")[2] or "none",
    }
    grid = Table.grid(padding=(0, 2))
    for name, text in facts.items():
        grid.add_row(line(name), line(text))
    yield grid
    yield Text()
    yield _chosen(
        tables.nodes, width, host=0, kernel=2, machine=5, cpu_count=3, rdma_core=1, python=4
    )
    yield Text()
    yield _chosen(
        tables.endpoints,
        width,
        host=0,
        device=0,
        port=4,
        netdev=5,
        link_layer=3,
        state=0,
        rate_text=1,
        active_mtu_bytes=2,
        gid_type=6,
        firmware=7,
    )
    notices = as_text(tables.events[tables.events["type"] == "Notice"])
    if not notices.empty:
        yield Text()
    for notice in notices.to_dict("records"):
        subject = " ".join(part for part in (notice["host"], notice["device"]) if part)
        yield line(f"{notice['severity']}: {subject + ': ' if subject else ''}{notice['text']}")


def _chosen(frame: pd.DataFrame, width: int, **drops: int) -> RenderableType:
    """Some columns of a table, each with how soon it is dropped."""
    return table(
        [
            Field(name, texts(frame, name), drop=drop, right=_is_number(frame[name]))
            for name, drop in drops.items()
        ],
        width,
    )


def _is_number(values: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(values))
