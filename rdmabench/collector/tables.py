"""The journal as tidy tables: built from it, kept as Parquet, built again when it has grown."""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rdmabench import wire
from rdmabench.collector import journal
from rdmabench.collector.files import make_directory, replace_atomically, storing
from rdmabench.collector.rows import (
    RecordRows,
    Row,
    case_columns,
    imported_columns,
    imported_rows,
    record_rows,
)
from rdmabench.collector.schema import METRICS, TABLES, VERSION, schema, typed
from rdmabench.collector.store import RunDirectory
from rdmabench.errors import InputError, StorageError
from rdmabench.model import (
    Case,
    Endpoint,
    Imported,
    ImportedCase,
    ImportStarted,
    NodeFacts,
    Notice,
    Record,
    RunEnded,
    RunStarted,
)
from rdmabench.wire import Envelope

__all__ = ["FORMATS", "Tables", "build", "export", "load", "schema", "write"]

log = logging.getLogger(__name__)

FORMATS = ("csv", "parquet", "json")
NOT_REACHED = "not reached"
_BUILT_NAME = "built.json"


@dataclass(frozen=True)
class Tables:
    """Every table of one run; columns, types and units are in `schema()`."""

    nodes: pd.DataFrame
    endpoints: pd.DataFrame
    cases: pd.DataFrame
    measurements: pd.DataFrame
    latency: pd.DataFrame
    counters: pd.DataFrame
    events: pd.DataFrame

    def named(self) -> dict[str, pd.DataFrame]:
        """The tables by name, in the order of the schema."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def build(run: RunDirectory) -> Tables:
    """The tables of the run's journal as it is now.

    Raises:
        InputError: the directory has no journal.
        StorageError: the journal cannot be read.
    """
    envelopes = journal.read(run.path)
    bodies = [envelope.body for envelope in envelopes]
    records = [body for body in bodies if isinstance(body, (Record, Imported))]
    rows = _all_record_rows(run, records)
    common = _common_columns(run, bodies)
    frames = {
        "nodes": pd.DataFrame(_latest(bodies, NodeFacts, key=("host",))),
        "endpoints": pd.DataFrame(_latest(bodies, Endpoint, key=("host", "device", "port"))),
        "cases": pd.DataFrame(_case_rows(bodies, rows)),
        "measurements": _measurements(rows),
        "latency": pd.DataFrame([row.columns | row.latency for row in rows if row.latency]),
        "counters": pd.DataFrame([counter for row in rows for counter in row.counters]),
        "events": pd.DataFrame(_event_rows(envelopes)),
    }
    return Tables(**{name: typed(name, frame.assign(**common)) for name, frame in frames.items()})


def write(run: RunDirectory, tables: Tables) -> None:
    """Keeps the tables as Parquet; a reader sees each file whole, old or new.

    Raises:
        StorageError: they cannot be written.
    """
    _write(run, tables, journal_bytes=_journal_bytes(run))


def _write(run: RunDirectory, tables: Tables, *, journal_bytes: int) -> None:
    make_directory(run.tables)
    with storing(run.tables):
        (run.tables / _BUILT_NAME).unlink(missing_ok=True)
    for name, frame in tables.named().items():
        replace_atomically(run.tables / f"{name}.parquet", _parquet(frame))
    built = {"journal_bytes": journal_bytes, "schema": VERSION}
    replace_atomically(run.tables / _BUILT_NAME, json.dumps(built).encode())


def load(run: RunDirectory) -> Tables:
    """The run's tables: the kept ones where they are of the whole journal, else built and kept.

    Raises:
        InputError: the directory has no journal.
        StorageError: the journal cannot be read.
    """
    journal_bytes = _journal_bytes(run)
    if _is_current(run, journal_bytes):
        try:
            return _read(run)
        except (OSError, ValueError) as exc:  # pyarrow's errors are of these two kinds
            log.warning("%s: tables are built again: %s", run.tables, exc)
    tables = build(run)
    try:
        _write(run, tables, journal_bytes=journal_bytes)
    except StorageError as exc:
        log.warning("the tables are not kept: %s", exc)
    return tables


def export(tables: Tables, fmt: str, out: Path) -> tuple[Path, ...]:
    """Writes each table as `out/NAME.FMT`, and says which files that made.

    Raises:
        InputError: an unknown format.
        StorageError: they cannot be written.
    """
    if fmt not in FORMATS:
        raise InputError(f"unknown format {fmt!r}", remedy=", ".join(FORMATS))
    make_directory(out)
    paths = []
    for name, frame in tables.named().items():
        path = out / f"{name}.{fmt}"
        replace_atomically(path, _exported(frame, fmt))
        paths.append(path)
    return tuple(paths)


def _exported(frame: pd.DataFrame, fmt: str) -> bytes:
    if fmt == "parquet":
        return _parquet(frame)
    if fmt == "csv":
        return frame.to_csv(index=False).encode()
    return (frame.to_json(orient="records", date_format="iso") + "\n").encode()


def _all_record_rows(run: RunDirectory, records: Iterable[Record | Imported]) -> list[RecordRows]:
    attempts: Counter[str] = Counter()
    rows = []
    for record in records:
        attempt = attempts[record.case.id]
        if isinstance(record, Imported):
            rows.append(imported_rows(record, attempt=attempt))
        else:
            rows.append(record_rows(run, record, attempt=attempt))
        attempts[record.case.id] += 1
    for row in rows:
        last = attempts[row.columns["case"]] - 1
        row.columns["superseded"] = row.columns["attempt"] < last
    return rows


def _common_columns(run: RunDirectory, bodies: Iterable[Any]) -> Row:
    started = [body for body in bodies if isinstance(body, (RunStarted, ImportStarted))]
    fabric = str(wire.to_plain(started[-1].fabric)) if started else run.info().fabric
    return {"run": run.name, "fabric": fabric}


def _latest(
    bodies: Iterable[Any], kind: type[NodeFacts] | type[Endpoint], *, key: tuple[str, ...]
) -> list[Row]:
    """Facts of a kind, the latest of each subject: a resumed run finds them anew."""
    rows = [asdict(body) for body in bodies if isinstance(body, kind)]
    return list({tuple(row[name] for name in key): row for row in rows}.values())


def _case_rows(bodies: Iterable[Any], rows: Iterable[RecordRows]) -> list[Row]:
    ended: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        ended[row.columns["case"]].append(row.columns)
    cases: dict[str, Row] = {}
    for body in bodies:
        case = body.case if isinstance(body, (Record, Imported)) else body
        if isinstance(case, Case):
            cases[case.id] = case_columns(case)
        elif isinstance(case, ImportedCase):
            cases[case.id] = imported_columns(case)
    unreached = {"outcome": NOT_REACHED, "reason": "", "evidence": "", "evidence_note": ""}
    names = tuple(unreached)
    return [
        case
        | ({name: ended[key][-1][name] for name in names} if key in ended else unreached)
        | {"attempts": len(ended.get(key, ()))}
        for key, case in cases.items()
    ]


def _measurements(rows: list[RecordRows]) -> pd.DataFrame:
    """One row per value, and one without a value per record that has none."""
    records = pd.DataFrame([row.columns for row in rows])
    long = [
        (index, metric, value)
        for index, row in enumerate(rows)
        for metric, value in (row.values.items() or [(None, float("nan"))])
    ]
    values = pd.DataFrame(long, columns=["record", "metric", "value"])
    units = {name: metric.unit for name, metric in METRICS.items()}
    repeated = records.iloc[values["record"].to_numpy(dtype="int64")].reset_index(drop=True)
    return repeated.assign(
        metric=values["metric"], value=values["value"], unit=values["metric"].map(units)
    )


def _event_rows(envelopes: Iterable[Envelope]) -> list[Row]:
    return [
        {"at": envelope.at, "type": type(envelope.body).__name__, **_event_columns(envelope.body)}
        for envelope in envelopes
        if isinstance(envelope.body, (RunStarted, ImportStarted, Notice, RunEnded))
    ]


def _event_columns(event: RunStarted | ImportStarted | Notice | RunEnded) -> Row:
    if isinstance(event, Notice):
        return asdict(event)
    quiet = {"severity": "info", "host": "", "device": "", "remedy": ""}
    if isinstance(event, RunStarted):
        verb = "resumed" if event.resumed else "started"
        text = f"{verb}: plan {event.plan} on {len(event.hosts)} hosts"
        return {**quiet, "text": text}
    if isinstance(event, ImportStarted):
        names = ", ".join(each.name for each in event.files)
        return {**quiet, "text": f"imported: {event.tool} output from {names}"}
    text = (
        f"{event.status}: {event.measured} measured, {event.failed} failed, "
        f"{event.unsupported} unsupported, {event.skipped} skipped"
    )
    return {**quiet, "text": text}


def _journal_bytes(run: RunDirectory) -> int:
    """The journal's size, which tells its content, since it only grows; -1 where it is absent."""
    try:
        return run.journal.stat().st_size
    except FileNotFoundError:
        return -1


def _is_current(run: RunDirectory, journal_bytes: int) -> bool:
    """Whether the kept tables are of these columns and of this whole journal."""
    try:
        built = json.loads((run.tables / _BUILT_NAME).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(built == {"journal_bytes": journal_bytes, "schema": VERSION})


def _parquet(frame: pd.DataFrame) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), sink, compression="zstd")
    return bytes(sink.getvalue())


def _read(run: RunDirectory) -> Tables:
    return Tables(
        **{name: typed(name, pd.read_parquet(run.tables / f"{name}.parquet")) for name in TABLES}
    )
