"""A node's audit from captured trees: every fact or the reason why it is not known."""

from __future__ import annotations

import errno
import os
import platform
import struct
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from rdmabench import wire
from rdmabench.audit import Audit, Device, Port
from rdmabench.errors import VerbsError
from rdmabench.model import Fabric, Host
from rdmabench.orchestrator import auditing
from rdmabench.units import gbit_per_s, parse_rate
from rdmabench.wire import ListEndpoints
from rdmabench.worker import counter_text, gpus, netdevs, pcie, softroce
from rdmabench.worker.audit import Sources, devinfo_number, gather
from rdmabench.worker.device import PortAttributes, no_verbs
from rdmabench.worker.gathering import UnknownError
from rdmabench.worker.tools import RealTools
from tests.local import start_worker
from tests.trees import CLASS, DictTree, gid_table, port

LL = "fe80:0000:0000:0000:ee0d:9aff:fe00:0001"
V4 = "0000:0000:0000:0000:0000:ffff:c000:0264"
V1, V2 = "IB/RoCE v1", "RoCE v2"


class FakeTools:
    """Programs by what they print."""

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self.texts = dict(texts or {})

    def has(self, name: str) -> bool:
        return any(text.split()[0] == name for text in self.texts)

    def run(self, *argv: str) -> str:
        try:
            return self.texts[" ".join(argv)]
        except KeyError as exc:
            raise UnknownError(f"no `{argv[0]}` on the node") from exc


class ByteTree(DictTree):
    """With files that are no text."""

    binary: Mapping[str, bytes] = {}

    def read_bytes(self, path: str) -> bytes:
        if path not in self.binary:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.binary[path]


def audit_of(
    files: Mapping[str, str | int],
    *,
    fabric: Fabric = Fabric.ROCE,
    links: Mapping[str, str] | None = None,
    tools: Mapping[str, str] | None = None,
    binary: Mapping[str, bytes] | None = None,
    **request: Any,
) -> Audit:
    tree = ByteTree(files, links)
    tree.binary = binary or {}
    sources = Sources(tree, FakeTools(tools), no_verbs, "No module named 'pyverbs'")
    return gather(ListEndpoints(fabric=fabric, **request), sources, host="n1")


def roce(name: str, entries: list[tuple[int, str, str, str]]) -> dict[str, str | int]:
    return port(name) | gid_table(f"{CLASS}/{name}/ports/1", entries, length=16)


def used(found: Audit) -> list[str]:
    return [device.name for device, _ in found.rails]


def first_port(found: Audit) -> Port:
    return found.devices[0].ports[0]


# --- GIDs, ports, devices


def test_a05_each_host_has_its_own_index_and_v1_alone_is_visible() -> None:
    """https://github.com/openucx/ucx/issues/7785"""
    host_a = [(0, LL, V1, "ens1"), (1, LL, V2, "ens1"), (2, V4, V1, "ens1"), (3, V4, V2, "ens1")]
    host_b = [(0, LL, V1, "ens1"), (1, V4, V1, "ens1")]
    a, b = (first_port(audit_of(roce("mlx5_0", e))) for e in (host_a, host_b))
    assert (a.gid_index, a.gid and a.gid.kind) == (3, V2)
    assert (b.gid_index, b.gid and b.gid.kind) == (1, V1)
    forced = first_port(audit_of(roce("mlx5_0", host_b), gid_index=3))
    assert forced.gid_index is None
    assert "GID index 3 is empty" in forced.why("gid_index")


A11 = {
    "ibP16p3s0": "InfiniBand",
    "ibP18p3s0": "InfiniBand",
    "ibP2p3s0": "InfiniBand",
    "ibp3s0": "InfiniBand",
    "roceP22p1s0f0": "Ethernet",
}


def test_a11_ports_are_chosen_by_layer_and_never_by_name() -> None:
    files: dict[str, str | int] = {}
    for name, layer in A11.items():
        rate = "800 Gb/sec (4X XDR)" if layer == "InfiniBand" else "400 Gb/sec (4X NDR)"
        files |= port(name, layer=layer, rate=rate)
    assert set(used(audit_of(files, fabric=Fabric.IB))) == set(A11) - {"roceP22p1s0f0"}
    assert used(audit_of(files)) == ["roceP22p1s0f0"]
    assert [p.rate_gbit_s for _, p in audit_of(files, fabric=Fabric.IB).rails] == [800.0] * 4


