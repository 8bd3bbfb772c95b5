"""Audits of made-up nodes, after three shapes that are sold: what their /sys would have told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rdmabench.audit import Audit, Device, GidEntry, Gpu, Machine, Netdev, Pci, Port
from rdmabench.model import Fabric

V2 = "RoCE v2"


def pci(root: str, switch: str, address: str, *, gts: float = 32.0, numa: int = 0) -> Pci:
    return Pci(
        address=address,
        path=(f"pci{root}", f"{root[:-3]}:{root[-2:]}:01.0", switch, address),
        speed_gts=gts,
        max_speed_gts=gts,
        width=16,
        max_width=16,
        slot_speed_gts=gts,
        slot_width=16,
        numa_node=numa,
        iommu="identity",
        relaxed_ordering=True,
        max_read_request_bytes=4096,
        max_payload_bytes=256,
        acs_redirect=(),
    )


def port(index: int, number: int, *, rate: float, netdev: str, rail: int = -1) -> Port:
    address = f"0000:0000:0000:0000:0000:ffff:0a{index % 256:02x}:{number:04x}"
    return Port(
        rail=index if rail == -1 else rail,
        state="ACTIVE",
        phys_state="LinkUp",
        link_layer="Ethernet",
        rate_text=f"{rate:g} Gb/sec (4X NDR)",
        rate_gbit_s=rate,
        lanes=4,
        active_mtu_bytes=4096,
        max_mtu_bytes=4096,
        lid=0,
        sm_lid=0,
        gids=(
            GidEntry(0, "fe80:0000:0000:0000:0000:00ff:fe00:0001", "IB/RoCE v1", netdev),
            GidEntry(1, "fe80:0000:0000:0000:0000:00ff:fe00:0001", V2, netdev),
            GidEntry(2, address, "IB/RoCE v1", netdev),
            GidEntry(3, address, V2, netdev),
        ),
        gid_index=3,
        netdev=netdev,
        traffic_class=106,
        counters={"counters/port_xmit_data": 1, "hw_counters/out_of_sequence": 0},
    )


def netdev(name: str, *, gbit: int, driver: str = "mlx5_core") -> Netdev:
    return Netdev(
        name=name,
        mtu_bytes=9000,
        state="up",
        driver=driver,
        speed_mbit_s=gbit * 1000,
        max_speed_mbit_s=gbit * 1000,
        vlan="",
        bond="",
        pause_rx=False,
        pause_tx=False,
        pfc=(3,),
        trust="dscp",
        ets="0:0",
        ecn_np=(3,),
        ecn_rp=(3,),
    )


def machine(product: str, **changes: Any) -> Machine:
    usual: dict[str, Any] = {
        "product": product,
        "machine": "x86_64",
        "virtual": False,
        "system": "Ubuntu 22.04.4 LTS",
        "kernel": "5.15.0-105-generic",
        "cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 iommu=pt",
        "python": "3.10.12",
        "pyverbs": "39.0",
        "rdma_core": "39.0",
        "cpu_model": "Intel(R) Xeon(R) Platinum 8480C",
        "cpu_count": 224,
        "numa_nodes": 2,
        "numa_balancing": False,
        "smt": "on",
        "governor": "performance",
        "memory_kib": 2 << 30,
        "hugepages": "0 x 2048 KiB",
        "memlock_bytes": -1,
        "open_files": 1 << 20,
        "default_netdevs": ("eno1",),
        "modules": ("ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia", "nvidia_peermem"),
        "gpu_direct": "nvidia_peermem",
    }
    return Machine(**{**usual, **changes})


def gpu_node(
    host: str,
    number: int,
    *,
    product: str = "DGXH100",
    driver: str = "mlx5_core",
    prefix: str = "mlx5_",
    firmware: str = "28.39.1002",
    rate: float = 400.0,
    **of_machine: Any,
) -> Audit:
    """Eight rails, each NIC with a GPU below one switch; two sockets."""
    devices, gpus, netdevs = [], [], []
    for index in range(8):
        root, numa = f"0000:{0x10 + index * 16:02x}", index // 4
        switch = f"{root}:02.0"
        name = f"eth{index}"
        devices.append(
            Device(
                name=f"{prefix}{index}",
                driver=driver,
                vendor="0x15b3",
                firmware=firmware,
                board="MT_0000000838",
                node_guid=f"0200:0000:0000:{index:04x}",
                system_guid=f"0200:0000:{number:04x}:{index + 1:04x}",
                pci=pci(root, switch, f"{root}:03.0", numa=numa),
                ports=(port(index, number, rate=rate, netdev=name),),
            )
        )
        gpus.append(
            Gpu(
                index=index,
                name="NVIDIA H100 80GB HBM3",
                driver="nvidia",
                version="550.54.15",
                pci=pci(root, switch, f"{root}:04.0", numa=numa),
            )
        )
        netdevs.append(netdev(name, gbit=int(rate), driver=driver))
    return Audit(
        host=host,
        fabric=Fabric.ROCE,
        machine=machine(product, **of_machine),
        devices=tuple(devices),
        netdevs=tuple(netdevs),
        gpus=tuple(gpus),
    )


def storage_node(host: str, number: int) -> Audit:
    """One rail, no GPU."""
    full = gpu_node(host, number, product="PowerEdge R760", rate=100.0, gpu_direct="none")
    device = replace(full.devices[0], board="MT_0000000436", firmware="22.38.1900")
    return replace(full, devices=(device,), gpus=(), netdevs=full.netdevs[:1])


def fleet(count: int) -> list[Audit]:
    """Three shapes in the proportions 5 to 2 to 1."""
    made = []
    for number in range(count):
        host = f"node{number + 1:03d}"
        if number % 8 < 5:
            made.append(gpu_node(host, number))
        elif number % 8 < 7:
            made.append(
                gpu_node(
                    host,
                    number,
                    product="AS-8125GS-TNMR2",
                    driver="bnxt_en",
                    prefix="bnxt_re",
                    firmware="230.2.49.0",
                    gpu_direct="amdgpu",
                    cpu_model="AMD EPYC 9654",
                )
            )
        else:
            made.append(storage_node(host, number))
    return made


def with_device(audit: Audit, index: int, **changes: Any) -> Audit:
    """The audit with one device changed."""
    devices = list(audit.devices)
    devices[index] = replace(devices[index], **changes)
    return replace(audit, devices=tuple(devices))


def with_port(audit: Audit, index: int, **changes: Any) -> Audit:
    """The audit with the first port of one device changed."""
    (first, *rest) = audit.devices[index].ports
    return with_device(audit, index, ports=(replace(first, **changes), *rest))


def with_pci(audit: Audit, index: int, **changes: Any) -> Audit:
    """The audit with the PCIe of one device changed."""
    found = audit.devices[index].pci
    assert found is not None
    return with_device(audit, index, pci=replace(found, **changes))


def with_netdev(audit: Audit, index: int, **changes: Any) -> Audit:
    """The audit with one netdev changed."""
    netdevs = list(audit.netdevs)
    netdevs[index] = replace(netdevs[index], **changes)
    return replace(audit, netdevs=tuple(netdevs))


def with_machine(audit: Audit, **changes: Any) -> Audit:
    """The audit with the machine changed."""
    return replace(audit, machine=replace(audit.machine, **changes))
