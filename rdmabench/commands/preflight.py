"""`rdmabench preflight`: what the nodes are, what is wrong with them, and what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rdmabench import console, wire
from rdmabench.audit import Audit
from rdmabench.commands.common import (
    CleanOption,
    FabricOption,
    FanoutOption,
    Format,
    FormatOption,
    HostKeyOption,
    HostKeys,
    InventoryOption,
    LimitOption,
    SshConfigOption,
    echo_frame,
    show,
)
from rdmabench.errors import (
    EXIT_INCOMPLETE,
    EXIT_LIMITS_MISSED,
    InputError,
    StorageError,
)
from rdmabench.model import Fabric, Host

if TYPE_CHECKING:
    from rdmabench.analysis.preflight import Result

_DUMP_VERSION = 1
_SAY_EVERY = 64


@dataclass(frozen=True)
class Collected:
    """What the nodes said, and why some did not."""

    fabric: Fabric
    audits: tuple[Audit, ...] = ()
    unreachable: dict[str, str] = field(default_factory=dict)


def preflight(
    fabric: FabricOption = None,
    inventory: InventoryOption = "",
    limit: LimitOption = "",
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="ID", help="Pass over this kind of finding; repeatable."),
    ] = None,
    priority: Annotated[
        int, typer.Option("--priority", min=0, max=7, help="The priority of RDMA traffic.")
    ] = 3,
    dump: Annotated[
        Path | None, typer.Option("--dump", help="Also write all facts to this JSON file.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Read facts that --dump wrote; touch no node.")
    ] = None,
    host_key_policy: HostKeyOption = HostKeys.STRICT,
    ssh_config: SshConfigOption = "",
    fanout: FanoutOption = 64,
    clean: CleanOption = False,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Look at nodes and links before measuring: findings with severity and remedy.

    Exit status: 0 no errors, 3 errors were found, 4 some nodes could not be asked.

    Examples:

    - `rdmabench preflight --fabric roce -i hosts/roce.yml`

    - `rdmabench preflight --fabric ib -i 'gpu[001-128]' --ignore same-card --dump facts.json`

    - `rdmabench preflight --from facts.json --format json`
    """
    from rdmabench.analysis import preflight as analysis

    ignored = analysis.checked_ids(ignore or ())
    if source is not None:
        if inventory or limit:
            raise InputError("--from reads a file: -i and --limit do not apply")
        collected = load(source, fabric)
    else:
        collected = _ask(
            _hosts(_required(fabric), inventory, limit),
            _required(fabric),
            policy=host_key_policy.value,
            config=ssh_config,
            fanout=fanout,
            clean=clean,
        )
    if dump is not None:
        write(dump, collected)
    wanted = analysis.Expectations(fabric=collected.fabric, priority=priority)
    result = analysis.examine(collected.audits, wanted, ignore=ignored)
    _print(result, collected, fmt)
    if collected.unreachable:
        raise typer.Exit(EXIT_INCOMPLETE)
    if not result.passed:
        raise typer.Exit(EXIT_LIMITS_MISSED)


def _required(fabric: Fabric | None) -> Fabric:
    if fabric is None:
        raise InputError(
            "which fabric? --fabric is missing",
            remedy="--fabric ib, roce or tcp with -i INVENTORY, or --fabric rxe for soft-RoCE",
        )
    return fabric


def _hosts(fabric: Fabric, inventory: str, limit: str) -> tuple[Host, ...]:
    from rdmabench.lab import lab
    from rdmabench.orchestrator import inventory as inventories

    if inventory and inventory != "lab":
        return inventories.load(inventory, limit=limit)
    if not inventory and fabric is not Fabric.RXE:
        raise InputError(
            "which nodes? -i is missing",
            remedy="-i hosts/FILE.yml, -i 'gpu[001-128]', -i n1,n2, or -i lab for soft-RoCE",
        )
    running = lab.status()
    if running is None:
        raise InputError("the lab is not up", remedy="`rdmabench lab up`, or name nodes with -i")
    return inventories.load(str(running.inventory), limit=limit)


