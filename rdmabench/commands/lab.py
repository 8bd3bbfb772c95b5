"""`rdmabench lab`: the soft-RoCE lab."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rdmabench import console
from rdmabench.commands.common import Format, FormatOption, echo_frame
from rdmabench.errors import EXIT_INCOMPLETE

if TYPE_CHECKING:
    from rdmabench.lab.lab import LabStatus

LabName = Annotated[str, typer.Option("--name", help="Which lab, where several are kept.")]
lab_app = typer.Typer(
    help="The soft-RoCE lab: virtual nodes with real rxe devices.", no_args_is_help=True
)


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


def _print_lab(status: LabStatus, fmt: Format) -> None:
    import pandas as pd

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
    echo_frame(frame, fmt)
    console.say(f"inventory: {status.inventory}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(lab_app, name="lab")
