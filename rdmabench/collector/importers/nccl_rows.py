"""One line of nccl-tests, of text and of JSON alike: what it says, and what cannot be true.

`algbw` is size / time, but for all_gather and reduce_scatter before June 2020 (nccl-tests ec1b5e2),
where it already had (n-1)/n and equalled busbw. `busbw` and time mean the same in all versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rdmabench.collector.importers.text import (
    Asked,
    Number,
    Source,
    read_count,
    read_number,
    value_of,
)
from rdmabench.model import EndpointRef, Imported, ImportedCase, ImportedValue, Outcome
from rdmabench.units import GIGA

OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoallv": "all_to_allv",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
    "hypercube": "hypercube",
}
PLACES = ("", "_in_place")
TIME, ALGBW, BUSBW, WRONG = "time", "algbw", "busbw", "#wrong"
_SHARES = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_REDEFINED = ("all_gather", "reduce_scatter")
_FLAT = ("broadcast", "reduce", "send_recv")
_NOT_SIZE_OVER_TIME = ("hypercube", "all_to_allv")
_HOSTS_NAMED = 8
_TELLING = 200  # at least three digits: a rounded 0.01 fits every definition
OLD, NEW, UNKNOWN = "before June 2020", "since June 2020", "not told by the numbers"
_UNITS = {
    TIME: ("time", "ns", 1000.0),
    ALGBW: ("algbw", "B/s", float(GIGA)),
    BUSBW: ("busbw", "B/s", float(GIGA)),
    "i_min": ("time_min", "ns", 1000.0),
    "i_max": ("time_max", "ns", 1000.0),
    "i_p99": ("time_p99", "ns", 1000.0),
    "i_cv%": ("time_cv_pct", "%", 1.0),
}


@dataclass(frozen=True)
class TableRow:
    """One line before it is judged: `cells` by place (out of place, in place) and column."""

    line: int
    size: str
    type: str
    redop: str
    root: str
    cells: tuple[Mapping[str, str], ...]


@dataclass
class Test:
    """One run of one of the programs: who took part, what it printed, how it ended."""

    line: int
    op: str = ""
    version: str = ""
    hosts: list[str] = field(default_factory=list)
    ranks: int = 0
    iterations: int = 0
    warmup: int = 0
    rows: list[TableRow] = field(default_factory=list)
    trouble: str = ""
    out_of_bounds: str = ""


def busbw_factor(op: str, ranks: int) -> float | None:
    """busbw / algbw as defined since June 2020; None where it is not known."""
    if op in _FLAT:
        return 1.0
    if ranks < 1:
        return None
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in _SHARES else None


def algbw_style(op: str, ranks: int, rates: Iterable[tuple[Number, Number]]) -> str:
    """Which definition of algbw the pairs of (algbw, busbw) are of: `OLD`, `NEW` or `UNKNOWN`."""
    if op not in _REDEFINED:
        return NEW
    said = [(alg, bus) for alg, bus in rates if alg.value > _TELLING * alg.half > 0]
    factor = busbw_factor(op, ranks)
    old = bool(said) and all(alg.spans(bus, 1.0, slack=0) for alg, bus in said)
    new = bool(said) and all(
        factor is None or bus.spans(alg, factor, slack=0.001) for alg, bus in said
    )
    if factor is None:
        return OLD if old else NEW if said else UNKNOWN
    return UNKNOWN if old == new else OLD if old else NEW


def imported(source: Source, test: Test, asked: Asked) -> list[Imported]:
    """The rows of one test, and one for its trouble.

    Raises:
        InputError: a cell that is no number.
    """
    numbers = [_numbers(source, row) for row in test.rows]
    style = algbw_style(
        test.op,
        test.ranks,
        (
            (place[ALGBW], place[BUSBW])
            for places in numbers
            for place in places
            if ALGBW in place and BUSBW in place
        ),
    )
    base = _base_case(source, test, asked)
    rows = [
        _row(source, test, base, row, places, style=style, asked=asked)
        for row, places in zip(test.rows, numbers, strict=True)
    ]
    if test.trouble:
        rows.append(
            Imported(
                case=base,
                outcome=Outcome.FAILED,
                reason=f"nccl-tests says: {test.trouble}",
                source=source.at(test.line),
                tool_version=test.version,
            )
        )
    return rows


def _numbers(source: Source, row: TableRow) -> tuple[dict[str, Number], ...]:
    return tuple(
        {
            name: read_number(source, row.line, cell, name)
            for name, cell in place.items()
            if cell not in ("", "N/A")
        }
        for place in row.cells
    )


def _base_case(source: Source, test: Test, asked: Asked) -> ImportedCase:
    hosts = list(dict.fromkeys(test.hosts))
    group = ",".join(hosts)
    if len(hosts) > _HOSTS_NAMED:
        group = f"{hosts[0]}..{hosts[-1]} ({len(hosts)} hosts)"
    name = asked.initiator or group or source.unknown_end().host
    ranks = test.ranks or asked.ranks
    return ImportedCase(
        tool="nccl-tests",
        probe="collective",
        op=test.op,
        initiator=EndpointRef(host=name, device=""),
        responder=EndpointRef(host=f"{ranks} ranks" if ranks else "all ranks", device=""),
        iterations=test.iterations,
        warmup=test.warmup,
        transport="NCCL",
        memory="cuda",
        ranks=ranks,
    )


def _row(
    source: Source,
    test: Test,
    base: ImportedCase,
    row: TableRow,
    places: Sequence[Mapping[str, Number]],
    *,
    style: str,
    asked: Asked,
) -> Imported:
    size = read_count(source, row.line, row.size, "size")
    values, unread = _values(places, style)
    reason = _why_not(test, base, size, places, style=style, asked=asked)
    if not reason and size and not values:
        reason = "every value is 0"
    outcome = Outcome.FAILED if reason else Outcome.MEASURED
    if size == 0:
        outcome, reason = Outcome.SKIPPED, reason or "size 0: nothing was moved"
    words = (row.type, row.redop, f"root {row.root}" if row.root not in ("", "-1") else "")
    return Imported(
        case=replace(
            base,
            size_bytes=max(size, 0),
            variant=", ".join(word for word in words if word not in ("", "none")),
        ),
        outcome=outcome,
        reason=reason,
        source=source.at(row.line),
        tool_version=test.version,
        values=values,
        unread=unread,
        remarks=_remarks(test, base, style),
    )


def _values(
    places: Sequence[Mapping[str, Number]], style: str
) -> tuple[tuple[ImportedValue, ...], dict[str, str]]:
    values, unread = [], {}
    for place, numbers in zip(PLACES, places, strict=False):
        for name, number in numbers.items():
            value = _value(name, number, place, style)
            if value is None:
                unread[name + place] = number.text
            else:
                values.append(value)
    return tuple(values), unread


def _value(name: str, number: Number, place: str, style: str) -> ImportedValue | None:
    """None where it has no metric, no digit that is not 0, or an old definition."""
    if not number.is_finite or number.value < 0 or (name == ALGBW and style == OLD):
        return None
    if name == WRONG:
        return value_of(f"wrong{place}", "1", number, factor=1.0, column=name)
    if name not in _UNITS or number.value == 0:
        return None
    metric, unit, factor = _UNITS[name]
    return value_of(metric + place, unit, number, factor=factor, column=name)


def _remarks(test: Test, base: ImportedCase, style: str) -> tuple[str, ...]:
    remarks = []
    if test.op in _REDEFINED:
        effect = (
            "it has (n-1)/n in it and is left out: compare busbw or time"
            if style == OLD
            else "size / time"
        )
        told = f" (assumed: {UNKNOWN})" if style == UNKNOWN else ""
        shown = OLD if style == OLD else NEW
        remarks.append(f"algbw as defined {shown}{told}: {effect}")
    if "unknown (" in base.pair:
        remarks.append("the ranks' hosts are not named: --initiator names the group")
    if not base.ranks:
        remarks.append("the number of ranks is not told: --ranks N")
    return tuple(remarks)


def _why_not(
    test: Test,
    base: ImportedCase,
    size: int,
    places: Sequence[Mapping[str, Number]],
    *,
    style: str,
    asked: Asked,
) -> str:
    """Why the row cannot be counted, empty where nothing speaks against it."""
    if test.ranks == 1:
        wanted = f", expected {asked.ranks}" if asked.ranks else ""
        return f"invalid: single rank{wanted}: nothing went over a network"
    if asked.ranks and test.ranks and asked.ranks != test.ranks:
        return f"invalid: expected {asked.ranks} ranks, the text has {test.ranks}"
    if test.out_of_bounds not in ("", "0"):
        return f"wrong results: {test.out_of_bounds} values out of bounds in this test"
    for numbers in places:
        reason = _impossible(base, size, numbers, style)
        if reason:
            return reason
    return ""


def _impossible(case: ImportedCase, size: int, numbers: Mapping[str, Number], style: str) -> str:
    for name, number in numbers.items():
        if not number.is_finite:
            return f"invalid result: {name} is {number.text}"
        if number.value < 0 or size < 0:
            return f"invalid result: negative value ({name} {number.text}, size {size})"
    if WRONG in numbers and numbers[WRONG].value:
        return f"wrong results: {numbers[WRONG].text} wrong elements"
    if not size:
        return ""
    return _contradiction(case, size, numbers, style)


def _contradiction(case: ImportedCase, size: int, numbers: Mapping[str, Number], style: str) -> str:
    time, alg, bus = (numbers.get(name) for name in (TIME, ALGBW, BUSBW))
    if time and alg and style != OLD and case.op not in _NOT_SIZE_OVER_TIME:
        over_size = Number(text="", value=time.value / size, half=time.half / size)
        one = Number(text="", value=alg.value * time.value / size, half=0.0)
        room = alg.half * over_size.value + alg.value * over_size.half + 0.005e-3
        if abs(one.value - 1e-3) > room:
            return f"contradictory: {size} B in {time.text} us is not {alg.text} GB/s (algbw)"
    factor = busbw_factor(case.op, case.ranks)
    if alg and bus and factor is not None:
        wanted = 1.0 if style == OLD else factor
        if not bus.spans(alg, wanted, slack=0.005):
            return (
                f"contradictory: algbw {alg.text} and busbw {bus.text} do not fit "
                f"{case.op} of {case.ranks} ranks"
            )
    return ""