def _ask(
    hosts: Sequence[Host], fabric: Fabric, *, policy: str, config: str, fanout: int, clean: bool
) -> Collected:
    from rdmabench.orchestrator.auditing import audit_all
    from rdmabench.orchestrator.ssh import SshOptions

    console.say(f"asking {len(hosts)} nodes")
    logs = Path(tempfile.mkdtemp(prefix="rdmabench-preflight-"))
    try:
        endings = audit_all(
            hosts,
            fabric=fabric,
            options=SshOptions(host_key_policy=policy, config_file=config),
            logs=logs,
            limit=fanout,
            clean=clean,
            done=_Counter(len(hosts)),
        )
    except BaseException:
        shutil.rmtree(logs, ignore_errors=True)
        raise
    failed = {host: ending.error for host, ending in endings.items() if ending.error}
    for error in failed.values():
        console.complain(error)
    if not failed:
        shutil.rmtree(logs, ignore_errors=True)
    return Collected(
        fabric=fabric,
        audits=tuple(ending.get() for ending in endings.values() if ending.ok),
        unreachable={host: error.what for host, error in failed.items()},
    )


class _Counter:
    """Says now and then how many nodes have answered."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._done += 1
            if self._done % _SAY_EVERY == 0 and self._done < self._total:
                console.say(f"{self._done} of {self._total} nodes")


def _print(result: Result, collected: Collected, fmt: Format) -> None:
    from rdmabench.analysis.preflight import findings_frame

    if fmt is Format.TABLE:
        from rdmabench.report.preflight import preflight as rendered

        show(rendered(result, collected.unreachable))
    elif fmt is Format.JSON:
        typer.echo(json.dumps(_document(result, collected), indent=2))
    else:
        echo_frame(findings_frame(result.findings), fmt)


def _document(result: Result, collected: Collected) -> dict[str, Any]:
    from rdmabench.audit import Severity

    return {
        "fabric": result.fabric.value,
        "passed": result.passed and not collected.unreachable,
        "nodes": list(result.hosts),
        "unreachable": collected.unreachable,
        "counts": {severity.value: result.count(severity) for severity in Severity},
        "ignored": result.ignored,
        "findings": [wire.to_plain(finding) for finding in result.findings],
        "fleet": [wire.to_plain(row) for row in result.rows],
        "unknown": [wire.to_plain(each) for each in result.unknown],
    }


def write(path: Path, collected: Collected) -> None:
    """All facts as JSON, for the owner alone: addresses and serial numbers are in it.

    Raises:
        StorageError: the file cannot be written.
    """
    document = {
        "rdmabench_preflight": _DUMP_VERSION,
        "fabric": collected.fabric.value,
        "unreachable": collected.unreachable,
        "audits": [wire.to_plain(audit) for audit in collected.audits],
    }
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
    except OSError as exc:
        raise StorageError(f"{path}: {exc.strerror}") from exc
    console.say(f"facts of {len(collected.audits)} nodes in {path}")


def load(path: Path, fabric: Fabric | None = None) -> Collected:
    """What `write` wrote; a fabric that is asked for must be the file's.

    Raises:
        InputError: the file is missing, or is not such a file.
    """
    try:
        plain = json.loads(path.read_bytes())
        version = plain["rdmabench_preflight"]
        if version != _DUMP_VERSION:
            raise InputError(f"{path}: facts of version {version}, this program reads 1")
        collected = Collected(
            fabric=Fabric(plain["fabric"]),
            audits=tuple(wire.from_plain(Audit, each) for each in plain["audits"]),
            unreachable={str(k): str(v) for k, v in plain["unreachable"].items()},
        )
    except OSError as exc:
        raise InputError(f"{path}: {exc.strerror}") from exc
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise InputError(
            f"{path}: not the facts of a preflight ({type(exc).__name__}: {exc})",
            remedy="--dump writes such a file",
        ) from exc
    if fabric not in (None, collected.fabric):
        raise InputError(
            f"{path} holds the facts of fabric {collected.fabric.value}: ports of another fabric "
            "are not marked in it",
            remedy=f"--fabric {collected.fabric.value}, or ask the nodes again",
        )
    return collected


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(preflight)
