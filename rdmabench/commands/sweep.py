"""`rdmabench sweep`: measure, or say what would be measured."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rdmabench import console
from rdmabench.commands.common import (
    RESULTS,
    CleanOption,
    FabricOption,
    FanoutOption,
    Format,
    FormatOption,
    HostKeyOption,
    HostKeys,
    InventoryOption,
    LimitOption,
    ResultsOption,
    SshConfigOption,
    print_summary,
    width,
)
from rdmabench.errors import EXIT_INCOMPLETE, EXIT_LIMITS_MISSED
from rdmabench.model import Evidence

if TYPE_CHECKING:
    from rdmabench.collector.store import RunDirectory
    from rdmabench.sweeping import Asked

_ROUNDS_SHOWN = 4
_PAIRS_SHOWN = 8


class Engine(StrEnum):
    """Who runs the timed loops."""

    HOTLOOP = "hotloop"
    PYVERBS = "pyverbs"


def sweep(
    fabric: FabricOption = None,
    inventory: InventoryOption = "",
    limit: LimitOption = "",
    plan: Annotated[str, typer.Option("--plan", help="quick, standard, or a YAML file.")] = "quick",
    pairs: Annotated[
        str, typer.Option("--pairs", help="ring, all, rails, bisection, or a list `n1:n2,n3:n4`.")
    ] = "ring",
    engine: Annotated[
        Engine, typer.Option("--engine", help="hotloop times in C; pyverbs is the cross-check.")
    ] = Engine.HOTLOOP,
    host_key_policy: HostKeyOption = HostKeys.STRICT,
    ssh_config: SshConfigOption = "",
    fanout: FanoutOption = 64,
    clean: CleanOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run and how long; touch no node.")
    ] = False,
    resume: Annotated[
        str, typer.Option("--resume", help="Go on with this run: measure only what is missing.")
    ] = "",
    keep_lab: Annotated[
        bool, typer.Option("--keep-lab", help="Leave a lab running that this sweep started.")
    ] = False,
    results: ResultsOption = RESULTS,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Measure latency and bandwidth between the nodes of a fabric.

    Examples:

    - `rdmabench sweep --fabric roce -i hosts/roce.yml`

    - `rdmabench sweep --fabric ib -i 'gpu[001-128]' --pairs all --plan standard`

    - `rdmabench sweep --fabric rxe` (needs nothing: starts the soft-RoCE lab)

    - `rdmabench sweep --resume latest`
    """
    from rdmabench import sweeping

    asked = sweeping.Asked(
        fabric=fabric,
        inventory=inventory,
        limit=limit,
        plan=plan,
        pairs=pairs,
        engine=engine.value,
        host_key_policy=host_key_policy.value,
        ssh_config=ssh_config,
        fanout=fanout,
        clean=clean,
        keep_lab=keep_lab,
        resume=resume,
        results=results,
    )
    if dry_run:
        _print_dry_run(asked, fmt)
        return
    run, ended = sweeping.run(asked)
    print_summary(run, fmt)
    if ended.status != "done":
        console.say(
            f"incomplete: {ended.failed} failed, {ended.skipped} skipped; "
            f"`rdmabench sweep --resume {run.name}` measures what is missing"
        )
        raise typer.Exit(EXIT_INCOMPLETE)
    _refuse_fallback(run)


def _refuse_fallback(run: RunDirectory) -> None:
    """Rows whose bytes went another way are not what was asked for."""
    from rdmabench.collector import tables

    cases = tables.load(run).cases
    astray = int((cases["evidence"] == Evidence.FALLBACK.value).sum())
    if astray:
        console.say(
            f"{astray} cases did not go over the asked-for fabric (evidence: fallback): their "
            "counters are in `rdmabench runs export`, table counters"
        )
        raise typer.Exit(EXIT_LIMITS_MISSED)


def _print_dry_run(asked: Asked, fmt: Format) -> None:
    import pandas as pd

    from rdmabench import sweeping
    from rdmabench.report import terminal
    from rdmabench.units import duration_text

    would = sweeping.dry_run(asked)
    columns = ("probe", "op", "transport", "size_bytes", "qps", "iterations", "depth", "engine")
    parameters = [case.parameters for case in would.cases if case.repeat == 0]
    frame = pd.DataFrame([[getattr(p, c) for c in columns] for p in parameters], columns=columns)
    rounds = [[[p.initiator.label, p.responder.label] for p in pairs] for pairs in would.rounds]
    total = len(would.cases) * sum(len(pairs) for pairs in rounds)
    if fmt is Format.JSON:
        document = {
            "hosts": [host.name for host in would.hosts],
            "measurements": frame.to_dict("records"),
            "repeats": would.plan.repeats,
            "rounds": rounds,
            "cases": total,
            "estimate_s": round(would.estimate_s, 1),
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo(terminal.render(frame, fmt.value, width=width()), nl=False)
    for number, pairs in enumerate(rounds[:_ROUNDS_SHOWN], start=1):
        names = ", ".join(f"{a.split('/')[0]}>{b.split('/')[0]}" for a, b in pairs[:_PAIRS_SHOWN])
        more = f" and {len(pairs) - _PAIRS_SHOWN} more" if len(pairs) > _PAIRS_SHOWN else ""
        console.say(f"round {number}: {names}{more}")
    if len(rounds) > _ROUNDS_SHOWN:
        console.say(f"and {len(rounds) - _ROUNDS_SHOWN} more rounds")
    console.say(
        f"{len(would.hosts)} hosts, {len(rounds)} rounds, {total} cases in all "
        f"({would.plan.repeats} repeats), about {duration_text(would.estimate_s)}; "
        "one endpoint a host is assumed, and nothing was touched"
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sweep)
