"""OSU micro-benchmarks' text, versions 3 to 7: point to point, one-sided, collectives.

Facts of OSU (c/util): `MB/s` is 10^6 bytes; latencies are means, half a round trip in
`osu_latency`; with -f min and max are of the ranks' means, not of iterations; the size of
all_gather, all_to_all, gather and scatter is what one rank sends to one other, that of
reduce_scatter the whole input; the number of ranks is not printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NoReturn

from rdmabench.collector.importers.perftest_rows import above_line_rate
from rdmabench.collector.importers.text import (
    NOTHING,
    Asked,
    Line,
    Number,
    Parsed,
    Source,
    is_number,
    quoted,
    read_count,
    read_number,
    streams,
    value_of,
)
from rdmabench.model import EndpointRef, Imported, ImportedCase, ImportedValue, Outcome
from rdmabench.units import BITS_PER_BYTE, GIGA

MEGA = 1e6
_TITLE = re.compile(
    r"#[ ]OSU[ ](?P<what>\S.*?)[ ](?P<kind>Latency|latency|Bandwidth|Message[ ]Rate)"
    r"(?P<persistent>[ ]Persistent)?[ ]Test(?:[ ]v(?P<version>[0-9][0-9.]*))?\s*"
)
_ACCELERATOR = re.compile(r"-(CUDA|ROCM|OPENACC|MANAGED)\b")
_BUFFERS = re.compile(
    r"# Send Buffer on (?:DEVICE|HOST|MANAGED)\w*(?: MEMORY)? \(([A-Z]+)\) and Receive Buffer on "
    r"(?:DEVICE|HOST|MANAGED)\w*(?: MEMORY)? \(([A-Z]+)\)\s*"
)
_PAIRS = re.compile(r"# \[ pairs: ([0-9]+) \] \[ window size: (\S+) \]\s*")
_DATATYPE = re.compile(r"# Datatype: (\S+?)\.?\s*")
_FIRST = re.compile(r"#[ \t]*(?:Size\b|Overall\(|(?:Avg )?Latency ?\(|Bandwidth ?\(|MB/s)")
_GAP = re.compile(r" {2,}|\t+")
_COLUMN = re.compile(r"([^()]+?) ?\(([^()]*)\)")
_NUMERIC_START = re.compile(r"[-+.]?[0-9]")
_TROUBLE = re.compile(
    r"MPI_ABORT|MPI_Abort|Segmentation fault|mpirun noticed|remote process exited|Fatal error in"
    r"|requires exactly|DATA VALIDATION ERROR"
)
_OPS = {
    "Allreduce": "all_reduce",
    "Allgather": "all_gather",
    "Allgatherv": "all_gatherv",
    "All-to-All": "all_to_all",
    "All-to-All Personalized Exchange": "all_to_all",
    "All-to-Allv Personalized Exchange": "all_to_allv",
    "All-to-Allw Personalized Exchange": "all_to_allw",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Reduce_scatter": "reduce_scatter",
    "Reduce_scatter_block": "reduce_scatter_block",
    "Gather": "gather",
    "Gatherv": "gatherv",
    "Scatter": "scatter",
    "Scatterv": "scatterv",
    "Barrier": "barrier",
}
_ONE_SIDED = {"MPI_Put": "put", "MPI_Get": "get"}
_SIZES_PER_PEER = ("all_gather", "all_to_all", "gather", "scatter")
_NO_SIZE = ("barrier",)
_TAILS = {"P50": "lat_p50", "P90": "lat_p90", "P99": "lat_p99"}
_UNITS = {
    "Size": "",
    "Latency": "us",
    "Avg Latency": "us",
    "Overall": "us",
    "Min Latency": "us",
    "Max Latency": "us",
    "Bandwidth": "MB/s",
    "MB/s": "",
    "Messages/s": "",
    "Iterations": "",
}
_HEADLINES = ("Latency", "Avg Latency", "Overall", "Bandwidth", "MB/s")
_US = 1000.0
_HINT = "an OSU table: `# OSU MPI ... Test vN`, then `# Size ...` and its rows"


@dataclass
class _Test:
    """One benchmark's output while it is read."""

    line: int
    case: ImportedCase
    version: str = ""
    pairs: int = 1
    columns: tuple[str, ...] = ()
    rows: list[tuple[Line, dict[str, str]]] = field(default_factory=list)
    trouble: list[Line] = field(default_factory=list)
    datatype: str = ""
    window: str = ""


