"""`rdmabench report`: one file about one or more runs."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rdmabench import console
from rdmabench.commands.common import RESULTS, ResultsOption
from rdmabench.errors import InputError

if TYPE_CHECKING:
    from rdmabench.report.view import ReportRun

STDOUT = "-"


class ReportFormat(StrEnum):
    """What the report is written as."""

    HTML = "html"
    MD = "md"


class FigureFormat(StrEnum):
    """What its pictures are written as."""

    SVG = "svg"
    PNG = "png"


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Runs: names, the start of them, `latest`, or paths. The first is the base."
        ),
    ],
    out: Annotated[
        str,
        typer.Option("-o", "--out", help="The file; `-` is stdout, where Markdown goes anyway."),
    ] = "",
    fmt: Annotated[
        ReportFormat | None, typer.Option("--format", help="html, or md; else by the file's name.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Also write each picture into this directory.")
    ] = None,
    figure_format: Annotated[
        FigureFormat, typer.Option("--figure-format", help="svg or png; both want Chromium.")
    ] = FigureFormat.SVG,
    results: ResultsOption = RESULTS,
) -> None:
    """Write a report about runs: one HTML file that needs no network, or Markdown.

    Examples:

    - `rdmabench report latest -o report.html`

    - `rdmabench report ROCE_RUN TCP_RUN IB_RUN -o fabrics.html` (compared with the first)

    - `rdmabench report latest --format md > summary.md`

    - `rdmabench report latest -o report.html --figures figures/ --figure-format png`
    """
    from rdmabench.collector.store import find
    from rdmabench.report import view

    kind = fmt or (ReportFormat.MD if out.endswith(".md") else ReportFormat.HTML)
    if not out and kind is ReportFormat.HTML and figures is None:
        raise InputError("where to write the report?", remedy="-o report.html, or --format md")
    gathered = view.gather([find(results, run) for run in dict.fromkeys(runs)])
    if out or kind is ReportFormat.MD:
        _write(_rendered(gathered, kind), out or STDOUT)
    if figures is not None:
        _write_figures(gathered, figures, figure_format)


def _rendered(runs: tuple[ReportRun, ...], kind: ReportFormat) -> str:
    from rdmabench.report import html, markdown

    if kind is ReportFormat.MD:
        return markdown.render(runs)
    return html.render(runs, made_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")


def _write(text: str, out: str) -> None:
    from rdmabench.collector.files import replace_atomically

    if out == STDOUT:
        typer.echo(text, nl=False)
        return
    path = Path(out)
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{out}: not a file in an existing directory")
    replace_atomically(path, text.encode())
    console.say(f"{path}: {len(text.encode()) / 1e6:.1f} MB")


def _write_figures(runs: tuple[ReportRun, ...], directory: Path, fmt: FigureFormat) -> None:
    from rdmabench.report import static
    from rdmabench.report.figures import figures

    for path in static.write(figures(runs), directory, fmt.value):
        console.say(str(path))


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(report)
