"""One sweep from what was asked to a finished run: hosts, journal, orchestrator, tables."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rdmabench import __version__, console
from rdmabench.collector import tables
from rdmabench.collector.journal import Journal, finished_case_ids, read
from rdmabench.collector.store import RunDirectory, find
from rdmabench.errors import HostError, InputError, ProtocolError, StorageError
from rdmabench.lab import lab
from rdmabench.model import Case, Endpoint, Fabric, Host, RunEnded, RunStarted, Samples
from rdmabench.orchestrator import inventory, plan, schedule
from rdmabench.orchestrator import run as runs
from rdmabench.orchestrator.plan import Plan
from rdmabench.orchestrator.run import Outlet, Request, Sweep
from rdmabench.orchestrator.ssh import SshOptions

LAB = "lab"
_LAB_HOSTS = 2


@dataclass(frozen=True)
class Asked:
    """The options of `rdmabench sweep`."""

    fabric: Fabric | None
    inventory: str = ""
    limit: str = ""
    plan: str = "quick"
    pairs: str = "ring"
    engine: str = "hotloop"
    host_key_policy: str = "strict"
    ssh_config: str = ""
    fanout: int = 64
    clean: bool = False
    keep_lab: bool = False
    resume: str = ""
    results: Path = Path("results")


@dataclass(frozen=True)
class DryRun:
    """What a sweep would do."""

    hosts: tuple[Host, ...]
    fabric: Fabric
    plan: Plan
    rounds: tuple[schedule.Round, ...]
    cases: tuple[Case, ...]  # of one pair
    estimate_s: float


def run(asked: Asked) -> tuple[RunDirectory, RunEnded]:
    """Measure; returns the run and how it ended. Its tables are written.

    Raises:
        RdmabenchError: nothing, or nothing more, can be measured; what was measured is kept.
        KeyboardInterrupt: the user ended it; what was measured is kept.
    """
    if asked.resume:
        return _resumed(asked)
    fabric = _fabric_of(asked)
    chosen = plan.load(asked.plan)
    with _hosts(asked, fabric) as hosts:
        runs.check(_request(asked, fabric, chosen, hosts))
        directory = RunDirectory.create(asked.results, fabric, asked.plan)
        console.say(f"run {directory.name} in {directory.path}")
        with Journal.create(directory.path) as journal:
            started = _started(asked, fabric, chosen, directory, hosts)
            journal.append(started)
            request = _request(asked, fabric, chosen, hosts)
            return directory, _measure(request, directory, journal)


def dry_run(asked: Asked) -> DryRun:
    """What would run, without touching a node: endpoints are not known yet, one a host is assumed.

    Raises:
        InputError: the inventory, the plan or the schedule cannot be used.
    """
    fabric = _fabric_of(asked)
    chosen = plan.load(asked.plan)
    hosts = _known_hosts(asked, fabric)
    request = _request(asked, fabric, chosen, hosts)
    runs.check(request)
    rounds = schedule.pairs(asked.pairs, runs.planned_refs(hosts))
    return DryRun(
        hosts=tuple(hosts),
        fabric=fabric,
        plan=chosen,
        rounds=rounds,
        cases=runs.cases_of(request, rounds[0][0], 0),
        estimate_s=runs.estimate_s(request, rounds),
    )


def _fabric_of(asked: Asked) -> Fabric:
    if asked.fabric is None:
        raise InputError(
            "which fabric? --fabric is missing",
            remedy="--fabric ib, roce or tcp with -i INVENTORY, or --fabric rxe for soft-RoCE",
        )
    return asked.fabric


def _resumed(asked: Asked) -> tuple[RunDirectory, RunEnded]:
    directory = find(asked.results, asked.resume)
    envelopes = read(directory.path)
    before = next((e.body for e in envelopes if isinstance(e.body, RunStarted)), None)
    if before is None:
        raise InputError(f"{directory.path}: the journal does not say how the run was started")
    chosen = plan.load(before.plan)
    if _digest(chosen) != before.plan_sha256:
        raise InputError(
            f"plan {before.plan} is not what it was when {directory.name} was started",
            remedy="start a new run, or bring the plan back to what it was",
        )
    again = replace(
        asked,
        fabric=before.fabric,
        inventory=asked.inventory or before.inventory,
        limit=asked.limit or before.limit,
        plan=before.plan,
        pairs=before.pairs,
        engine=before.engine,
    )
    endpoints = {
        (e.body.host, e.body.device, e.body.port): e.body
        for e in envelopes
        if isinstance(e.body, Endpoint)
    }
    with _hosts(again, before.fabric) as hosts:
        console.say(f"resuming {directory.name} in {directory.path}")
        with Journal.reopen(directory.path) as journal:
            started = _started(again, before.fabric, chosen, directory, hosts)
            journal.append(replace(started, resumed=True))
            directory.set_status("running")
            request = replace(
                _request(again, before.fabric, chosen, hosts),
                finished=finished_case_ids(envelopes),
                known=tuple(endpoints.values()),
            )
            return directory, _measure(request, directory, journal)


def _measure(request: Request, directory: RunDirectory, journal: Journal) -> RunEnded:
    def keep(case_id: str, raw: bytes, samples: Samples) -> Samples:
        if hashlib.sha256(raw).hexdigest() != samples.sha256:
            raise ProtocolError("the samples changed on their way from the node")
        return directory.keep_samples(raw, case_id, samples.kind)

    try:
        with console.SweepProgress() as progress:
            outlet = Outlet(
                append=journal.append,
                append_all=journal.append_all,
                keep_samples=keep,
                logs=directory.logs,
                progress=progress,
            )
            ended = Sweep(request, outlet).run()
    except BaseException as exc:
        interrupted = isinstance(exc, KeyboardInterrupt)
        with contextlib.suppress(StorageError):
            _conclude(directory, "interrupted" if interrupted else "incomplete")
        resume = f"`rdmabench sweep --resume {directory.name}`"
        if interrupted:
            console.say(f"what was measured is kept: {resume} measures the rest")
        elif isinstance(exc, HostError):
            exc.remedy = f"{exc.remedy}; then {resume}"
        raise
    _conclude(directory, ended.status)
    return ended


def _conclude(directory: RunDirectory, status: str) -> None:
    directory.set_status(status)
    tables.write(directory, tables.build(directory))


def _request(asked: Asked, fabric: Fabric, chosen: Plan, hosts: Sequence[Host]) -> Request:
    return Request(
        hosts=tuple(hosts),
        fabric=fabric,
        plan=chosen,
        pairs=asked.pairs,
        engine=asked.engine,
        ssh=SshOptions(host_key_policy=asked.host_key_policy, config_file=asked.ssh_config),
        fanout_limit=asked.fanout,
        clean=asked.clean,
        lab=_uses_lab(asked, fabric),
    )


def _started(
    asked: Asked, fabric: Fabric, chosen: Plan, directory: RunDirectory, hosts: Sequence[Host]
) -> RunStarted:
    info = directory.info()
    return RunStarted(
        run=directory.name,
        fabric=fabric,
        plan=asked.plan,
        version=__version__,
        started_at=info.started_at,
        user=info.user,
        control_host=platform.node(),
        engine=asked.engine,
        pairs=asked.pairs,
        inventory=asked.inventory or LAB,
        limit=asked.limit,
        plan_sha256=_digest(chosen),
        hosts=tuple(host.name for host in hosts),
    )


def _digest(chosen: Plan) -> str:
    return hashlib.sha256(repr(replace(chosen, source="")).encode()).hexdigest()


def _uses_lab(asked: Asked, fabric: Fabric) -> bool:
    return asked.inventory == LAB or (not asked.inventory and fabric is Fabric.RXE)


def _known_hosts(asked: Asked, fabric: Fabric) -> tuple[Host, ...]:
    if not _uses_lab(asked, fabric):
        return _from_inventory(asked)
    running = lab.status()
    if running is not None:
        return inventory.load(str(running.inventory), limit=asked.limit)
    names = [f"node{number}" for number in range(1, _LAB_HOSTS + 1)]
    return tuple(Host(name=name, address="127.0.0.1") for name in names)


def _from_inventory(asked: Asked) -> tuple[Host, ...]:
    if not asked.inventory:
        raise InputError(
            "which nodes? -i is missing",
            remedy="-i hosts/FILE.yml, -i 'gpu[001-128]', -i n1,n2, or -i lab for soft-RoCE",
        )
    return inventory.load(asked.inventory, limit=asked.limit)


@contextlib.contextmanager
def _hosts(asked: Asked, fabric: Fabric) -> Iterator[tuple[Host, ...]]:
    """The hosts; a lab that had to be started for this sweep is stopped after it."""
    if not _uses_lab(asked, fabric):
        yield _from_inventory(asked)
        return
    before = lab.status()
    ours = before is None or not any(node.running for node in before.nodes)
    nodes = _LAB_HOSTS if before is None else len(before.nodes)
    status = lab.up(_same_lab(before, nodes), progress=console.say)
    try:
        yield inventory.load(str(status.inventory), limit=asked.limit)
    finally:
        if ours and not asked.keep_lab:
            lab.down()


def _same_lab(before: lab.LabStatus | None, nodes: int) -> lab.LabOptions:
    """The running lab as it is; only its dead nodes are started again."""
    return lab.LabOptions(nodes=nodes) if before is None else before.options
