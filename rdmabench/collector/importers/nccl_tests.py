"""nccl-tests' text since 2019: its own layout of each year, alone or under a launcher's tags.

The layout of 2017 and 2018 (`bytes N type op`) names no units and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn

from rdmabench.collector.importers.nccl_rows import (
    ALGBW,
    BUSBW,
    OPS,
    TIME,
    TableRow,
    Test,
    imported,
)
from rdmabench.collector.importers.text import (
    NOTHING,
    Asked,
    Line,
    Parsed,
    Source,
    is_number,
    quoted,
    read_count,
    streams,
)

PROGRAM = re.compile(rf"\b({'|'.join(OPS)})_perf")
_STARTING = re.compile(r"#\s*Collective test starting: (\S+)")
_CONCLUDED = re.compile(r"#\s*Collective test concluded: (\S+)")
_OPTIONS = re.compile(r"#\s*nThread\s+\d+\s+nGpus\s+\d+\s+minBytes\s")
_WARMUP = re.compile(r"\bwarmup iters: ([0-9]+)")
_ITERS = re.compile(r"(?<!warmup )(?<!agg )\biters: ([0-9]+)")
_VERSION = re.compile(r"#\s*nccl-tests version (\S+)")
_RANK = re.compile(
    r"#\s+Rank\s+([0-9]+)(?:\s+Group\s+([0-9]+))?\s+Pid\s+[0-9]+\s+on\s+(\S+)\s+device\s+[0-9]+"
)
_NRANKS = re.compile(r"\bNCCL INFO comm .*\bnranks ([0-9]+)\b")
_OUT_OF_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*([0-9]+) (OK|FAILED)\s*")
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s*:\s*(\S+)")
_TROUBLE = re.compile(
    r"Test (?:NCCL|CUDA) failure|Test timeout|Test failure|Segmentation fault|unhandled cuda error"
    r"|unhandled system error|remote process exited|mpirun noticed|Invalid number of GPUs"
)
_OLD_HEADING = re.compile(r"#\s+bytes\s+N\s+type\s+op\b")
_NUMERIC_START = re.compile(r"[-+.]?[0-9]")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")
_LEAD = ("size", "count", "type", "redop", "root")
_LEAD_UNITS = {"size": "(B)", "count": "(elements)"}
_UNITS = {
    TIME: "(us)",
    "cputime": "(us)",
    ALGBW: "(GB/s)",
    BUSBW: "(GB/s)",
    "sidebw": "(GB/s)",
    "i_min": "(us)",
    "i_max": "(us)",
    "i_p99": "(us)",
    "i_cv%": "(%)",
}
_NO_UNIT = ("#wrong", "error")
_STAMP_CELLS = 2  # a date and a time
_HINT = "nccl-tests' table: `# size count type ... time algbw busbw`, its units, then its rows"


@dataclass(frozen=True)
class _Heading:
    """Columns of a table: what leads, then one or two equal groups."""

    lead: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    stamped: bool

    @property
    def cells(self) -> int:
        """How many cells a row has."""
        return len(self.lead) + sum(map(len, self.groups)) + _STAMP_CELLS * self.stamped


@dataclass
class _State:
    """Where the reading of one stream stands."""

    tests: list[Test] = field(default_factory=list)
    groups: list[set[int]] = field(default_factory=list)
    nranks: set[int] = field(default_factory=set)
    heading: _Heading | None = None
    names: _Heading | None = None
    averages: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def parse(text: str, *, name: str, asked: Asked = NOTHING) -> Parsed:
    """Every row of the text.

    Raises:
        InputError: it is not nccl-tests', is damaged, or does not say what is needed.
    """
    source = Source(name)
    states = [_read(source, lines) for lines in streams(text)]
    tests = [test for state in states for test in state.tests if test.rows or test.trouble]
    if not tests:
        _refuse_foreign(source, text)
    hint = _hint(text, name)
    for test in tests:
        test.op = _chosen_op(source, test, hint, asked)
    warnings = [warning for state in states for warning in state.warnings]
    warnings += [_no_ending(source, test) for test in tests if test.rows and not test.out_of_bounds]
    averages = [average for state in states for average in state.averages]
    return Parsed(
        rows=tuple(row for test in tests for row in imported(source, test, asked)),
        warnings=tuple(warnings),
        facts={"Avg bus bandwidth": ", ".join(averages)} if averages else {},
    )


def _no_ending(source: Source, test: Test) -> str:
    return f"{source.at(test.rows[-1].line)}: no `Out of bounds values` after the rows: cut?"


def _read(source: Source, lines: Iterable[Line]) -> _State:
    state = _State()
    for line in lines:
        if state.names is not None:
            _take_units(source, state, line)
        elif _is_heading(line):
            state.names = _heading(source, line)
        elif not _take_row(source, state, line):
            _take_other(source, state, line)
    _count_ranks(state)
    return state


def _test(state: _State, line: Line, *, new: bool = False) -> Test:
    """The test that is being read; a second beginning, or a table after rows, is a new one."""
    if new or not state.tests:
        _count_ranks(state)
        state.tests.append(Test(line=line.number))
    return state.tests[-1]


def _count_ranks(state: _State) -> None:
    """Ranks of one communicator: of the devices listed, else as NCCL's own lines say."""
    if state.tests and not state.tests[-1].ranks:
        listed = {len(group) for group in state.groups if group}
        said = listed or state.nranks
        state.tests[-1].ranks = said.pop() if len(said) == 1 else 0
    state.groups, state.nranks = [], set()


