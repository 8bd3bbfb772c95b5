"""One node as a QEMU process: its command line, its start, what it says on the serial line."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rdmabench.errors import LabError
from rdmabench.lab import processes
from rdmabench.lab.image import Image
from rdmabench.lab.processes import ProcessRef
from rdmabench.lab.state import data_mac, mac

PROGRAM = "qemu-system-x86_64"
DATA_MTU = 4200  # RoCE's 4096 and its headers
READY = b"rdmabench: READY"
FAILED = b"rdmabench: FAILED"

_START_DEADLINE_S = 30.0
_KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 mitigations=off nokaslr audit=0 random.trust_cpu=on tsc=reliable"
    " no_timer_check rcupdate.rcu_expedited=1 net.ifnames=0 cryptomgr.notests lsm=capability"
)


@dataclass(frozen=True)
class Guest:
    """Everything that one QEMU process is started with."""

    name: str
    index: int  # from 1: the last byte of its addresses
    vcpus: int
    memory_mib: int
    icount: bool
    accel: str  # kvm or tcg
    ssh_port: int
    token: str
    directory: Path  # the lab's: serial log, pid file, initrd
    sockets: Path
    image: Image

    @property
    def serial_log(self) -> Path:
        return self.directory / f"{self.name}.serial"

    @property
    def start_log(self) -> Path:
        return self.directory / f"{self.name}.qemu"

    @property
    def pid_file(self) -> Path:
        return self.directory / f"{self.name}.pid"

    @property
    def initrd(self) -> Path:
        return self.directory / f"{self.name}.initrd"

    @property
    def argv(self) -> list[str]:
        management = f"user,id=mgmt,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:{self.ssh_port}-:22"
        data = (
            f"dgram,id=data,local.type=unix,local.path={node_socket(self.sockets, self.name)}"
            f",remote.type=unix,remote.path={switch_socket(self.sockets)}"
        )
        root = (
            f"file={_escaped(self.image.root)},format=raw,if=none,id=root,readonly=on"
            ",file.locking=off"
        )
        return [
            PROGRAM,
            *("-name", f"rdmabench-{self.token}-{self.name}"),
            *("-machine", "q35"),
            *_processor(self.accel, self.vcpus, icount=self.icount),
            *("-m", f"{self.memory_mib}M"),
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-kernel", str(self.image.kernel), "-initrd", str(self.initrd)),
            *("-append", _KERNEL_ARGUMENTS),
            *("-drive", root, "-device", "virtio-blk-pci,drive=root"),
            *("-netdev", management),
            *("-device", f"virtio-net-pci,netdev=mgmt,romfile=,mac={mac('6d', self.index)}"),
            *("-netdev", data),
            "-device",
            f"virtio-net-pci,netdev=data,romfile=,host_mtu={DATA_MTU},mac={data_mac(self.index)}",
            *("-device", "virtio-rng-pci"),
            *("-chardev", f"file,id=serial,path={_escaped(self.serial_log)}"),
            *("-serial", "chardev:serial"),
            *("-daemonize", "-pidfile", str(self.pid_file)),
        ]


def node_socket(sockets: Path, name: str) -> Path:
    return sockets / f"{name}.sock"


def switch_socket(sockets: Path) -> Path:
    return sockets / "switch.sock"


def start(guest: Guest) -> ProcessRef:
    """Returns when QEMU has set itself up; its errors up to there are raised."""
    for stale in (guest.serial_log, guest.pid_file):
        stale.unlink(missing_ok=True)
    with guest.start_log.open("wb") as log:
        try:
            status = subprocess.run(
                guest.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=_START_DEADLINE_S,
                check=False,
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise LabError(f"QEMU did not start: {exc}", host=guest.name) from exc
    process = None
    if status == 0:
        process = processes.reference(int(guest.pid_file.read_text(encoding="ascii")))
    if process is None:
        raise LabError(f"QEMU ended at once: {tail(guest.start_log)}", host=guest.name)
    return process


def serial_output(guest: Guest) -> bytes:
    try:
        return guest.serial_log.read_bytes()
    except FileNotFoundError:
        return b""


def tail(log: Path, lines: int = 12) -> str:
    with contextlib.suppress(FileNotFoundError):
        text = log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(line.rstrip() for line in text.splitlines()[-lines:])
    return "(nothing)"


def version() -> str:
    answer = subprocess.run(
        [PROGRAM, "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    return answer.stdout.partition("\n")[0]


def _processor(accel: str, vcpus: int, *, icount: bool) -> list[str]:
    if accel == "kvm":
        return ["-accel", "kvm", "-cpu", "host", "-smp", str(vcpus)]
    if icount:
        # Virtual time advances with instructions: timings repeat, and no longer mean seconds.
        counted = ["-accel", "tcg,thread=single,tb-size=256", "-icount", "shift=0,sleep=off"]
        return [*counted, "-cpu", "max", "-smp", "1"]
    return ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max", "-smp", str(vcpus)]


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")