def test_a11_a_host_without_the_class_directory_has_no_rails() -> None:
    assert audit_of({}).devices == ()
    assert audit_of({}).rails == ()


def test_a12_a_bond_of_ethernet_ports_is_no_rail_of_infiniband() -> None:
    files: dict[str, str | int] = {}
    for name in ("mlx5_2", "mlx5_3"):
        files |= port(name, layer="InfiniBand")
    files |= port("mlx5_bond_0")
    assert used(audit_of(files, fabric=Fabric.IB)) == ["mlx5_2", "mlx5_3"]


def test_a14_functions_of_one_card_share_its_system_image_guid() -> None:
    files: dict[str, str | int] = {}
    for digit in (2, 3):
        name = f"mlx5_{digit - 2}"
        files |= port(name) | {
            f"{CLASS}/{name}/sys_image_guid": "0200:0000:0300:0032",
            f"{CLASS}/{name}/node_guid": f"0200:0000:0300:003{digit}",
            f"{CLASS}/{name}/ports/1/lid": "0x0",
        }
    found = audit_of(files)
    assert {d.system_guid for d in found.devices} == {"0200:0000:0300:0032"}
    assert len({d.node_guid for d in found.devices}) == 2
    assert [p.lid for _, p in found.rails] == [0, 0]


DEVINFO = """hca_id: {}
        transport:                      InfiniBand (0)
                port:   1
                        state:                  PORT_ACTIVE (4)
                        max_mtu:                4096 (5)
                        active_mtu:             {}
                        sm_lid:                 {}
"""


def test_a15_infiniband_and_ethernet_on_one_host() -> None:
    files = port("mlx5_12") | port("mlx5_13", layer="InfiniBand")
    for name, lid, sm in (("mlx5_12", "0x0", "0x0"), ("mlx5_13", "0x511", "0x203")):
        files |= {f"{CLASS}/{name}/ports/1/lid": lid, f"{CLASS}/{name}/ports/1/sm_lid": sm}
    tools = {
        "ibv_devinfo -d mlx5_12 -i 1": DEVINFO.format("mlx5_12", "1024 (3)", 0),
        "ibv_devinfo -d mlx5_13 -i 1": DEVINFO.format("mlx5_13", "4096 (5)", 515),
    }
    found = audit_of(files, fabric=Fabric.IB, tools=tools)
    ethernet, infiniband = (d.ports[0] for d in found.devices)
    assert (ethernet.link_layer, ethernet.active_mtu_bytes, ethernet.rail) == ("Ethernet", 1024, -1)
    assert (infiniband.lid, infiniband.sm_lid, infiniband.active_mtu_bytes) == (1297, 515, 4096)
    assert used(found) == ["mlx5_13"]


def test_a17_a_port_that_polls_is_not_usable_though_it_prints_rate_and_lid() -> None:
    """https://github.com/leptonai/gpud/pull/482"""
    good = port("mlx5_9", layer="InfiniBand", rate="400 Gb/sec (4X NDR)")
    bad = port("mlx5_10", layer="InfiniBand", rate="10 Gb/sec (4X SDR)", state="1: DOWN")
    bad |= {f"{CLASS}/mlx5_10/ports/1/phys_state": "2: Polling\n"}
    bad |= {f"{CLASS}/mlx5_10/ports/1/lid": "0x364"}
    found = audit_of(good | bad, fabric=Fabric.IB)
    assert used(found) == ["mlx5_9", "mlx5_10"], "in natural order"
    assert [d.name for d, p in found.rails if p.active] == ["mlx5_9"]
    down = found.rails[1][1]
    assert (down.state, down.phys_state, down.lid) == ("DOWN", "Polling", 868)


A18 = (
    ("mlx5_0", "mlx5_core", "InfiniBand"),
    ("mlx5_10", "mlx5_core", "InfiniBand"),
    ("mlx5_bond_7", "mlx5_core", "Ethernet"),
    ("xscale_0", "xsc-pci", "Ethernet"),
    ("bnxt_re0", "bnxt_en", "Ethernet"),
    ("rocep133s0f0", "ice", "Ethernet"),
    ("ibp12s0", "mlx5_core", "InfiniBand"),
    ("rxe_ens5", "rxe", "Ethernet"),
    ("hfi1_0", "hfi1", "InfiniBand"),
)


