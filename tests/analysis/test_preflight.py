"""Rules and comparisons: each fault is named where it is, with its remedy, and nothing else is."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rdmabench.analysis import rails
from rdmabench.analysis.preflight import IDS, Expectations, Result, checked_ids, examine
from rdmabench.analysis.preflight_kinds import KINDS
from rdmabench.analysis.preflight_link import pcie_gbit_s
from rdmabench.analysis.preflight_roce import path_mtu
from rdmabench.audit import Audit, Finding, GidEntry, Severity
from rdmabench.commands import preflight as command
from rdmabench.errors import InputError
from rdmabench.model import Fabric
from rdmabench.report.layout import to_text
from rdmabench.report.nodesets import fold, some
from rdmabench.report.preflight import preflight as rendered
from tests.audits import (
    fleet,
    gpu_node,
    pci,
    storage_node,
    with_device,
    with_machine,
    with_netdev,
    with_pci,
    with_port,
)

ROCE = Expectations(fabric=Fabric.ROCE)
LIMIT_S = 10.0


def found(*audits: Audit, wanted: Expectations = ROCE) -> list[Finding]:
    return list(examine(audits, wanted).findings)


def ids(*audits: Audit, wanted: Expectations = ROCE) -> set[str]:
    return {finding.id for finding in found(*audits, wanted=wanted)}


NODE = gpu_node("n1", 1)


def test_a_node_as_it_should_be_has_no_finding() -> None:
    assert found(NODE) == []
    assert found(storage_node("s1", 2)) == []


@pytest.mark.parametrize(
    ("changed", "kind", "severity", "text"),
    [
        (with_machine(NODE, memlock_bytes=65536), "memlock", "error", "64 KiB"),
        # case B13: 8 MiB in the launched process
        (with_machine(NODE, memlock_bytes=8192 << 10), "memlock", "error", "8 MiB"),
        (with_machine(NODE, memlock_bytes=4 << 30), "memlock", "warning", "4 GiB"),
        (with_machine(NODE, pyverbs=None), "pyverbs-missing", "error", ""),
        (with_machine(NODE, governor="powersave"), "governor", "warning", "powersave"),
        (with_machine(NODE, numa_balancing=True), "numa-balancing", "info", ""),
        (with_machine(NODE, gpu_direct="none"), "gpudirect-off", "error", "dma-buf"),
        (with_machine(NODE, default_netdevs=("eth2",)), "shared-plane", "warning", "eth2"),
        (with_pci(NODE, 3, width=8), "pcie-degraded", "error", "32 GT/s x8"),
        (with_pci(NODE, 3, speed_gts=16.0), "pcie-degraded", "error", "16 GT/s x16"),
        (with_pci(NODE, 3, width=8, slot_width=8), "pcie-slot", "warning", "x8"),
        (with_pci(NODE, 3, iommu="DMA-FQ"), "iommu-translates", "warning", "DMA-FQ"),
        (with_pci(NODE, 3, acs_redirect=("0000:40:02.0",)), "acs-redirect", "warning", "0000:40"),
        (with_pci(NODE, 3, max_read_request_bytes=512), "max-read-request", "info", "512"),
        (with_netdev(NODE, 3, pfc=()), "pfc-off", "warning", "lossy"),
        (with_netdev(NODE, 3, pfc=(), ecn_rp=None), "pfc-off", "error", "PFC is off"),
        (with_netdev(NODE, 3, pfc=(5,)), "pfc-wrong-priority", "error", "priority 5"),
        (with_netdev(NODE, 3, pfc=(3, 4)), "pfc-too-wide", "warning", "priorities 3, 4"),
        (with_netdev(NODE, 3, pfc=(), pause_rx=True), "global-pause", "error", "802.3x"),
        (with_netdev(NODE, 3, trust="pcp"), "trust-pcp", "warning", "pcp"),
        (with_netdev(NODE, 3, ecn_rp=()), "ecn-off", "warning", "rp"),
        (with_netdev(NODE, 3, pfc=None), "qos-unknown", "warning", "pfc is not known"),
        (with_netdev(NODE, 3, speed_mbit_s=200_000), "link-slow", "warning", "200 of 400"),
        (with_port(NODE, 3, rate_gbit_s=200.0), "rates-differ", "warning", "mlx5_3 at 200"),
        (with_port(NODE, 3, counters={}), "counters-unreadable", "warning", "none"),
        (with_port(NODE, 3, gids=()), "gid-none", "error", "empty"),
        (with_port(NODE, 3, gid_index=1), "gid-link-local", "warning", "fe80"),
        (with_port(NODE, 3, state="DOWN", phys_state="Polling"), "port-down", "error", "7 of 8"),
        (with_device(NODE, 3, system_guid=NODE.devices[2].system_guid), "same-card", "info", ""),
        (replace(NODE, notes=("mlx5_1 is a prefix here",)), "selector", "warning", "prefix"),
        (replace(NODE, devices=NODE.devices[:4]), "gpu-bandwidth", "warning", "200 Gb/s for each"),
        (replace(NODE, devices=()), "no-device", "error", "no RDMA device at all"),
    ],
)  # fmt: skip
def test_each_fault_is_found(changed: Audit, kind: str, severity: str, text: str) -> None:
    finding = next(f for f in found(changed) if f.id == kind)
    assert finding.severity is Severity(severity)
    assert finding.host == "n1"
    assert text in finding.seen
    assert finding.expected
    assert finding.why
    assert finding.remedy


def test_what_is_not_known_is_no_finding_and_no_pass_of_a_limit() -> None:
    blank = with_machine(NODE, governor=None, memlock_bytes=None, gpu_direct=None)
    blank = with_pci(blank, 0, iommu=None, acs_redirect=None, width=None)
    assert found(blank) == []


def test_a_gpu_without_driver_is_there_all_the_same() -> None:
    gpus = (replace(NODE.gpus[0], driver=None), *NODE.gpus[1:])
    assert ids(replace(NODE, gpus=gpus)) == {"gpu-driver"}


def test_a_gpu_whose_nics_are_all_on_the_other_socket_is_named() -> None:
    one_socket = replace(NODE, devices=NODE.devices[:4])
    finding = next(f for f in found(one_socket) if f.id == "gpu-nic-far")
    assert "GPU 4, 5, 6, 7" in finding.seen


def test_pcie_that_carries_less_than_the_link_is_found_where_the_slot_is_not_to_blame() -> None:
    slow = with_pci(NODE, 0, speed_gts=16.0, max_speed_gts=16.0, slot_speed_gts=16.0)
    assert ids(slow) == {"pcie-below-link"}
    assert pcie_gbit_s(32.0, 16) > 400
    assert 200 < pcie_gbit_s(16.0, 16) < 256


def test_distances_follow_the_bridges() -> None:
    near = pci("0000:10", "0000:10:02.0", "0000:10:03.0")
    cousin = replace(near, path=("pci0000:10", "0000:10:09.0", "0000:10:0a.0"))
    other = pci("0000:80", "0000:80:02.0", "0000:80:03.0", numa=1)
    assert rails.distance(near, near) is rails.Distance.SWITCH
    assert rails.distance(near, cousin) is rails.Distance.BRIDGE
    assert rails.distance(near, replace(other, numa_node=0)) is rails.Distance.NUMA
    assert rails.distance(near, other) is rails.Distance.SOCKETS
    assert rails.distance(near, replace(other, numa_node=None)) is rails.Distance.UNKNOWN


def test_a05_a_gid_table_of_v1_alone_and_a_global_index_that_a_host_lacks() -> None:
    v1 = tuple(g for g in NODE.devices[0].ports[0].gids or () if g.kind != "RoCE v2")
    only = with_port(NODE, 0, gids=v1, gid_index=2)
    (finding,) = found(only)
    assert (finding.id, finding.device) == ("gid-v1-only", "mlx5_0")
    forced = with_port(
        replace(NODE, forced_gid_index=3),
        0,
        gids=v1,
        gid_index=None,
        unknown={"gid_index": "GID index 3 is empty; used entries are 0, 2"},
    )
    (finding,) = found(forced)
    assert (finding.id, finding.host) == ("gid-missing", "n1")
    assert "GID index 3 is empty" in finding.seen


@pytest.mark.parametrize(
    ("netdev_a", "netdev_b", "active_a", "active_b", "path", "low"),
    [
        (1500, 1500, 1024, 1024, 1024, {"a", "b"}),
        (9000, 9000, 4096, 4096, 4096, set()),
        (9000, 1500, 4096, 1024, 1024, {"b"}),
    ],
)
def test_a13_the_path_mtu_is_the_smaller_and_a_low_one_is_named(
    netdev_a: int, netdev_b: int, active_a: int, active_b: int, path: int, low: set[str]
) -> None:
    a = with_port(storage_node("a", 1), 0, active_mtu_bytes=active_a)
    b = with_port(storage_node("b", 2), 0, active_mtu_bytes=active_b)
    a, b = with_netdev(a, 0, mtu_bytes=netdev_a), with_netdev(b, 0, mtu_bytes=netdev_b)
    assert path_mtu(a.devices[0].ports[0], b.devices[0].ports[0]) == path
    assert {f.host for f in found(a, b) if f.id == "mtu-low"} == low
    row = next(row for row in examine([a, b], ROCE).rows if row.fact == "RDMA MTU")
    assert bool(row.others) == (active_a != active_b)


def test_two_large_mtus_that_differ_are_a_mismatch() -> None:
    a = with_port(storage_node("a", 1), 0, active_mtu_bytes=2048)
    assert "differs-rdma-mtu" in ids(a, storage_node("b", 2))


def test_a14_two_functions_of_one_card_are_told() -> None:
    guid = "0200:0000:0300:0032"
    node = with_device(with_device(NODE, 0, system_guid=guid), 1, system_guid=guid)
    (finding,) = found(node)
    assert (finding.id, finding.seen) == (
        "same-card",
        "mlx5_0 and mlx5_1 are functions of one card",
    )


@pytest.mark.parametrize(
    ("state", "physical", "text"),
    [
        ("ARMED", "LinkUp", "subnet manager has not activated"),
        ("INIT", "LinkUp", "no subnet manager"),
        ("DOWN", "Polling", "no cable"),
        ("DOWN", "Disabled", "disabled"),
    ],
)
def test_a17_a_port_that_is_not_active_is_an_error_whatever_rate_it_prints(
    state: str, physical: str, text: str
) -> None:
    down = with_port(
        gpu_node("n1", 1), 1, state=state, phys_state=physical, link_layer="InfiniBand", lid=868
    )
    finding = next(f for f in found(down, wanted=Expectations(fabric=Fabric.IB)))
    assert (finding.id, finding.device) == ("port-down", "mlx5_1")
    assert text in finding.seen
    assert f"{state}/{physical}" in finding.seen


def test_e01_a_kernel_without_rxe_names_its_package() -> None:
    kernel = "6.14.0-1015-aws"
    node = with_machine(replace(NODE, devices=()), rxe_module="absent", kernel=kernel)
    finding = next(
        f for f in found(node, wanted=Expectations(fabric=Fabric.RXE)) if f.id == "no-device"
    )
    assert f"linux-modules-extra-{kernel}" in finding.remedy


def test_a11_a_host_without_its_rdma_driver_fails_and_names_the_module() -> None:
    node = with_machine(replace(NODE, devices=()), modules=("mlx5_core", "ib_core"))
    finding = next(f for f in found(node) if f.id == "no-device")
    assert finding.severity is Severity.ERROR
    assert "mlx5_ib is not" in finding.seen
    assert "modprobe mlx5_ib" in finding.remedy


def test_e04_soft_roce_is_a_note_and_hardware_rules_are_off() -> None:
    soft = with_device(storage_node("n1", 1), 0, driver="rxe", pci=None)
    soft = with_netdev(soft, 0, pfc=(), trust=None, ecn_np=None, speed_mbit_s=None)
    soft = with_machine(soft, governor="powersave")
    (finding,) = found(soft, wanted=Expectations(fabric=Fabric.RXE))
    assert (finding.id, finding.severity) == ("soft-roce", Severity.INFO)
    assert "GPUDirect is not tested" in finding.why


def test_d07_traffic_in_the_wrong_priority_is_a_hint() -> None:
    counters = {"rx_prio0_bytes": 88178050405854, "rx_prio3_bytes": 0, "tx_prio3_bytes": 0}
    (finding,) = found(with_netdev(NODE, 0, counters=counters))
    assert (finding.id, finding.severity) == ("priority-unused", Severity.INFO)
    assert "none in 3" in finding.seen


def test_d01_counters_that_are_no_numbers_are_named_with_their_own_words() -> None:
    unknown = {"counters/link_downed": "N/A (no PMA)", "counters/port_rcv_data": "N/A (no PMA)"}
    (finding,) = found(with_port(NODE, 0, unknown=unknown))
    assert finding.id == "counters-unreadable"
    assert "2 cannot be read (counters/link_downed: N/A (no PMA))" in finding.seen


# --- the fleet


def planted() -> tuple[list[Audit], dict[str, str]]:
    """512 nodes with five that differ: host to id of the finding."""
    nodes = fleet(512)
    nodes[16] = with_pci(nodes[16], 3, width=8)
    nodes[101] = with_device(nodes[101], 5, firmware="28.36.1010")
    nodes[255] = with_port(with_netdev(nodes[255], 0, mtu_bytes=1500), 0, active_mtu_bytes=1024)
    nodes[302] = with_netdev(nodes[302], 7, pfc=(5,))
    nodes[400] = with_machine(nodes[400], governor="powersave")
    right = {
        "node017": "pcie-degraded",
        "node102": "differs-firmware",
        "node256": "mtu-low",
        "node303": "pfc-wrong-priority",
        "node401": "governor",
    }
    return nodes, right


def test_preflight_512_nodes(tmp_path: Path) -> None:
    nodes, right = planted()
    file = tmp_path / "facts.json"
    command.write(file, command.Collected(fabric=Fabric.ROCE, audits=tuple(nodes)))
    started = time.process_time()  # of one thread: what the wall clock shows on an idle machine
    ended = CliRunner().invoke(_app(), ["--from", str(file), "--format", "json"])
    elapsed = time.process_time() - started
    document = json.loads(ended.stdout)
    assert {f["host"]: f["id"] for f in document["findings"]} == right
    assert len(document["findings"]) == len(right)
    assert ended.exit_code == 3
    print(f"512 nodes in {elapsed:.1f} s of processor time")
    assert elapsed < LIMIT_S


def test_512_nodes_fit_one_screen_at_every_width() -> None:
    nodes, _ = planted()
    result = examine(nodes, ROCE)
    for width in (80, 120):
        text = to_text(rendered(result, {}), width=width)
        assert all(len(line) <= width for line in text.splitlines())
        assert len(text.splitlines()) < 75
        for host in ("node017", "node102", "node256", "node303", "node401"):
            assert host in text


def test_a_fault_of_half_the_fleet_is_shown_once() -> None:
    nodes = [with_machine(n, memlock_bytes=65536) if i % 2 else n for i, n in enumerate(fleet(64))]
    text = to_text(rendered(examine(nodes, ROCE), {}), width=100)
    assert text.count("error memlock") == 1
    assert "(32 nodes)" in text


def test_two_nodes_that_differ_have_no_majority_and_are_both_named() -> None:
    other = with_machine(gpu_node("n2", 2), kernel="6.8.0-40-generic")
    finding = next(f for f in found(NODE, other) if f.id == "differs-kernel")
    assert finding.host == ""
    assert "5.15.0-105-generic (n1)" in finding.seen
    assert "6.8.0-40-generic (n2)" in finding.seen


def test_root_devices_on_the_command_line_are_each_nodes_own() -> None:
    a = with_machine(NODE, cmdline="BOOT_IMAGE=/vmlinuz root=UUID=77 iommu=pt")
    b = with_machine(gpu_node("n2", 2), cmdline="BOOT_IMAGE=/old root=UUID=88 iommu=pt")
    assert found(a, b) == []


def test_a12_rails_pair_by_place_whatever_the_names() -> None:
    def node(host: str, names: tuple[str, str]) -> Audit:
        made = gpu_node(host, 1)
        devices = tuple(
            replace(device, name=name) for device, name in zip(made.devices[:2], names, strict=True)
        )
        return replace(made, devices=devices, gpus=made.gpus[:2])

    a, b = node("host-a", ("mlx5_2", "mlx5_3")), node("host-b", ("mlx5_0", "mlx5_1"))
    assert rails.pairs(a, b) == (
        ("host-a/mlx5_2", "host-b/mlx5_0"),
        ("host-a/mlx5_3", "host-b/mlx5_1"),
    )
    assert found(a, b) == []


def test_a_node_whose_rails_are_in_another_order_is_named() -> None:
    first, second, *rest = NODE.devices
    crossed = [replace(second, name="mlx5_0"), replace(first, name="mlx5_1"), *rest]
    ports = [replace(d.ports[0], rail=i) for i, d in enumerate(crossed)]
    devices = tuple(replace(d, ports=(p,)) for d, p in zip(crossed, ports, strict=True))
    nodes = [gpu_node("a", 1), gpu_node("b", 2), replace(gpu_node("c", 3), devices=devices)]
    (finding,) = found(*nodes)
    assert (finding.id, finding.host) == ("rail-order", "c")


def test_a_cable_in_the_wrong_leaf_is_named() -> None:
    nodes = [
        replace(n, netdevs=tuple(replace(d, leaf=f"leaf{i}") for i, d in enumerate(n.netdevs)))
        for n in (gpu_node(f"n{k}", k) for k in range(1, 8))
    ]
    nodes[2] = with_netdev(nodes[2], 0, leaf="leaf1")
    (finding,) = found(*nodes)
    assert (finding.id, finding.host, finding.device) == ("rail-leaf", "n3", "mlx5_0")


# --- what a person sees, and the command


def test_ids_of_findings_are_checked() -> None:
    assert checked_ids(["memlock", "differs-firmware"]) == {"memlock", "differs-firmware"}
    with pytest.raises(InputError, match="no finding 'memlok'") as caught:
        checked_ids(["memlok"])
    assert caught.value.remedy == "did you mean memlock?"
    assert set(KINDS) - {"differs"} <= IDS


def test_a_node_cannot_write_to_the_terminal() -> None:
    evil = with_machine(NODE, governor="\x1b]0;x\x07power\x1b[2Jsave\n[red]")
    text = to_text(rendered(examine([evil], ROCE), {"n\x1b[31m": "gone\x07"}), width=80)
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n1", "n2", "n3", "n7"], "n[1-3,7]"),
        (["gpu001", "gpu002", "gpu010"], "gpu[001-002,010]"),
        (["gpu099", "gpu100"], "gpu[099-100]"),
        ([f"r1-n{i}-ib" for i in (1, 2)], "r1-n[1-2]-ib"),
        (["login", "n1"], "n1,login"),
        (["a"], "a"),
        ([], ""),
    ],
)
def test_names_are_folded_as_schedulers_write_them(names: list[str], folded: str) -> None:
    assert fold(names) == folded


def test_many_names_are_cut_and_counted() -> None:
    assert some([f"x{i * 7}" for i in range(40)], 30).endswith("(40 nodes)")


def _app() -> typer.Typer:
    app = typer.Typer()
    command.register(app)
    return app


def _dump(path: Path, *audits: Audit, **unreachable: str) -> Path:
    collected = command.Collected(fabric=Fabric.ROCE, audits=audits, unreachable=unreachable)
    command.write(path, collected)
    return path


def test_exit_statuses(tmp_path: Path) -> None:
    def status(*args: Any) -> int:
        return CliRunner().invoke(_app(), [str(a) for a in args]).exit_code

    good = _dump(tmp_path / "good.json", NODE)
    bad = _dump(tmp_path / "bad.json", with_machine(NODE, memlock_bytes=1 << 16))
    gone = _dump(tmp_path / "gone.json", NODE, n2="no answer")
    assert status("--from", good) == 0
    assert status("--from", bad) == 3
    assert status("--from", bad, "--ignore", "memlock") == 0
    assert status("--from", gone) == 4


def test_facts_survive_their_file_and_are_the_owners(tmp_path: Path) -> None:
    path = _dump(tmp_path / "facts.json", NODE, storage_node("s", 2), gone="why")
    assert path.stat().st_mode & 0o77 == 0
    loaded = command.load(path)
    assert loaded.audits == (NODE, storage_node("s", 2))
    assert loaded.unreachable == {"gone": "why"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rdmabench_preflight": 2}', "[" * 100000])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.json"):
        command.load(path)


def test_facts_of_one_fabric_do_not_answer_for_another(tmp_path: Path) -> None:
    path = _dump(tmp_path / "facts.json", NODE)
    with pytest.raises(InputError, match="fabric roce"):
        command.load(path, Fabric.IB)


def test_what_is_unknown_is_told_with_its_reason() -> None:
    node = with_netdev(NODE, 0, pfc=None, unknown={"pfc": "no `dcb` on the node"})
    result: Result = examine([node], ROCE)
    assert [(u.fact, u.reason) for u in result.unknown] == [("netdev pfc", "no `dcb` on the node")]
    assert "no `dcb` on the node" in to_text(rendered(result, {}), width=80)


def test_the_gid_that_is_chosen_is_the_entry_of_its_index() -> None:
    assert NODE.devices[0].ports[0].gid == GidEntry(
        3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0"
    )