def _is_heading(line: Line) -> bool:
    cells = line.text.lstrip(" \t#").split()
    return line.text.lstrip().startswith("#") and cells[:2] == ["size", "count"]


def _heading(source: Source, line: Line) -> _Heading:
    names = [cell for cell in line.text.replace("\t", " ").lstrip(" #").split(" ") if cell]
    stamped = names[-1] == "timestamp"
    names = names[:-1] if stamped else names
    lead = tuple(name for name in names if name in _LEAD)
    rest = names[len(lead) :]
    starts = [place for place, name in enumerate(rest) if name in (TIME, "cputime")]
    groups = tuple(tuple(rest[start:end]) for start, end in pairwise([*starts, len(rest)]))
    known = all(name in _UNITS or name in _NO_UNIT for name in rest)
    whole = bool(groups) and starts[0] == 0 and len(groups) <= 2 and len(set(groups)) == 1
    if not known or not whole or tuple(names[: len(lead)]) != lead or ALGBW not in rest:
        source.refuse(
            line.number,
            f"a heading that is not understood: {quoted(' '.join(names))}",
            expected="size count type redop root, then time algbw busbw #wrong once or twice",
        )
    return _Heading(lead=lead, groups=groups, stamped=stamped)


def _take_units(source: Source, state: _State, line: Line) -> None:
    names = state.names
    assert names is not None  # noqa: S101 - the caller asked for it
    wanted = [_LEAD_UNITS[name] for name in names.lead if name in _LEAD_UNITS]
    wanted += [_UNITS[name] for group in names.groups for name in group if name in _UNITS]
    found = line.text.lstrip(" \t#").split()
    found = found[:-_STAMP_CELLS] if names.stamped else found
    if found != wanted:
        source.refuse(
            line.number, f"units {quoted(' '.join(found))}", expected=f"units {' '.join(wanted)}"
        )
    if state.tests and state.tests[-1].rows:
        _test(state, line, new=True)
    state.heading, state.names = names, None


def _take_row(source: Source, state: _State, line: Line) -> bool:
    cells = line.cells
    if not cells or not _NUMERIC_START.match(cells[0]):
        return False
    if state.heading is None:
        if len(cells) > 5 and is_number(cells[1]):
            source.refuse(line.number, "a row outside of a table", expected=_HINT)
        return False
    if not line.whole:
        source.refuse(
            line.number, "the text ends in the middle of a row", expected="a line feed after it"
        )
    _test(state, line).rows.append(_row(source, line, cells, state.heading))
    return True


