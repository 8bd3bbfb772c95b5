"""What commands share: the options that mean the same everywhere, and how results are written."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

RESULTS = Path("results")


class Format(StrEnum):
    """How results are written to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


FormatOption = Annotated[Format, typer.Option("--format", help="How to write the result.")]
ResultsOption = Annotated[
    Path, typer.Option("--results", help="Where the runs are kept.", envvar="RDMABENCH_RESULTS")
]
RunArgument = Annotated[
    str, typer.Argument(help="A run: its name, the start of it, `latest`, or a path.")
]


def width() -> int:
    """The terminal's width, or COLUMNS, or 120 in a pipe."""
    return shutil.get_terminal_size((120, 24)).columns


def show(renderable: RenderableType) -> None:
    """A rich renderable to stdout, in colour on a terminal."""
    from rdmabench.report import terminal

    text = terminal.to_text(renderable, width=width(), color=sys.stdout.isatty())
    typer.echo(text, nl=False)


def echo_frame(frame: pd.DataFrame, fmt: Format) -> None:
    """A table to stdout in the format that was asked for."""
    from rdmabench.report import terminal

    typer.echo(terminal.render(frame, fmt.value, width=width()), nl=False)
