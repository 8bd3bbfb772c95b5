"""`rdmabench accept`: is this fabric what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rdmabench import console
from rdmabench.commands.common import (
    RESULTS,
    Format,
    FormatOption,
    ResultsOption,
    echo_frame,
    show,
)
from rdmabench.errors import InputError

if TYPE_CHECKING:
    from rdmabench.analysis.ruleset import RuleSet
    from rdmabench.collector.tables import Tables


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("accept")(accept)


def accept(
    runs: Annotated[
        list[str] | None, typer.Argument(help="A run (`latest`); with --learn one or more.")
    ] = None,
    rules: Annotated[
        str, typer.Option("--rules", help="ib, roce, tcp, rxe, or a YAML file; else by fabric.")
    ] = "",
    baseline: Annotated[
        str, typer.Option("--baseline", help="A good run of the same fabric to hold it against.")
    ] = "",
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write JUnit XML here as well.")
    ] = None,
    selftest: Annotated[
        bool, typer.Option("--selftest", help="Plant faults into a copy: every gate must go red.")
    ] = False,
    explain: Annotated[
        str, typer.Option("--explain", help="How the attainable rate of a case is worked out.")
    ] = "",
    learn: Annotated[
        bool, typer.Option("--learn", help="Make rules from good runs, outliers left out.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="With --learn: the file to write.")
    ] = None,
    results: ResultsOption = RESULTS,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Judge a run by rules: PASS, FAIL, INCONCLUSIVE or NOT TESTED for each, and fail closed.

    Exit status: 0 all passed; 3 a limit was missed; 4 none was, but something was not tested or
    could not be decided. With --selftest 0 means that every planted fault turned its gates red, 3
    that one stayed green, 4 that a rule was tried by no fault.

    Examples:

    - `rdmabench accept latest --junit accept.xml`

    - `rdmabench accept RUN --baseline GOOD_RUN --rules my-rules.yml`

    - `rdmabench accept RUN --selftest`

    - `rdmabench accept RUN --explain write_bw/65536/4`

    - `rdmabench accept --learn -o my-rules.yml GOOD_RUN1 GOOD_RUN2`
    """
    from rdmabench.collector import tables
    from rdmabench.collector.store import find

    wanted = runs or ["latest"]
    if len(wanted) > 1 and not learn:
        raise InputError(
            f"{len(wanted)} runs, and one is judged at a time",
            remedy="name one run, or make rules from several with --learn",
        )
    loaded = [tables.load(find(results, run)) for run in wanted]
    if learn:
        _learn(loaded, out, fmt)
        return
    run = loaded[0]
    if explain:
        _explain(run, explain)
        return
    chosen = _rules(rules, run)
    if selftest:
        _selftest(run, chosen, fmt)
        return
    base = tables.load(find(results, baseline)) if baseline else None
    _judge(run, chosen, base, junit, fmt)


def _rules(asked: str, run: Tables) -> RuleSet:
    from rdmabench.analysis import ruleset

    fabric = next(iter(run.events["fabric"].astype("str")), "")
    if not asked and fabric not in ruleset.names():
        raise InputError(
            "the run does not say its fabric, so its rules are not known",
            remedy=f"--rules {', '.join(ruleset.names())}, or a file",
        )
    return ruleset.load(asked or fabric)


def _judge(
    run: Tables, rules: RuleSet, baseline: Tables | None, junit: Path | None, fmt: Format
) -> None:
    from rdmabench.analysis.acceptance import accept as judge
    from rdmabench.collector.files import replace_atomically
    from rdmabench.report import verdicts
    from rdmabench.report.junit import junit as as_junit

    result = judge(run, rules, baseline=baseline)
    if junit:
        replace_atomically(junit, as_junit(result).encode())
        console.say(f"wrote {junit}")
    if fmt is Format.TABLE:
        show(verdicts.acceptance_view(result))
    elif fmt is Format.JSON:
        typer.echo(verdicts.acceptance_json(result), nl=False)
    else:
        echo_frame(result.rows, fmt)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _selftest(run: Tables, rules: RuleSet, fmt: Format) -> None:
    from rdmabench.analysis.selftest import selftest
    from rdmabench.report import verdicts

    result = selftest(run, rules)
    if fmt is Format.TABLE:
        show(verdicts.selftest_view(result))
    elif fmt is Format.JSON:
        typer.echo(verdicts.selftest_json(result), nl=False)
    else:
        echo_frame(result.frame(), fmt)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _explain(run: Tables, case: str) -> None:
    from rdmabench.analysis.explaining import explained
    from rdmabench.report.safe import clean

    for text in explained(run, case):
        typer.echo(clean(text))


def _learn(runs: list[Tables], out: Path | None, fmt: Format) -> None:
    from rdmabench.analysis.learn import learn
    from rdmabench.collector.files import replace_atomically

    if out is None:
        raise InputError("--learn makes a file of rules", remedy="name it with -o FILE")
    made = learn(runs)
    replace_atomically(out, made.text.encode())
    for row in made.excluded.to_dict("records"):
        console.say(f"left out: {row['run']} {row['pair']} {row['measurement']}: {row['reason']}")
    console.say(f"wrote {out}: {made.rules} limits")
    if fmt is not Format.TABLE:
        echo_frame(made.excluded, fmt)
