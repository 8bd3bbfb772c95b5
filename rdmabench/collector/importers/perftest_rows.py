"""perftest's rows, of text and of JSON alike: columns by name, units, and what cannot be true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from rdmabench.collector.importers.text import (
    Asked,
    Line,
    Number,
    Source,
    is_number,
    quoted,
    read_count,
    read_number,
    value_of,
)
from rdmabench.model import (
    EndpointRef,
    Imported,
    ImportedCase,
    ImportedValue,
    LinkFacts,
    Outcome,
)
from rdmabench.units import BITS_PER_BYTE, GIGA, MIB

SIZE, ITERATIONS, AVERAGE, PEAK, MIN = "#bytes", "#iterations", "BW average", "BW peak", "BW min"
RATE, TYPICAL, MEAN, TPS = "MsgRate", "t_typical", "t_avg", "tps average"
BANDWIDTH_UNITS = {
    "MB/sec": float(MIB),
    "MiB/sec": float(MIB),
    "Gb/sec": GIGA / BITS_PER_BYTE,
}
NO_PORT_IS_FASTER_GBIT_S = 3200.0
_P99_9_SAMPLES = 10_000
_P99_SAMPLES = 1_000
_COUNTS = (SIZE, ITERATIONS, "#sl")
_BANDWIDTHS = {AVERAGE: "bw", PEAK: "bw_peak", MIN: "bw_min"}
_TIMES = {
    "t_min": "lat_min",
    "t_max": "lat_max",
    TYPICAL: "lat_p50",
    MEAN: "lat_mean",
    "t_stdev": "lat_stdev_printed",
    "99% percentile": "lat_p99",
    "99.9% percentile": "lat_p99_9",
}
_NEEDED = {"lat_p99": _P99_SAMPLES, "lat_p99_9": _P99_9_SAMPLES}
_OTHERS = {
    RATE: ("rate", "1/s", "Mpps", 1e6),
    "CPU_Util": ("cpu_util_pct", "%", "%", 1.0),
    TPS: ("tps", "1/s", "", 1.0),
}
_US = 1000.0
_TAIL = "perftest leaves the two slowest iterations out"


@dataclass(frozen=True)
class Table:
    """The heading of a table: names and units as printed."""

    line: int
    columns: tuple[tuple[str, str], ...]

    @property
    def names(self) -> list[str]:
        """The columns' names in order."""
        return [name for name, _ in self.columns]

    @property
    def probe(self) -> str:
        """What the table is about."""
        return "bandwidth" if AVERAGE in self.names else "latency"

    @property
    def unit(self) -> str:
        """The unit of its bandwidths, empty where it has none."""
        return next((unit for name, unit in self.columns if name == AVERAGE), "")

    def check(self, source: Source) -> None:
        """Refuses a heading without the columns that matter, or in units that are not known.

        Raises:
            InputError: such a heading.
        """
        names = self.names
        headline = AVERAGE in names or MEAN in names or TYPICAL in names
        if names[:1] != [SIZE] or ITERATIONS not in names or not headline:
            source.refuse(
                self.line,
                f"a table of {', '.join(map(quoted, names))}",
                expected="#bytes, #iterations and BW average, t_typical or t_avg",
            )
        if len(set(names)) != len(names):
            source.refuse(self.line, "a column appears twice", expected="each column once")
        for name, unit in self.columns:
            known = _units_of(name)
            if known and unit not in known:
                source.refuse(
                    self.line, f"{name} in {quoted(unit)}", expected=" or ".join(map(str, known))
                )
        if len({unit for name, unit in self.columns if name in _BANDWIDTHS}) > 1:
            source.refuse(self.line, "bandwidths in two units", expected="one unit")


def _units_of(name: str) -> tuple[str, ...]:
    if name in _BANDWIDTHS:
        return tuple(BANDWIDTH_UNITS)
    if name in _TIMES:
        return ("usec",)
    return (_OTHERS[name][2],) if name in _OTHERS else ()


def read_table_row(source: Source, line: Line, table: Table) -> Mapping[str, str]:
    """The cells of a row by column.

    Raises:
        InputError: not as many numbers as the heading has columns.
    """
    cells = line.cells
    if len(cells) != len(table.columns):
        source.refuse(
            line.number,
            f"{len(cells)} cells under {len(table.columns)} headings",
            expected="a cell for each column",
        )
    for name, cell in zip(table.names, cells, strict=True):
        if not is_number(cell):
            read_number(source, line.number, cell, name)
    return dict(zip(table.names, cells, strict=True))


@dataclass(frozen=True)
class Subject:
    """What a test is about; `bidir` sums both directions."""

    op: str
    probe: str
    bidir: bool = False


