"""perftest's text: one banner and one table per test, from 1.x to the forks with more columns.

Facts of perftest (src/perftest_parameters.[ch]): `MB/sec`, later `MiB/sec`, is 2^20 bytes and `Gb`
is 10^9 bits; `BW peak` is 0.00 where it was not measured; with -b the two directions are summed;
send and write latencies are half a round trip; `t_typical` is the median; the two slowest
iterations are left out of every statistic; `t_stdev` has, since 2022, each deviation cut to whole
microseconds.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from rdmabench.collector.importers.perftest_rows import (
    Banner,
    Subject,
    Table,
    failed_row,
    read_table_row,
    result_row,
)
from rdmabench.collector.importers.text import (
    NOTHING,
    Asked,
    Line,
    Parsed,
    Source,
    is_number,
    quoted,
    streams,
)
from rdmabench.model import Fabric, Imported

_RULE = re.compile(r"\s*-{20,}\s*")
_TITLE = re.compile(
    r"(?P<verb>Send_imm|Send|RDMA_Write_imm|RDMA_Write|RDMA_Read|Atomic)(?P<atomic>_[A-Za-z_]+?)??"
    r"(?P<bidir>_Bidirectional)?(?:_Post_List)?(?:_(?P<kind>BW|Latency))?"
    r"(?:_forwarding)?(?:_Multicast)?_Test"
)
_FIELD = re.compile(
    r"(?<!Recv )(Device|Number of qps|Connection type|TX depth|RX depth|CQ Moderation|Mtu"
    r"|Link type|GID index|Max inline data|Post List|Dual-port)[ \t]*:[ \t]*(\S+)"
)
_LID = re.compile(r"\s*(local|remote) address: LID (\S+)")
_GID = re.compile(r"\s*GID:\s*(\S+)\s*")
_CUDA = re.compile(r"initializing CUDA|creating CUDA Ctx|CUDA device \d|cuMemAlloc")
_PROGRAM = re.compile(r"\bib_(send|write|read|atomic)_(bw|lat)\b")
_COLUMN = re.compile(r"\s*((?:#bytes|#iterations|#sl|tps average)(?!\S)|([^\[\]#]+)\[([^\[\]]+)\])")
_HISTOGRAM = re.compile(r"\s*[0-9]+, \S+\s*")
_NUMERIC_START = re.compile(r"[-+.]?[0-9]")
_STATUS = re.compile(r"Failed status ([0-9]+): wr_id [0-9]+ syndrom (0x[0-9a-fA-F]+)")
_PROGRESS = re.compile(r"scnt=([0-9]+), ccnt=([0-9]+)")
_TROUBLE = re.compile(
    r"Completion with error|Failed status|scnt=[0-9]+, ccnt=|Couldn'?t |Could not |Unable to "
    r"|Failed to |Cannot |Can't |No such device|IB device .* not found|Did not detect devices"
)
_HARMLESS = re.compile(
    r"\s*$|\s*WARNING|Conflicting CPU frequency|\s+\S+=[0-9]+\s*$|\s*#, |\s*\*|\+ |\$ "
    r"|\s*(?:local|remote) address:|\s*GID:|\s*(?:initializing|creating|making|Listing|CUDA"
    r"|allocated|Picking|Using|destroying|deallocating|Requested|mlx|Test with|MultiCast) ?",
)
_VERBS = {
    "Send": "send",
    "Send_imm": "send_imm",
    "RDMA_Write": "write",
    "RDMA_Write_imm": "write_imm",
    "RDMA_Read": "read",
    "Atomic": "atomic",
}
_KINDS = {"BW": "bandwidth", "Latency": "latency", "bw": "bandwidth", "lat": "latency"}
_A_TABLE = "perftest's table: a line with #bytes and #iterations, then its rows"


@dataclass
class _Test:
    """One banner and what stands under it."""

    line: int
    title: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    gids: dict[str, str] = field(default_factory=dict)
    lids: dict[str, str] = field(default_factory=dict)
    cuda: bool = False
    table: Table | None = None
    kind: str = ""
    open: bool = False
    side: str = ""
    rows: list[tuple[Line, Table, Mapping[str, str]]] = field(default_factory=list)
    trouble: list[Line] = field(default_factory=list)
    not_understood: list[Line] = field(default_factory=list)


def parse(text: str, *, name: str, asked: Asked = NOTHING) -> Parsed:
    """Every result of the text.

    Raises:
        InputError: it is not perftest's, is damaged, or does not say what is needed.
    """
    source = Source(name)
    tests = [test for lines in streams(text) for test in _tests(source, lines)]
    if not any(test.rows or test.trouble for test in tests):
        _refuse_foreign(source, text, tests)
    hint = _program_hint(text, name)
    rows: list[Imported] = []
    warnings: list[str] = []
    for test in tests:
        rows += _test_rows(source, test, asked, hint)
        warnings += _test_warnings(source, test)
    return Parsed(
        rows=tuple(rows),
        warnings=tuple(warnings),
        fabrics=frozenset(_fabric(test) for test in tests if test.rows) - {""},
    )


def subject_of(title: str) -> Subject | None:
    """What a title says, blanks or underscores between its words; None where it is no title."""
    match = _TITLE.fullmatch("_".join(title.split()))
    if match is None:
        return None
    op = _VERBS[match["verb"]] + (match["atomic"] or "").lower()
    return Subject(op, _KINDS.get(match["kind"] or "", "latency"), bidir=bool(match["bidir"]))


def _tests(source: Source, lines: Iterable[Line]) -> list[_Test]:
    tests = [_Test(line=1)]
    for line in lines:
        if subject_of(line.text):
            tests.append(_Test(line=line.number, title=line.text, cuda=tests[-1].cuda))
        elif "#bytes" in line.text or "#flows" in line.text:
            _begin_table(source, tests[-1], line)
        elif not _take_row(source, tests[-1], line):
            _take_other(tests[-1], line)
    return tests


def _begin_table(source: Source, test: _Test, line: Line) -> None:
    if test.rows:
        source.refuse(
            line.number, "a second table without a test's title", expected="the title before it"
        )
    test.table = Table(line=line.number, columns=_columns(source, line))
    test.kind = test.table.probe
    test.open = True


def _columns(source: Source, line: Line) -> tuple[tuple[str, str], ...]:
    """Names and units as printed, in order; a percentile's name has blanks in it."""
    found = []
    place = 0
    text = line.text.rstrip()
    while place < len(text):
        match = _COLUMN.match(text, place)
        if match is None:
            rest = text[place:].strip()
            source.refuse(
                line.number,
                f"a heading that is not understood: {quoted(rest)}",
                expected="columns as NAME[UNIT] after #bytes and #iterations",
            )
        found.append((match[1], "") if match[2] is None else (" ".join(match[2].split()), match[3]))
        place = match.end()
    table = Table(line=line.number, columns=tuple(found))
    table.check(source)
    return table.columns


