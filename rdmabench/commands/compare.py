"""`rdmabench compare` and `rdmabench hosts`."""

from __future__ import annotations

from typing import Annotated

import typer

from rdmabench.commands.common import (
    RESULTS,
    Format,
    FormatOption,
    ResultsOption,
    echo_frame,
    show,
)


def compare(
    runs: Annotated[list[str], typer.Argument(help="Two runs or more; the first is the base.")],
    results: ResultsOption = RESULTS,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Compare runs: ratio of medians with a 95 % interval, for every probe and size.

    Examples:

    - `rdmabench compare 20261201-0315-rxe 20261201-0320-tcp`

    - `rdmabench compare RUN latest --format json`
    """
    from rdmabench.analysis.compare import compare as compare_tables
    from rdmabench.collector import tables
    from rdmabench.collector.store import find
    from rdmabench.report import terminal

    result = compare_tables([tables.load(find(results, run)) for run in runs])
    if fmt is Format.TABLE:
        show(terminal.comparison(result))
    else:
        typer.echo(terminal.render(result.rows, fmt.value), nl=False)


def hosts(
    inventory: Annotated[str, typer.Option("-i", "--inventory", help="As for `sweep`.")],
    limit: Annotated[str, typer.Option("--limit", help="Only these hosts.")] = "",
    fmt: FormatOption = Format.TABLE,
) -> None:
    """The hosts an inventory expands to, as a sweep would reach them.

    Example: `rdmabench hosts -i 'gpu[001-004]'`
    """
    import pandas as pd

    from rdmabench.orchestrator import inventory as inventories

    columns = ("name", "address", "port", "user", "python", "rdma_devices", "rack")
    found = inventories.load(inventory, limit=limit)
    frame = pd.DataFrame([[getattr(host, c) for c in columns] for host in found], columns=columns)
    echo_frame(frame, fmt)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(compare)
    app.command()(hosts)
