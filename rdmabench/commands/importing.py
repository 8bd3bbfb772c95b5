"""`rdmabench import`: other tools' output as runs that `runs`, `compare` and the rest can use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rdmabench import console
from rdmabench.commands.common import RESULTS, Format, FormatOption, ResultsOption, echo_frame
from rdmabench.errors import EXIT_USAGE
from rdmabench.model import Fabric

if TYPE_CHECKING:
    import pandas as pd

    from rdmabench.collector.importers.bring_in import BroughtIn
    from rdmabench.collector.importers.text import Asked
    from rdmabench.model import Imported

HEADLINES = ("bw", "bw_total", "lat_p50", "lat_mean", "busbw", "time")

_FilesArgument = Annotated[
    list[Path], typer.Argument(help="Files with the tool's output; several make one run.")
]
_FabricOption = Annotated[
    Fabric | None, typer.Option("--fabric", help="ib, roce, tcp or rxe, where the text is silent.")
]
_OpOption = Annotated[
    str, typer.Option("--op", help="The operation, where the text does not name it.")
]
_InitiatorOption = Annotated[
    str, typer.Option("--initiator", help="Name of the host that timed, or of the group.")
]
_ResponderOption = Annotated[str, typer.Option("--responder", help="Name of the other host.")]
_RanksOption = Annotated[
    int, typer.Option("--ranks", min=0, help="How many ranks should have taken part.")
]
_LineRateOption = Annotated[
    float,
    typer.Option(
        "--line-rate", min=0, help="Rate of the port, Gb/s: values above it are marked failed."
    ),
]

import_app = typer.Typer(
    help="Take in what other tools measured. A bad file is refused with one message, the others "
    "are taken, and the exit status is then 2.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Adds `import` to the commands."""
    app.add_typer(import_app, name="import")


@import_app.command("perftest")
def perftest(
    files: _FilesArgument,
    results: ResultsOption = RESULTS,
    fabric: _FabricOption = None,
    op: _OpOption = "",
    initiator: _InitiatorOption = "",
    responder: _ResponderOption = "",
    line_rate: _LineRateOption = 0.0,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Output of ib_write_bw, ib_send_lat and their kin: text, or JSON of `--out_json`.

    MB/sec is read as 2^20 bytes per second, as perftest means it; `BW peak` is kept, never judged;
    -b is the sum of both directions. A server's output has no result of a one-way test.

    Examples:

    - `rdmabench import perftest ib_write_bw.txt`

    - `rdmabench import perftest night/*.txt --initiator gpu01 --responder gpu02 --line-rate 400`
    """
    from rdmabench.collector.importers.text import Asked

    asked = Asked(op=op, initiator=initiator, responder=responder, line_rate_gbit_s=line_rate)
    _finish(files, "perftest", results, asked, fabric, fmt)


@import_app.command("nccl-tests")
def nccl_tests(
    files: _FilesArgument,
    results: ResultsOption = RESULTS,
    fabric: _FabricOption = None,
    op: _OpOption = "",
    initiator: _InitiatorOption = "",
    ranks: _RanksOption = 0,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Output of all_reduce_perf and its kin: text since 2019, tagged by mpirun or not, or JSON.

    Rows of a single rank, with wrong elements or of size 0 are kept as failed or skipped. The
    average bus bandwidth of a whole table is kept as a notice and never judged.

    Examples:

    - `rdmabench import nccl-tests all_reduce.log --ranks 16`

    - `rdmabench import nccl-tests report.json --fabric roce`
    """
    from rdmabench.collector.importers.text import Asked

    _finish(
        files, "nccl-tests", results, Asked(op=op, initiator=initiator, ranks=ranks), fabric, fmt
    )


@import_app.command("osu")
def osu(
    files: _FilesArgument,
    results: ResultsOption = RESULTS,
    fabric: _FabricOption = None,
    op: _OpOption = "",
    initiator: _InitiatorOption = "",
    responder: _ResponderOption = "",
    ranks: _RanksOption = 0,
    line_rate: _LineRateOption = 0.0,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Output of the OSU micro-benchmarks: latency, bandwidth, message rate, collectives.

    MB/s is 10^6 bytes per second, as OSU means it. OSU does not print how many ranks took part.

    Examples:

    - `rdmabench import osu osu_bw.txt --initiator gpu01 --responder gpu02`

    - `rdmabench import osu osu_allreduce.txt --ranks 64 --fabric ib`
    """
    from rdmabench.collector.importers.text import Asked

    asked = Asked(
        op=op,
        initiator=initiator,
        responder=responder,
        ranks=ranks,
        line_rate_gbit_s=line_rate,
    )
    _finish(files, "osu", results, asked, fabric, fmt)


def _finish(
    files: list[Path],
    tool: str,
    results: Path,
    asked: Asked,
    fabric: Fabric | None,
    fmt: Format,
) -> None:
    from rdmabench.collector.importers.bring_in import bring_in

    brought = bring_in(files, tool=tool, results=results, asked=asked, fabric=fabric)
    for warning in brought.warnings:
        console.say(f"warning: {warning}")
    for error in brought.refused:
        console.complain(error)
    if fmt is Format.JSON:
        typer.echo(json.dumps(_document(brought), indent=2))
    elif brought.rows:
        echo_frame(_frame(brought.rows), fmt)
    if brought.run:
        counts = _counts(brought)
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        console.say(f"{brought.run.path}: {told}; `rdmabench runs show {brought.run.name}`")
    if brought.refused:
        console.say(f"{len(brought.refused)} of {len(files)} files were refused")
        raise typer.Exit(EXIT_USAGE)


def _counts(brought: BroughtIn) -> dict[str, int]:
    outcomes = [row.outcome.value for row in brought.rows]
    return {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)}


def _document(brought: BroughtIn) -> dict[str, Any]:
    run = brought.run
    return {
        "run": run.name if run else None,
        "fabric": run.info().fabric if run else None,
        "status": run.info().status if run else None,
        "rows": [_row(row) for row in brought.rows],
        "warnings": list(brought.warnings),
        "refused": [error.brief for error in brought.refused],
    }


def _frame(rows: tuple[Imported, ...]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([_row(row) for row in rows])


def _row(row: Imported) -> dict[str, Any]:
    """What was read, and the value that counts most, in the unit that people read."""
    from rdmabench.collector.schema import METRICS

    values = {each.metric: each.value for each in row.values}
    measured = [name for name in HEADLINES if name in values and row.outcome.value == "measured"]
    metric = METRICS[measured[0]] if measured else None
    return {
        "op": row.case.op,
        "size_bytes": row.case.size_bytes,
        "outcome": row.outcome.value,
        "metric": metric.shown if metric else "",
        "value": float(f"{values[metric.name] * metric.scale:.6g}") if metric else None,
        "direction": row.case.direction,
        "pair": row.case.pair,
        "repeat": row.case.repeat,
        "source": row.source,
        "reason": row.reason,
        "variant": row.case.variant,
        "remarks": "; ".join(row.remarks),
    }
