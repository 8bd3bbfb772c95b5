"""The payload rate that the wire can carry at best, and the sum that leads to it.

Sources: IEEE 802.3 (preamble, frame, gap), InfiniBand Architecture Specification 1.x (LRH, GRH,
BTH, RETH, AETH, ICRC, VCRC), RoCEv2 annex A17, RFC 9293 and 7323 (TCP and its timestamps). PCIe is
not in the sum, since an endpoint does not say what its slot carries; nor are flow control and
acknowledgements.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rdmabench.model import Endpoint, LinkFacts

ETHERNET = "Ethernet"
INFINIBAND = "InfiniBand"
TCP = "TCP"

_RETH_BYTES = 16
_AETH_BYTES = 4
_IMMEDIATE_BYTES = 4
_FRAME = {"preamble and SFD": 8, "Ethernet": 14, "FCS": 4, "inter-frame gap": 12}
_TRANSPORT = {"BTH": 12, "ICRC": 4}
_INFINIBAND = {"LRH": 8, **_TRANSPORT, "VCRC": 2}
_TCP_SEGMENT = {"TCP": 20, "TCP timestamps": 12}
_VLAN_TAG_BYTES = 4
_GRH = {"GRH": 40}
_IP = {4: {"IPv4": 20}, 6: {"IPv6": 40}}


@dataclass(frozen=True)
class Encoding:
    """A line encoding, and what one lane of that speed carries after it."""

    name: str
    lane_gbit_s: float


_EIGHT_TEN = "8b/10b"
_SIXTYFOUR = "64b/66b"
_QUOTED = "none to take off: the quoted rate is the data rate"
_LANES: Mapping[str, Encoding] = {
    "SDR": Encoding(_EIGHT_TEN, 2.5 * 8 / 10),
    "DDR": Encoding(_EIGHT_TEN, 5.0 * 8 / 10),
    "QDR": Encoding(_EIGHT_TEN, 10.0 * 8 / 10),
    "FDR10": Encoding(_SIXTYFOUR, 10.3125 * 64 / 66),
    "FDR": Encoding(_SIXTYFOUR, 14.0625 * 64 / 66),
    "EDR": Encoding(_QUOTED, 25.0),
    "HDR": Encoding(_QUOTED, 50.0),
    "NDR": Encoding(_QUOTED, 100.0),
    "XDR": Encoding(_QUOTED, 200.0),
}
_RATE_TEXT = re.compile(
    r"^\s*(?P<quoted>[\d.]+)\s*Gb/sec(?:\s*\((?P<lanes>\d+)X\s+(?P<speed>\w+)\))?"
)


@dataclass(frozen=True)
class Attainable:
    """What a link can carry at best for one kind of message, with the sum behind it.

    Where `reason` is not empty the rate is not known, and `rate_gbit_s` is 0. `headers` are bytes
    per packet, `message_headers` bytes per message.
    """

    rate_gbit_s: float = 0.0
    reason: str = ""
    data_rate_gbit_s: float = 0.0
    encoding: str = ""
    framing: str = ""
    mtu_bytes: int = 0
    size_bytes: int = 0
    packets: int = 0
    payload_bytes: int = 0
    wire_bytes: int = 0
    headers: Mapping[str, int] = field(default_factory=dict)
    message_headers: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether there is a rate at all."""
        return not self.reason

    @property
    def efficiency(self) -> float:
        """Payload over everything that occupies the wire; 0 where it is not known."""
        return self.payload_bytes / self.wire_bytes if self.wire_bytes else 0.0

    def explain(self) -> tuple[str, ...]:
        """The sum, a line each, for people."""
        if not self.is_known:
            return (f"attainable rate: not known: {self.reason}",)
        per_packet = ", ".join(f"{name} {size}" for name, size in self.headers.items())
        per_message = ", ".join(f"{name} {size}" for name, size in self.message_headers.items())
        return (
            f"data rate: {self.data_rate_gbit_s:.2f} Gb/s (encoding: {self.encoding})",
            f"framing: {self.framing}, MTU {self.mtu_bytes} B",
            f"per packet: {sum(self.headers.values())} B ({per_packet})",
            f"per message: {sum(self.message_headers.values())} B ({per_message or 'nothing'})",
            f"wire: {self.payload_bytes} B of payload in {self.packets} packets occupy "
            f"{self.wire_bytes} B, so {100 * self.efficiency:.2f} % of it is payload",
            f"attainable payload rate: {self.rate_gbit_s:.2f} Gb/s "
            "(PCIe, flow control and acknowledgements are not in this sum)",
        )


