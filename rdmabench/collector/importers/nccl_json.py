"""nccl-tests' `-J FILE` (versions 1 to 3): microseconds and 10^9 bytes per second, as in its text.

Its `env` holds every variable of the process, secrets too: nothing of it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rdmabench.collector.importers import documents
from rdmabench.collector.importers.nccl_rows import (
    ALGBW,
    BUSBW,
    OPS,
    TIME,
    WRONG,
    TableRow,
    Test,
    imported,
)
from rdmabench.collector.importers.nccl_tests import PROGRAM
from rdmabench.collector.importers.text import NOTHING, Asked, Parsed, Source, quoted, read_count

_VERSIONS = ("1", "2", "3")
_PLACES = ("out_of_place", "in_place")
_KEYS = {"time": TIME, "cpu_time": "cputime", "alg_bw": ALGBW, "bus_bw": BUSBW, "nwrong": WRONG}
_PER_ITERATION = {"min_us": "i_min", "max_us": "i_max", "p99_us": "i_p99", "cv_pct": "i_cv%"}
_WHAT = "what nccl-tests writes with -J"


def parse(text: str, *, name: str, asked: Asked = NOTHING) -> Parsed:
    """Every row of the documents.

    Raises:
        InputError: it is not nccl-tests', is damaged, or is of a version that is not known.
    """
    source = Source(name)
    rows = []
    facts: dict[str, str] = {}
    for document in documents.objects(source, documents.load(source, text)):
        test = _test(source, document, asked)
        rows += imported(source, test, asked)
        facts |= _average(source, document)
    return Parsed(rows=tuple(rows), facts=facts)


def _test(source: Source, document: Mapping[str, Any], asked: Asked) -> Test:
    version = documents.text_of(source, document, "version")
    if version not in _VERSIONS:
        source.refuse(1, f"version {quoted(version)}", expected=f"version {', '.join(_VERSIONS)}")
    config = documents.part(source, document, "config")
    devices = _list(source, config, "devices")
    results = _list(source, document, "results")
    if not results:
        source.refuse(1, "no results", expected=_WHAT)
    library = documents.text_of(source, document, "nccl_version")
    groups = {documents.text_of(source, each, "group") for each in devices}
    return Test(
        line=1,
        op=_op(source, document, asked),
        version=f"NCCL {library}" if library else "",
        hosts=[documents.text_of(source, each, "hostname") for each in devices],
        ranks=len(devices) // len(groups) if groups else 0,
        iterations=_count(source, config, "iterations"),
        warmup=_count(source, config, "warmup_iters"),
        rows=[_row(source, each) for each in results],
        out_of_bounds=_out_of_bounds(source, document),
    )


def _count(source: Source, document: Mapping[str, Any], key: str) -> int:
    text = documents.text_of(source, document, key)
    return max(read_count(source, 1, text, key), 0) if text else 0


def _list(source: Source, document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = document.get(key)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        source.refuse(1, f"no list of objects {quoted(key)}", expected=_WHAT)
    return found


def _op(source: Source, document: Mapping[str, Any], asked: Asked) -> str:
    args = document.get("args")
    program = args[0] if isinstance(args, list) and args and isinstance(args[0], str) else ""
    found = PROGRAM.search(program)
    op = OPS[found[1]] if found else asked.op
    if not op or (asked.op and op != asked.op):
        source.refuse(
            1,
            f"the program is {quoted(program)}",
            expected=f"{asked.op or 'NAME_perf'} in args",
            remedy="" if asked.op else "--op all_reduce (or all_gather ...)",
        )
    return op


def _row(source: Source, result: Mapping[str, Any]) -> TableRow:
    return TableRow(
        line=1,
        size=documents.text_of(source, result, "size"),
        type=documents.text_of(source, result, "type"),
        redop=documents.text_of(source, result, "redop"),
        root=documents.text_of(source, result, "root"),
        cells=tuple(_place(source, result, name) for name in _PLACES),
    )


def _place(source: Source, result: Mapping[str, Any], name: str) -> dict[str, str]:
    if result.get(name) is None:
        return {}
    found = documents.part(source, result, name)
    unknown = set(found) - set(_KEYS)
    if unknown or "alg_bw" not in found or "bus_bw" not in found:
        keys = ", ".join(quoted(key) for key in sorted(found))
        source.refuse(1, f"{name} has {keys}", expected=", ".join(_KEYS))
    cells = {column: documents.text_of(source, found, key) for key, column in _KEYS.items()}
    if result.get(f"{name}_per_iter") is not None:
        times = documents.part(source, result, f"{name}_per_iter")
        cells |= {c: documents.text_of(source, times, k) for k, c in _PER_ITERATION.items()}
    return {column: cell for column, cell in cells.items() if cell}


def _out_of_bounds(source: Source, document: Mapping[str, Any]) -> str:
    """Empty where the test did not come to its end."""
    if document.get("out_of_bounds") is None:
        return ""
    found = documents.part(source, document, "out_of_bounds")
    return documents.text_of(source, found, "count")


def _average(source: Source, document: Mapping[str, Any]) -> dict[str, str]:
    """Its first version misspelled both keys."""
    for outer, inner in (
        ("average_bus_bandwidth", "bandwidth"),
        ("average_bus_bandwidith", "bandwidith"),
    ):
        if document.get(outer) is not None:
            found = documents.part(source, document, outer)
            return {"Avg bus bandwidth": documents.text_of(source, found, inner)}
    return {}
