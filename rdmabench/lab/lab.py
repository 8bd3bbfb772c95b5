"""The lab's life: up, down, status; what the command line and the tests call.

up      image, state, switch, nodes; then waits until every node answers
down    ends every process that carries the lab's token, recorded or not, and forgets the lab
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rdmabench.errors import InputError, LabError
from rdmabench.lab import accel, access, boot, host, image, initrd, paths, processes, qemu, state
from rdmabench.lab.host import missing_packages
from rdmabench.lab.image import Image
from rdmabench.lab.processes import ProcessRef
from rdmabench.lab.qemu import Guest
from rdmabench.lab.state import LabState, NodeState

__all__ = [
    "LabOptions",
    "LabStatus",
    "NodeStatus",
    "down",
    "kill_node",
    "missing_packages",
    "ssh_command",
    "status",
    "up",
]

_MAX_NODES = 64
_MIN_MEMORY_MIB = 256
_SWITCH_START_S = 20.0


@dataclass(frozen=True)
class LabOptions:
    """What `up` is asked for. `icount`: a node's time is virtual, repeatable; TCG, one vCPU."""

    nodes: int = 2
    vcpus: int = 1
    memory_mib: int = 768
    icount: bool = False
    accel: str = "auto"  # auto, kvm, tcg
    name: str = "default"
    deadline_s: float = 180.0

    def __post_init__(self) -> None:
        paths.checked_name(self.name)
        accel.checked(self.accel)
        if not 1 <= self.nodes <= _MAX_NODES:
            raise InputError(f"a lab has 1 to {_MAX_NODES} nodes, not {self.nodes}")
        if self.vcpus < 1 or self.memory_mib < _MIN_MEMORY_MIB or self.deadline_s <= 0:
            raise InputError(f"a node needs a vCPU, {_MIN_MEMORY_MIB} MiB and time to boot")
        if self.icount and (self.vcpus != 1 or self.accel == "kvm"):
            raise InputError("instruction counting needs one vCPU and TCG")


@dataclass(frozen=True)
class NodeStatus:
    """One node as it is now; pid 0 if it was never started."""

    name: str
    pid: int
    ssh_port: int
    address: str
    running: bool
    seconds_to_ready: float


@dataclass(frozen=True)
class LabStatus:
    """One lab as it is now."""

    name: str
    accel: str
    nodes: tuple[NodeStatus, ...]
    inventory: Path
    directory: Path
    options: LabOptions


def _quiet(_line: str) -> None:
    """The progress of a caller that wants none."""


def up(options: LabOptions, *, progress: Callable[[str], None] = _quiet) -> LabStatus:
    """Idempotent: starts what is not running; ends what it started if it fails."""
    host.require()
    with _translated(options.name), paths.locked(_lock_file(options.name)):
        directory = paths.private_directory(paths.lab_directory(options.name))
        known = state.load(directory)
        if known is not None and known.complete and processes.find(known.token):
            _require_same(known, options)
            _revive(directory, known, options, progress)
        else:
            _end_all(directory, known)
            _create(directory, options, progress)
        return _status(options.name, directory, _loaded(directory))


def down(name: str = "default") -> tuple[str, ...]:
    """Names of what was ended. Also ends what a crashed `up` left; nothing running is no error."""
    directory = paths.lab_directory(name)
    if not directory.is_dir():
        return ()
    with _translated(name), paths.locked(_lock_file(name)):
        ended = _end_all(directory, state.load(directory))
        shutil.rmtree(directory, ignore_errors=True)
        return ended


def status(name: str = "default") -> LabStatus | None:
    directory = paths.lab_directory(name)
    known = state.load(directory)
    return None if known is None else _status(name, directory, known)


def ssh_command(node: str, name: str = "default") -> tuple[str, ...]:
    """OpenSSH's argv for one node; a command may be appended."""
    directory = paths.lab_directory(name)
    return access.ssh_argv(directory, _loaded(directory).node(node))