def test_a18_every_vendor_is_listed_with_the_driver_of_its_link() -> None:
    files: dict[str, str | int] = {f"{CLASS}/rxe_ens5/parent": "ens5\n"}
    for name, _, layer in A18:
        files |= port(name, layer=layer)
    links = {f"{CLASS}/{name}/device/driver": driver for name, driver, _ in A18 if driver != "rxe"}
    found = audit_of(files, links=links)
    assert len(found.devices) == 9
    assert {d.name: d.driver for d in found.devices} == {name: d for name, d, _ in A18}
    assert used(found) == ["bnxt_re0", "mlx5_bond_7", "rocep133s0f0", "xscale_0"]
    names = [d.name for d in found.devices]
    assert names.index("mlx5_0") < names.index("mlx5_10")


def test_a19_a_prefix_that_means_more_than_it_names_is_told() -> None:
    files = port("mlx5_1") | port("mlx5_10") | port("mlx5_11")
    (note,) = audit_of(files, selector="mlx5_1").notes
    assert "mlx5_10, mlx5_11" in note
    assert audit_of(files, selector="=mlx5_1").notes == ()


def test_rails_follow_the_inventory() -> None:
    files = port("mlx5_0") | port("mlx5_1")
    assert used(audit_of(files, rail_order=("mlx5_1", "mlx5_0"))) == ["mlx5_1", "mlx5_0"]


def test_the_active_mtu_comes_from_the_device_where_pyverbs_is_there() -> None:
    def query(_name: str, _number: int) -> PortAttributes:
        return PortAttributes(2048, 16, 0, 1, 1)

    sources = Sources(ByteTree(port("mlx5_0")), FakeTools(), query)
    found = gather(ListEndpoints(fabric=Fabric.ROCE), sources, host="n")
    assert first_port(found).active_mtu_bytes == 2048


def test_no_fact_is_without_value_and_without_reason() -> None:
    found = audit_of(roce("mlx5_0", [(0, V4, V2, "eth0")]) | {"/sys/class/net/eth0/mtu": "9000"})
    sections = [found.machine, *found.devices, *found.netdevs]
    sections += [p for d in found.devices for p in d.ports]
    for section in sections:
        for each in fields(section):
            if getattr(section, each.name) is None:
                assert section.unknown[each.name], each.name


def test_an_audit_survives_the_wire() -> None:
    found = audit_of(roce("mlx5_0", [(0, V4, V2, "eth0")]))
    envelope = wire.Envelope(body=wire.AuditReport(found))
    assert wire.decode(wire.encode(envelope)).body == wire.AuditReport(found)


# --- counters


def test_d01_a_counter_that_is_no_number_is_missing_with_its_text() -> None:
    """https://github.com/prometheus/node_exporter/issues/966"""
    base = f"{CLASS}/mlx4_0/ports/1"
    names = (
        "excessive_buffer_overrun_errors",
        "link_downed",
        "link_error_recovery",
        "port_rcv_data",
        "port_xmit_data",
        "port_rcv_errors",
    )
    files = port("mlx4_0") | {f"{base}/counters/{name}": "N/A (no PMA)\n" for name in names}
    files |= {
        f"{base}/hw_counters/rnr_nak_retry_err": "0\n",
        f"{base}/hw_counters/lifespan": "10\n",
        f"{base}/hw_counters/broken": errno.EIO,
    }
    found = first_port(audit_of(files))
    assert found.counters == {"hw_counters/rnr_nak_retry_err": 0}
    missing = {name: why for name, why in found.unknown.items() if name.startswith("counters/")}
    assert missing == {f"counters/{name}": "N/A (no PMA)" for name in names}
    assert found.unknown["hw_counters/broken"] == "Input/output error"


D07 = """/sys/class/infiniband/mlx5_0/ports/1/hw_counters/lifespan:12
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err:2705
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent:1333
/sys/class/infiniband/0000:1a:00.0/np_ecn_marked_roce_packets:0
"""


