"""The commands. They wire the rooms together; nothing else prints a result or exits."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from rdmabench import __version__, console
from rdmabench.errors import (
    EXIT_DONE,
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    RdmabenchError,
)
from rdmabench.model import Fabric

RESULTS = Path("results")
_ROUNDS_SHOWN = 4
_PAIRS_SHOWN = 8

# The root of what a wrong command line raises; typer carries its own copy of click.
_USAGE_ERROR: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="rdmabench",
    help="Measure and accept the RDMA fabric of a GPU cluster, with evidence.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
runs_app = typer.Typer(help="Look at what was measured.", no_args_is_help=True)
lab_app = typer.Typer(
    help="The soft-RoCE lab: virtual nodes with real rxe devices.", no_args_is_help=True
)
app.add_typer(runs_app, name="runs")
app.add_typer(lab_app, name="lab")


class Format(StrEnum):
    """How results are written to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


class Engine(StrEnum):
    """Who runs the timed loops."""

    HOTLOOP = "hotloop"
    PYVERBS = "pyverbs"


class HostKeys(StrEnum):
    """What to do with a host key that is not known yet."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"


FormatOption = Annotated[Format, typer.Option("--format", help="How to write the result.")]
ResultsOption = Annotated[
    Path, typer.Option("--results", help="Where the runs are kept.", envvar="RDMABENCH_RESULTS")
]
RunArgument = Annotated[
    str, typer.Argument(help="A run: its name, the start of it, `latest`, or a path.")
]
LabName = Annotated[str, typer.Option("--name", help="Which lab, where several are kept.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"rdmabench {__version__}")
        raise typer.Exit


@app.command()
def sweep(
    fabric: Annotated[
        Fabric | None, typer.Option("--fabric", help="ib, roce, tcp, or rxe (soft-RoCE).")
    ] = None,
    inventory: Annotated[
        str,
        typer.Option(
            "-i",
            "--inventory",
            help="Ansible inventory, nodeset (`gpu[001-128]`), hostfile, comma list, or `lab`.",
        ),
    ] = "",
    limit: Annotated[
        str, typer.Option("--limit", help="Only these hosts: pattern or nodeset.")
    ] = "",
    plan: Annotated[str, typer.Option("--plan", help="quick, standard, or a YAML file.")] = "quick",
    pairs: Annotated[
        str, typer.Option("--pairs", help="ring, all, rails, bisection, or a list `n1:n2,n3:n4`.")
    ] = "ring",
    engine: Annotated[
        Engine, typer.Option("--engine", help="hotloop times in C; pyverbs is the cross-check.")
    ] = Engine.HOTLOOP,
    host_key_policy: Annotated[
        HostKeys, typer.Option("--host-key-policy", help="Keys that are not known yet.")
    ] = HostKeys.STRICT,
    ssh_config: Annotated[
        str, typer.Option("--ssh-config", help="Read this instead of ~/.ssh/config.")
    ] = "",
    fanout: Annotated[
        int, typer.Option("--fanout", min=1, max=1024, help="Connections made at once.")
    ] = 64,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove the worker from the nodes afterwards.")
    ] = False,
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
    _print_summary(run, fmt)
    if ended.status != "done":
        console.say(
            f"incomplete: {ended.failed} failed, {ended.skipped} skipped; "
            f"`rdmabench sweep --resume {run.name}` measures what is missing"
        )
        raise typer.Exit(EXIT_INCOMPLETE)


def _print_dry_run(asked: Any, fmt: Format) -> None:
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
        typer.echo(terminal.render(frame, fmt.value, width=_width()), nl=False)
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


def _print_summary(run: Any, fmt: Format) -> None:
    from rdmabench.analysis.summary import summarise
    from rdmabench.collector import tables
    from rdmabench.report import terminal

    loaded = tables.load(run)
    if fmt is Format.TABLE:
        _show(terminal.sweep_summary(loaded))
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


def _not_measured(loaded: Any) -> Any:
    cases = loaded.cases
    return cases[cases["outcome"] != "measured"][["case", "pair", "outcome", "reason"]]


def _show(renderable: Any) -> None:
    from rdmabench.report import terminal

    text = terminal.to_text(renderable, width=_width(), color=sys.stdout.isatty())
    typer.echo(text, nl=False)


def _width() -> int:
    """The terminal's width, or COLUMNS, or 120 in a pipe."""
    return shutil.get_terminal_size((120, 24)).columns


@app.command()
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
        _show(terminal.comparison(result))
    else:
        typer.echo(terminal.render(result.rows, fmt.value), nl=False)