def kill_node(node: str, name: str = "default") -> None:
    """As if the power failed: SIGKILL. `up` brings the node back."""
    known = _loaded(paths.lab_directory(name))
    process = known.node(node).process
    if process is None or not processes.is_running(process, known.token):
        raise LabError("the node is not running", host=node)
    processes.end([process], known.token, at_once=True)


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise LabError(f"lab {name!r}: {exc}", remedy=f"rdmabench lab down --name {name}") from exc


def _create(directory: Path, options: LabOptions, progress: Callable[[str], None]) -> None:
    built = image.ensure(progress)
    token = state.new_token()
    ports = access.free_ports(options.nodes)
    nodes = tuple(
        NodeState(name=f"node{index}", index=index, ssh_port=port)
        for index, port in enumerate(ports, start=1)
    )
    lab = LabState(
        token=token,
        vcpus=options.vcpus,
        memory_mib=options.memory_mib,
        icount=options.icount,
        requested_accel=options.accel,
        accel="tcg",
        image_digest=built.digest,
        sockets=state.sockets_directory(token),
        nodes=nodes,
    )
    with ExitStack() as on_failure:
        on_failure.callback(lambda: _end_all(directory, lab))
        state.save(directory, lab)
        access.write_all(directory, nodes, virtual_time=lab.icount)
        for node in nodes:
            files = access.node_files(directory, node, nodes, virtual_time=lab.icount)
            initrd.write(directory / f"{node.name}.initrd", built.initrd, files)
        lab = replace(lab, accel=_chosen_accel(directory, lab, built, progress))
        lab = _start_switch(directory, lab)
        lab = _boot(directory, lab, nodes, deadline_s=options.deadline_s, progress=progress)
        state.save(directory, replace(lab, complete=True))
        on_failure.pop_all()


def _revive(
    directory: Path, lab: LabState, options: LabOptions, progress: Callable[[str], None]
) -> None:
    dead = tuple(node for node in lab.nodes if not _runs(node, lab))
    alive = processes.find(lab.token)
    with ExitStack() as on_failure:
        on_failure.callback(lambda: _end_new(lab, alive))
        if lab.switch is None or not processes.is_running(lab.switch, lab.token):
            lab = _start_switch(directory, lab)
        if dead:
            _boot(directory, lab, dead, deadline_s=options.deadline_s, progress=progress)
        on_failure.pop_all()


def _boot(
    directory: Path,
    lab: LabState,
    nodes: tuple[NodeState, ...],
    *,
    deadline_s: float,
    progress: Callable[[str], None],
) -> LabState:
    names = ", ".join(node.name for node in nodes)
    progress(f"booting {names} with {lab.accel.upper()}")
    started: dict[Guest, ProcessRef] = {}
    for node in nodes:
        guest = _guest(directory, lab, node)
        started[guest] = qemu.start(guest)
        lab = lab.with_node(replace(node, process=started[guest]))
        state.save(directory, lab)
    seconds = boot.wait_ready(started, deadline_s=deadline_s, progress=progress)
    for name, seconds_to_ready in seconds.items():
        lab = lab.with_node(replace(lab.node(name), seconds_to_ready=seconds_to_ready))
    state.save(directory, lab)
    return lab


def _start_switch(directory: Path, lab: LabState) -> LabState:
    """The switch runs by path and isolated: it needs neither this package nor its environment."""
    lab.sockets.mkdir(mode=0o700, exist_ok=True)
    listening = qemu.switch_socket(lab.sockets)
    listening.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-I", str(Path(__file__).with_name("switch.py"))),
        *("--token", lab.token, "--listen", str(listening)),
        *(str(qemu.node_socket(lab.sockets, node.name)) for node in lab.nodes),
    ]
    answer = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SWITCH_START_S,
    )
    switch = processes.reference(int(answer.stdout)) if answer.returncode == 0 else None
    if switch is None:
        raise LabError(f"the lab's switch did not start: {answer.stderr.strip()}")
    lab = replace(lab, switch=switch)
    state.save(directory, lab)
    return lab


