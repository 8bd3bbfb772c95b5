"""What preflight can find: each kind with its severity, what is expected, why, and the remedy.

A rule adds what it saw, on which host and device; `--ignore` takes these ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from rdmabench.audit import Audit, Finding, Severity
from rdmabench.model import Fabric

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_PLAY = "ansible-playbook -i INVENTORY playbooks/{}.yml"
PREPARE, RXE, QOS, GPUDIRECT = (
    _PLAY.format(name) for name in ("prepare", "rxe", "roce_qos", "gpudirect")
)


@dataclass(frozen=True)
class Expectations:
    """What the nodes are held against."""

    fabric: Fabric
    priority: int = 3  # of RDMA traffic; the industry's default, DSCP 26

    @property
    def hardware(self) -> bool:
        """Whether NICs do the work, so that their links and their PCIe matter."""
        return self.fabric in (Fabric.IB, Fabric.ROCE)


@dataclass(frozen=True)
class Kind:
    """One thing that can be wrong."""

    id: str
    severity: Severity
    expected: str
    why: str
    remedy: str

    def at(
        self,
        audit: Audit,
        seen: str,
        *,
        device: str = "",
        expected: str = "",
        remedy: str = "",
        severity: Severity | None = None,
    ) -> Finding:
        """A finding of this kind; what the rule knows better replaces the general text."""
        return Finding(
            id=self.id,
            severity=severity or self.severity,
            host=audit.host,
            device=device,
            seen=seen,
            expected=expected or self.expected,
            why=self.why,
            remedy=remedy or self.remedy,
        )


_TEXTS: tuple[tuple[str, Severity, str, str, str], ...] = (
    (
        "no-device",
        ERROR,
        "an RDMA device of the fabric",
        "without one NCCL and MPI fall back to TCP without a word",
        "load the NIC's RDMA driver (`modprobe mlx5_ib`, bnxt_re, irdma)",
    ),
    (
        "port-down",
        ERROR,
        "ACTIVE and LinkUp",
        "a dead port still prints a rate and a LID, but carries nothing",
        "check cable, transceiver and switch port; leave an unused port out with rdma_devices",
    ),
    (
        "no-lid",
        ERROR,
        "a LID from the subnet manager",
        "InfiniBand routes by LID",
        "see that a subnet manager runs: `sminfo`",
    ),
    (
        "pyverbs-missing",
        ERROR,
        "pyverbs of the node's own rdma-core",
        "the probes are made with it",
        f"`apt-get install python3-pyverbs` (or dnf), or {PREPARE}; then point "
        "ansible_python_interpreter at /usr/bin/python3",
    ),
    (
        "memlock",
        ERROR,
        "unlimited",
        "registering memory fails with ENOMEM beyond it, unless the process is root's",
        f"{PREPARE} (limits.d and the services that start jobs), then log in again",
    ),
    (
        "gid-missing",
        ERROR,
        "the GID index that the inventory sets",
        "GID tables differ between hosts, so one index for all names nothing on some",
        "leave rdma_gid_index out: it is chosen for every port by itself",
    ),
    (
        "gid-v1-only",
        ERROR,
        "a RoCE v2 GID",
        "v1 frames do not cross a router, and a v1 end cannot speak with a v2 end",
        "`cma_roce_mode -d DEVICE -m 2`, or an address on the netdev: `ip address add`",
    ),
    (
        "gid-none",
        ERROR,
        "a GID of an address",
        "RoCE addresses by GID",
        "`ip address add ADDRESS/PREFIX dev NETDEV`, then `ip link set NETDEV up`",
    ),
    (
        "gid-link-local",
        WARNING,
        "a GID of a routable address",
        "a link-local GID reaches no further than its subnet, and many are not resolvable at all",
        "`ip address add ADDRESS/PREFIX dev NETDEV`",
    ),
    (
        "mtu-low",
        WARNING,
        "a netdev MTU of 4200 or more, so that RDMA can use 4096",
        "each packet costs headers and work: 1024 bytes carry 92.6 % of the wire, 4096 98.0 %",
        "`ip link set NETDEV mtu 4200` (and the switch ports: 9216), made to last in the "
        "network configuration",
    ),
    (
        "link-narrow",
        ERROR,
        "all lanes",
        "lanes that did not train leave a fraction of the rate",
        "clean or replace cable and transceiver; `mlxlink -d DEVICE -m` shows the lanes",
    ),
    (
        "link-slow",
        WARNING,
        "the fastest rate that the NIC supports",
        "a link comes up slower where cable, optics or switch port allow no more",
        "`ethtool NETDEV`; check cable, optics, and the switch port's speed",
    ),
    (
        "rates-differ",
        WARNING,
        "one rate on all rails",
        "a collective runs at the pace of its slowest rail",
        "check the slow link, or leave a storage port out with rdma_devices",
    ),
    (
        "pcie-degraded",
        ERROR,
        "the speed and width that card and slot both support",
        "PCIe that trained low caps the NIC whatever the wire does",
        "reseat the card, check the riser and BIOS; `lspci -vv -s ADDRESS | grep LnkSta`",
    ),
    (
        "pcie-slot",
        WARNING,
        "a slot that is as fast and as wide as the card",
        "the card waits for its slot",
        "move the card to a slot of full width",
    ),
    (
        "pcie-below-link",
        WARNING,
        "PCIe that carries more than the link",
        "payload of the wire has to fit through PCIe in both directions",
        "move the card to a faster slot, or count with the smaller rate",
    ),
    (
        "iommu-translates",
        WARNING,
        "iommu=pt (DMA by identity), or off",
        "each DMA of the NIC is translated, and peer traffic between GPU and NIC goes astray",
        "add `iommu=pt` (and intel_iommu=on or amd_iommu=on) to the kernel command line, reboot",
    ),
    (
        "acs-redirect",
        WARNING,
        "ACS redirect off on bridges between GPU and NIC",
        "peer traffic goes up to the root complex and back: GPUDirect at a fraction of its rate",
        f"{GPUDIRECT} -e rdma_disable_acs=true (not on hosts of virtual machines)",
    ),
    (
        "max-read-request",
        INFO,
        "a PCIe MaxReadReq of 4096",
        "small read requests cost a fast NIC bandwidth from host memory",
        "`setpci -s ADDRESS CAP_EXP+8.w=5000:7000`",
    ),
    (
        "governor",
        WARNING,
        "performance",
        "a CPU that changes its clock adds microseconds to latencies, and spreads them",
        "`cpupower frequency-set -g performance`, or `tuned-adm profile network-latency`",
    ),
    (
        "numa-balancing",
        INFO,
        "kernel.numa_balancing = 0",
        "pages move and fault while they are measured",
        "`sysctl -w kernel.numa_balancing=0`",
    ),
    (
        "pfc-off",
        ERROR,
        "PFC on the priority of RDMA, and on no other",
        "without PFC and without ECN a full queue drops, and RoCE falls back to resending",
        QOS,
    ),
    (
        "pfc-wrong-priority",
        ERROR,
        "PFC on the priority of RDMA, and on no other",
        "the RDMA queue is lossy while another one is paused",
        QOS,
    ),
    (
        "pfc-too-wide",
        WARNING,
        "PFC on the priority of RDMA, and on no other",
        "each lossless queue takes buffer and can spread pauses (PFC storms) to other traffic",
        QOS,
    ),
    (
        "global-pause",
        ERROR,
        "PFC on one priority in place of global pause",
        "802.3x pauses all traffic of the port, the innocent flows as well",
        f"`ethtool -A NETDEV rx off tx off`, then {QOS}",
    ),
    (
        "trust-pcp",
        WARNING,
        "trust mode dscp",
        "RoCE v2 is marked in the IP header; untagged frames all land in priority 0",
        QOS,
    ),
    (
        "ecn-off",
        WARNING,
        "ECN and DCQCN on, on the priority of RDMA, in both roles",
        "only PFC then slows an incast down, and it pauses the innocent too",
        QOS,
    ),
    (
        "qos-unknown",
        WARNING,
        "PFC, trust and ECN that can be read",
        "most RoCE fabrics that drop do so for these settings",
        f"install `dcb` (iproute2) or `mlnx_qos`: {PREPARE}",
    ),
    (
        "priority-unused",
        INFO,
        "RDMA traffic in its own priority",
        "since boot the lossless priority has carried nothing: the traffic class does not map to "
        "it",
        f"set the traffic class (NCCL_IB_TC=106, `--tclass 106`) or {QOS}",
    ),
    (
        "shared-plane",
        WARNING,
        "management and storage on a network of their own",
        "the default route leads over the RDMA network, so other traffic shares its queues",
        "move the default route to the management interface",
    ),
    (
        "gpu-driver",
        ERROR,
        "a driver for every GPU",
        "a GPU without a driver takes part in nothing",
        "install or load the GPU's driver; `dmesg | grep -i -e nvrm -e amdgpu`",
    ),
    (
        "gpudirect-off",
        ERROR,
        "nvidia_peermem, or dma-buf (open kernel modules, kernel 5.12 or later)",
        "GPU memory then travels through host memory: a third of the bandwidth, and CPU time",
        GPUDIRECT,
    ),
    (
        "gpu-nic-far",
        WARNING,
        "a NIC on each GPU's own socket, best below the same PCIe switch",
        "traffic crosses the link between the sockets",
        "order rails by GPU (rdma_rail_order); check in which slots the NICs are",
    ),
    (
        "gpu-bandwidth",
        WARNING,
        "one NIC for each GPU",
        "GPUs that share a NIC share its rate",
        "count with less bandwidth per GPU, or add NICs",
    ),
    (
        "same-card",
        INFO,
        "one card for each rail",
        "two ports of one card share its PCIe link",
        "leave one out with rdma_devices, or count with the shared rate",
    ),
    (
        "other-layer",
        INFO,
        "all RDMA ports of one link layer",
        "a library that is not told would use them all",
        "name those that are meant: rdma_devices here, NCCL_IB_HCA for NCCL",
    ),
    (
        "selector",
        WARNING,
        "a selector that names what is meant",
        "names are prefixes, as in NCCL_IB_HCA",
        "write `=NAME` for exactly one device",
    ),
    (
        "rail-order",
        WARNING,
        "rails in one order on all nodes",
        "rail i is paired with rail i: where the order differs, cross-rail paths are measured",
        "set rdma_rail_order for the nodes that differ",
    ),
    (
        "rail-map",
        WARNING,
        "the same NIC near the same GPU on all nodes",
        "rails would join GPUs of unequal place",
        "compare `nvidia-smi topo -m`; check the slots and BIOS of the nodes that differ",
    ),
    (
        "rail-leaf",
        WARNING,
        "each rail on its leaf switch",
        "a cable in the wrong leaf sends one rail over the spine",
        "check the cabling of that port",
    ),
    (
        "counters-unreadable",
        WARNING,
        "counters of the port",
        "what cannot be counted cannot be proved nor watched",
        "virtual functions: read the counters of the physical function; else update driver and "
        "firmware",
    ),
    (
        "soft-roce",
        INFO,
        "hardware, where figures are to count",
        "soft-RoCE proves function: no limit is applied and GPUDirect is not tested",
        "use --fabric roce on nodes with RDMA NICs",
    ),
    (
        "differs",
        WARNING,
        "the same on all nodes",
        "nodes that differ behave differently, and one slow node slows all",
        "bring the nodes that differ to the value of the others",
    ),
)
KINDS = {text[0]: Kind(*text) for text in _TEXTS}