def test_d07_both_forms_of_counters_are_read() -> None:
    assert counter_text.statistics(D07) == {
        "local_ack_timeout_err": 2705,
        "np_cnp_sent": 1333,
        "np_ecn_marked_roce_packets": 0,
    }
    ethtool = "NIC statistics:\n     rx_prio0_bytes: 88178050405854\n     rx_prio3_bytes: 0\n"
    assert counter_text.statistics(ethtool) == {
        "rx_prio0_bytes": 88178050405854,
        "rx_prio3_bytes": 0,
    }


D10 = """link mlx5_0/1 rx_write_requests 0 rx_read_requests 0 rx_atomic_requests 0 out_of_buffer 3 \
duplicate_request 0 rnr_nak_retry_err 0 packet_seq_err 0 implied_nak_seq_err 0 \
local_ack_timeout_err 0 rp_cnp_ignored 0 rp_cnp_handled 0 np_ecn_marked_roce_packets 0 np_cnp_sent 0
"""
D10_P = """link mlx5_0/1
\trx_write_requests 0
\trx_read_requests 0
\trx_atomic_requests 0
\tout_of_buffer 3
\tduplicate_request 0
"""


def test_d10_one_line_and_one_pair_a_line_agree() -> None:
    (one,) = counter_text.rdma_statistic(D10)
    (pretty,) = counter_text.rdma_statistic(D10_P)
    assert (one.device, one.port, one.values["out_of_buffer"], len(one.values)) == (
        "mlx5_0",
        1,
        3,
        13,
    )
    assert {name: one.values[name] for name in pretty.values} == pretty.values
    two = counter_text.rdma_statistic(D10_P + D10_P.replace("mlx5_0/1", "mlx5_1/2"))
    assert [(p.device, p.port) for p in two] == [("mlx5_0", 1), ("mlx5_1", 2)]
    assert counter_text.rdma_statistic("") == ()


# --- soft-RoCE


def test_e01_a_missing_module_names_its_package_and_a_link_is_read() -> None:
    said = "modprobe: FATAL: Module rdma_rxe not found in directory /lib/modules/6.14.0-1015-aws\n"
    assert softroce.missing_module(said) == "linux-modules-extra-6.14.0-1015-aws"
    assert softroce.missing_module("modprobe: ERROR: could not insert: Permission denied") == ""
    el = (
        "modprobe: FATAL: Module rdma_rxe not found in directory /lib/modules/5.14.0-427.el9.x86_64"
    )
    assert softroce.missing_module(el) == "kernel-modules-extra-5.14.0-427.el9.x86_64"
    text = "link rxe_ens5/1 state ACTIVE physical_state LINK_UP netdev ens5 \n"
    (link,) = counter_text.rdma_links(text)
    assert link == counter_text.PortLink("rxe_ens5", 1, "ACTIVE", "LINK_UP", "ens5")


def test_e01_whether_the_kernel_has_the_module_is_read_from_its_list() -> None:
    dep = "/lib/modules/6.1/modules.dep"
    listed = DictTree({dep: "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko: kernel/x.ko"})
    assert softroce.module_state(listed, "6.1") == "available"
    assert softroce.module_state(DictTree({dep: "kernel/x.ko:"}), "6.1") == "absent"
    loaded = DictTree({"/sys/module/rdma_rxe/refcnt": "0"})
    assert softroce.module_state(loaded, "6.1") == "loaded"
    with pytest.raises(UnknownError):
        softroce.module_state(DictTree({}), "6.1")


@pytest.mark.parametrize(
    ("link_add", "parameter", "rxe_cfg", "method"),
    [
        (True, False, False, "rdma link add"),
        (False, True, True, "sysfs parameter"),
        (False, False, True, "rxe_cfg"),
        (False, False, False, ""),
        (True, True, True, "rdma link add"),
    ],
)
def test_e02_the_first_way_that_is_there_is_taken(
    link_add: bool, parameter: bool, rxe_cfg: bool, method: str
) -> None:
    found = softroce.creation_method(rdma_link_add=link_add, parameter=parameter, rxe_cfg=rxe_cfg)
    assert found == method


