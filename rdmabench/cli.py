"""The command line: gathers the commands; every error ends as one message and an exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Annotated, Any

import typer

from rdmabench import __version__, console
from rdmabench.commands import (
    accept,
    compare,
    importing,
    lab,
    preflight,
    report,
    runs,
    suspects,
    sweep,
    trend,
)
from rdmabench.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_USAGE, RdmabenchError

# The root of what a wrong command line raises; typer carries its own copy of click.
_USAGE_ERROR: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
_COMMANDS = (
    sweep,
    preflight,
    compare,
    suspects,
    accept,
    report,
    trend,
    runs,
    importing,
    lab,
)

app = typer.Typer(
    name="rdmabench",
    help="Measure and accept the RDMA fabric of a GPU cluster, with evidence.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"rdmabench {__version__}")
        raise typer.Exit


for _module in _COMMANDS:
    _module.register(app)


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