@dataclass(frozen=True)
class Banner:
    """What a test says of itself: the parameters of its rows."""

    case: ImportedCase
    link: LinkFacts

    @classmethod
    def of(
        cls,
        source: Source,
        line: int,
        *,
        subject: Subject,
        fields: Mapping[str, str],
        memory: str,
        ends: tuple[str, str],
        server: bool,
    ) -> Banner:
        """The banner of a test; `ends` are the names of initiator and responder, or empty.

        Raises:
            InputError: a field that should be a number is none.
        """

        def count(key: str, default: int = 0) -> int:
            text = fields.get(key, "").removesuffix("[B]")
            value = read_count(source, line, text, key) if text else default
            if value < -1:
                source.refuse(line, f"{key} is {text}", expected="no negative number")
            return value

        device = "" if fields.get("Device", "") in ("", "(null)") else fields["Device"]
        mine, other = (EndpointRef(host=end, device="") if end else None for end in ends)
        own = EndpointRef(host=(mine or source.unknown_end()).host, device=device)
        far = other or source.unknown_end()
        case = ImportedCase(
            tool="perftest",
            probe=subject.probe,
            op=subject.op,
            initiator=EndpointRef(host=own.host, device="") if server else own,
            responder=EndpointRef(host=far.host, device=device) if server else far,
            transport=fields.get("Connection_type", ""),
            qps=count("Number_of_qps"),
            depth=count("TX_depth") or count("RX_depth"),
            cq_moderation=count("CQ_Moderation"),
            inline_bytes=count("Max_inline_data"),
            direction="bidir" if subject.bidir else "one-way",
            memory=memory,
            ranks=2,
            variant=_variant(fields, server=server),
        )
        index = count("GID_index", -1)
        link = LinkFacts(
            mtu_bytes=count("Mtu"),
            initiator_gid_index=-1 if server else index,
            responder_gid_index=index if server else -1,
        )
        return cls(case=case, link=link)


def _variant(fields: Mapping[str, str], *, server: bool) -> str:
    parts = ["counted by the responder"] if server else []
    if fields.get("Post_List", "1") != "1":
        parts.append(f"post list {fields['Post_List']}")
    if fields.get("Dual-port", "OFF") == "ON":
        parts.append("dual port")
    return ", ".join(parts)


def result_row(
    source: Source,
    line: int,
    banner: Banner,
    unit: str,
    cells: Mapping[str, str],
    asked: Asked,
) -> Imported:
    """One row; what cannot be true makes it a failed one, with why.

    Raises:
        InputError: a cell that is no number.
    """
    numbers = {name: read_number(source, line, cell, name) for name, cell in cells.items()}
    size, iterations = (read_count(source, line, cells[name], name) for name in (SIZE, ITERATIONS))
    values, unread = _values(numbers, unit, iterations)
    reason = impossible(numbers, unit, banner.case, size, asked)
    if not reason and not values:
        reason = "every value is 0"
    case = _by_duration(numbers, banner.case, iterations)
    return Imported(
        case=replace(case, size_bytes=max(size, 0)),
        outcome=Outcome.FAILED if reason else Outcome.MEASURED,
        reason=reason,
        source=source.at(line),
        link=banner.link,
        values=values,
        unread=unread,
        remarks=_remarks(banner.case, unread),
    )


def failed_row(
    source: Source, line: int, banner: Banner, reason: str, facts: Mapping[str, str]
) -> Imported:
    """A test that ended in error text."""
    return Imported(
        case=banner.case,
        outcome=Outcome.FAILED,
        reason=reason,
        source=source.at(line),
        link=banner.link,
        unread=facts,
    )


def _by_duration(
    numbers: Mapping[str, Number], case: ImportedCase, iterations: int
) -> ImportedCase:
    """Where time ended the test the printed iterations are a result, and no parameter."""
    no_peak = PEAK in numbers and numbers[PEAK].value == 0
    if not no_peak and TPS not in numbers:
        return replace(case, iterations=max(iterations, 0))
    why = "no peak: by duration or --noPeak" if no_peak else "by duration"
    return replace(case, variant=", ".join(filter(None, (case.variant, why))))


def _values(
    numbers: Mapping[str, Number], unit: str, iterations: int
) -> tuple[tuple[ImportedValue, ...], dict[str, str]]:
    """What has a metric, and what has none, by name as printed."""
    values, unread = [], {}
    for name, number in numbers.items():
        value = _value(name, number, unit, iterations, is_latency=AVERAGE not in numbers)
        if value is not None:
            values.append(value)
        elif name != SIZE and not (name in (PEAK, MIN) and number.value == 0):
            unread[name] = number.text
    return tuple(values), unread


