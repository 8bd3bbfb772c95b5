"""What this node is: the part of it that every run must record."""

from __future__ import annotations

import os
import platform
import re
import resource

from rdmabench.model import NodeFacts
from rdmabench.worker.hotloop import face
from rdmabench.worker.sysfs import Tree, read_or

_CLOCKSOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_LIBRARY = re.compile(r"libibverbs\.so\.1\.\d+\.(\d+\.\d+)")


def pyverbs_problem() -> str:
    """Why pyverbs does not import under this Python; empty when it does."""
    try:
        import pyverbs.device  # noqa: F401
    except ImportError as exc:
        return str(exc)
    return ""


def rdma_core_release(maps: str) -> str:
    """`44.0`, from the loaded libibverbs in /proc/self/maps; its soname carries the release."""
    match = _LIBRARY.search(maps)
    return match[1] if match else ""


def gather(
    tree: Tree, *, host: str, clock: face.Clock, pyverbs_missing: str, worker_sha256: str
) -> NodeFacts:
    """The node's facts; pyverbs is built with rdma-core, so both are of one release."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    release = "" if pyverbs_missing else rdma_core_release(read_or(tree, "/proc/self/maps"))
    return NodeFacts(
        host=host,
        hostname=platform.node(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu_model=_cpu_model(read_or(tree, "/proc/cpuinfo")),
        cpu_count=os.cpu_count() or 0,
        python=platform.python_version(),
        pyverbs=release or ("" if pyverbs_missing else "unknown"),
        rdma_core=release,
        memlock_bytes=-1 if soft == resource.RLIM_INFINITY else soft,
        clock=clock.name,
        clock_cost_ns=clock.cost_ns,
        worker_sha256=worker_sha256,
    )


def _cpu_model(cpuinfo: str) -> str:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor()


def invariant_counter(tree: Tree) -> bool:
    """Whether the CPU's counter may time this node's loops."""
    return face.counter_is_invariant(
        read_or(tree, "/proc/cpuinfo"), read_or(tree, _CLOCKSOURCE), platform.machine()
    )
