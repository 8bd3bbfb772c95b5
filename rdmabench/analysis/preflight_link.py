"""Rules about links: ports and their rates, PCIe, what stands between GPU and NIC."""

from __future__ import annotations

from collections.abc import Iterator

from rdmabench.analysis.preflight_kinds import KINDS, Expectations
from rdmabench.audit import Audit, Device, Finding, Pci, Port

_STATES = {
    "ARMED": "the subnet manager has not activated it",
    "INIT": "no subnet manager has configured it",
}
_PHYSICAL = {
    "Polling": "no cable, or nobody at its other end",
    "Disabled": "the port is disabled",
    "LinkErrorRecovery": "the link makes errors",
}
_PAYLOAD = 0.9  # of what is left after encoding: headers, with a payload of 256 bytes
_ENCODING = ((32.0, 242 / 256), (8.0, 128 / 130), (0.0, 0.8))  # from GT/s, share
_READ_REQUEST = 4096


def check(audit: Audit, wanted: Expectations) -> Iterator[Finding]:
    """All of them."""
    yield from _states(audit)
    if not wanted.hardware:
        return
    for device, port in audit.rails:
        if port.active:
            yield from _lanes(audit, device, port)
            yield from _speed(audit, device, port)
        yield from _counters(audit, device, port)
    yield from _rates(audit)
    for device in {device.name: device for device, _ in audit.rails}.values():
        if device.pci is not None:
            yield from _pcie(audit, device, device.pci)
    yield from _iommu(audit)
    yield from _acs(audit)


def state_text(port: Port) -> str:
    """`DOWN/Polling (no cable, or nobody at its other end)`."""
    state, physical = port.state or "unknown", port.phys_state or "unknown"
    hint = _PHYSICAL.get(physical) or _STATES.get(state, "")
    return f"{state}/{physical}" + (f" ({hint})" if hint else "")


def _states(audit: Audit) -> Iterator[Finding]:
    up = sum(port.active for _, port in audit.rails)
    for device, port in audit.rails:
        name = label(device, port)
        if not port.active:
            seen = f"{state_text(port)}; {up} of {len(audit.rails)} ports of the fabric are up"
            yield KINDS["port-down"].at(audit, seen, device=name, remedy=_state_remedy(port))
        elif port.link_layer == "InfiniBand" and port.lid == 0:
            yield KINDS["no-lid"].at(audit, "LID 0 on an active port", device=name)


def _state_remedy(port: Port) -> str:
    if port.phys_state == "LinkUp" and port.link_layer == "InfiniBand":
        return "see that a subnet manager runs: `sminfo`, `systemctl status opensm`"
    if port.phys_state == "Disabled":
        netdev = port.netdev or "NETDEV"
        return (
            f"`ip link set {netdev} up`"
            if port.link_layer == "Ethernet"
            else "`ibportstate LID PORT enable`, or leave it out with rdma_devices"
        )
    return ""


def label(device: Device, port: Port) -> str:
    """`mlx5_0`, or `mlx5_0:2`."""
    return device.name if port.number == 1 else f"{device.name}:{port.number}"


def _lanes(audit: Audit, device: Device, port: Port) -> Iterator[Finding]:
    """One lane is never meant; two are sold (NDR200, HDR100), and compared between nodes."""
    if port.link_layer == "InfiniBand" and port.lanes == 1:
        seen = f"{port.rate_text}: one lane"
        yield KINDS["link-narrow"].at(audit, seen, device=label(device, port))


def _speed(audit: Audit, device: Device, port: Port) -> Iterator[Finding]:
    netdev = audit.netdev(port.netdev)
    if netdev is None or port.link_layer != "Ethernet":
        return
    speed, fastest = netdev.speed_mbit_s, netdev.max_speed_mbit_s
    if speed is not None and fastest is not None and speed < fastest:
        seen = f"{netdev.name} runs at {speed // 1000} of {fastest // 1000} Gb/s"
        yield KINDS["link-slow"].at(audit, seen, device=label(device, port))


