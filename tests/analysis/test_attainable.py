from __future__ import annotations

import pytest

from rdmabench.analysis.attainable import (
    attainable,
    data_rate_gbit_s,
    line_encoding,
    message_headers,
)
from rdmabench.model import Endpoint, LinkFacts

FULL = 1 << 30  # so large that what is per message does not count
IPV4_GID = "::ffff:10.0.0.1"
IPV6_GID = "fe80:0000:0000:0000:0000:00ff:fe00:0001"
NO_GRH = LinkFacts(initiator_gid_index=-1)
GRH = LinkFacts(initiator_gid_index=0)


def roce(rate: float, mtu: int, gid: str = IPV4_GID, **facts: str) -> Endpoint:
    return Endpoint(
        host="n",
        device="mlx5_0",
        link_layer="Ethernet",
        rate_gbit_s=rate,
        active_mtu_bytes=mtu,
        gid=gid,
        gid_type=facts.get("gid_type", "RoCE v2"),
    )


def ib(rate: float, text: str = "", mtu: int = 4096) -> Endpoint:
    return Endpoint(
        host="n",
        device="mlx5_0",
        link_layer="InfiniBand",
        rate_gbit_s=rate,
        rate_text=text,
        active_mtu_bytes=mtu,
    )


def rate_of(end: Endpoint, *, op: str = "send", size: int = FULL, **more: object) -> float:
    return attainable(end, end, op=op, size_bytes=size, **more).rate_gbit_s  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "vlan_tags", "expected"),
    [
        pytest.param(roce(400, 1024), 0, 370.34, id="400G at 1024"),
        pytest.param(roce(400, 2048), 0, 384.60, id="400G at 2048"),
        pytest.param(roce(400, 4096), 0, 392.15, id="400G at 4096"),
        pytest.param(roce(400, 4096, IPV6_GID), 0, 390.28, id="400G over IPv6"),
        pytest.param(roce(400, 4096), 1, 391.77, id="400G with a VLAN tag"),
        pytest.param(roce(100, 4096), 0, 98.04, id="100G"),
        pytest.param(roce(100, 4096, gid_type="IB/RoCE v1"), 0, 97.76, id="100G RoCE v1"),
    ],
)
def test_roce_carries_what_its_frames_leave(end: Endpoint, vlan_tags: int, expected: float) -> None:
    assert rate_of(end, vlan_tags=vlan_tags) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("text", "rate", "link", "expected"),
    [
        pytest.param("400 Gb/sec (4X NDR)", 400.0, NO_GRH, 397.48, id="NDR"),
        pytest.param("400 Gb/sec (4X NDR)", 400.0, GRH, 393.66, id="NDR with GRH"),
        pytest.param("200 Gb/sec (4X HDR)", 200.0, NO_GRH, 198.74, id="HDR"),
        pytest.param("56 Gb/sec (4X FDR)", 54.545, NO_GRH, 54.20, id="FDR"),
    ],
)
def test_infiniband_carries_what_its_packets_leave(
    text: str, rate: float, link: LinkFacts, expected: float
) -> None:
    assert rate_of(ib(rate, text), link=link) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("text", "carries"),
    [
        ("2.5 Gb/sec (1X SDR)", 2.0),
        ("20 Gb/sec (4X DDR)", 16.0),
        ("40 Gb/sec (4X QDR)", 32.0),
        ("40 Gb/sec (4X FDR10)", 40.0),
        ("56 Gb/sec (4X FDR)", 54.5),
        ("100 Gb/sec (4X EDR)", 100.0),
        ("200 Gb/sec (4X HDR)", 200.0),
        ("400 Gb/sec (4X NDR)", 400.0),
        ("800 Gb/sec (4X XDR)", 800.0),
    ],
)
def test_an_infiniband_rate_is_taken_after_its_encoding(text: str, carries: float) -> None:
    assert data_rate_gbit_s(text, "InfiniBand") == pytest.approx(carries, abs=0.05)


def test_an_ethernet_rate_is_the_data_rate_already() -> None:
    assert data_rate_gbit_s("40 Gb/sec (4X QDR)", "Ethernet") == 40.0
    assert data_rate_gbit_s("25 Gb/sec", "Ethernet") == 25.0


def test_a_rate_that_is_no_rate_is_not_guessed() -> None:
    assert data_rate_gbit_s("unknown", "InfiniBand") == 0.0
    assert data_rate_gbit_s("", "Ethernet") == 0.0


def test_the_encoding_is_named() -> None:
    assert line_encoding("40 Gb/sec (4X QDR)", "InfiniBand") == "8b/10b"
    assert line_encoding("56 Gb/sec (4X FDR)", "InfiniBand") == "64b/66b"
    assert line_encoding("40 Gb/sec (4X QDR)", "Ethernet").startswith("none to take off")