@app.command()
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
    from rdmabench.report import terminal

    columns = ("name", "address", "port", "user", "python", "rdma_devices", "rack")
    found = inventories.load(inventory, limit=limit)
    frame = pd.DataFrame([[getattr(host, c) for c in columns] for host in found], columns=columns)
    typer.echo(terminal.render(frame, fmt.value, width=_width()), nl=False)


@runs_app.command("list")
def runs_list(results: ResultsOption = RESULTS, fmt: FormatOption = Format.TABLE) -> None:
    """All runs, the oldest first. Example: `rdmabench runs list --format json`."""
    from rdmabench.collector.store import list_runs
    from rdmabench.report import terminal

    found = list_runs(results)
    if fmt is Format.TABLE:
        _show(terminal.runs_list(found))
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
        _show(terminal.run_details(directory, tables.load(directory)))
    _print_summary(directory, fmt)


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
    from rdmabench.report import terminal

    typer.echo(terminal.render(schema(), fmt.value, width=_width()), nl=False)


@lab_app.command("up")
def lab_up(
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=64)] = 2,
    vcpus: Annotated[int, typer.Option("--vcpus", min=1, max=16)] = 1,
    memory: Annotated[int, typer.Option("--memory", min=256, help="MiB for each node.")] = 768,
    icount: Annotated[
        bool, typer.Option("--icount", help="Virtual time by instructions: repeatable timings.")
    ] = False,
    accel: Annotated[str, typer.Option("--accel", help="auto, kvm or tcg.")] = "auto",
    name: LabName = "default",
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Start the lab, or what is missing of it; the image is built once.

    Examples: `rdmabench lab up`, `rdmabench lab up --nodes 4`
    """
    from rdmabench.lab import lab

    options = lab.LabOptions(
        nodes=nodes, vcpus=vcpus, memory_mib=memory, icount=icount, accel=accel, name=name
    )
    _print_lab(lab.up(options, progress=console.say), fmt)


@lab_app.command("down")
def lab_down(name: LabName = "default") -> None:
    """End what `up` started, also after a crash. Example: `rdmabench lab down`."""
    from rdmabench.lab import lab

    ended = lab.down(name)
    console.say(f"ended {', '.join(ended)}" if ended else "nothing was running")


@lab_app.command("status")
def lab_status(name: LabName = "default", fmt: FormatOption = Format.TABLE) -> None:
    """The lab's nodes and its inventory. Example: `rdmabench lab status`."""
    from rdmabench.lab import lab

    found = lab.status(name)
    if found is None:
        console.say("the lab is not up; `rdmabench lab up` starts it")
        raise typer.Exit(EXIT_INCOMPLETE)
    _print_lab(found, fmt)


@lab_app.command(
    "ssh", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
def lab_ssh(
    node: Annotated[str, typer.Argument(help="node1, node2 ...")],
    command: Annotated[list[str] | None, typer.Argument(help="A command for the node.")] = None,
    name: LabName = "default",
) -> None:
    """A shell on a node, or one command. Example: `rdmabench lab ssh node1 rdma link`."""
    from rdmabench.lab import lab

    argv = (*lab.ssh_command(node, name), *(command or ()))
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606 - an argument vector, no shell


def _print_lab(status: Any, fmt: Format) -> None:
    import pandas as pd

    from rdmabench.report import terminal

    frame = pd.DataFrame(
        [
            {
                "node": node.name,
                "state": "running" if node.running else "dead",
                "accel": status.accel,
                "ssh_port": node.ssh_port,
                "data_address": node.address,
                "ready_s": round(node.seconds_to_ready, 1),
                "pid": node.pid,
            }
            for node in status.nodes
        ]
    )
    typer.echo(terminal.render(frame, fmt.value, width=_width()), nl=False)
    console.say(f"inventory: {status.inventory}")


def main() -> None:
    """Run a command; every error ends here, as one message and an exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    with _reported():
        result = app(standalone_mode=False)
        if result == EXIT_INTERRUPTED:  # typer has taken the KeyboardInterrupt
            raise KeyboardInterrupt
        sys.exit(result if isinstance(result, int) else EXIT_DONE)


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except RdmabenchError as exc:
        console.complain(exc)
        sys.exit(exc.exit_code)
    except _USAGE_ERROR as exc:
        exc.show()
        sys.exit(EXIT_USAGE)
    except (KeyboardInterrupt, typer.Abort):
        console.say("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_DONE)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
