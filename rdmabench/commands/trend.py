"""`rdmabench trend`: what changed over nightly runs, since which, by how much."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rdmabench import console
from rdmabench.commands.common import RESULTS, Format, FormatOption, ResultsOption, echo_frame, show
from rdmabench.errors import EXIT_INCOMPLETE, EXIT_LIMITS_MISSED, InputError, RdmabenchError
from rdmabench.model import Fabric

if TYPE_CHECKING:
    from rdmabench.analysis.trend import Trend, TrendRun
    from rdmabench.collector.store import RunDirectory


def trend(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Runs: names, the start of them, or paths.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=2, help="Instead of names: the last so many runs.")
    ] = None,
    plan: Annotated[
        str, typer.Option("--plan", help="With --last: of this plan; else the newest run's.")
    ] = "",
    fabric: Annotated[
        Fabric | None,
        typer.Option("--fabric", help="With --last: of this fabric; else the newest run's."),
    ] = None,
    false_alarm_pct: Annotated[
        float,
        typer.Option(
            "--false-alarm-pct",
            min=0.5,
            max=20,
            help="How often any change at all may be seen where there is none.",
        ),
    ] = 5.0,
    smallest_pct: Annotated[
        float, typer.Option("--smallest-pct", min=0, help="Smaller changes are not judged.")
    ] = 2.0,
    results: ResultsOption = RESULTS,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """What changed over runs of one plan, since which run, by what ratio.

    Exit status 3 where the last change of a measurement is for the worse, 4 where there are too
    few runs to tell, else 0.

    Examples:

    - `rdmabench trend --last 20 --plan quick --fabric rxe`

    - `rdmabench trend results/2026*-rxe-quick`
    """
    from rdmabench.analysis import trend as analysis
    from rdmabench.collector.store import find

    if bool(runs) == bool(last):
        raise InputError("name runs, or say how many of the last ones", remedy="--last 20")
    chosen = [find(results, run) for run in dict.fromkeys(runs or ())]
    if last:
        chosen = _last(results, last, plan=plan, fabric=fabric)
    found = analysis.trend(
        _loaded(chosen), false_alarm=false_alarm_pct / 100, smallest=smallest_pct / 100
    )
    _print(found, fmt)
    for note in found.notes:
        console.say(note)
    _finish(found, len(chosen))


def _last(results: Path, count: int, *, plan: str, fabric: Fabric | None) -> list[RunDirectory]:
    from rdmabench.collector.store import list_runs

    infos = [(run, run.info()) for run in list_runs(results)]
    infos = [
        (run, info)
        for run, info in infos
        if plan in ("", info.plan) and (fabric is None or info.fabric == fabric.value)
    ]
    if not infos:
        raise InputError(f"{results}: no such runs", remedy="`rdmabench runs list` names them")
    newest = infos[-1][1]
    return [
        run
        for run, info in infos
        if (info.plan, info.fabric) == (newest.plan, newest.fabric) and info.status != "running"
    ][-count:]


def _loaded(runs: Sequence[RunDirectory]) -> list[TrendRun]:
    """The runs that can be read; the others are named."""
    from rdmabench.analysis.trend import TrendRun
    from rdmabench.collector import tables

    loaded = []
    for run in runs:
        info = run.info()
        try:
            each = tables.load(run)
        except RdmabenchError as exc:
            console.say(f"{run.name} is left out: {exc}")
            continue
        loaded.append(TrendRun(run.name, info.plan, info.started_at, each))
    return loaded


def _print(found: Trend, fmt: Format) -> None:
    if fmt is Format.TABLE:
        from rdmabench.report.trending import trend_table

        show(trend_table(found))
    elif fmt is Format.JSON:
        from rdmabench.report import terminal

        document = {
            "false_alarm": found.false_alarm,
            "runs_needed": found.runs_needed,
            "regressions": len(found.regressions),
            "rows": json.loads(terminal.render(found.rows, "json")),
            "series": json.loads(terminal.render(found.points, "json")),
            "notes": list(found.notes),
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        echo_frame(found.rows, fmt)


def _finish(found: Trend, runs: int) -> None:
    if not found.is_judged:
        console.say(
            f"too few runs to tell: {runs} here; a change beyond all noise is found from "
            f"{found.runs_needed} runs of one plan on"
        )
        raise typer.Exit(EXIT_INCOMPLETE)
    regressions = found.regressions
    if len(regressions):
        console.say(f"{len(regressions)} of the measurements changed for the worse")
        raise typer.Exit(EXIT_LIMITS_MISSED)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(trend)
