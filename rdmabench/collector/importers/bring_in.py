"""Files of another tool as one run: read each, refuse the bad ones, journal the rest.

A file is taken as a whole or not at all, and one that is refused spoils none of the others.
"""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rdmabench import __version__
from rdmabench.collector.importers import (
    documents,
    nccl_json,
    nccl_tests,
    osu,
    perftest,
    perftest_json,
)
from rdmabench.collector.importers.text import MAX_BYTES, Asked, Parsed
from rdmabench.collector.journal import Journal
from rdmabench.collector.store import RunDirectory
from rdmabench.errors import InputError
from rdmabench.model import (
    Fabric,
    Imported,
    ImportedCase,
    ImportedFile,
    ImportStarted,
    Notice,
    Outcome,
    RunEnded,
)

PERFTEST, NCCL_TESTS, OSU = TOOLS = ("perftest", "nccl-tests", "osu")


@dataclass(frozen=True)
class BroughtIn:
    """What came of it; without a run nothing could be read."""

    run: RunDirectory | None
    rows: tuple[Imported, ...]
    refused: tuple[InputError, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Taken:
    """One file that was read."""

    file: ImportedFile
    parsed: Parsed


def bring_in(
    paths: Sequence[Path], *, tool: str, results: Path, asked: Asked, fabric: Fabric | None = None
) -> BroughtIn:
    """Makes one run of the files.

    Raises:
        InputError: the files are of two fabrics, and nobody says which one is meant.
        StorageError: the run cannot be written.
    """
    taken, refused = _read_all(paths, tool, asked)
    rows = _repeated(row for each in taken for row in each.parsed.rows)
    warnings = tuple(warning for each in taken for warning in each.parsed.warnings)
    if not rows:
        return BroughtIn(run=None, rows=(), refused=refused, warnings=warnings)
    chosen = fabric or _fabric(taken)
    run = RunDirectory.create(results, chosen, tool)
    _write(run, tool, chosen, taken, rows, refused)
    return BroughtIn(run=run, rows=rows, refused=refused, warnings=warnings)


def parse(text: str, *, tool: str, name: str, asked: Asked) -> Parsed:
    """The rows of one text of a tool, JSON or not.

    Raises:
        InputError: the text is refused.
    """
    is_json = documents.is_json(text)
    parsers: dict[str, Callable[..., Parsed]] = {
        PERFTEST: perftest_json.parse if is_json else perftest.parse,
        NCCL_TESTS: nccl_json.parse if is_json else nccl_tests.parse,
        OSU: osu.parse,
    }
    return parsers[tool](text, name=name, asked=asked)


def _read_all(
    paths: Sequence[Path], tool: str, asked: Asked
) -> tuple[list[_Taken], tuple[InputError, ...]]:
    taken: list[_Taken] = []
    refused: list[InputError] = []
    seen: dict[str, str] = {}
    for path in paths:
        try:
            taken.append(_read(path, tool, asked, seen))
        except InputError as exc:
            refused.append(exc)
    return taken, tuple(refused)


def _read(path: Path, tool: str, asked: Asked, seen: dict[str, str]) -> _Taken:
    data = _bytes_of(path)
    digest = hashlib.sha256(data).hexdigest()
    if digest in seen:
        raise InputError(f"{path}: the same bytes as {seen[digest]}; expected another measurement")
    parsed = parse(_text_of(path, data), tool=tool, name=str(path), asked=asked)
    seen[digest] = str(path)
    return _Taken(ImportedFile(str(path), digest, len(data)), parsed)


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise InputError(f"{path}: {exc.strerror or exc}; expected a readable file") from exc
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB; expected one tool's output")
    return data


def _text_of(path: Path, data: bytes) -> str:
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise InputError(f"{path}:{line}: a NUL byte; expected text")
    return data.decode(errors="replace")


def _repeated(rows: Iterable[Imported]) -> tuple[Imported, ...]:
    """Rows of one measurement are its repeats, in the order of the files."""
    counts: Counter[ImportedCase] = Counter()
    found = []
    for row in rows:
        found.append(replace(row, case=replace(row.case, repeat=counts[row.case])))
        counts[row.case] += 1
    return tuple(found)


def _fabric(taken: Iterable[_Taken]) -> Fabric | None:
    names = sorted({name for each in taken for name in each.parsed.fabrics})
    if len(names) > 1:
        raise InputError(
            f"the files are of the fabrics {' and '.join(names)}; expected one for a run",
            remedy="import them one fabric at a time, or say which with --fabric",
        )
    return Fabric(names[0]) if names else None


def _write(
    run: RunDirectory,
    tool: str,
    fabric: Fabric | None,
    taken: Sequence[_Taken],
    rows: Sequence[Imported],
    refused: Sequence[InputError],
) -> None:
    info = run.info()
    outcomes = Counter(row.outcome for row in rows)
    status = "incomplete" if refused or outcomes[Outcome.FAILED] else "done"
    started = ImportStarted(
        run=run.name,
        tool=tool,
        fabric=fabric.value if fabric else "",
        version=__version__,
        started_at=info.started_at,
        user=info.user,
        control_host=info.control_host or platform.node(),
        files=tuple(each.file for each in taken),
    )
    with Journal.create(run.path) as kept:
        kept.append_all(
            (
                started,
                *rows,
                *(_notice("error", error.brief, error.remedy) for error in refused),
                *(
                    _notice("warning", warning)
                    for each in taken
                    for warning in each.parsed.warnings
                ),
                *(
                    _notice("info", f"{each.file.name}: {name}: {value}")
                    for each in taken
                    for name, value in each.parsed.facts.items()
                ),
                RunEnded(
                    status=status,
                    measured=outcomes[Outcome.MEASURED],
                    failed=outcomes[Outcome.FAILED],
                    skipped=outcomes[Outcome.SKIPPED],
                ),
            )
        )
    run.set_status(status)


def _notice(severity: str, text: str, remedy: str = "") -> Notice:
    return Notice(severity=severity, text=text, remedy=remedy)