def _take_row(source: Source, test: _Test, line: Line) -> bool:
    cells = line.cells
    if not cells or not _NUMERIC_START.match(cells[0]) or _HISTOGRAM.fullmatch(line.text):
        return False
    if not test.open or test.table is None:
        if len(cells) > 2 and all(is_number(cell) for cell in cells):
            source.refuse(line.number, "numbers outside of a table", expected=_A_TABLE)
        return False
    if not line.whole:
        source.refuse(
            line.number, "the text ends in the middle of a row", expected="a line feed after it"
        )
    test.rows.append((line, test.table, read_table_row(source, line, test.table)))
    return True


def _take_other(test: _Test, line: Line) -> None:
    text = line.text
    if _RULE.fullmatch(text):
        test.open = test.open and not test.rows
    elif _TROUBLE.search(text):
        test.trouble.append(line)
    elif test.open:
        if not _HARMLESS.match(text):
            test.not_understood.append(line)
    else:
        _take_banner(test, text)


def _take_banner(test: _Test, text: str) -> None:
    for key, value in _FIELD.findall(text):
        test.fields.setdefault(key.replace(" ", "_"), value)
    test.cuda = test.cuda or bool(_CUDA.search(text))
    if lid := _LID.match(text):
        test.side = lid[1]
        test.lids.setdefault(test.side, lid[2])
    elif (gid := _GID.fullmatch(text)) and test.side:
        test.gids.setdefault(test.side, gid[1])


def _test_rows(source: Source, test: _Test, asked: Asked, hint: str) -> Iterator[Imported]:
    if not test.rows and not test.trouble:
        return
    banner = _banner(source, test, asked, hint)
    for line, table, cells in test.rows:
        yield result_row(source, line.number, banner, table.unit, cells, asked)
    if test.trouble:
        yield failed_row(source, test.trouble[0].number, banner, *_trouble(test))


