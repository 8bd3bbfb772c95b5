"""perftest's `--out_json`: valid JSON since 2024, before that the same keys without quotes.

It names no unit of bandwidth. The message rate times the size tells it: MiB/s and Gb/s are a factor
of 119 apart. Where it cannot tell, the file is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rdmabench.collector.importers import documents
from rdmabench.collector.importers.perftest import subject_of
from rdmabench.collector.importers.perftest_rows import (
    AVERAGE,
    BANDWIDTH_UNITS,
    ITERATIONS,
    MEAN,
    RATE,
    SIZE,
    TYPICAL,
    Banner,
    result_row,
)
from rdmabench.collector.importers.text import (
    NOTHING,
    Asked,
    Parsed,
    Source,
    quoted,
    read_count,
    read_number,
)
from rdmabench.model import Fabric, Imported

_COLUMNS = {
    "MsgSize": SIZE,
    "n_iterations": ITERATIONS,
    "BW_peak": "BW peak",
    "BW_average": AVERAGE,
    "MsgRate": RATE,
    "CPU_util": "CPU_Util",
    "t_min": "t_min",
    "t_max": "t_max",
    "t_typical": TYPICAL,
    "t_avg": MEAN,
    "t_stdev": "t_stdev",
    "percentile_99": "99% percentile",
    "percentile_99.9": "99.9% percentile",
    "tps_average": "tps average",
}
_OLD_LINE = re.compile(r'\s*"?([A-Za-z_][A-Za-z0-9_. ]*?)"?[ \t]*:[ \t]*"?([^"{},]*?)"?[ \t]*,?\s*')
_OLD_OPEN = re.compile(r'\s*"?(test_info|results)"?[ \t]*:[ \t]*\{\s*')
_BARE_SL = re.compile(r"^sl:", re.MULTILINE)  # QoS reports of every version have it so
_UNITS = ("MiB/sec", "Gb/sec")


def parse(text: str, *, name: str, asked: Asked = NOTHING) -> Parsed:
    """Every result of the document.

    Raises:
        InputError: it is not perftest's, is damaged, or its unit cannot be told.
    """
    source = Source(name)
    rows = []
    fabrics = set()
    for info, results in _documents(source, text):
        rows.append(_row(source, info, results, asked))
        fabrics.add(_fabric(info))
    return Parsed(rows=tuple(rows), fabrics=frozenset(fabrics) - {""})


def _documents(source: Source, text: str) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    if re.search(r"^\s*test_info\s*:", text, re.MULTILINE):
        yield _old(source, text)
        return
    repaired = _BARE_SL.sub('"sl":', text)
    for document in documents.objects(source, documents.load(source, repaired)):
        info, results = (documents.part(source, document, key) for key in ("test_info", "results"))
        yield (
            {key: documents.text_of(source, info, key) for key in info},
            {key: documents.text_of(source, results, key) for key in results},
        )


def _old(source: Source, text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The text before 2024, a key a line, commas before closing braces."""
    parts: dict[str, dict[str, str]] = {}
    inside = ""
    for number, line in enumerate(text.split("\n"), 1):
        opened, found = _OLD_OPEN.fullmatch(line), _OLD_LINE.fullmatch(line)
        if opened:
            inside = opened[1]
            if inside in parts:
                source.refuse(number, f"a second {inside}", expected="one test a file")
            parts[inside] = {}
        elif line.strip() in ("", "{"):
            continue
        elif line.strip() in ("}", "},"):
            inside = "" if inside else "end"
        elif not found or inside not in parts or found[1] in parts[inside]:
            source.refuse(number, quoted(line.strip()), expected="perftest's KEY: VALUE, each once")
        else:
            parts[inside][found[1]] = found[2]
    if inside != "end" or set(parts) != {"test_info", "results"}:
        source.refuse(1, "the document is cut", expected="test_info and results, both closed")
    return parts["test_info"], parts["results"]


def _row(
    source: Source, info: Mapping[str, str], results: Mapping[str, str], asked: Asked
) -> Imported:
    subject = subject_of(info.get("test", ""))
    if subject is None or (asked.op and not subject.op.startswith(asked.op)):
        source.refuse(
            1,
            f"the test is {quoted(info.get('test', ''))}",
            expected=f"a test of {asked.op}, as --op says"
            if asked.op
            else "perftest's name of one",
        )
    cells = {_COLUMNS.get(key, key): value for key, value in results.items()}
    headline = AVERAGE if subject.probe == "bandwidth" else MEAN
    missing = [name for name in (SIZE, ITERATIONS, headline) if name not in cells]
    if missing:
        source.refuse(
            1,
            f"results without {', '.join(missing)}",
            expected="the full report (no --output)",
        )
    banner = Banner.of(
        source,
        1,
        subject=subject,
        fields=info,
        memory="cuda" if "cuda_device" in info else "host",
        ends=(asked.initiator, asked.responder),
        server="RX_depth" in info and "TX_depth" not in info,
    )
    unit = _unit(source, cells) if AVERAGE in cells else ""
    return result_row(source, 1, banner, unit, cells, asked)


def _unit(source: Source, cells: Mapping[str, str]) -> str:
    average, rate = (read_number(source, 1, cells.get(name, "0"), name) for name in (AVERAGE, RATE))
    if average.value < 0 or rate.value < 0:
        return _UNITS[0]  # the row is invalid in any unit
    size = read_count(source, 1, cells[SIZE], SIZE)
    fitting = [
        unit
        for unit in _UNITS
        if average.spans(rate, size * 1e6 / BANDWIDTH_UNITS[unit], slack=0.005)
    ]
    if len(fitting) != 1:
        source.refuse(
            1,
            f"BW_average {average.text} has no unit, and MsgRate {rate.text} fits "
            f"{' and '.join(fitting) or 'none'}",
            expected="a message rate that tells MiB/s from Gb/s",
            remedy="import the text output of the same test",
        )
    return fitting[0]


def _fabric(info: Mapping[str, str]) -> str:
    link = info.get("Link_type", "")
    if link in ("IB", "InfiniBand"):
        return Fabric.IB.value
    soft = info.get("Device", "").startswith("rxe")
    return {True: Fabric.RXE, False: Fabric.ROCE}[soft].value if link == "Ethernet" else ""
