"""The node without its NICs: kernel, limits, CPUs, packages, from /proc and /sys."""

from __future__ import annotations

import platform
import re
from typing import Optional

from rdmabench.audit import Machine
from rdmabench.worker import softroce
from rdmabench.worker.facts import rdma_core_release
from rdmabench.worker.gathering import Gathering, UnknownError
from rdmabench.worker.sysfs import Tree, read_or
from rdmabench.worker.tools import Tools

ASKED_TOOLS = (
    "rdma",
    "ethtool",
    "dcb",
    "mlnx_qos",
    "ibv_devinfo",
    "lldpctl",
    "nvidia-smi",
    "ofed_info",
)
_CPUS = "/sys/devices/system/cpu"
_MODULES = re.compile(
    r"(ib|rdma|mlx|bnxt|irdma|ice|efa|erdma|qed|hfi|hns|siw|nvidia|nv_peer|amdgpu|xsc)\w*"
)
_LIBRARY_DIRECTORIES = ("/usr/lib64", "/usr/lib", "/lib64", "/usr/local/lib")
_LIBRARY = re.compile(r"libibverbs\.so\.1\.\d+\.(\d+\.\d+)")
_UNLIMITED = -1
_FIRST_DMA_BUF = (5, 12)  # ib_umem_dmabuf


def read(tree: Tree, tools: Tools, *, pyverbs_problem: str) -> Machine:
    """The machine; `pyverbs_problem` says why pyverbs does not import, or is empty."""
    made = Gathering()
    kernel = made.add("kernel", lambda: tree.read("/proc/sys/kernel/osrelease"))
    modules = made.add("modules", lambda: _loaded_modules(tree))
    _identity(made, tree)
    _processors(made, tree)
    _packages(made, tree, tools, modules, pyverbs_problem)
    made.add("cmdline", lambda: tree.read("/proc/cmdline"))
    made.add("memory_kib", lambda: _meminfo(tree, "MemTotal"))
    made.add("hugepages", lambda: _hugepages(tree))
    made.add("memlock_bytes", lambda: _limit(tree, "Max locked memory"))
    made.add("open_files", lambda: _limit(tree, "Max open files"))
    made.add("default_netdevs", lambda: _default_netdevs(tree.read("/proc/net/route")))
    made.add("rxe_module", lambda: softroce.module_state(tree, kernel or ""))
    made.add("rxe_method", lambda: softroce.method_here(tree, tools))
    made.add("gpu_direct", lambda: _gpu_direct(tree, modules, kernel or ""))
    made.fields["tools"] = tuple(name for name in ASKED_TOOLS if tools.has(name))
    return Machine(**made.fields)


def _identity(made: Gathering, tree: Tree) -> None:
    made.add("product", lambda: tree.read("/sys/class/dmi/id/product_name"))
    made.add("machine", platform.machine)
    made.add("system", lambda: _os_release(tree))
    made.add("python", platform.python_version)


def _processors(made: Gathering, tree: Tree) -> None:
    made.add("cpu_model", lambda: _cpu_model(tree.read("/proc/cpuinfo")))
    made.add("virtual", lambda: " hypervisor" in tree.read("/proc/cpuinfo"))
    made.add("cpu_count", lambda: _count(tree.read(f"{_CPUS}/online")))
    made.add("numa_nodes", lambda: _count(tree.read("/sys/devices/system/node/online")))
    made.add("numa_balancing", lambda: tree.read("/proc/sys/kernel/numa_balancing") != "0")
    made.add("smt", lambda: tree.read(f"{_CPUS}/smt/control"))
    made.add("governor", lambda: _governor(tree))


def _packages(
    made: Gathering,
    tree: Tree,
    tools: Tools,
    modules: Optional[tuple[str, ...]],
    pyverbs_problem: str,
) -> None:
    made.add("rdma_core", lambda: _rdma_core(tree))
    made.add("pyverbs", lambda: _pyverbs(made.fields.get("rdma_core"), pyverbs_problem))
    made.add("ofed", lambda: _ofed(tree, tools, modules))