def _rates(audit: Audit) -> Iterator[Finding]:
    rates = {
        label(device, port): port.rate_gbit_s
        for device, port in audit.rails
        if port.active and port.rate_gbit_s
    }
    if len(set(rates.values())) > 1:
        fastest = max(rates.values())
        slow = [f"{name} at {rate:g}" for name, rate in rates.items() if rate < fastest]
        seen = f"{', '.join(slow)} Gb/s; the fastest runs at {fastest:g}"
        yield KINDS["rates-differ"].at(audit, seen)


def _counters(audit: Audit, device: Device, port: Port) -> Iterator[Finding]:
    unread = [name for name in port.unknown if "counters/" in name]
    if unread:
        why = port.unknown[unread[0]]
        seen = f"{len(unread)} cannot be read ({unread[0]}: {why})"
        yield KINDS["counters-unreadable"].at(audit, seen, device=label(device, port))
    elif not port.counters:
        yield KINDS["counters-unreadable"].at(audit, "there are none", device=label(device, port))


def _pcie(audit: Audit, device: Device, pci: Pci) -> Iterator[Finding]:
    if pci.speed_gts is None or pci.width is None:
        return
    card_speed, card_width = pci.max_speed_gts or pci.speed_gts, pci.max_width or pci.width
    speed = min(card_speed, pci.slot_speed_gts or card_speed)
    width = min(card_width, pci.slot_width or card_width)
    now = f"{pci.speed_gts:g} GT/s x{pci.width} at {pci.address}"
    kind = None
    if pci.speed_gts < speed or pci.width < width:
        expected = f"{speed:g} GT/s x{width}, which card and slot both support"
        kind = "pcie-degraded"
        yield KINDS[kind].at(audit, now, device=device.name, expected=expected)
    elif speed < card_speed or width < card_width:
        expected = f"a slot of {card_speed:g} GT/s x{card_width}, as the card"
        kind = "pcie-slot"
        yield KINDS[kind].at(audit, now, device=device.name, expected=expected)
    rate = sum(p.rate_gbit_s or 0.0 for p in device.ports if p.active)
    room = pcie_gbit_s(pci.speed_gts, pci.width)
    if kind is None and room < rate:
        seen = f"{now} carries about {room:.0f} Gb/s, the link {rate:g}"
        yield KINDS["pcie-below-link"].at(audit, seen, device=device.name)
    if pci.max_read_request_bytes is not None and pci.max_read_request_bytes < _READ_REQUEST:
        seen = f"MaxReadReq {pci.max_read_request_bytes} at {pci.address}"
        yield KINDS["max-read-request"].at(audit, seen, device=device.name)


def pcie_gbit_s(speed_gts: float, width: int) -> float:
    """Payload that a PCIe link carries: lanes, encoding, and about 10 % of headers."""
    share = next((share for least, share in _ENCODING if speed_gts >= least), 0.0)
    return speed_gts * width * share * _PAYLOAD


def _iommu(audit: Audit) -> Iterator[Finding]:
    kinds = {
        device.pci.iommu
        for device, _ in audit.rails
        if device.pci is not None and device.pci.iommu is not None
    }
    translating = sorted(kind for kind in kinds if kind.startswith("DMA"))
    if translating:
        yield KINDS["iommu-translates"].at(audit, f"IOMMU groups of type {translating[0]}")


def _acs(audit: Audit) -> Iterator[Finding]:
    """Bridges above both a GPU and a NIC, or above either where they meet at the root."""
    if not audit.gpus:
        return
    above_gpus = {name for gpu in audit.gpus if gpu.pci for name in gpu.pci.path[1:-1]}
    redirecting = {
        bridge
        for device, _ in audit.rails
        if device.pci is not None
        for bridge in device.pci.acs_redirect or ()
        if above_gpus
    }
    if redirecting:
        shown = ", ".join(sorted(redirecting)[:4])
        more = f" and {len(redirecting) - 4} more" if len(redirecting) > 4 else ""
        yield KINDS["acs-redirect"].at(audit, f"ACS redirect is on at {shown}{more}")