def _trouble(test: _Test) -> tuple[str, dict[str, str]]:
    text = "\n".join(line.text for line in test.trouble)
    facts = {}
    if status := _STATUS.search(text):
        facts = {"status": status[1], "syndrome": status[2]}
    if progress := _PROGRESS.search(text):
        facts |= {"scnt": progress[1], "ccnt": progress[2]}
    said = "; ".join(" ".join(line.text.split()) for line in test.trouble[:4])
    return f"perftest says: {ascii(said)[1:-1]}", facts


def _test_warnings(source: Source, test: _Test) -> Iterator[str]:
    if test.title and not test.rows and not test.trouble:
        yield f"{source.at(test.line)}: this test has no result (a server's output has none)"
    if test.not_understood:
        first = test.not_understood[0]
        yield (
            f"{source.at(first.number)}: {len(test.not_understood)} lines between the rows are "
            f"not understood and left out: {quoted(first.text.strip())}"
        )


def _banner(source: Source, test: _Test, asked: Asked, hint: str) -> Banner:
    said = subject_of(test.title) or Subject("", test.kind)
    if test.kind and test.kind != said.probe:
        source.refuse(
            test.line,
            f"a {test.kind} table under the title {quoted(test.title.strip())}",
            expected=f"a {said.probe} table",
        )
    op = _chosen_op(source, test, said.op or hint, asked)
    server = "RX_depth" in test.fields and "TX_depth" not in test.fields
    ends = _ends(test, asked)
    return Banner.of(
        source,
        test.line,
        subject=Subject(op, said.probe or "unknown", bidir=said.bidir),
        fields=test.fields,
        memory="cuda" if test.cuda else "host" if test.fields else "",
        ends=(ends[1], ends[0]) if server and not asked.initiator else ends,
        server=server,
    )


def _chosen_op(source: Source, test: _Test, said: str, asked: Asked) -> str:
    if said and asked.op and not said.startswith(asked.op):
        source.refuse(test.line, f"the text is about {said}", expected=f"{asked.op}, as --op says")
    op = said or asked.op
    if not op and test.rows:
        source.refuse(
            test.rows[0][0].number,
            "the text does not say which operation this is",
            expected="the test's title, such as `RDMA_Write BW Test`",
            remedy="--op write (or send, read ...)",
        )
    return op or "unknown"


def _program_hint(text: str, name: str) -> str:
    """The operation, where a command line or the file's name says only one."""
    for where in (text, name):
        found = {match[1] for match in _PROGRAM.finditer(where)}
        if found:
            return found.pop() if len(found) == 1 else ""
    return ""


def _ends(test: _Test, asked: Asked) -> tuple[str, str]:
    local = asked.initiator or _address(test, "local")
    remote = asked.responder or _address(test, "remote")
    return local, remote


def _address(test: _Test, side: str) -> str:
    """An IP address out of a GID of decimal octets, else `lid7`, else nothing."""
    octets = test.gids.get(side, "").split(":")
    if len(octets) == 16 and all(octet.isascii() and octet.isdigit() for octet in octets):
        values = [int(octet) for octet in octets if len(octet) <= 3]
        if len(values) == 16 and max(values) < 256:
            address = ipaddress.IPv6Address(bytes(values))
            return str(address.ipv4_mapped or address)
    lid = test.lids.get(side, "")
    if re.fullmatch(r"0x[0-9a-fA-F]{1,4}", lid):
        return f"lid{int(lid, 16)}"
    return ""


def _fabric(test: _Test) -> str:
    link = test.fields.get("Link_type", "")
    if link in ("IB", "InfiniBand"):
        return Fabric.IB.value
    if link != "Ethernet":
        return ""
    soft = test.fields.get("Device", "").startswith("rxe")
    return Fabric.RXE.value if soft else Fabric.ROCE.value


def _refuse_foreign(source: Source, text: str, tests: list[_Test]) -> NoReturn:
    remedy = ""
    if "algbw" in text:
        remedy = "this looks like nccl-tests: `rdmabench import nccl-tests FILE`"
    elif "# OSU" in text:
        remedy = "this looks like OSU: `rdmabench import osu FILE`"
    elif any(test.title for test in tests):
        remedy = "a server prints no result of a one-way test: import the client's output"
    source.refuse(1, "no result of perftest in this text", expected=_A_TABLE, remedy=remedy)
