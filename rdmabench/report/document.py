"""What a report says, section by section; HTML and Markdown only render it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pandas as pd

from rdmabench.analysis.compare import CANNOT_TELL, NO_DIFFERENCE
from rdmabench.analysis.keys import as_text, uncounted
from rdmabench.analysis.stats import MIN_REPEATS
from rdmabench.collector.tables import NOT_REACHED
from rdmabench.errors import InputError
from rdmabench.model import Evidence, Fabric
from rdmabench.report.blocks import (
    DOUBT,
    NEUTRAL,
    Block,
    Column,
    Document,
    Note,
    Section,
    Table,
    VerdictRow,
)
from rdmabench.report.columns import TONES, toned
from rdmabench.report.figures import figures
from rdmabench.report.formats import texts
from rdmabench.report.measured import claim_blocks, counter_blocks, probe_blocks
from rdmabench.report.versus import comparison_blocks
from rdmabench.report.view import ReportRun

_CASES_NAMED = 3
_VERDICT_ORDER = ("FAIL", "INCONCLUSIVE", "NOT TESTED", "PASS")


def document(runs: Sequence[ReportRun], verdicts: Sequence[VerdictRow] = ()) -> Document:
    """The report of these runs; the first is what the others are compared with.

    Raises:
        InputError: no run.
    """
    if not runs:
        raise InputError("a report wants at least one run")
    drawn = figures(runs)
    lead, tone = _lead(runs, verdicts)
    made = (
        Section("runs", "Runs", tuple(_run_blocks(runs))),
        Section("verdict", "Verdict", tuple(_verdict_blocks(verdicts))),
        Section("problems", "What went wrong", tuple(_problem_blocks(runs))),
        Section("comparison", "Comparison", tuple(comparison_blocks(runs))),
        Section("latency", "Latency", tuple(probe_blocks(runs, drawn, "latency"))),
        Section("tail", "Latency tail", tuple(f for f in drawn if f.name.startswith("tail-"))),
        Section("bandwidth", "Bandwidth", tuple(probe_blocks(runs, drawn, "bandwidth"))),
        Section("pairs", "Pairs", tuple(f for f in drawn if f.name.startswith("pairs-"))),
        Section("counters", "Counters", tuple(counter_blocks(runs, drawn))),
        Section("claims", "Measured beside claimed", tuple(claim_blocks(runs))),
        Section("findings", "Findings and notices", tuple(_notice_blocks(runs))),
        Section("environment", "Environment", tuple(_environment_blocks(runs))),
        Section("reading", "How to read this", tuple(_reading())),
    )
    names = ", ".join(run.label for run in runs)
    return Document(
        title=f"rdmabench report: {names}",
        lead=lead,
        tone=tone,
        sections=tuple(section for section in made if section.blocks),
    )


def _lead(runs: Sequence[ReportRun], verdicts: Sequence[VerdictRow]) -> tuple[str, str]:
    """The one sentence that a hurried reader needs."""
    if verdicts:
        counts = Counter(row.verdict for row in verdicts)
        said = ", ".join(f"{counts[name]} {name}" for name in _VERDICT_ORDER if counts[name])
        worst = next((name for name in _VERDICT_ORDER if counts[name]), "NOT TESTED")
        return f"{worst}: {said}", TONES.get(worst, DOUBT)
    troubled = [run for run in runs if _is_troubled(run)]
    measured = sum(int((run.tables.cases["outcome"] == "measured").sum()) for run in runs)
    total = sum(len(run.tables.cases) for run in runs)
    text = f"{measured:,} of {total:,} cases measured; not judged against limits"
    if troubled:
        return f"{text}. Trouble in {', '.join(run.label for run in troubled)}: see below", DOUBT
    return text, NEUTRAL


def _is_troubled(run: ReportRun) -> bool:
    cases = run.tables.cases
    unmeasured = ~cases["outcome"].isin(["measured", "unsupported"])
    fallback = cases["evidence"] == Evidence.FALLBACK.value
    return bool(unmeasured.any() or fallback.any() or run.info.status != "done")


def _run_blocks(runs: Sequence[ReportRun]) -> Iterator[Block]:
    yield _runs_table(runs)
    if any(run.info.fabric == Fabric.RXE.value for run in runs):
        yield Note(
            "Soft-RoCE (rxe) proves function, never performance: its share of the attainable rate "
            "is of the port's nominal rate.",
            DOUBT,
        )


def _runs_table(runs: Sequence[ReportRun]) -> Table:
    infos = [run.info for run in runs]
    rows = [
        Column("run", [run.name for run in runs], right=False),
        Column("fabric", [info.fabric for info in infos], right=False),
        Column("plan", [info.plan for info in infos], right=False),
        toned("status", [info.status for info in infos]),
        Column("nodes", [str(len(run.hosts)) for run in runs]),
        Column("cases", [f"{len(run.tables.cases):,}" for run in runs]),
        Column("started (UTC)", [_time(info.started_at) for info in infos], right=False),
        Column("ended (UTC)", [_time(info.ended_at) for info in infos], right=False),
        Column("by", [_by(info.user, info.control_host) for info in infos], right=False),
        Column("versions", [_versions(run) for run in runs], right=False),
    ]
    return Table("", tuple(rows))


def _by(user: str, host: str) -> str:
    return " on ".join(part for part in (user, host) if part) or "-"


def _time(text: str) -> str:
    return text[:19].replace("T", " ") or "-"


def _versions(run: ReportRun) -> str:
    return ", ".join(f"{name} {text}" for name, text in run.info.versions.items()) or "-"


def _verdict_blocks(verdicts: Sequence[VerdictRow]) -> Iterator[Block]:
    """What failed first, what passed folded away."""
    order = {name: place for place, name in enumerate(_VERDICT_ORDER)}
    ranked = sorted(verdicts, key=lambda row: order.get(row.verdict, -1))
    passed = [row for row in ranked if row.verdict == "PASS"]
    rest = [row for row in ranked if row.verdict != "PASS"]
    if rest:
        yield _verdict_table("Not passed", rest)
    if passed:
        yield _verdict_table("Passed", passed, folded=bool(rest) or len(passed) > 10)


def _verdict_table(caption: str, rows: Sequence[VerdictRow], *, folded: bool = False) -> Table:
    columns = (
        toned("verdict", [row.verdict for row in rows]),
        Column("rule", [row.rule for row in rows], right=False),
        Column("subject", [row.subject for row in rows], right=False),
        Column("measured", [row.value for row in rows]),
        Column("limit", [row.limit for row in rows]),
        Column("why", [row.why for row in rows], right=False),
    )
    return Table(f"{caption} ({len(rows):,})", columns, folded=folded)


def _problem_blocks(runs: Sequence[ReportRun]) -> Iterator[Block]:
    """Cases without numbers by reason, rows that went another way, runs that did not end well."""
    for run in runs:
        if run.info.status not in ("done", "incomplete"):
            yield Note(f"{run.label}: the run is {run.info.status}.", DOUBT)
        cases = uncounted(run.tables.measurements)
        if len(cases):
            yield _unmeasured_table(run, cases)
        not_reached = int((run.tables.cases["outcome"] == NOT_REACHED).sum())
        if not_reached:
            again = f"`rdmabench sweep --resume {run.name}` measures them"
            yield Note(f"{run.label}: {not_reached:,} cases were not reached; {again}.", DOUBT)
        fallback = run.tables.cases[run.tables.cases["evidence"] == Evidence.FALLBACK.value]
        if len(fallback):
            yield _fallback_table(run, as_text(fallback))


def _unmeasured_table(run: ReportRun, cases: pd.DataFrame) -> Table:
    rows = [
        (str(outcome), len(group), str(reason), _some(group["case"]))
        for (outcome, reason), group in cases.groupby(["outcome", "reason"], sort=False)
    ]
    return Table(
        f"{run.label}: {len(cases):,} cases without numbers",
        (
            toned("outcome", [row[0] for row in rows]),
            Column("cases", [f"{row[1]:,}" for row in rows]),
            Column("reason", [row[2] for row in rows], right=False),
            Column("which", [row[3] for row in rows], right=False),
        ),
    )


def _fallback_table(run: ReportRun, cases: pd.DataFrame) -> Table:
    groups = list(cases.groupby("evidence_note", sort=False))
    return Table(
        f"{run.label}: {len(cases):,} cases did not go over {run.info.fabric}",
        (
            Column("cases", [f"{len(group):,}" for _, group in groups]),
            Column("what the counters say", [str(note) for note, _ in groups], right=False),
            Column("which", [_some(group["case"]) for _, group in groups], right=False),
        ),
    )


def _some(cases: pd.Series) -> str:
    """A few names of cases, repeats of one together."""
    names = list(dict.fromkeys(str(case).rsplit(" ", 2)[0] for case in cases))
    more = f" and {len(names) - _CASES_NAMED} more" if len(names) > _CASES_NAMED else ""
    return ", ".join(names[:_CASES_NAMED]) + more


def _notice_blocks(runs: Sequence[ReportRun]) -> Iterator[Block]:
    rank = {"error": 0, "warning": 1}
    for run in runs:
        notices = as_text(run.tables.events[run.tables.events["type"] == "Notice"])
        if notices.empty:
            continue
        order = notices["severity"].map(lambda severity: rank.get(severity, 2))
        rows = notices.assign(order=order).sort_values(["order", "at"], kind="stable")
        yield Table(
            f"{run.label}: notices ({len(rows):,})",
            (
                toned("severity", list(rows["severity"])),
                Column("host", list(rows["host"]), right=False),
                Column("device", list(rows["device"]), right=False),
                Column("what", list(rows["text"]), right=False),
                Column("what to do", list(rows["remedy"]), right=False),
            ),
        )


_NODE_COLUMNS = (
    *("host", "hostname", "kernel", "machine", "cpu_model", "cpu_count", "python"),
    *("pyverbs", "rdma_core", "clock"),
)
_ENDPOINT_COLUMNS = (
    *("host", "device", "port", "rail", "netdev", "address", "link_layer", "state", "rate_text"),
    *("active_mtu_bytes", "gid_index", "gid_type", "lid", "driver", "firmware", "numa_node"),
)


_HEADINGS = {
    "cpu_model": "processor",
    "cpu_count": "CPUs",
    "rdma_core": "rdma-core",
    "link_layer": "link layer",
    "rate_text": "rate",
    "active_mtu_bytes": "MTU (B)",
    "gid_index": "GID",
    "gid_type": "GID type",
    "lid": "LID",
    "numa_node": "NUMA",
}


def _environment_blocks(runs: Sequence[ReportRun]) -> Iterator[Block]:
    for run in runs:
        for what, frame, names in (
            ("nodes", run.tables.nodes, _NODE_COLUMNS),
            ("endpoints", run.tables.endpoints, _ENDPOINT_COLUMNS),
        ):
            if frame.empty:
                continue
            columns = tuple(
                Column(
                    _HEADINGS.get(name, name),
                    texts(frame, name),
                    right=pd.api.types.is_numeric_dtype(frame[name]),
                )
                for name in names
            )
            yield Table(f"{run.label}: {what} ({len(frame):,})", columns, folded=True)


def _reading() -> Iterator[Block]:
    yield Note(
        "The unit of inference is the repeat: a value is the median over repeats of the median "
        f"over pairs, an interval holds 95 % and wants at least {MIN_REPEATS} repeats."
    )
    yield Note(
        "Latency of send and write is half the round trip, of read the full time from post to "
        "completion. jitter = 100 (p99 - p50) / p50; cv = 100 stdev / mean. Rates are payload "
        "only; Gb/s is 10^9 bits per second. CPU is that of the initiator / the responder."
    )
    yield Note(
        "Evidence: proved where counters show that the bytes went over the asked-for fabric, "
        "fallback where they show the contrary, absent (or *) where nothing shows either."
    )
    yield Note(
        f"{NO_DIFFERENCE}: the interval of the ratio spans 1. {CANNOT_TELL}: too few repeats. "
        "n is repeats x pairs, in a comparison the repeats of the two runs."
    )
