"""`rdmabench suspects`: which node, NIC, link, rail or direction is not like the others."""

from __future__ import annotations

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
    show,
)
from rdmabench.errors import EXIT_DONE, EXIT_INCOMPLETE, EXIT_LIMITS_MISSED


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("suspects")(suspects)


def suspects(
    run: RunArgument = "latest",
    retest_pairs: Annotated[
        bool,
        typer.Option("--retest-pairs", help="Print what to measure again, for `sweep --pairs`."),
    ] = False,
    retest: Annotated[
        str, typer.Option("--with", help="A retest of this run: its repeats are added.")
    ] = "",
    results: ResultsOption = RESULTS,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Find the node, NIC, link, rail or direction that explains slow, failed or misled pairs.

    Exit status: 0 nothing stands out, 3 there are suspects, 4 the run cannot tell.

    Examples:

    - `rdmabench suspects latest`

    - `rdmabench sweep --pairs "$(rdmabench suspects RUN --retest-pairs)"` measures again, with
      healthy partners; then `rdmabench suspects RUN --with latest`
    """
    from rdmabench.analysis.suspects import suspects as find_suspects
    from rdmabench.collector import tables
    from rdmabench.collector.store import find
    from rdmabench.report import verdicts

    loaded = tables.load(find(results, run))
    again = tables.load(find(results, retest)) if retest else None
    result = find_suspects(loaded, again=again)
    if retest_pairs:
        typer.echo(result.retest_pairs)
        if not result.retest_pairs:
            console.say("there is no pair to measure again")
        raise typer.Exit(EXIT_DONE if result.retest_pairs else EXIT_INCOMPLETE)
    if fmt is Format.TABLE:
        show(verdicts.suspects_view(result))
    elif fmt is Format.JSON:
        typer.echo(verdicts.suspects_json(result), nl=False)
    else:
        echo_frame(result.frame(), fmt)
        if not result.answered:
            console.say(f"this run cannot tell: {result.reason}")
    if result.found:
        raise typer.Exit(EXIT_LIMITS_MISSED)
    if not result.answered:
        raise typer.Exit(EXIT_INCOMPLETE)