def parse(text: str, *, name: str, asked: Asked = NOTHING) -> Parsed:
    """Every row of the text.

    Raises:
        InputError: it is not OSU's, is damaged, or is of a benchmark that is not known here.
    """
    source = Source(name)
    tests = [test for lines in streams(text) for test in _tests(source, lines, asked)]
    if not any(test.rows or test.trouble for test in tests):
        _refuse_foreign(source, text)
    warnings = [
        f"{source.at(test.line)}: this test has no result"
        for test in tests
        if not test.rows and not test.trouble
    ]
    rows = tuple(row for test in tests for row in _imported(source, test, asked))
    return Parsed(rows=rows, warnings=tuple(warnings))


def _tests(source: Source, lines: Iterable[Line], asked: Asked) -> list[_Test]:
    tests: list[_Test] = []
    for line in lines:
        if line.text.startswith("# OSU"):
            tests.append(_begun(source, line, asked))
        elif not tests:
            if len(line.cells) > 1 and all(is_number(cell) for cell in line.cells):
                source.refuse(line.number, "numbers before any title", expected=_HINT)
        elif not _take_row(source, tests[-1], line):
            _take_other(source, tests[-1], line)
    return tests


def _begun(source: Source, line: Line, asked: Asked) -> _Test:
    title = _TITLE.fullmatch(line.text)
    subject = _subject(title["what"], title["kind"]) if title else None
    if title is None or subject is None:
        source.refuse(
            line.number,
            f"a benchmark that is not known here: {quoted(line.text.strip())}",
            expected="a latency, bandwidth or collective test of OSU",
        )
    probe, op, direction = subject
    if asked.op and asked.op != op:
        source.refuse(line.number, f"the text is about {op}", expected=f"{asked.op}, as --op says")
    accelerator = _ACCELERATOR.search(title["what"])
    unknown = source.unknown_end().host
    group = f"{asked.ranks} ranks" if asked.ranks else "all ranks"
    other = group if probe == "collective" else asked.responder or unknown
    case = ImportedCase(
        tool="osu",
        probe=probe,
        op=op,
        initiator=EndpointRef(host=asked.initiator or unknown, device=""),
        responder=EndpointRef(host=other, device=""),
        transport="MPI",
        direction=direction,
        memory=accelerator[1].lower() if accelerator else "host",
        ranks=asked.ranks if probe == "collective" else 2,
        variant="persistent" if title["persistent"] else "",
    )
    return _Test(line=line.number, case=case, version=title["version"] or "")


def _subject(what: str, kind: str) -> tuple[str, str, str] | None:
    """Probe, operation and direction of a title, or None."""
    plain = " ".join(_ACCELERATOR.sub("", what).split())
    one_sided = plain.split(" ")[0]
    if one_sided in _ONE_SIDED:
        bidir = plain.endswith("Bi-directional")
        rest = plain.removeprefix(one_sided).strip()
        probe = "latency" if kind.lower() == "latency" else "bandwidth"
        known = rest in ("", "Bi-directional")
        return (probe, _ONE_SIDED[one_sided], _direction(bidir)) if known else None
    if not plain.startswith("MPI"):
        return None
    rest = plain.removeprefix("MPI").strip()
    if kind == "Latency" and rest not in ("", "Multi"):
        nonblocking = rest.lower().startswith("non-blocking ")
        op = _OPS.get(rest[len("non-blocking ") :] if nonblocking else rest)
        return ("collective", f"i{op}" if nonblocking else op, "one-way") if op else None
    known_pairs = {
        ("Latency", ""): ("latency", "send", "one-way"),
        ("Latency", "Multi"): ("latency", "multi_send", "one-way"),
        ("Bandwidth", ""): ("bandwidth", "send", "one-way"),
        ("Bandwidth", "Bi-Directional"): ("bandwidth", "send", "bidir"),
        ("Message Rate", "Multiple Bandwidth /"): ("bandwidth", "multi_send", "one-way"),
    }
    return known_pairs.get((kind, rest))


def _direction(bidir: bool) -> str:
    return "bidir" if bidir else "one-way"


