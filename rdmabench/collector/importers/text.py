"""What every importer reads with: lines and their tags, numbers as printed, refusals.

Strict on purpose: only ASCII digits, only blanks and tabs between cells, so that a damaged cell is
never taken for another number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import PurePath
from typing import NoReturn

from rdmabench.errors import InputError
from rdmabench.model import EndpointRef, Imported, ImportedValue

MAX_BYTES = 64 << 20
MAX_COUNT = 1 << 62
_MAX_NUMBER_CHARS = 40
_MAX_VALUE = 1e18
_MAX_EXPONENT = 18
_QUOTED_CHARS = 60

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
_COUNT = re.compile(r"[-+]?[0-9]+")
_BLANKS = re.compile(r"[ \t]+")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
_RANK_TAG = re.compile(r"\[([^\]\s]*,[0-9]+)\]<std(?:out|err|diag)>: ?")
_HOST_TAG = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*): ?")


@dataclass(frozen=True)
class Asked:
    """What the person says that the text does not; empty and 0: nothing."""

    op: str = ""
    initiator: str = ""
    responder: str = ""
    ranks: int = 0
    line_rate_gbit_s: float = 0.0


NOTHING = Asked()


@dataclass(frozen=True)
class Parsed:
    """What one text holds: rows, warnings for its reader, and facts that no table takes."""

    rows: tuple[Imported, ...]
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    fabrics: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Line:
    """One line without its tag; `whole` is false where the text ends before a line feed."""

    number: int
    text: str
    whole: bool = True

    @property
    def cells(self) -> list[str]:
        """What blanks and tabs separate; nothing else does."""
        return [cell for cell in _BLANKS.split(self.text) if cell]


@dataclass(frozen=True)
class Source:
    """Which file a text is from, so that a refusal can name it."""

    name: str

    def at(self, line: int) -> str:
        """`file:line`, as rows carry it."""
        return f"{self.name}:{line}"

    def refuse(self, line: int, what: str, *, expected: str, remedy: str = "") -> NoReturn:
        """Ends the import of this file.

        Raises:
            InputError: always.
        """
        raise InputError(f"{self.at(line)}: {what}; expected {expected}", remedy=remedy)

    def unknown_end(self) -> EndpointRef:
        """An end that nobody named: of this file, so that two files never pass for one pair."""
        return EndpointRef(host=f"unknown ({PurePath(self.name).name})", device="")


@dataclass(frozen=True)
class Number:
    """A number as printed; `half` is half a unit of its last digit."""

    text: str
    value: float
    half: float = 0.0

    @property
    def is_finite(self) -> bool:
        """Whether it is a number at all: tools also print nan and inf."""
        return math.isfinite(self.value)

    def spans(self, other: Number, factor: float, *, slack: float = 0.002) -> bool:
        """Whether this can be `other * factor`, as far as the digits of both tell."""
        room = self.half + other.half * abs(factor) + slack * abs(self.value)
        return abs(self.value - other.value * factor) <= room


def read_number(source: Source, line: int, text: str, column: str) -> Number:
    """The cell as a number, nan and inf included.

    Raises:
        InputError: it is none, or no quantity of ours is that large.
    """
    if _NOT_FINITE.fullmatch(text):
        return Number(text=text, value=math.nan)
    if len(text) > _MAX_NUMBER_CHARS or not _NUMBER.fullmatch(text):
        source.refuse(line, f"{column} is {quoted(text)}", expected="a number")
    exact = Decimal(text)
    exponent = exact.as_tuple().exponent
    value = float(exact)
    if not isinstance(exponent, int) or exponent > _MAX_EXPONENT or abs(value) > _MAX_VALUE:
        source.refuse(line, f"{column} is {text}", expected="a number below 1e18")
    half = 0.5 * 10.0**exponent
    return Number(text=text, value=value, half=half)


def read_count(source: Source, line: int, text: str, column: str) -> int:
    """The cell as a whole number, negative ones included.

    Raises:
        InputError: it is none, or too large to be kept.
    """
    if len(text) > _MAX_NUMBER_CHARS or not _COUNT.fullmatch(text):
        source.refuse(line, f"{column} is {quoted(text)}", expected="a whole number")
    value = int(text)
    if abs(value) > MAX_COUNT:
        source.refuse(line, f"{column} is {text}", expected="a number below 2^62")
    return value


def is_number(text: str) -> bool:
    """Whether a cell is a number as tools print them."""
    return bool(_NUMBER.fullmatch(text))


def quoted(text: str) -> str:
    """Foreign text for a message: short, printable, in quotes."""
    return ascii(text if len(text) <= _QUOTED_CHARS else f"{text[:_QUOTED_CHARS]}...")


def value_of(
    metric: str, unit: str, number: Number, *, factor: float, column: str
) -> ImportedValue:
    """A printed number in the metric's unit."""
    return ImportedValue(
        metric=metric, value=number.value * factor, unit=unit, column=column, text=number.text
    )


def streams(text: str) -> list[list[Line]]:
    """The lines by who printed them: the ranks of `mpirun --tag-output` are kept apart.

    A name before every line (`pdsh`, `srun -l`) is taken off, and is a stream of its own too.
    """
    lines = list(_lines(text))
    tagged = any(_RANK_TAG.match(line.text) for line in lines)
    says = [line for line in lines if line.text.strip()]
    named = not tagged and bool(says) and all(_HOST_TAG.match(line.text) for line in says)
    if not tagged and not named:
        return [lines]
    return _by_tag(lines, _RANK_TAG if tagged else _HOST_TAG)


def _lines(text: str) -> Iterator[Line]:
    parts = text.split("\n")
    last = parts.pop()
    for number, part in enumerate(parts, 1):
        yield Line(number, _COLOUR.sub("", part.removesuffix("\r")))
    if last:
        yield Line(len(parts) + 1, _COLOUR.sub("", last.removesuffix("\r")), whole=False)


def _by_tag(lines: Iterable[Line], tag: re.Pattern[str]) -> list[list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        match = tag.match(line.text)
        text = line.text[match.end() :] if match else line.text
        mine = found.setdefault(match[1] if match else "", [])
        mine.append(Line(line.number, text, line.whole))
    return list(found.values())
