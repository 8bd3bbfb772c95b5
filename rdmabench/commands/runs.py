"""`rdmabench runs`: look at what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rdmabench import console
from rdmabench.commands.common import (
    RESULTS,
    Format,
    FormatOption,
    ResultsOption,
    RunArgument,
    echo_frame,
    print_summary,
    show,
)

runs_app = typer.Typer(help="Look at what was measured.", no_args_is_help=True)


@runs_app.command("list")
def runs_list(results: ResultsOption = RESULTS, fmt: FormatOption = Format.TABLE) -> None:
    """All runs, the oldest first. Example: `rdmabench runs list --format json`."""
    from rdmabench.collector.store import list_runs
    from rdmabench.report import terminal

    found = list_runs(results)
    if fmt is Format.TABLE:
        show(terminal.runs_list(found))
    else:
        typer.echo(terminal.render(terminal.runs_frame(found), fmt.value), nl=False)


@runs_app.command("show")
def runs_show(
    run: RunArgument = "latest",
    details: Annotated[
        bool, typer.Option("--details", help="Nodes, ports and notices as well.")
    ] = False,
    results: ResultsOption = RESULTS,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """What a run found. Examples: `rdmabench runs show`, `rdmabench runs show 20261201-0315`."""
    from rdmabench.collector import tables
    from rdmabench.collector.store import find
    from rdmabench.report import terminal

    directory = find(results, run)
    if details and fmt is Format.TABLE:
        show(terminal.run_details(directory, tables.load(directory)))
    print_summary(directory, fmt)


@runs_app.command("rebuild")
def runs_rebuild(run: RunArgument = "latest", results: ResultsOption = RESULTS) -> None:
    """Make a run's tables anew from its journal. Example: `rdmabench runs rebuild latest`."""
    from rdmabench.collector import tables
    from rdmabench.collector.store import find

    directory = find(results, run)
    tables.write(directory, tables.build(directory))
    console.say(f"wrote {directory.tables}")


@runs_app.command("export")
def runs_export(
    run: RunArgument = "latest",
    out: Annotated[Path, typer.Option("-o", "--out", help="A directory, made if absent.")] = Path(),
    kind: Annotated[str, typer.Option("--as", help="csv, parquet or json.")] = "csv",
    results: ResultsOption = RESULTS,
) -> None:
    """Write a run's tables as files. Example: `rdmabench runs export latest --as csv -o out/`."""
    from rdmabench.collector import tables
    from rdmabench.collector.store import find

    for path in tables.export(tables.load(find(results, run)), kind, out):
        typer.echo(path)


@runs_app.command("schema")
def runs_schema(fmt: FormatOption = Format.TABLE) -> None:
    """Every column of every table: type, unit, meaning. Example: `rdmabench runs schema`."""
    from rdmabench.collector.schema import schema

    echo_frame(schema(), fmt)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(runs_app, name="runs")
