"""GPUs: which there are by PCI class, and what nvidia-smi says of those it knows.

A GPU whose driver is not loaded is still there, and preflight must say so.
"""

from __future__ import annotations

from typing import Optional

from rdmabench.audit import Gpu
from rdmabench.worker import pcie
from rdmabench.worker.gathering import Gathering, UnknownError
from rdmabench.worker.pcie import Topology
from rdmabench.worker.sysfs import Tree, read_or
from rdmabench.worker.tools import Tools

_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")  # display, 3D, other display, accelerator
_DISPLAY = "0x0300"
_QUERY = ("nvidia-smi", "--query-gpu=pci.bus_id,name,driver_version", "--format=csv,noheader")


def read(tree: Tree, tools: Tools, topology: Topology) -> tuple[Gpu, ...]:
    """All of them, in the order of their PCI addresses."""
    addresses = sorted(a for a in topology.paths if _is_gpu(tree, topology.directory(a)))
    if not addresses:
        return ()
    told, problem = _told(tools)
    return tuple(
        _gpu(tree, topology, address, index=index, told=told.get(address), problem=problem)
        for index, address in enumerate(addresses)
    )


def _is_gpu(tree: Tree, base: str) -> bool:
    """A GPU that computes; the graphics of a board's own controller are of other makers."""
    kind = read_or(tree, f"{base}/class")[:6]
    vendor = read_or(tree, f"{base}/vendor")
    return kind in _CLASSES and vendor in _VENDORS and not (vendor == "0x1002" and kind == _DISPLAY)


def _told(tools: Tools) -> tuple[dict[str, tuple[str, str]], str]:
    """Name and driver release by PCI address, and why they are missing."""
    try:
        text = tools.run(*_QUERY)
    except UnknownError as exc:
        return {}, str(exc)
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return {_address(row[0]): (row[1], row[2]) for row in rows if len(row) == 3}, ""


def _address(bus_id: str) -> str:
    """`0000:1a:00.0` of `00000000:1A:00.0`: nvidia-smi writes a domain of eight digits."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}:{rest}"


def _gpu(
    tree: Tree,
    topology: Topology,
    address: str,
    *,
    index: int,
    told: Optional[tuple[str, str]],
    problem: str,
) -> Gpu:
    base = topology.directory(address)
    made = Gathering()
    made.fields.update(index=index, pci=pcie.read(tree, topology, address))
    made.add("driver", lambda: _driver(tree, base))
    made.add("name", lambda: _or_unknown(told and told[0], problem))
    made.add("version", lambda: _or_unknown(told and told[1], problem))
    return Gpu(**made.fields)


def _driver(tree: Tree, base: str) -> str:
    name = tree.link(f"{base}/driver")
    if not name:
        raise UnknownError("no driver has taken the GPU")
    return name


def _or_unknown(text: Optional[str], problem: str) -> str:
    if not text:
        raise UnknownError(problem or "nvidia-smi does not list this GPU")
    return text
