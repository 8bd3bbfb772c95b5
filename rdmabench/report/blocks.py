"""What a report is made of: sections of tables, notes and pictures, before any markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from rdmabench.report.chart import Figure

GOOD, BAD, DOUBT, NEUTRAL = "good", "bad", "doubt", ""
ROWS_SHOWN = 300


class VerdictRow(Protocol):
    """One judgement as the report shows it: everything as text, units included."""

    @property
    def rule(self) -> str:
        """What was judged."""

    @property
    def subject(self) -> str:
        """Whom or what: a run, a pair, a node."""

    @property
    def verdict(self) -> str:
        """PASS, FAIL, INCONCLUSIVE or NOT TESTED."""

    @property
    def value(self) -> str:
        """What was measured."""

    @property
    def limit(self) -> str:
        """What it had to be."""

    @property
    def why(self) -> str:
        """The reason, or the evidence."""


@dataclass(frozen=True)
class Column:
    """One column of a table; `tones` has an entry per cell, or none."""

    heading: str
    cells: Sequence[str]
    right: bool = True
    tones: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """A table with its caption; of more than `ROWS_SHOWN` rows only the first are shown."""

    caption: str
    columns: tuple[Column, ...]
    folded: bool = False

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return max((len(column.cells) for column in self.columns), default=0)

    @property
    def shown(self) -> list[list[tuple[str, str, bool]]]:
        """The first rows: text, tone and whether it is a number, per cell."""
        per_column = [
            [
                (cell, tone, column.right)
                for cell, tone in zip_longest(
                    column.cells[:ROWS_SHOWN], column.tones[:ROWS_SHOWN], fillvalue=""
                )
            ]
            for column in self.columns
        ]
        return [list(row) for row in zip(*per_column, strict=True)]


@dataclass(frozen=True)
class Note:
    """One paragraph."""

    text: str
    tone: str = NEUTRAL


Block = Table | Note | Figure


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lead: str
    tone: str
    sections: tuple[Section, ...] = field(default_factory=tuple)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every picture, in order."""
        blocks = (block for section in self.sections for block in section.blocks)
        return tuple(block for block in blocks if isinstance(block, Figure))