def _row(source: Source, line: Line, cells: Sequence[str], heading: _Heading) -> TableRow:
    if len(cells) != heading.cells:
        source.refuse(
            line.number,
            f"{len(cells)} cells in a row",
            expected=f"{heading.cells}, as the heading has",
        )
    lead = dict(zip(heading.lead, cells, strict=False))
    for name in ("type", "redop"):
        if name in lead and not _WORD.fullmatch(lead[name]):
            source.refuse(line.number, f"{name} is {quoted(lead[name])}", expected="a word")
    for name in ("count", "root"):
        if name in lead:
            read_count(source, line.number, lead[name], name)
    places = []
    start = len(heading.lead)
    for group in heading.groups:
        places.append(dict(zip(group, cells[start:], strict=False)))
        start += len(group)
    return TableRow(
        line=line.number,
        size=lead["size"],
        type=lead.get("type", ""),
        redop=lead.get("redop", ""),
        root=lead.get("root", ""),
        cells=tuple(places),
    )


def _take_other(source: Source, state: _State, line: Line) -> None:
    text = line.text
    if _OLD_HEADING.search(text):
        source.refuse(
            line.number,
            "the layout of 2017, which names no units",
            expected="the layout since 2019",
            remedy="run a newer nccl-tests",
        )
    if _OPTIONS.match(text) or _STARTING.match(text) or _VERSION.match(text):
        _take_beginning(state, line)
    elif rank := _RANK.match(text):
        _test(state, line).hosts.append(rank[3])
        group = int(rank[2] or 0) if len(rank[2] or "") < 4 else 0
        state.groups += [set() for _ in range(group + 1 - len(state.groups))]
        state.groups[group].add(len(state.groups[group]))
    elif nranks := _NRANKS.search(text):
        state.nranks.add(read_count(source, line.number, nranks[1], "nranks"))
    elif _TROUBLE.search(text):
        test = _test(state, line)
        test.trouble = test.trouble or ascii(" ".join(text.split()))[1:-1][:200]
    else:
        _take_ending(source, state, line)


def _take_beginning(state: _State, line: Line) -> None:
    done = bool(state.tests and (state.tests[-1].rows or state.tests[-1].trouble))
    test = _test(state, line, new=done)
    state.heading = None
    if version := _VERSION.match(line.text):
        test.version = version[1]
    if program := _STARTING.match(line.text):
        test.op = _op_of(program[1])
    for name, pattern in (("warmup", _WARMUP), ("iterations", _ITERS)):
        found = pattern.search(line.text)
        if found and len(found[1]) < 10:
            setattr(test, name, int(found[1]))


def _take_ending(source: Source, state: _State, line: Line) -> None:
    if not state.tests:
        return
    test = state.tests[-1]
    if bounds := _OUT_OF_BOUNDS.match(line.text):
        test.out_of_bounds = bounds[1]
        state.heading = None
        if (bounds[1].strip("0") == "") != (bounds[2] == "OK"):
            source.refuse(line.number, quoted(line.text), expected="0 OK, or a number and FAILED")
    elif average := _AVERAGE.match(line.text):
        state.averages.append(average[1])
    elif (done := _CONCLUDED.match(line.text)) and test.op not in ("", _op_of(done[1])):
        source.refuse(
            line.number, f"the end of {quoted(done[1])}", expected=f"the end of {test.op}"
        )
    elif done:
        test.op = _op_of(done[1])


def _op_of(program: str) -> str:
    found = PROGRAM.search(program)
    return OPS[found[1]] if found else ""


def _hint(text: str, name: str) -> str:
    for where in (text, name):
        found = {match[1] for match in PROGRAM.finditer(where)}
        if found:
            return OPS[found.pop()] if len(found) == 1 else ""
    return ""


def _chosen_op(source: Source, test: Test, hint: str, asked: Asked) -> str:
    said = test.op or hint
    if said and asked.op and said != asked.op:
        source.refuse(test.line, f"the text is about {said}", expected=f"{asked.op}, as --op says")
    if not said and not asked.op:
        source.refuse(
            test.line,
            "the text does not say which operation this is",
            expected="`# Collective test starting: NAME_perf`, or NAME_perf in the file's name",
            remedy="--op all_reduce (or all_gather, reduce_scatter, all_to_all ...)",
        )
    return said or asked.op


def _refuse_foreign(source: Source, text: str) -> NoReturn:
    remedy = ""
    if "#bytes" in text:
        remedy = "this looks like perftest: `rdmabench import perftest FILE`"
    elif "# OSU" in text:
        remedy = "this looks like OSU: `rdmabench import osu FILE`"
    source.refuse(1, "no result of nccl-tests in this text", expected=_HINT, remedy=remedy)