def test_e04_soft_roce_is_known_by_its_parent_and_its_figures_by_their_unit() -> None:
    files = roce("rxe0", [(1, V4, V2, "eth0")]) | {
        f"{CLASS}/rxe0/parent": "eth0",
        f"{CLASS}/rxe0/fw_ver": "0.0.0",
    }
    tools = {"ibv_devinfo -d rxe0 -i 1": DEVINFO.format("rxe0", "1024 (3)", 0)}
    found = audit_of(files, fabric=Fabric.RXE, tools=tools)
    device: Device = found.devices[0]
    assert device.soft
    assert device.ports[0].active_mtu_bytes == 1024
    assert device.pci is None
    assert "no PCI device" in device.why("pci")
    # perftest's MB/sec is 2^20 bytes
    assert gbit_per_s(round(110.28 * (1 << 20)), 1_000_000_000) == pytest.approx(0.9251, abs=1e-4)


def test_e05_a_gid_that_does_not_resolve_has_its_hint() -> None:
    """https://github.com/linux-rdma/rdma-core/pull/1214: errno 110 when the AH is made."""
    pytest.importorskip("pyverbs.pyverbs_error")
    from pyverbs.pyverbs_error import PyverbsRDMAError

    from rdmabench.worker.verbs import translated

    with (
        pytest.raises(VerbsError) as caught,
        translated("rxe0", "creating the address handle"),
    ):
        raise PyverbsRDMAError("Failed to create AH", 110)
    assert caught.value.errno == 110
    for hint in ("GID index", "ARP", "UDP 4791"):
        assert hint in caught.value.remedy
    with pytest.raises(VerbsError) as caught, translated("mlx5_0", "modify_qp"):
        raise PyverbsRDMAError("Failed to modify QP", 19)  # case A14
    assert "GID index has no netdev" in caught.value.remedy


# --- PCIe and GPUs


def config_space(*, control: int, acs: int | None = None) -> bytes:
    """4096 bytes with an Express capability at 0x60 after a power one, and ACS at 0x148."""
    data = bytearray(4096)
    data[0x34] = 0x40
    data[0x40:0x42] = b"\x01\x60"
    data[0x60:0x62] = b"\x10\x00"
    struct.pack_into("<H", data, 0x68, control)
    struct.pack_into("<I", data, 0x100, 0x1 | 1 << 16 | 0x148 << 20)
    if acs is not None:
        struct.pack_into("<IHH", data, 0x148, 0xD | 1 << 16, 0x7F, acs)
    return bytes(data)


ROOT, BRIDGE, NIC, GPU = "0000:10:01.0", "0000:11:00.0", "0000:12:00.0", "0000:13:00.0"
ABOVE = f"{pcie.DEVICES}/pci0000:10/{ROOT}"
NIC_DIR, GPU_DIR = f"{ABOVE}/{BRIDGE}/{NIC}", f"{ABOVE}/{BRIDGE}/{GPU}"


def machine_with_gpu() -> dict[str, str | int]:
    return {
        f"{NIC_DIR}/current_link_speed": "16.0 GT/s PCIe",
        f"{NIC_DIR}/max_link_speed": "32.0 GT/s PCIe",
        f"{NIC_DIR}/current_link_width": "8",
        f"{NIC_DIR}/max_link_width": "16",
        f"{NIC_DIR}/numa_node": "1",
        f"{ABOVE}/{BRIDGE}/max_link_speed": "32.0 GT/s PCIe",
        f"{ABOVE}/{BRIDGE}/max_link_width": "16",
        f"{GPU_DIR}/class": "0x030200",
        f"{GPU_DIR}/vendor": "0x10de",
        f"{GPU_DIR}/numa_node": "-1",
        f"{GPU_DIR}/current_link_speed": "Unknown",
        "/sys/kernel/iommu_groups/7/type": "DMA-FQ",
        **roce("mlx5_0", [(3, V4, V2, "eth0")]),
    }


LINKS = {
    f"{CLASS}/mlx5_0/device": NIC,
    f"{CLASS}/mlx5_0/device/driver": "mlx5_core",
    f"{NIC_DIR}/iommu_group": "7",
    f"{GPU_DIR}/driver": "nvidia",
}
BINARY = {
    f"{NIC_DIR}/config": config_space(control=0x2810 | 1 << 5),
    f"{ABOVE}/{BRIDGE}/config": config_space(control=0, acs=0x1D),
    f"{ABOVE}/config": config_space(control=0, acs=0x00),
}
SMI = "nvidia-smi --query-gpu=pci.bus_id,name,driver_version --format=csv,noheader"


