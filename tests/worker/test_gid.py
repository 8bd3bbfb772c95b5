"""The GID rule, on tables rewritten from public reports (source beside each)."""

from __future__ import annotations

import errno

import pytest

from rdmabench.errors import DeviceError
from rdmabench.worker import gid as gids
from rdmabench.worker.gid import ROCE_V1, ROCE_V2, Gid, choose, read_table, warning
from tests.trees import CLASS, DictTree, gid_table

LL = "fe80:0000:0000:0000:0ac0:ebff:fe00:0001"
LL_B = "fe80:0000:0000:0000:1186:a6b1:3f00:0002"
GLOBAL6 = "2001:0db8:0000:0000:0000:0000:0000:0001"
V4 = "0000:0000:0000:0000:0000:ffff:c633:6406"


def table_of(entries: list[tuple[int, str, str, str]], length: int) -> tuple[Gid, ...]:
    tree = DictTree(gid_table("/port", entries, length=length))
    return read_table(lambda path: tree.read(f"/port/{path}"), length)


def pairs(*addresses: str, start: int = 0, netdev: str = "net1") -> list[tuple[int, str, str, str]]:
    """Each address as the kernel lists it: v1, then v2."""
    return [
        (start + 2 * i + j, address, kind, netdev)
        for i, address in enumerate(addresses)
        for j, kind in enumerate((ROCE_V1, ROCE_V2))
    ]


@pytest.mark.parametrize(
    ("entries", "length", "right"),
    [
        # https://github.com/NVIDIA/nccl/issues/769: index 1 is link-local v2 and times out
        pytest.param(pairs(LL, V4, netdev="bond0"), 256, 3, id="A01-bond"),
        # https://github.com/NVIDIA/nccl/issues/1573: a container's GIDs start at 4
        pytest.param(pairs(LL, V4, start=4), 256, 7, id="A02-macvlan"),
        # https://github.com/IBM/SpectrumScale_NETWORK_READINESS/pull/4: two link-local pairs first
        pytest.param(pairs(LL, LL_B, V4), 16, 5, id="A03-two-link-locals"),
        pytest.param(pairs(LL, GLOBAL6), 16, 3, id="global-IPv6-over-link-local"),
        pytest.param(pairs(GLOBAL6, V4), 16, 3, id="IPv4-over-global-IPv6"),
        pytest.param(pairs(LL), 16, 1, id="link-local-when-there-is-nothing-else"),
    ],
)
def test_the_best_roce_gid_is_chosen(
    entries: list[tuple[int, str, str, str]], length: int, right: int
) -> None:
    chosen = choose(table_of(entries, length), link_layer="Ethernet", device="mlx5_0")
    assert (chosen.index, chosen.kind) == (right, ROCE_V2)


def test_a_chosen_ipv4_gid_knows_its_address() -> None:
    chosen = choose(table_of(pairs(LL, V4), 16), link_layer="Ethernet", device="d")
    assert str(chosen.ipv4) == "198.51.100.6"
    assert warning(chosen, "Ethernet") == ""


def test_the_types_of_zero_entries_are_never_read() -> None:
    tree = DictTree(gid_table("/port", pairs(LL, V4, start=4), length=256))
    table = read_table(lambda path: tree.read(f"/port/{path}"), 256)
    assert [gid.index for gid in table] == [4, 5, 6, 7]
    assert sum("types" in path for path in tree.reads) == 4


def test_an_unreadable_entry_does_not_end_the_scan() -> None:
    files = gid_table("/port", pairs(LL, V4), length=8)
    files["/port/gids/0"] = errno.EIO
    files["/port/gid_attrs/types/1"] = errno.EINVAL
    table = read_table(lambda path: DictTree(files).read(f"/port/{path}"), 8)
    assert choose(table, link_layer="Ethernet", device="d").index == 3


def test_an_infiniband_port_uses_gid_0_and_no_roce_rule() -> None:
    # https://github.com/RDMA-Rust/sideway/pull/106
    entries = [(0, "fe80:0000:0000:0000:946d:ae03:0000:0001", ROCE_V1, "")]
    chosen = choose(table_of(entries, 16), link_layer="InfiniBand", device="mlx5_0")
    assert chosen.index == 0
    assert warning(chosen, "InfiniBand") == ""


def test_an_infiniband_port_without_a_readable_gid_still_routes_by_lid() -> None:
    assert choose((), link_layer="InfiniBand", device="mlx5_0").index == 0


def test_a_forced_link_local_gid_is_used_with_a_warning() -> None:
    table = table_of(pairs(LL, V4), 16)
    forced = choose(table, link_layer="Ethernet", device="d", forced=1)
    assert forced.index == 1
    assert "not routable" in warning(forced, "Ethernet")


def test_a_forced_index_that_is_empty_names_the_ones_that_are_not() -> None:
    with pytest.raises(DeviceError, match="GID index 9 is empty; used entries are 0, 1, 2, 3"):
        choose(table_of(pairs(LL, V4), 16), link_layer="Ethernet", device="d", forced=9)


def test_roce_v1_alone_is_refused_unless_asked_for() -> None:
    table = table_of([(0, V4, ROCE_V1, "eth0")], 16)
    with pytest.raises(DeviceError, match="no RoCE v2 GID among 1 used entries"):
        choose(table, link_layer="Ethernet", device="d")
    assert choose(table, link_layer="Ethernet", device="d", roce_v1=True).index == 0


def test_the_class_directory_is_the_kernels() -> None:
    assert CLASS == "/sys/class/infiniband"
    assert gids.ROCE_V2 == "RoCE v2"
