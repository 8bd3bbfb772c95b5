from __future__ import annotations

from dataclasses import replace

import pytest

from rdmabench.errors import DeviceError
from rdmabench.model import Endpoint, Fabric
from rdmabench.wire import ListEndpoints
from rdmabench.worker import counters, device
from rdmabench.worker.device import PortAttributes, list_endpoints
from rdmabench.worker.gid import ROCE_V1, ROCE_V2
from tests.trees import CLASS, DictTree, gid_table, port

V4 = "0000:0000:0000:0000:0000:ffff:c000:020{}"
ATTRIBUTES = PortAttributes(
    active_mtu_bytes=4096, gid_table_length=4, lid=0, max_qp=100, max_qp_rd_atom=16
)


def query(name: str, number: int) -> PortAttributes:
    return replace(ATTRIBUTES, lid=3471 if name.startswith("ib") else 0)


def roce(name: str, digit: int, **changes: str) -> dict[str, str | int]:
    base = f"{CLASS}/{name}/ports/1"
    return port(name, **changes) | gid_table(
        base, [(1, V4.format(digit), ROCE_V2, f"eth{digit}")], length=4
    )


def found(
    tree: DictTree, fabric: Fabric, *, selector: str = "", order: tuple[str, ...] = ()
) -> tuple[Endpoint, ...]:
    request = ListEndpoints(fabric=fabric, selector=selector, rail_order=order)
    return list_endpoints(request, host="n", tree=tree, query=query)


MIXED = DictTree(
    roce("mlx5_10", 1)
    | roce("mlx5_2", 2)
    | roce("rxe_eth0", 3)
    | {f"{CLASS}/rxe_eth0/parent": "eth3\n"}
    | port("ibp1s0", layer="InfiniBand", rate="200 Gb/sec (4X HDR)")
    | {f"{CLASS}/ibp1s0/ports/1/gids/0": "fe80:0000:0000:0000:946d:ae03:0000:0001"}
    | {f"{CLASS}/ibp1s0/ports/1/gid_attrs/types/0": ROCE_V1},
    links={f"{CLASS}/mlx5_2/device/driver": "mlx5_core"},
)


def test_each_fabric_takes_its_own_ports_and_soft_roce_is_never_roce() -> None:
    assert [e.device for e in found(MIXED, Fabric.ROCE)] == ["mlx5_2", "mlx5_10"]
    assert [e.device for e in found(MIXED, Fabric.RXE)] == ["rxe_eth0"]
    assert [e.device for e in found(MIXED, Fabric.IB)] == ["ibp1s0"]


def test_an_endpoint_carries_what_its_rows_must_record() -> None:
    first = found(MIXED, Fabric.ROCE)[0]
    assert (first.gid_index, first.gid_type, first.address) == (1, "RoCE v2", "192.0.2.2")
    assert (first.netdev, first.driver, first.rate_gbit_s) == ("eth2", "mlx5_core", 100.0)
    assert (first.active_mtu_bytes, first.rail) == (4096, 0)


def test_an_infiniband_port_is_routed_by_the_lid_that_it_has() -> None:
    only = found(MIXED, Fabric.IB)[0]
    assert (only.lid, only.gid_index, only.rate_gbit_s) == (3471, 0, 200.0)


def test_rails_follow_the_inventory_where_it_orders_them() -> None:
    assert [(e.device, e.rail) for e in found(MIXED, Fabric.ROCE, order=("mlx5_10", "mlx5_2"))] == [
        ("mlx5_10", 0),
        ("mlx5_2", 1),
    ]


def test_a_selector_that_names_nothing_lists_what_there_is() -> None:
    with pytest.raises(DeviceError, match=r"that 'bnxt' selects: it has ibp1s0, mlx5_10"):
        found(MIXED, Fabric.ROCE, selector="bnxt")


def test_a_node_without_any_device_says_so_and_how_to_make_one() -> None:
    with pytest.raises(DeviceError, match="no RDMA device at all") as caught:
        found(DictTree({}), Fabric.RXE)
    assert "rdma link add" in caught.value.remedy


def test_ports_that_are_down_are_named_with_their_state() -> None:
    tree = DictTree(roce("mlx5_0", 1, state="1: DOWN"))
    with pytest.raises(DeviceError, match="mlx5_0 port 1 is DOWN") as caught:
        found(tree, Fabric.ROCE)
    assert caught.value.device == "mlx5_0"


def test_a_port_that_is_down_does_not_hide_its_neighbour() -> None:
    tree = DictTree(roce("mlx5_0", 1, state="1: DOWN") | roce("mlx5_1", 2))
    assert [(e.device, e.rail) for e in found(tree, Fabric.ROCE)] == [("mlx5_1", 0)]


def test_tcp_runs_over_the_netdevs_under_the_rdma_devices() -> None:
    tree = DictTree(
        roce("mlx5_0", 1)
        | {
            "/sys/class/net/lo/operstate": "unknown",
            "/sys/class/net/lo/mtu": "65536",
            "/sys/class/net/lo/speed": "not a number",
        }
    )
    request = ListEndpoints(fabric=Fabric.TCP, netdev="lo")
    only = list_endpoints(request, host="n", tree=tree, query=query)[0]
    assert (only.device, only.address, only.active_mtu_bytes) == ("lo", "127.0.0.1", 65536)
    assert only.rate_gbit_s == 0.0, "a speed that is not known is not invented"


def test_tcp_without_a_data_network_lists_the_candidates() -> None:
    tree = DictTree({"/sys/class/net/eth0/operstate": "up", "/sys/class/net/lo/operstate": "up"})
    with pytest.raises(DeviceError, match="netdevs that are up: eth0"):
        found(tree, Fabric.TCP)


def test_a_netdev_of_the_inventory_that_is_not_there_is_named() -> None:
    request = ListEndpoints(fabric=Fabric.TCP, netdev="data9")
    with pytest.raises(DeviceError, match="no such netdev") as caught:
        list_endpoints(request, host="n", tree=DictTree({}), query=query)
    assert caught.value.device == "data9"


def test_counters_that_are_not_numbers_are_left_out_and_never_zero() -> None:
    # "N/A (no PMA)": seen on virtual functions
    base = f"{CLASS}/mlx5_0/ports/1"
    tree = DictTree(
        {
            f"{base}/counters/port_xmit_data": "12",
            f"{base}/counters/symbol_error": "N/A (no PMA)",
            f"{base}/hw_counters/lifespan": "10",
            f"{base}/hw_counters/out_of_sequence": "0",
            "/sys/class/net/eth0/statistics/tx_bytes": "99",
        }
    )
    values = counters.read(tree, Endpoint(host="n", device="mlx5_0", netdev="eth0")).values
    assert values == {
        "counters/port_xmit_data": 12,
        "hw_counters/out_of_sequence": 0,
        "netdev/tx_bytes": 99,
    }


def test_a_tcp_endpoint_watches_the_rdma_counters_that_must_stand_still() -> None:
    tree = DictTree({f"{CLASS}/rxe0/ports/1/hw_counters/sent_pkts": "7"})
    values = counters.read(tree, Endpoint(host="n", device="data0", netdev="data0")).values
    assert values == {"rdma/rxe0/1/hw_counters/sent_pkts": 7}


def test_missing_pyverbs_names_the_package() -> None:
    assert "python3-pyverbs" in device.missing_pyverbs("No module named 'pyverbs'").remedy