def _take_other(source: Source, test: _Test, line: Line) -> None:
    text = line.text
    if _FIRST.match(text):
        if test.columns:
            source.refuse(
                line.number, "a second heading under one title", expected="one datatype a test"
            )
        test.columns = _columns(source, line, test)
    elif pairs := _PAIRS.fullmatch(text):
        test.pairs = max(read_count(source, line.number, pairs[1], "pairs"), 1)
        test.window = pairs[2]
    elif buffers := _BUFFERS.fullmatch(text):
        test.case = replace(test.case, memory=f"{test.case.memory} {buffers[1]} {buffers[2]}")
    elif datatype := _DATATYPE.fullmatch(text):
        if test.datatype and test.datatype != datatype[1]:
            source.refuse(line.number, "a second datatype", expected="one datatype a test")
        test.datatype = datatype[1]
    elif _TROUBLE.search(text):
        test.trouble.append(line)


def _columns(source: Source, line: Line, test: _Test) -> tuple[str, ...]:
    found = [
        _checked_column(source, line, heading)
        for heading in _GAP.split(line.text.removeprefix("#").strip())
    ]
    sized = found[0] == "Size"
    headline = any(name in found for name in _HEADLINES)
    if not headline or sized == (test.case.op.removeprefix("i") in _NO_SIZE):
        source.refuse(
            line.number, f"columns {', '.join(found)}", expected="Size and a latency or bandwidth"
        )
    if len(set(found)) != len(found):
        source.refuse(line.number, "a column appears twice", expected="each column once")
    return tuple(found)


def _checked_column(source: Source, line: Line, heading: str) -> str:
    match = _COLUMN.fullmatch(heading)
    name, unit = (match[1], match[2]) if match else (heading, "")
    if name in _UNITS and unit != _UNITS[name]:
        source.refuse(
            line.number, f"{name} in {quoted(unit)}", expected=f"{name} in {_UNITS[name] or '-'}"
        )
    return name if name in _UNITS or not unit else f"{name} ({unit})"


def _take_row(source: Source, test: _Test, line: Line) -> bool:
    cells = line.cells
    if not cells or not _NUMERIC_START.match(cells[0]):
        return False
    if not test.columns:
        source.refuse(line.number, "numbers before the heading", expected=_HINT)
    if not line.whole:
        source.refuse(
            line.number, "the text ends in the middle of a row", expected="a line feed after it"
        )
    if len(cells) != len(test.columns):
        source.refuse(
            line.number,
            f"{len(cells)} cells under {len(test.columns)} headings",
            expected="a cell for each column",
        )
    test.rows.append((line, dict(zip(test.columns, cells, strict=True))))
    return True


def _imported(source: Source, test: _Test, asked: Asked) -> Iterator[Imported]:
    case = replace(
        test.case,
        variant=", ".join(filter(None, (test.case.variant, test.datatype, _multiple(test)))),
        ranks=2 * test.pairs if test.case.op == "multi_send" else test.case.ranks,
    )
    for line, cells in test.rows:
        yield _row(source, line, replace(case), test, cells, asked)
    if test.trouble:
        first = test.trouble[0]
        yield Imported(
            case=case,
            outcome=Outcome.FAILED,
            reason=f"the output says: {ascii(' '.join(first.text.split()))[1:-1][:200]}",
            source=source.at(first.number),
            tool_version=test.version,
        )


def _multiple(test: _Test) -> str:
    return f"{test.pairs} pairs, window {test.window}" if test.window else ""


def _row(
    source: Source,
    line: Line,
    case: ImportedCase,
    test: _Test,
    cells: Mapping[str, str],
    asked: Asked,
) -> Imported:
    validation = cells.get("Validation", "Pass")
    numbers = {
        name: read_number(source, line.number, cell, name)
        for name, cell in cells.items()
        if name != "Validation"
    }
    size = read_count(source, line.number, cells["Size"], "Size") if "Size" in cells else 0
    values, unread = _values(numbers, case)
    reason = "" if validation == "Pass" else f"wrong results: Validation is {quoted(validation)}"
    reason = reason or _impossible(numbers, case, size, test, asked)
    if not reason and not values:
        reason = "every value is 0"
    return Imported(
        case=replace(case, size_bytes=max(size, 0), iterations=_iterations(numbers)),
        outcome=Outcome.FAILED if reason else Outcome.MEASURED,
        reason=reason,
        source=source.at(line.number),
        tool_version=test.version,
        values=values,
        unread=unread,
        remarks=_remarks(case, unread),
    )


