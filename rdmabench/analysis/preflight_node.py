"""Rules about a node without its links: limits, packages, CPUs, GPUs, which devices there are."""

from __future__ import annotations

from collections.abc import Iterator

from rdmabench.analysis.preflight_kinds import KINDS, RXE, Expectations
from rdmabench.analysis.rails import Distance, nearest
from rdmabench.audit import Audit, Finding, Severity
from rdmabench.model import Fabric
from rdmabench.units import size_text

_ENOUGH_MEMLOCK = 1 << 30


def check(audit: Audit, wanted: Expectations) -> Iterator[Finding]:
    """All of them."""
    yield from _limits(audit)
    if wanted.fabric is not Fabric.TCP:
        yield from _devices(audit, wanted)
        yield from _packages(audit)
    if wanted.hardware:
        yield from _processors(audit)
        yield from _gpus(audit)
    elif wanted.fabric is Fabric.RXE and audit.rails:
        names = ", ".join(device.name for device, _ in audit.rails)
        yield KINDS["soft-roce"].at(audit, f"{names}: not a hardware figure")


def _limits(audit: Audit) -> Iterator[Finding]:
    limit = audit.machine.memlock_bytes
    if limit is not None and limit >= 0:
        severity = Severity.ERROR if limit < _ENOUGH_MEMLOCK else Severity.WARNING
        seen = f"a memlock limit of {size_text(limit)} in the process that was started"
        yield KINDS["memlock"].at(audit, seen, severity=severity)


def _packages(audit: Audit) -> Iterator[Finding]:
    if audit.machine.pyverbs is None:
        yield KINDS["pyverbs-missing"].at(audit, audit.machine.why("pyverbs"))


def _devices(audit: Audit, wanted: Expectations) -> Iterator[Finding]:
    if not audit.rails:
        yield _no_device(audit, wanted)
    for note in audit.notes:
        yield KINDS["selector"].at(audit, note)
    chosen = {device.name for device, _ in audit.rails}
    others = [
        f"{d.name} ({p.link_layer}{', soft' if d.soft else ''})"
        for d in audit.devices
        for p in d.ports
        if d.name not in chosen and p.active
    ]
    if chosen and others and not audit.selector:
        yield KINDS["other-layer"].at(audit, f"also active: {', '.join(others)}")
    yield from _cards(audit)


def _no_device(audit: Audit, wanted: Expectations) -> Finding:
    names = ", ".join(f"{d.name} ({_layers(d.ports)})" for d in audit.devices)
    selector = f", of which {audit.selector!r} selects none" if audit.selector and names else ""
    seen = f"the node has {names}{selector}" if names else "no RDMA device at all"
    if wanted.fabric is Fabric.RXE:
        return KINDS["no-device"].at(audit, seen, remedy=_rxe_remedy(audit))
    modules = audit.machine.modules
    if not names and modules is not None and "mlx5_core" in modules and "mlx5_ib" not in modules:
        return KINDS["no-device"].at(
            audit,
            f"{seen}: mlx5_core is loaded, mlx5_ib is not",
            remedy=f"`modprobe mlx5_ib`; Ubuntu: linux-modules-extra-{audit.machine.kernel}",
        )
    return KINDS["no-device"].at(audit, seen)


def _layers(ports: tuple[object, ...]) -> str:
    return "/".join(str(getattr(port, "link_layer", None) or "?") for port in ports) or "no port"


def _rxe_remedy(audit: Audit) -> str:
    kernel = audit.machine.kernel or "$(uname -r)"
    if audit.machine.rxe_module == "absent":
        return (
            f"this kernel comes without rdma_rxe: `apt-get install linux-modules-extra-{kernel}` "
            f"(RHEL: kernel-modules-extra), then {RXE}"
        )
    if audit.machine.rxe_method == "":
        return f"`rdma link add` is missing: install iproute2 4.20 or later, then {RXE}"
    return f"`rdma link add rxe0 type rxe netdev NETDEV`, or {RXE} -e rdma_netdev=NETDEV"


def _cards(audit: Audit) -> Iterator[Finding]:
    """Devices that share a card: the system image GUID is the card's."""
    cards: dict[str, list[str]] = {}
    for device, _ in audit.rails:
        guid = (device.system_guid or "").strip("0:")
        if guid:
            cards.setdefault(guid, []).append(device.name)
    for names in cards.values():
        if len(set(names)) > 1:
            shared = " and ".join(dict.fromkeys(names))
            yield KINDS["same-card"].at(audit, f"{shared} are functions of one card")


def _processors(audit: Audit) -> Iterator[Finding]:
    machine = audit.machine
    if machine.governor is not None and machine.governor != "performance":
        yield KINDS["governor"].at(audit, f"scaling governor {machine.governor}")
    if machine.numa_balancing and (machine.numa_nodes or 1) > 1:
        yield KINDS["numa-balancing"].at(audit, "kernel.numa_balancing is on")


def _gpus(audit: Audit) -> Iterator[Finding]:
    if not audit.gpus:
        return
    bare = [str(gpu.index) for gpu in audit.gpus if gpu.driver is None]
    if bare:
        seen = f"no driver has taken GPU {', '.join(bare)}"
        yield KINDS["gpu-driver"].at(audit, seen)
    if audit.machine.gpu_direct == "none" and len(bare) < len(audit.gpus):
        yield KINDS["gpudirect-off"].at(audit, "neither nvidia_peermem nor dma-buf")
    if audit.rails:
        yield from _bandwidth(audit)
        yield from _distances(audit)


def _bandwidth(audit: Audit) -> Iterator[Finding]:
    active = [port for _, port in audit.rails if port.active]
    if len(active) < len(audit.gpus):
        rate = sum(port.rate_gbit_s or 0.0 for port in active) / len(audit.gpus)
        seen = f"{len(active)} active ports for {len(audit.gpus)} GPUs: {rate:.0f} Gb/s for each"
        yield KINDS["gpu-bandwidth"].at(audit, seen)


def _distances(audit: Audit) -> Iterator[Finding]:
    far = [str(g.index) for g in audit.gpus if nearest(g, audit) is Distance.SOCKETS]
    if far:
        seen = f"GPU {', '.join(far)}: every NIC of the fabric is on the other socket"
        yield KINDS["gpu-nic-far"].at(audit, seen)
