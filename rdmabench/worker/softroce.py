"""Whether, and how, a soft-RoCE device can be made on this node."""

from __future__ import annotations

import re

from rdmabench.worker.gathering import UnknownError
from rdmabench.worker.sysfs import Tree, read_or
from rdmabench.worker.tools import Tools

MODULE = "rdma_rxe"
_PARAMETER = f"/sys/module/{MODULE}/parameters/add"
_NOT_FOUND = re.compile(r"Module (\S+) not found in directory /lib/modules/(\S+)")


def module_state(tree: Tree, kernel: str) -> str:
    """`loaded`, `available` or `absent`: cloud kernels keep it in a package of its own.

    Raises:
        UnknownError: the kernel's modules are not listed.
    """
    if tree.names(f"/sys/module/{MODULE}"):
        return "loaded"
    base = f"/lib/modules/{kernel}"
    listed = read_or(tree, f"{base}/modules.dep") + read_or(tree, f"{base}/modules.builtin")
    if not listed:
        raise UnknownError(f"{base}/modules.dep cannot be read")
    return "available" if f"/{MODULE}.ko" in listed else "absent"


def creation_method(*, rdma_link_add: bool, parameter: bool, rxe_cfg: bool) -> str:
    """How a device is made: each way is missing somewhere. Empty where all are.

    `rdma link add` came with iproute2 4.20; the module's parameter left the kernel in 5.17;
    `rxe_cfg` came with rdma-core before version 28.
    """
    if rdma_link_add:
        return "rdma link add"
    if parameter:
        return "sysfs parameter"
    return "rxe_cfg" if rxe_cfg else ""


def method_here(tree: Tree, tools: Tools) -> str:
    """The way of this node."""
    return creation_method(
        rdma_link_add=_links_can_be_added(tools),
        parameter=_PARAMETER.rsplit("/", 1)[1] in tree.names(_PARAMETER.rsplit("/", 1)[0]),
        rxe_cfg=tools.has("rxe_cfg"),
    )


def _links_can_be_added(tools: Tools) -> bool:
    try:
        return "link add" in tools.run("rdma", "link", "help")
    except UnknownError as exc:
        # the help of old releases is printed with a status of its own
        return "link add" in str(exc)


def missing_module(modprobe_error: str) -> str:
    """What to install when `modprobe` did not find a module; empty for any other complaint."""
    match = _NOT_FOUND.search(modprobe_error)
    return package_hint(match[2]) if match else ""


def package_hint(kernel: str) -> str:
    """The package that holds rdma_rxe where a distribution's kernel comes without it."""
    if "el" in kernel.rsplit(".", 2)[-2:][0]:
        return f"kernel-modules-extra-{kernel}"
    if "cloud" in kernel:
        return "linux-image-amd64 (the cloud kernel of Debian has no RDMA), then reboot"
    return f"linux-modules-extra-{kernel}"