def _os_release(tree: Tree) -> str:
    for line in tree.read("/etc/os-release").splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip("\"'")
    raise UnknownError("/etc/os-release has no PRETTY_NAME")


def _cpu_model(cpuinfo: str) -> str:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "CPU part"):
            return value.strip()
    raise UnknownError("/proc/cpuinfo names no model")


def _count(ranges: str) -> int:
    """3 of `0-1,4`."""
    total = 0
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _governor(tree: Tree) -> str:
    names = [n for n in tree.names(_CPUS) if re.fullmatch(r"cpu\d+", n)]
    found = {read_or(tree, f"{_CPUS}/{name}/cpufreq/scaling_governor") for name in names} - {""}
    if not found:
        raise UnknownError("no cpufreq: the firmware or the hypervisor sets the frequency")
    return ",".join(sorted(found))


def _meminfo(tree: Tree, wanted: str) -> int:
    for line in tree.read("/proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == wanted:
            return int(value.split()[0])
    raise UnknownError(f"/proc/meminfo has no {wanted}")


def _hugepages(tree: Tree) -> str:
    return f"{_meminfo(tree, 'HugePages_Total')} x {_meminfo(tree, 'Hugepagesize')} KiB"


def _limit(tree: Tree, name: str) -> int:
    """The soft limit of this process: what the launcher gave it, not what limits.conf says."""
    for line in tree.read("/proc/self/limits").splitlines():
        if line.startswith(name):
            soft = line[len(name) :].split()[0]
            return _UNLIMITED if soft == "unlimited" else int(soft)
    raise UnknownError(f"/proc/self/limits has no {name!r}")


def _default_netdevs(route: str) -> tuple[str, ...]:
    rows = [line.split() for line in route.splitlines()[1:]]
    return tuple(sorted({r[0] for r in rows if len(r) > 7 and r[1] == r[7] == "00000000"}))


def _loaded_modules(tree: Tree) -> tuple[str, ...]:
    names = [line.split()[0] for line in tree.read("/proc/modules").splitlines() if line]
    return tuple(sorted(name for name in names if _MODULES.fullmatch(name)))


def _rdma_core(tree: Tree) -> str:
    loaded = rdma_core_release(read_or(tree, "/proc/self/maps"))
    if loaded:
        return loaded
    multiarch = f"/usr/lib/{platform.machine()}-linux-gnu"
    for directory in (multiarch, *_LIBRARY_DIRECTORIES):
        for name in tree.names(directory):
            match = _LIBRARY.fullmatch(name)
            if match:
                return match[1]
    raise UnknownError("no libibverbs.so.1 in the usual places")


def _pyverbs(release: Optional[str], problem: str) -> str:
    if problem:
        raise UnknownError(f"it does not import: {problem}")
    return release or "present"


def _ofed(tree: Tree, tools: Tools, modules: Optional[tuple[str, ...]]) -> str:
    if tools.has("ofed_info"):
        return tools.run("ofed_info", "-s").strip().rstrip(":")
    if "mlx5_core" not in _known(modules):
        raise UnknownError("mlx5_core is not loaded")
    return read_or(tree, "/sys/module/mlx5_core/version") or "inbox"


def _known(modules: Optional[tuple[str, ...]]) -> tuple[str, ...]:
    if modules is None:
        raise UnknownError("the loaded modules are not known")
    return modules


def _gpu_direct(tree: Tree, modules: Optional[tuple[str, ...]], kernel: str) -> str:
    """How a NIC may reach GPU memory. dma-buf wants NVIDIA's open kernel modules, or amdgpu."""
    loaded = _known(modules)
    for module in ("nvidia_peermem", "nv_peer_mem"):
        if module in loaded:
            return module
    if "nvidia" in loaded and "Open Kernel Module" in read_or(tree, "/proc/driver/nvidia/version"):
        return "dma-buf" if _release(kernel) >= _FIRST_DMA_BUF else "none"
    return "amdgpu" if "amdgpu" in loaded else "none"


def _release(kernel: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", kernel)
    if match is None:
        raise UnknownError(f"kernel release {kernel!r}")
    return int(match[1]), int(match[2])
