"""The raw `ibv_qp *` of a pyverbs QP, verified: the timed loops need it, pyverbs hides it.

From rdma-core 61 on the class has an integer attribute `qp`. Before, the pointer is the first C
field of the Cython object, right after its base class `PyverbsCM`. That place is never trusted: the
candidate is read through the kernel (a wrong one gives EFAULT, not a crash), and everything that
pyverbs can tell about the QP must be found behind it, or the probe is refused.

`PD.pd`, `CQ.cq` and `Context.context` must never be touched on an instance: in several releases
they hand a C struct to Python as if it were an object, which corrupts it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyverbs.base import PyverbsCM, PyverbsObject
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.qp import QP

from rdmabench.errors import VerbsError

_CMD_FD_OFFSET = 8 + 32 * 8  # struct ibv_context: device, then 32 function pointers


class _IbvQp(ctypes.Structure):
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("qp_context", ctypes.c_void_p),
        ("pd", ctypes.c_void_p),
        ("send_cq", ctypes.c_void_p),
        ("recv_cq", ctypes.c_void_p),
        ("srq", ctypes.c_void_p),
        ("handle", ctypes.c_uint32),
        ("qp_num", ctypes.c_uint32),
        ("state", ctypes.c_int),
        ("qp_type", ctypes.c_int),
    )


class _IbvPd(ctypes.Structure):
    _fields_ = (("context", ctypes.c_void_p), ("handle", ctypes.c_uint32))


class _IbvCq(ctypes.Structure):
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("channel", ctypes.c_void_p),
        ("cq_context", ctypes.c_void_p),
        ("handle", ctypes.c_uint32),
        ("cqe", ctypes.c_int),
    )


class _IbvContextTail(ctypes.Structure):
    _fields_ = (
        ("cmd_fd", ctypes.c_int),
        ("async_fd", ctypes.c_int),
        ("num_comp_vectors", ctypes.c_int),
    )


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@dataclass(frozen=True)
class Family:
    """The pyverbs objects that a QP must turn out to belong to.

    `send_marker` and `recv_marker` are the objects given as `cq_context` of the two CQs.
    """

    context: Context
    pd: PD
    send_cq: CQ
    recv_cq: CQ
    send_marker: object
    recv_marker: object


def qp_pointer(qp: QP, family: Family) -> int:
    """The verified address of the QP's `struct ibv_qp`.

    Raises:
        VerbsError: what was found behind the pointer is not this QP; nothing may be timed with it.
    """
    address = int(qp.qp) if hasattr(QP, "qp") else _first_field(qp)
    _verify(address, qp, family)
    return address


def _first_field(obj: PyverbsObject) -> int:
    grown = PyverbsCM.__basicsize__ - PyverbsObject.__basicsize__
    if not isinstance(obj, PyverbsCM) or grown != ctypes.sizeof(ctypes.c_void_p):
        raise _refusal(f"{type(obj).__name__} does not have the known object layout")
    return ctypes.c_uint64.from_address(id(obj) + PyverbsCM.__basicsize__).value


def _verify(address: int, qp: QP, family: Family) -> None:
    found = _peek(address, _IbvQp)
    pd = _peek(found.pd or 0, _IbvPd)
    send_cq = _peek(found.send_cq or 0, _IbvCq)
    recv_cq = _peek(found.recv_cq or 0, _IbvCq)
    tail = _peek((found.context or 0) + _CMD_FD_OFFSET, _IbvContextTail)
    _expect_all(
        (
            ("qp_num", found.qp_num, qp.qp_num),
            ("qp_type", found.qp_type, int(qp.qp_type)),
            ("state", found.state, int(qp.qp_state)),
            ("pd->context", pd.context, found.context),
            ("send_cq->context", send_cq.context, found.context),
            ("recv_cq->context", recv_cq.context, found.context),
            ("send_cq->cq_context", send_cq.cq_context, id(family.send_marker)),
            ("recv_cq->cq_context", recv_cq.cq_context, id(family.recv_marker)),
            ("send_cq->cqe", send_cq.cqe, family.send_cq.cqe),
            ("recv_cq->cqe", recv_cq.cqe, family.recv_cq.cqe),
            ("context->cmd_fd", tail.cmd_fd, family.context.cmd_fd),
            (
                "context->num_comp_vectors",
                tail.num_comp_vectors,
                family.context.num_comp_vectors,
            ),
        )
    )


def _expect_all(checks: Sequence[tuple[str, Any, Any]]) -> None:
    wrong = [
        f"{name} is {found}, pyverbs says {said}" for name, found, said in checks if found != said
    ]
    if wrong:
        raise _refusal("; ".join(wrong))


def _refusal(why: str) -> VerbsError:
    return VerbsError(
        f"the queue pair behind pyverbs could not be verified ({why})",
        remedy="run with --engine pyverbs (a cross-check, slower by microseconds per message) and "
        "report the pyverbs version",
    )


def _peek(address: int, kind: Any) -> Any:
    """A copy of the struct at `address`, through the kernel.

    Raises:
        VerbsError: the address is not readable memory of this process.
    """
    if address % 8 and kind is not _IbvContextTail:
        raise _refusal(f"{address:#x} is not aligned")
    copy = kind()
    size = ctypes.sizeof(copy)
    if _read_self(address, ctypes.addressof(copy), size) != size:
        raise _refusal(f"{address:#x} is not readable: {os.strerror(ctypes.get_errno())}")
    return copy


def _read_self(source: int, target: int, size: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    local, remote = _IoVec(target, size), _IoVec(source, size)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    return int(
        libc.process_vm_readv(
            os.getpid(),
            ctypes.byref(local),
            ctypes.c_ulong(1),
            ctypes.byref(remote),
            ctypes.c_ulong(1),
            ctypes.c_ulong(0),
        )
    )
