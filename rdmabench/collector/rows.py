"""One record of the journal as rows: its columns, its values, its counters."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rdmabench.collector.quantiles import latency_statistics
from rdmabench.collector.schema import METRICS
from rdmabench.collector.store import RunDirectory
from rdmabench.errors import StorageError
from rdmabench.model import (
    Case,
    EndpointRef,
    Evidence,
    Imported,
    ImportedCase,
    LinkFacts,
    Outcome,
    Record,
    Role,
    Samples,
    SideReport,
)
from rdmabench.units import GIGA, NS_PER_S

log = logging.getLogger(__name__)

Row = dict[str, Any]
_WRAP = 1 << 64
_NO_PROOF = "imported text proves no path"
_PARAMETERS = (
    "probe",
    "op",
    "transport",
    "size_bytes",
    "qps",
    "depth",
    "cq_moderation",
    "inline_bytes",
    "completion",
    "direction",
    "loop",
    "memory",
    "iterations",
    "warmup",
)


@dataclass(frozen=True)
class RecordRows:
    """What one record adds to the tables; `latency` is empty where it has no samples."""

    columns: Row
    values: dict[str, float] = field(default_factory=dict)
    latency: Row = field(default_factory=dict)
    counters: tuple[Row, ...] = ()


class UnusableError(StorageError):
    """A record that says it was measured, and whose numbers cannot be used."""


def record_rows(run: RunDirectory, record: Record, *, attempt: int) -> RecordRows:
    """Everything of one record; numbers that cannot be used make it a failed one, with why."""
    columns = _record_columns(record, attempt=attempt)
    counters = tuple(_counter_rows(record, attempt=attempt))
    initiator, responder = record.initiator, record.responder
    if record.outcome is not Outcome.MEASURED or initiator is None or responder is None:
        return RecordRows(columns=columns, counters=counters)
    try:
        latency = _latency(run, record, initiator.samples or responder.samples)
        values = (
            {_metric_name(name): value for name, value in latency.items() if name != "samples"}
            | _bandwidth(record, initiator)
            | _cpu(record, initiator, responder)
        )
    except StorageError as exc:
        log.warning("%s: %s", record.case.id, exc)
        failed = columns | {"outcome": Outcome.FAILED.value, "reason": exc.what}
        return RecordRows(columns=failed, counters=counters)
    return RecordRows(columns=columns, values=values, latency=latency, counters=counters)


def imported_rows(imported: Imported, *, attempt: int) -> RecordRows:
    """Everything of one imported row; its numbers count only where it is a measured one."""
    columns = {
        **imported_columns(imported.case),
        "outcome": imported.outcome.value,
        "reason": imported.reason,
        "evidence": Evidence.ABSENT.value,
        "evidence_note": "; ".join((_NO_PROOF, *imported.remarks)),
        "attempt": attempt,
        "started_at": "",
        **_link_columns(imported.link),
        "clock": "",
        "clock_cost_ns": 0.0,
        "inline_used_bytes": imported.case.inline_bytes,
        "source": imported.source,
        "tool_version": imported.tool_version,
    }
    measured = imported.outcome is Outcome.MEASURED
    values = {each.metric: each.value for each in imported.values if each.metric in METRICS}
    return RecordRows(columns=columns, values=values if measured else {})


def imported_columns(case: ImportedCase) -> Row:
    """As `case_columns`; the engine is the tool that the text is from."""
    return {
        "case": case.id,
        "pair": case.pair,
        **_end_columns(case.initiator, case.responder),
        **{name: getattr(case, name) for name in _PARAMETERS},
        "engine": case.tool,
        "ranks": case.ranks,
        "variant": case.variant,
        "repeat": case.repeat,
        "round": 0,
    }


def _metric_name(latency_column: str) -> str:
    """`lat_p50` for `p50_ns`, `lat_n` for `n`; percentages keep their name."""
    if latency_column in METRICS:
        return latency_column
    return f"lat_{latency_column.removesuffix('_ns')}"


def case_columns(case: Case) -> Row:
    """Who takes part in a case, and with which parameters."""
    parameters = case.parameters
    return {
        "case": case.id,
        "pair": f"{case.initiator.label}>{case.responder.label}",
        **_end_columns(case.initiator, case.responder),
        **{name: getattr(parameters, name) for name in _PARAMETERS},
        "engine": parameters.engine,
        "ranks": 2,
        "variant": "",
        "repeat": case.repeat,
        "round": case.round,
    }


def _end_columns(initiator: EndpointRef, responder: EndpointRef) -> Row:
    return {
        "initiator_host": initiator.host,
        "initiator_device": initiator.device,
        "initiator_port": initiator.port,
        "rail": initiator.rail,
        "responder_host": responder.host,
        "responder_device": responder.device,
        "responder_port": responder.port,
        "responder_rail": responder.rail,
    }


def _link_columns(link: LinkFacts) -> Row:
    return {
        "mtu_bytes": link.mtu_bytes,
        "traffic_class": link.traffic_class,
        "initiator_gid_index": link.initiator_gid_index,
        "responder_gid_index": link.responder_gid_index,
        "gid_type": link.gid_type,
        "timeout": link.timeout,
        "retry_cnt": link.retry_cnt,
    }


def _record_columns(record: Record, *, attempt: int) -> Row:
    initiator = record.initiator
    return {
        **case_columns(record.case),
        "outcome": record.outcome.value,
        "reason": record.reason,
        "evidence": record.evidence.value,
        "evidence_note": record.evidence_note,
        "attempt": attempt,
        "started_at": record.started_at,
        **_link_columns(record.link),
        "clock": initiator.clock if initiator else "",
        "clock_cost_ns": initiator.clock_cost_ns if initiator else 0.0,
        "inline_used_bytes": initiator.inline_bytes if initiator else 0,
        "source": "",
        "tool_version": "",
    }


def _latency(run: RunDirectory, record: Record, samples: Samples | None) -> Row:
    if samples is None:
        if record.case.parameters.probe == "latency":
            raise UnusableError("the record has no samples")
        return {}
    if samples.kind not in ("rtt", "completion") or samples.count < 1:
        raise UnusableError(f"{samples.count} samples of kind {samples.kind!r} are not a latency")
    statistics = latency_statistics(run.load_samples(samples), samples.kind)
    return {**statistics.columns(), "samples": samples.path}


def _bandwidth(record: Record, initiator: SideReport) -> dict[str, float]:
    """Payload and messages over the time from the first post to the last completion."""
    if record.case.parameters.probe != "bandwidth":
        return {}
    if initiator.elapsed_ns < 1 or initiator.payload_bytes < 1:
        raise UnusableError(
            f"{initiator.payload_bytes} bytes in {initiator.elapsed_ns} ns are not a bandwidth"
        )
    values = {
        "bw": initiator.payload_bytes * NS_PER_S / initiator.elapsed_ns,
        "rate": initiator.message_count * NS_PER_S / initiator.elapsed_ns,
    }
    per_qp = initiator.payload_bytes_per_qp
    if len(per_qp) > 1 and sum(per_qp) > 0:
        values["qp_spread_pct"] = 100 * (max(per_qp) - min(per_qp)) * len(per_qp) / sum(per_qp)
    return values


def _cpu(record: Record, initiator: SideReport, responder: SideReport) -> dict[str, float]:
    """Per side: CPU over wall time in percent, and CPU seconds per GB that the initiator moved."""
    values: dict[str, float] = {}
    moved = initiator.payload_bytes if record.case.parameters.probe == "bandwidth" else 0
    for side in (initiator, responder):
        if side.wall_ns > 0:
            values[f"cpu_{side.role.value}_pct"] = 100 * side.cpu_ns / side.wall_ns
        if moved > 0:
            values[f"cpu_{side.role.value}"] = (side.cpu_ns / NS_PER_S) / (moved / GIGA)
    return values


def _counter_rows(record: Record, *, attempt: int) -> Iterator[Row]:
    sides: tuple[tuple[SideReport | None, EndpointRef, Role], ...] = (
        (record.initiator, record.case.initiator, Role.INITIATOR),
        (record.responder, record.case.responder, Role.RESPONDER),
    )
    for report, endpoint, role in sides:
        if report is None:
            continue
        later = report.counters_after.values
        for name, before in report.counters_before.values.items():
            if name in later:
                yield {
                    "case": record.case.id,
                    "attempt": attempt,
                    "host": endpoint.host,
                    "device": endpoint.device,
                    "port": endpoint.port,
                    "role": role.value,
                    "counter": name,
                    "before": before % _WRAP,
                    "after": later[name] % _WRAP,
                    "delta": _signed(later[name] - before),
                }


def _signed(difference: int) -> int:
    """The difference of two counters that wrap at 2^64."""
    return (difference + _WRAP // 2) % _WRAP - _WRAP // 2