def _chosen_accel(
    directory: Path, lab: LabState, built: Image, progress: Callable[[str], None]
) -> str:
    if lab.icount:
        return "tcg"

    def probe() -> bool:
        guest = _guest(directory, replace(lab, accel="kvm"), lab.nodes[0])
        started = {guest: qemu.start(guest)}
        progress(f"trying whether a node boots with KVM (once, {accel.PROBE_S:.0f} s at most)")
        try:
            boot.wait_ready(started, deadline_s=accel.PROBE_S, progress=_quiet)
        except LabError:
            return False
        finally:
            processes.end(processes.find(lab.token), lab.token, at_once=True)
        return True

    lab.sockets.mkdir(mode=0o700, exist_ok=True)
    key = accel.verdict_key(qemu.version(), built.digest)
    verdict = accel.choose(lab.requested_accel, paths.image_cache(), key, probe)
    if not verdict.usable:
        progress(f"without KVM, about ten times slower: {verdict.reason.splitlines()[0]}")
    return "kvm" if verdict.usable else "tcg"


def _guest(directory: Path, lab: LabState, node: NodeState) -> Guest:
    return Guest(
        name=node.name,
        index=node.index,
        vcpus=lab.vcpus,
        memory_mib=lab.memory_mib,
        icount=lab.icount,
        accel=lab.accel,
        ssh_port=node.ssh_port,
        token=lab.token,
        directory=directory,
        sockets=lab.sockets,
        image=image.cached(lab.image_digest),
    )


def _require_same(known: LabState, options: LabOptions) -> None:
    running = (len(known.nodes), known.vcpus, known.memory_mib, known.icount, known.requested_accel)
    wanted = (options.nodes, options.vcpus, options.memory_mib, options.icount, options.accel)
    if running != wanted:
        raise LabError(
            f"lab {options.name!r} is up with other options: {running}, asked for was {wanted}"
            " (nodes, vcpus, memory_mib, icount, accel)",
            remedy=f"rdmabench lab down --name {options.name}",
        )


def _end_all(directory: Path, lab: LabState | None) -> tuple[str, ...]:
    """Ends all that carries the token, then forgets the lab; its logs stay."""
    if lab is None:
        return ()
    ended: list[ProcessRef] = []
    while carriers := processes.find(lab.token):  # again, for one that forked meanwhile
        processes.end(carriers, lab.token)
        ended += carriers
    shutil.rmtree(lab.sockets, ignore_errors=True)
    state.forget(directory)
    names = {node.process: node.name for node in lab.nodes}
    names[lab.switch] = "switch"
    return tuple(names.get(process, f"process {process.pid}") for process in ended)


def _end_new(lab: LabState, kept: tuple[ProcessRef, ...]) -> None:
    processes.end([new for new in processes.find(lab.token) if new not in kept], lab.token)


def _runs(node: NodeState, lab: LabState) -> bool:
    return node.process is not None and processes.is_running(node.process, lab.token)


def _loaded(directory: Path) -> LabState:
    known = state.load(directory)
    if known is None:
        raise LabError(f"lab {directory.name!r} is not up", remedy="rdmabench lab up")
    return known


def _status(name: str, directory: Path, lab: LabState) -> LabStatus:
    nodes = tuple(
        NodeStatus(
            name=node.name,
            pid=node.process.pid if node.process else 0,
            ssh_port=node.ssh_port,
            address=node.address,
            running=_runs(node, lab),
            seconds_to_ready=node.seconds_to_ready,
        )
        for node in lab.nodes
    )
    return LabStatus(
        name=name,
        accel=lab.accel,
        nodes=nodes,
        inventory=directory / access.INVENTORY,
        directory=directory,
        options=LabOptions(
            nodes=len(lab.nodes),
            vcpus=lab.vcpus,
            memory_mib=lab.memory_mib,
            icount=lab.icount,
            accel=lab.requested_accel,
            name=name,
        ),
    )


def _lock_file(name: str) -> Path:
    return paths.private_directory(paths.labs_directory()) / f"{name}.lock"