def test_pcie_is_read_with_its_bridges_and_config_space() -> None:
    found = audit_of(machine_with_gpu(), links=LINKS, binary=BINARY)
    nic = found.devices[0].pci
    assert nic is not None
    assert nic.path == ("pci0000:10", ROOT, BRIDGE, NIC)
    assert (nic.speed_gts, nic.max_speed_gts, nic.width, nic.max_width) == (16.0, 32.0, 8, 16)
    assert (nic.slot_speed_gts, nic.slot_width, nic.numa_node) == (32.0, 16, 1)
    assert (nic.iommu, nic.relaxed_ordering) == ("DMA-FQ", True)
    assert (nic.max_payload_bytes, nic.max_read_request_bytes) == (256, 512)
    assert nic.acs_redirect == (BRIDGE,)


def test_config_space_that_only_root_may_read_is_unknown() -> None:
    short = {path: data[:64] for path, data in BINARY.items()}
    nic = audit_of(machine_with_gpu(), links=LINKS, binary=short).devices[0].pci
    assert nic is not None
    assert nic.acs_redirect is None
    assert nic.relaxed_ordering is None
    for name in ("acs_redirect", "relaxed_ordering", "max_read_request_bytes"):
        assert "without root" in nic.why(name)


def test_gpus_are_found_by_class_and_named_by_nvidia_smi() -> None:
    tools = {SMI: f"00000000:{GPU[5:].upper()}, NVIDIA H200, 570.86.15\n"}
    (gpu,) = audit_of(machine_with_gpu(), links=LINKS, tools=tools).gpus
    assert (gpu.name, gpu.version, gpu.driver) == ("NVIDIA H200", "570.86.15", "nvidia")
    assert gpu.pci is not None
    assert gpu.pci.numa_node is None
    assert "no NUMA node" in gpu.pci.why("numa_node")
    (bare,) = audit_of(machine_with_gpu(), links={}).gpus
    assert (bare.name, bare.driver) == (None, None)
    assert "no `nvidia-smi`" in bare.why("name")


def test_addresses_of_nvidia_smi_are_those_of_the_kernel() -> None:
    assert gpus._address("00000000:1A:00.0") == "0000:1a:00.0"
    assert gpus._address("00010000:1A:00.0") == "00010000:1a:00.0"


@pytest.mark.parametrize("text", ["Unknown", "", "fast"])
def test_a_link_speed_that_is_not_told_is_unknown(text: str) -> None:
    with pytest.raises(UnknownError):
        pcie.speed(text)


@pytest.mark.parametrize("text", ["0", "255", "", "x16"])
def test_a_link_width_that_is_not_told_is_unknown(text: str) -> None:
    with pytest.raises(UnknownError):
        pcie.width(text)


def test_config_space_that_is_garbage_ends() -> None:
    assert pcie.acs_control(b"\xff" * 4096) == 0
    loop = bytearray(4096)
    struct.pack_into("<I", loop, 0x100, 0x1 | 0x100 << 20)
    assert pcie.acs_control(bytes(loop)) == 0


# --- netdevs

MLNX_QOS = """DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0
\tbuffer      0   0   0   1   0   0   0   0
"""
ETHTOOL = """Settings for eth0:
\tSupported link modes:   100000baseKR4/Full
\t                        200000baseCR4/Full
\t                        400000baseCR4/Full
\tSupported pause frame use: Symmetric
\tAdvertised link modes:  800000baseCR8/Full
\tSpeed: 200000Mb/s
"""
PAUSE = "Pause parameters for eth0:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\toff\n"


def netdev_of(files: Mapping[str, str | int], tools: Mapping[str, str]) -> Any:
    return netdevs.read(ByteTree(files), FakeTools(tools), "eth0")