@pytest.mark.parametrize(
    ("op", "size", "share"),
    [
        pytest.param("send", 4096, 4096 / (4096 + 82), id="send of one packet"),
        pytest.param("write", 4096, 4096 / (4096 + 82 + 16), id="write has a RETH"),
        pytest.param("read", 4096, 4096 / (4096 + 82 + 4), id="read of one packet, one AETH"),
        pytest.param("read", 12288, 12288 / (12288 + 3 * 82 + 8), id="read of three, two AETH"),
        pytest.param("send", 4097, 4097 / (4097 + 3 + 2 * 82), id="padded, a second packet"),
        pytest.param("write", 2, 2 / (2 + 2 + 82 + 16), id="a write of two bytes"),
    ],
)
def test_a_message_pays_for_its_own_packets(op: str, size: int, share: float) -> None:
    assert rate_of(roce(100, 4096), op=op, size=size) == pytest.approx(100 * share)


def test_a_write_with_immediate_has_both_headers() -> None:
    assert message_headers("write_imm", 1) == {"RETH": 16, "immediate": 4}


@pytest.mark.parametrize(
    ("mtu", "address", "share"),
    [
        pytest.param(1500, "10.0.0.1", 1448 / 1538, id="1500"),
        pytest.param(9000, "10.0.0.1", 8948 / 9038, id="9000"),
        pytest.param(1500, "fd00::1", 1428 / 1538, id="1500 over IPv6"),
    ],
)
def test_tcp_carries_full_segments_whatever_the_message(
    mtu: int, address: str, share: float
) -> None:
    end = Endpoint(
        host="n", device="eth0", address=address, rate_gbit_s=100.0, active_mtu_bytes=mtu
    )
    for size in (64, 65536):
        assert rate_of(end, size=size, transport="TCP") == pytest.approx(100 * share)


def test_a_vlan_tag_costs_tcp_wire_and_no_payload() -> None:
    end = Endpoint(host="n", device="eth0", rate_gbit_s=100.0, active_mtu_bytes=1500)
    found = attainable(end, end, op="send", size_bytes=1, transport="TCP", vlan_tags=1)
    assert (found.payload_bytes, found.wire_bytes) == (1448, 1542)


def test_the_slower_end_and_the_links_mtu_decide() -> None:
    found = attainable(
        roce(400, 4096),
        roce(100, 4096),
        op="send",
        size_bytes=FULL,
        link=LinkFacts(mtu_bytes=1024),
    )
    assert found.rate_gbit_s == pytest.approx(92.59, abs=0.01)


@pytest.mark.parametrize(
    ("end", "more", "reason"),
    [
        pytest.param(roce(0.0, 4096), {}, "n/mlx5_0 does not say its rate", id="rate"),
        pytest.param(roce(100, 0), {}, "the MTU of n/mlx5_0 is not known", id="MTU"),
        pytest.param(roce(100, 4096, ""), {}, "its framing is not known", id="GID"),
        pytest.param(
            Endpoint(host="n", device="x", rate_gbit_s=1.0, active_mtu_bytes=1024),
            {},
            "its framing is not known",
            id="link layer",
        ),
        pytest.param(roce(100, 4096), {"direction": "bidir"}, "no one-way rate", id="bidir"),
        pytest.param(roce(100, 50), {"transport": "TCP"}, "no room for a TCP", id="tiny MTU"),
    ],
)
def test_what_is_not_known_is_said_and_never_invented(
    end: Endpoint, more: dict[str, str], reason: str
) -> None:
    found = attainable(end, end, op="send", size_bytes=1, **more)  # type: ignore[arg-type]
    assert not found.is_known
    assert (found.rate_gbit_s, found.efficiency) == (0.0, 0.0)
    assert reason in found.reason
    assert found.explain() == (f"attainable rate: not known: {found.reason}",)


def test_the_explanation_holds_the_whole_sum() -> None:
    found = attainable(ib(32.0, "40 Gb/sec (4X QDR)"), ib(32.0), op="write", size_bytes=10000)
    text = "\n".join(found.explain())
    assert "data rate: 32.00 Gb/s" in text
    assert "framing: InfiniBand, MTU 4096 B" in text
    assert "per packet: 26 B (LRH 8, BTH 12, ICRC 4, VCRC 2)" in text
    assert "per message: 16 B (RETH 16)" in text
    assert "10000 B of payload in 3 packets occupy 10094 B, so 99.07 % of it is payload" in text
    assert "attainable payload rate: 31.70 Gb/s" in text
