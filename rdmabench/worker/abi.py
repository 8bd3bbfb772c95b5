"""Numbers of the verbs ABI (rdma-core's infiniband/verbs.h), which never change.

pyverbs moved its enums from `pyverbs.enums` to `pyverbs.libibverbs_enums` in release 59; the
numbers themselves are the kernel's and the library's ABI, so they are written down once here.
"""

from __future__ import annotations

import errno

ACCESS_LOCAL_WRITE = 1
ACCESS_REMOTE_WRITE = 2
ACCESS_REMOTE_READ = 4
ACCESS_REMOTE_ATOMIC = 8

QPT_RC = 2

QPS_INIT = 1
QPS_RTR = 2
QPS_RTS = 3

ATTR_STATE = 1 << 0
ATTR_ACCESS_FLAGS = 1 << 3
ATTR_PKEY_INDEX = 1 << 4
ATTR_PORT = 1 << 5
ATTR_AV = 1 << 7
ATTR_PATH_MTU = 1 << 8
ATTR_TIMEOUT = 1 << 9
ATTR_RETRY_CNT = 1 << 10
ATTR_RNR_RETRY = 1 << 11
ATTR_RQ_PSN = 1 << 12
ATTR_MAX_QP_RD_ATOMIC = 1 << 13
ATTR_MIN_RNR_TIMER = 1 << 15
ATTR_SQ_PSN = 1 << 16
ATTR_MAX_DEST_RD_ATOMIC = 1 << 17
ATTR_DEST_QPN = 1 << 20

MASK_INIT = ATTR_STATE | ATTR_PKEY_INDEX | ATTR_PORT | ATTR_ACCESS_FLAGS
MASK_RTR = (
    ATTR_STATE
    | ATTR_AV
    | ATTR_PATH_MTU
    | ATTR_DEST_QPN
    | ATTR_RQ_PSN
    | ATTR_MAX_DEST_RD_ATOMIC
    | ATTR_MIN_RNR_TIMER
)
MASK_RTS = (
    ATTR_STATE
    | ATTR_TIMEOUT
    | ATTR_RETRY_CNT
    | ATTR_RNR_RETRY
    | ATTR_SQ_PSN
    | ATTR_MAX_QP_RD_ATOMIC
)

WR_RDMA_WRITE = 0
WR_SEND = 2
WR_RDMA_READ = 4

SEND_SIGNALED = 1 << 1
SEND_INLINE = 1 << 3

PORT_ACTIVE = 4

MTU_CODE = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
MTU_BYTES = {code: size for size, code in MTU_CODE.items()}

_WC_STATUS = (
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "MW_BIND_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "LOC_RDD_VIOL_ERR",
    "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",
    "INV_EECN_ERR",
    "INV_EEC_STATE_ERR",
    "FATAL_ERR",
    "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
)

_WC_MEANING = {
    "RETRY_EXC_ERR": "the peer did not acknowledge: it is gone, its port is down, or packets "
    "are lost on the way",
    "RNR_RETRY_EXC_ERR": "the peer had no receive posted in time",
    "REM_ACCESS_ERR": "the peer refused access to its memory region",
    "WR_FLUSH_ERR": "the queue pair had already failed",
    "LOC_LEN_ERR": "a message was longer than the posted receive",
    "LOC_PROT_ERR": "the local memory region does not cover the buffer",
}


def wc_status_text(status: int) -> str:
    """`completion RETRY_EXC_ERR (12): the peer did not acknowledge ...`."""
    name = _WC_STATUS[status] if 0 <= status < len(_WC_STATUS) else "UNKNOWN"
    meaning = _WC_MEANING.get(name, "")
    return f"completion {name} ({status})" + (f": {meaning}" if meaning else "")


def errno_text(number: int) -> str:
    """`ENOMEM (12)`."""
    return f"{errno.errorcode.get(number, 'errno')} ({number})"