def test_a_netdev_is_read_with_the_vendors_tool() -> None:
    base = "/sys/class/net/eth0"
    files: dict[str, str | int] = {
        f"{base}/mtu": "9000",
        f"{base}/speed": "200000",
        f"{base}/operstate": "up",
        **{f"{base}/ecn/roce_np/enable/{p}": str(int(p == 3)) for p in range(8)},
        **{f"{base}/ecn/roce_rp/enable/{p}": "0" for p in range(8)},
    }
    tools = {"mlnx_qos -i eth0": MLNX_QOS, "ethtool eth0": ETHTOOL, "ethtool -a eth0": PAUSE}
    found = netdev_of(files, tools)
    assert (found.mtu_bytes, found.pfc, found.trust) == (9000, (3,), "dscp")
    assert (found.speed_mbit_s, found.max_speed_mbit_s) == (200000, 400000)
    assert (found.pause_rx, found.pause_tx) == (True, False)
    assert (found.ecn_np, found.ecn_rp) == ((3,), ())
    assert (found.vlan, found.bond) == ("", "")


def test_a_netdev_is_read_with_dcb_where_that_is_all() -> None:
    pfc = "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 1:off 2:off 3:on 4:on 5:off\n"
    tools = {
        "dcb pfc show dev eth0": pfc,
        "dcb apptrust show dev eth0": "order dscp pcp",
        "dcb ets show dev eth0": "willing off\ntc-bw 0:50 1:50 2:0\n",
        "lldpctl -f keyvalue eth0": "lldp.eth0.chassis.name=leaf7\nlldp.eth0.port.ifname=Eth1/3\n",
    }
    found = netdev_of({}, tools)
    assert (found.pfc, found.trust, found.ets) == ((3, 4), "dscp", "0:50 1:50 2:0")
    assert (found.leaf, found.leaf_port) == ("leaf7", "Eth1/3")


def test_without_tools_nothing_is_assumed() -> None:
    found = netdev_of({"/sys/class/net/eth0/mtu": "1500"}, {})
    assert (found.pfc, found.trust, found.pause_rx, found.ecn_np) == (None,) * 4
    assert found.why("pfc") == "neither `mlnx_qos` nor `dcb` on the node"


def test_vlans_and_bonds_are_followed_to_what_they_stand_on() -> None:
    files: dict[str, str | int] = {
        "/sys/class/net/eth0/uevent": "DEVTYPE=vlan",
        "/sys/class/net/eth0/lower_bond0/x": "",
        "/proc/net/vlan/eth0": "eth0  VID: 100  REORDER_HDR: 1\nDevice: bond0\n",
        "/sys/class/net/bond0/bonding/mode": "802.3ad 4",
        "/sys/class/net/bond0/bonding/slaves": "ens1 ens2",
        "/sys/class/net/ens1/mtu": "9000",
        "/sys/class/net/ens2/mtu": "9000",
        **roce("mlx5_bond_0", [(3, V4, V2, "eth0")]),
    }
    found = audit_of(files)
    shown = {n.name: (n.vlan, n.bond) for n in found.netdevs}
    assert shown["eth0"] == ("100 on bond0", "")


# --- the tools themselves


def test_a_program_is_run_once_and_what_is_absent_or_fails_says_so() -> None:
    tools = RealTools()
    assert tools.run("sh", "-c", "echo $$") == tools.run("sh", "-c", "echo $$")
    with pytest.raises(UnknownError, match="no `no-such-tool` on the node"):
        tools.run("no-such-tool")
    with pytest.raises(UnknownError, match="status 3: not today"):
        tools.run("sh", "-c", "echo not today >&2; exit 3")


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(UnknownError, match="did not end within"):
        RealTools(limit_s=0.2).run(sys.executable, "-c", "import time; time.sleep(60)")


def test_devinfo_without_the_line_is_unknown() -> None:
    with pytest.raises(UnknownError):
        devinfo_number("hca_id: x", "active_mtu")
    assert parse_rate("800 Gb/sec (4X XDR)").width == 4
    assert replace(Port(), state="DOWN").active is False


def test_a_worker_answers_with_the_audit_of_its_node(tmp_path: Path) -> None:
    agent, _process = start_worker(tmp_path, host="here")
    try:
        agent.hello({}, silence_limit_s=60.0, deadline_s=60.0)
        found = auditing.ask(agent, Host(name="here", address="127.0.0.1"), Fabric.RXE)
    finally:
        agent.close()
    assert (found.host, found.fabric) == ("here", Fabric.RXE)
    assert found.machine.kernel == platform.release()
    assert found.machine.cpu_count == os.cpu_count()