@dataclass(frozen=True)
class Framing:
    """How payload is wrapped: bytes of each header, per packet."""

    name: str
    headers: Mapping[str, int]

    @property
    def overhead_bytes(self) -> int:
        """Bytes of a packet that are not payload."""
        return sum(self.headers.values())


def line_encoding(rate_text: str, link_layer: str) -> str:
    """The name of the encoding behind a rate such as `40 Gb/sec (4X QDR)`."""
    found = _RATE_TEXT.match(rate_text)
    speed = _LANES.get(found["speed"] or "") if found else None
    return speed.name if speed and link_layer == INFINIBAND else _QUOTED


def data_rate_gbit_s(rate_text: str, link_layer: str) -> float:
    """What the lanes carry after encoding; 0.0 where the text does not say.

    `40 Gb/sec (4X QDR)` carries 32 on InfiniBand; on Ethernet a port of that name carries 40.
    """
    found = _RATE_TEXT.match(rate_text)
    if not found:
        return 0.0
    speed = _LANES.get(found["speed"] or "")
    if link_layer == INFINIBAND and speed:
        return int(found["lanes"]) * speed.lane_gbit_s
    return float(found["quoted"])


def rdma_framing(endpoint: Endpoint, link: LinkFacts, *, vlan_tags: int = 0) -> Framing | None:
    """The framing of an RDMA link, or None where the endpoint does not say enough.

    An InfiniBand packet has a GRH where the link uses a GID, that is, a GID index of 0 or more.
    """
    if endpoint.link_layer == INFINIBAND:
        if link.initiator_gid_index < 0:
            return Framing("InfiniBand", _INFINIBAND)
        return Framing("InfiniBand with GRH", {**_INFINIBAND, **_GRH})
    if endpoint.link_layer != ETHERNET:
        return None
    frame = _ethernet(vlan_tags)
    if (link.gid_type or endpoint.gid_type) == "IB/RoCE v1":
        return Framing("RoCE v1", {**frame, **_GRH, **_TRANSPORT})
    version = _gid_version(endpoint.gid)
    if version == 0:
        return None
    name = f"RoCE v2 over IPv{version}"
    return Framing(name, {**frame, **_IP[version], "UDP": 8, **_TRANSPORT})


def tcp_framing(address: str, *, vlan_tags: int = 0) -> Framing:
    """TCP with timestamps over Ethernet; IPv6 where the address is one."""
    version = 6 if ":" in address else 4
    headers = {**_ethernet(vlan_tags), **_IP[version], **_TCP_SEGMENT}
    return Framing(f"TCP over IPv{version}", headers)


def _ethernet(vlan_tags: int) -> dict[str, int]:
    tags = {"VLAN": _VLAN_TAG_BYTES * vlan_tags} if vlan_tags else {}
    return {**_FRAME, **tags}


def _gid_version(gid: str) -> int:
    """4 for a GID that holds an IPv4 address, 6 for any other, 0 for no GID."""
    try:
        return 4 if ipaddress.IPv6Address(gid).ipv4_mapped else 6
    except ValueError:
        return 0


