"""Tables that fit the terminal: columns are dropped, least needed first, before anything wraps."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from rdmabench.report.safe import clean

PLAIN_WIDTH = 120
_GAP = 2
_SMALLEST_SHARED = 8


@dataclass(frozen=True)
class Field:
    """One column: its heading, its cells, and how soon it is dropped (0: never, higher: sooner).

    A column whose cells may be cut is `elastic`: it is shortened before an equally needed one goes.
    """

    heading: str
    cells: Sequence[str]
    drop: int = 0
    right: bool = True
    elastic: bool = False
    style: Callable[[str], str] | None = None

    @property
    def width(self) -> int:
        """The widest cell, the heading included."""
        return max(cell_len(text) for text in (self.heading, *self.cells))


@dataclass(frozen=True)
class Adaptive:
    """A renderable that is made for the width it is shown in."""

    make: Callable[[int], Iterable[RenderableType]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's protocol."""
        del console
        yield from self.make(options.max_width)


def cleaned(field: Field) -> Field:
    """The field without anything a terminal would act on."""
    return replace(field, heading=clean(field.heading), cells=[clean(text) for text in field.cells])


def fitting(fields: Sequence[Field], width: int) -> list[Field]:
    """The columns that fit side by side, in their order.

    Columns that say nothing in any row go first, then those of the highest `drop`.
    """
    kept = [field for field in fields if field.drop == 0 or any(_says(c) for c in field.cells)]
    while _needed(kept) > width:
        candidates = [field for field in kept if field.drop > 0]
        if not candidates:
            break
        kept.remove(max(candidates, key=lambda field: field.drop))
    return kept


def _says(cell: str) -> bool:
    return cell not in ("", "-")


def _needed(fields: Sequence[Field]) -> int:
    widths = [
        min(field.width, _SMALLEST_SHARED) if field.elastic else field.width for field in fields
    ]
    return sum(widths) + _GAP * len(fields)


def table(fields: Sequence[Field], width: int) -> Table:
    """One line per row, whatever the width; what is still too wide ends in an ellipsis."""
    chosen = fitting([cleaned(field) for field in fields], width)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for field in chosen:
        justify: Literal["left", "right"] = "right" if field.right else "left"
        made.add_column(
            Text(field.heading),
            justify=justify,
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if field.elastic else field.width,
        )
    for cells in zip(*(field.cells for field in chosen), strict=True):
        made.add_row(*map(_cell, chosen, cells))
    return made


def _cell(field: Field, cell: str) -> Text:
    return Text(cell, style=field.style(cell) if field.style else "")


def line(text: str, style: str = "") -> Text:
    """One paragraph, without markup, that may wrap."""
    return Text(clean(text), style=style)


def to_text(renderable: RenderableType, *, width: int = PLAIN_WIDTH, color: bool = False) -> str:
    """What a terminal of that width would show; without `color` there is no escape sequence."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(renderable)
    return "\n".join(each.rstrip() for each in out.getvalue().splitlines()) + "\n"