def _value(
    name: str, number: Number, unit: str, iterations: int, *, is_latency: bool
) -> ImportedValue | None:
    if not number.is_finite or number.value < 0:
        return None
    if name == ITERATIONS:
        metric = "lat_n" if is_latency else "messages"
        return value_of(metric, "1", number, factor=1.0, column=name)
    if name in _TIMES:
        metric = _TIMES[name]
        if iterations < _NEEDED.get(metric, 0):
            return None
        return value_of(metric, "ns", number, factor=_US, column=name)
    if name in _BANDWIDTHS and number.value > 0:
        factor = BANDWIDTH_UNITS[unit]
        return value_of(_BANDWIDTHS[name], "B/s", number, factor=factor, column=name)
    if name in _OTHERS:
        metric, unit, _, factor = _OTHERS[name]
        return value_of(metric, unit, number, factor=factor, column=name)
    return None


def _remarks(case: ImportedCase, unread: Mapping[str, str]) -> tuple[str, ...]:
    remarks = [_TAIL] if case.probe == "latency" else []
    if "unknown (" in case.pair:
        remarks.append("the ends are not named: --initiator and --responder do")
    remarks += [
        f"{name} of so few iterations is no quantile here"
        if name in _TIMES
        else f"column {quoted(name)} is not read"
        for name in unread
        if name not in (AVERAGE, RATE)
    ]
    return tuple(remarks)


def impossible(
    numbers: Mapping[str, Number], unit: str, case: ImportedCase, size: int, asked: Asked
) -> str:
    """Why the row cannot be true, empty where nothing speaks against it."""
    for name, number in numbers.items():
        if not number.is_finite:
            return f"invalid result: {name} is {number.text}"
        if number.value < 0:
            return f"invalid result: negative value ({name} {number.text}), a counter overflowed"
    if size < 1 or numbers[ITERATIONS].value < 1:
        return f"invalid result: {numbers[ITERATIONS].text} iterations of {size} bytes"
    if AVERAGE in numbers:
        return _impossible_bandwidth(numbers, unit, case, size, asked)
    return _impossible_latency(numbers, case)


def _impossible_bandwidth(
    numbers: Mapping[str, Number], unit: str, case: ImportedCase, size: int, asked: Asked
) -> str:
    average = numbers[AVERAGE]
    if RATE in numbers and not average.spans(
        numbers[RATE], size * 1e6 / BANDWIDTH_UNITS[unit], slack=0.005
    ):
        return (
            f"contradictory: {size} B * {numbers[RATE].text} Mpps is not "
            f"{average.text} {unit} (BW average)"
        )
    directions = 2 if case.direction == "bidir" else 1
    rate_gbit_s = average.value * BANDWIDTH_UNITS[unit] * BITS_PER_BYTE / GIGA
    return above_line_rate(rate_gbit_s / directions, asked.line_rate_gbit_s)


def above_line_rate(rate_gbit_s: float, line_rate_gbit_s: float) -> str:
    """Why a rate of one direction cannot be: above the line's, or above any port's; else empty."""
    limit = line_rate_gbit_s or NO_PORT_IS_FASTER_GBIT_S
    if rate_gbit_s <= limit:
        return ""
    whose = "the line rate of" if line_rate_gbit_s else "what any port carries:"
    return f"impossible: {rate_gbit_s:.2f} Gb/s in one direction is above {whose} {limit:g} Gb/s"


def _impossible_latency(numbers: Mapping[str, Number], case: ImportedCase) -> str:
    order = [
        numbers[name]
        for name in ("t_min", TYPICAL, "99% percentile", "99.9% percentile")
        if name in numbers
    ]
    rising = [*order, numbers["t_max"]] if "t_max" in numbers else order
    if any(low.value > high.value for low, high in pairwise(rising)):
        said = ", ".join(number.text for number in rising)
        return f"contradictory: minimum, median, quantiles and maximum do not rise: {said}"
    if MEAN in numbers and "t_max" in numbers and numbers[MEAN].value > numbers["t_max"].value:
        return "contradictory: t_avg is above t_max"
    if TPS in numbers and MEAN in numbers and not _tps_fits(numbers, case):
        return f"contradictory: {numbers[MEAN].text} usec is not {numbers[TPS].text} tps"
    return ""


def _tps_fits(numbers: Mapping[str, Number], case: ImportedCase) -> bool:
    """A round trip is twice the printed latency, but for read and atomic."""
    trips = 1 if case.op.startswith(("read", "atomic")) else 2
    mean, tps = numbers[MEAN], numbers[TPS]
    period = Number(text="", value=1e6 / (trips * tps.value)) if tps.value > 0 else None
    return period is not None and mean.spans(period, 1.0, slack=0.005)