def message_headers(op: str, packets: int) -> dict[str, int]:
    """Extended headers of one message on the way of its payload.

    A read's payload travels in responses, of which the first and the last carry an AETH.
    """
    if op == "read":
        return {"AETH": _AETH_BYTES * min(packets, 2)}
    if op == "write_imm":
        return {"RETH": _RETH_BYTES, "immediate": _IMMEDIATE_BYTES}
    return {"RETH": _RETH_BYTES} if op == "write" else {}


def attainable(
    initiator: Endpoint,
    responder: Endpoint,
    *,
    op: str,
    size_bytes: int,
    transport: str = "RC",
    direction: str = "one-way",
    link: LinkFacts | None = None,
    vlan_tags: int = 0,
) -> Attainable:
    """The best payload rate between two endpoints, of the slower one where they differ."""
    link = link or LinkFacts()
    slower = min(initiator, responder, key=lambda end: end.rate_gbit_s)
    if slower.rate_gbit_s <= 0:
        return Attainable(reason=f"{slower.label} does not say its rate")
    if direction != "one-way":
        return Attainable(reason=f"direction {direction}: no one-way rate is its limit")
    mtu_bytes = link.mtu_bytes or min(initiator.active_mtu_bytes, responder.active_mtu_bytes)
    if mtu_bytes <= 0:
        return Attainable(reason=f"the MTU of {initiator.label} is not known")
    if transport == TCP:
        return _tcp_stream(slower, mtu_bytes, tcp_framing(slower.address, vlan_tags=vlan_tags))
    framing = rdma_framing(initiator, link, vlan_tags=vlan_tags)
    if framing is None:
        return Attainable(
            reason=f"{initiator.label} has link layer {initiator.link_layer!r} and GID "
            f"{initiator.gid!r}, so its framing is not known"
        )
    return _rdma_message(slower, mtu_bytes, framing, op=op, size_bytes=size_bytes)


def _rdma_message(
    end: Endpoint, mtu_bytes: int, framing: Framing, *, op: str, size_bytes: int
) -> Attainable:
    """S / (S + padding to 4 + ceil(S / MTU) * headers + extended headers) of the data rate."""
    packets = -(-size_bytes // mtu_bytes)
    extended = message_headers(op, packets)
    padding = -size_bytes % 4
    wire_bytes = size_bytes + padding + packets * framing.overhead_bytes + sum(extended.values())
    return Attainable(
        rate_gbit_s=end.rate_gbit_s * size_bytes / wire_bytes,
        data_rate_gbit_s=end.rate_gbit_s,
        encoding=line_encoding(end.rate_text, end.link_layer),
        framing=framing.name,
        mtu_bytes=mtu_bytes,
        size_bytes=size_bytes,
        packets=packets,
        payload_bytes=size_bytes,
        wire_bytes=wire_bytes,
        headers=framing.headers,
        message_headers={**extended, **({"padding": padding} if padding else {})},
    )


def _tcp_stream(end: Endpoint, mtu_bytes: int, framing: Framing) -> Attainable:
    """Full segments, whatever the message size: a stream joins small messages."""
    ip_and_tcp = framing.overhead_bytes - sum(
        size for name, size in framing.headers.items() if name in _FRAME or name == "VLAN"
    )
    payload_bytes = mtu_bytes - ip_and_tcp
    if payload_bytes <= 0:
        return Attainable(reason=f"an MTU of {mtu_bytes} B leaves no room for a TCP segment")
    wire_bytes = payload_bytes + framing.overhead_bytes
    return Attainable(
        rate_gbit_s=end.rate_gbit_s * payload_bytes / wire_bytes,
        data_rate_gbit_s=end.rate_gbit_s,
        encoding=line_encoding(end.rate_text, end.link_layer),
        framing=framing.name,
        mtu_bytes=mtu_bytes,
        size_bytes=payload_bytes,
        packets=1,
        payload_bytes=payload_bytes,
        wire_bytes=wire_bytes,
        headers=framing.headers,
    )
