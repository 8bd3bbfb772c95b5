"""What commands share: the options that mean the same everywhere, and how results are written."""

from __future__ import annotations

import json
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rdmabench.model import Fabric

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from rdmabench.collector.store import RunDirectory
    from rdmabench.collector.tables import Tables

RESULTS = Path("results")


class Format(StrEnum):
    """How results are written to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


class HostKeys(StrEnum):
    """What to do with a host key that is not known yet."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"


FabricOption = Annotated[
    Fabric | None, typer.Option("--fabric", help="ib, roce, tcp, or rxe (soft-RoCE).")
]
InventoryOption = Annotated[
    str,
    typer.Option(
        "-i",
        "--inventory",
        help="Ansible inventory, nodeset (`gpu[001-128]`), hostfile, comma list, or `lab`.",
    ),
]
LimitOption = Annotated[str, typer.Option("--limit", help="Only these hosts: pattern or nodeset.")]
HostKeyOption = Annotated[
    HostKeys, typer.Option("--host-key-policy", help="Keys that are not known yet.")
]
SshConfigOption = Annotated[
    str, typer.Option("--ssh-config", help="Read this instead of ~/.ssh/config.")
]
FanoutOption = Annotated[
    int, typer.Option("--fanout", min=1, max=1024, help="Connections made at once.")
]
CleanOption = Annotated[
    bool, typer.Option("--clean", help="Remove the worker from the nodes afterwards.")
]
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


def print_summary(run: RunDirectory, fmt: Format) -> None:
    """What a run found, as a table or for machines; JSON also names what was not measured."""
    from rdmabench.analysis.summary import summarise
    from rdmabench.collector import tables
    from rdmabench.report import terminal

    loaded = tables.load(run)
    if fmt is Format.TABLE:
        show(terminal.sweep_summary(loaded))
    elif fmt is Format.JSON:
        info = run.info()
        typer.echo(
            json.dumps(
                {
                    "run": run.name,
                    "fabric": info.fabric,
                    "status": info.status,
                    "rows": json.loads(terminal.render(summarise(loaded), "json")),
                    "not_measured": json.loads(terminal.render(_not_measured(loaded), "json")),
                },
                indent=2,
            )
        )
    else:
        typer.echo(terminal.render(summarise(loaded), fmt.value), nl=False)


def _not_measured(loaded: Tables) -> pd.DataFrame:
    cases = loaded.cases
    return cases[cases["outcome"] != "measured"][["case", "pair", "outcome", "reason"]]