def _iterations(numbers: Mapping[str, Number]) -> int:
    number = numbers.get("Iterations")
    return int(number.value) if number and number.is_finite and number.value > 0 else 0


def _values(
    numbers: Mapping[str, Number], case: ImportedCase
) -> tuple[tuple[ImportedValue, ...], dict[str, str]]:
    values, unread = [], {}
    for name, number in numbers.items():
        metric = _metric(name, case)
        positive = number.is_finite and number.value > 0
        if metric and positive:
            values.append(value_of(metric[0], metric[1], number, factor=metric[2], column=name))
        elif name not in ("Size", "Iterations"):
            unread[name] = number.text
    return tuple(values), unread


def _metric(name: str, case: ImportedCase) -> tuple[str, str, float] | None:
    """Metric, unit and factor of a column, or None where it has no metric."""
    total = "_total" if case.op == "multi_send" else ""
    times = "time" if case.probe == "collective" else "lat"
    headline = "time" if case.probe == "collective" else "lat_mean"
    tail = _TAILS.get(name.split(" ")[0]) if name.endswith("Tail Lat (us)") else None
    known = {
        "Latency": (headline, "ns", _US),
        "Avg Latency": (headline, "ns", _US),
        "Overall": (headline, "ns", _US),
        "Min Latency": (f"{times}_rank_min", "ns", _US),
        "Max Latency": (f"{times}_rank_max", "ns", _US),
        "Bandwidth": ("bw", "B/s", MEGA),
        "MB/s": (f"bw{total}", "B/s", MEGA),
        "Messages/s": (f"rate{total}", "1/s", 1.0),
    }
    if tail and case.probe == "latency":
        return (tail, "ns", _US)
    return known.get(name)


def _impossible(
    numbers: Mapping[str, Number], case: ImportedCase, size: int, test: _Test, asked: Asked
) -> str:
    for name, number in numbers.items():
        if not number.is_finite:
            return f"invalid result: {name} is {number.text}"
        if number.value < 0:
            return f"invalid result: negative value ({name} {number.text})"
    total, rate = numbers.get("MB/s"), numbers.get("Messages/s")
    if total and rate and not total.spans(rate, size / MEGA, slack=0.005):
        return f"contradictory: {rate.text} messages/s of {size} B are not {total.text} MB/s"
    order = [numbers[n] for n in ("Min Latency", "Avg Latency", "Max Latency") if n in numbers]
    if any(low.value > high.value for low, high in pairwise(order)):
        said = ", ".join(number.text for number in order)
        return f"contradictory: minimum, mean and maximum do not rise: {said}"
    bandwidth = numbers.get("Bandwidth") or total
    if bandwidth is None:
        return ""
    links = (2 if case.direction == "bidir" else 1) * test.pairs
    rate_gbit_s = bandwidth.value * MEGA * BITS_PER_BYTE / GIGA / links
    return above_line_rate(rate_gbit_s, asked.line_rate_gbit_s) if asked.line_rate_gbit_s else ""


def _remarks(case: ImportedCase, unread: Mapping[str, str]) -> tuple[str, ...]:
    remarks = []
    if case.op.removeprefix("i").rstrip("vw") in _SIZES_PER_PEER:
        remarks.append("the size is what one rank sends to one other, as OSU counts it")
    if "unknown (" in case.pair:
        remarks.append("the ends are not named: --initiator and --responder do")
    if not case.ranks:
        remarks.append("the number of ranks is not told: --ranks N")
    remarks += [f"column {quoted(name)} is not read" for name in unread if name not in _UNITS]
    return tuple(remarks)


def _refuse_foreign(source: Source, text: str) -> NoReturn:
    remedy = ""
    if "#bytes" in text:
        remedy = "this looks like perftest: `rdmabench import perftest FILE`"
    elif "algbw" in text:
        remedy = "this looks like nccl-tests: `rdmabench import nccl-tests FILE`"
    source.refuse(1, "no result of OSU in this text", expected=_HINT, remedy=remedy)
