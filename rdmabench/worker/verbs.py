"""pyverbs objects: from a device's name to queue pairs in RTS. The one place that knows its errors.

Importing this module imports pyverbs; `main` does it only when an RDMA endpoint is asked for.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Optional

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

from rdmabench.errors import DeviceError, VerbsError
from rdmabench.model import Endpoint, LinkAddress, LinkParameters, Role
from rdmabench.units import MIB
from rdmabench.worker import abi
from rdmabench.worker.device import PortAttributes
from rdmabench.worker.memory import LaneSpec, Memory, lane_stride
from rdmabench.worker.pointers import Family, qp_pointer

_ACCESS = abi.ACCESS_LOCAL_WRITE | abi.ACCESS_REMOTE_WRITE | abi.ACCESS_REMOTE_READ
_HINTS = {
    12: "the node is out of lockable memory or the device out of resources: see `ulimit -l`",
    13: "the user may not open the device: check the mode of /dev/infiniband/uverbs*",
    19: "the GID index has no netdev behind it, or InfiniBand addressing was used on RoCE",
    22: "the device refuses these attributes: check depth, queue pairs, MTU and GID index",
    110: "the peer's GID does not resolve: check the GID index on both ends, ARP, and a firewall "
    "on UDP 4791",
    101: "no route to the peer's GID: both ends need addresses in one routed network",
}


@contextmanager
def translated(device: str, what: str) -> Iterator[None]:
    """Turns pyverbs' errors into ours: what was tried, the errno, and what it usually means.

    Raises:
        VerbsError: a verbs call failed.
    """
    try:
        yield
    except PyverbsRDMAError as exc:
        number = int(getattr(exc, "error_code", 0) or 0)
        code = f": {abi.errno_text(number)}" if number else ""
        raise VerbsError(
            f"{what} failed{code}: {exc}",
            errno=number,
            device=device,
            remedy=_HINTS.get(number, ""),
        ) from exc
    except PyverbsError as exc:
        raise VerbsError(f"{what} failed: {exc}", device=device) from exc


def query_port(device: str, port: int) -> PortAttributes:
    """What the device says of one of its ports.

    Raises:
        VerbsError: it cannot be opened or asked.
    """
    with translated(device, "querying the port"), Context(name=device) as context:
        attributes = context.query_port(port)
        limits = context.query_device()
        return PortAttributes(
            active_mtu_bytes=abi.MTU_BYTES.get(int(attributes.active_mtu), 0),
            gid_table_length=int(attributes.gid_tbl_len),
            lid=int(attributes.lid),
            max_qp=int(limits.max_qp),
            max_qp_rd_atom=int(limits.max_qp_rd_atom),
        )


class VerbsLink:
    """One end of an RC connection of `parameters.qps` queue pairs, kept for all cases of a pair."""

    transport = "RC"

    def __init__(self, *, endpoint: Endpoint, role: Role, parameters: LinkParameters) -> None:
        self.endpoint = endpoint
        self.role = role
        self.parameters = parameters
        self.mtu_bytes = 0
        self.inline_bytes = 0
        self.qps: list[Any] = []
        self.handles: list[int] = []
        self._remote: Optional[LinkAddress] = None
        self._psns = tuple(random.SystemRandom().randrange(1 << 24) for _ in range(parameters.qps))
        self._markers = (object(), object())
        self._stack = ExitStack()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        device, wanted = self.endpoint.device, self.parameters
        with translated(device, "opening the device"):
            self.context = self._stack.enter_context(Context(name=device))
            self.pd = self._stack.enter_context(PD(self.context))
        self.memory = Memory(wanted.buffer_bytes)
        self.mr = self._register()
        with translated(device, f"making completion queues for {wanted.qps} queue pairs"):
            self.send_cq = self._cq(wanted.qps * wanted.depth, self._markers[0])
            self.recv_cq = self._cq(wanted.qps * wanted.recv_depth, self._markers[1])
        self._make_qps()
        self._to_init()

    def _cq(self, entries: int, marker: object) -> Any:
        return self._stack.enter_context(CQ(self.context, entries + 1, marker))

    def _register(self) -> Any:
        device, length = self.endpoint.device, self.memory.length
        try:
            with translated(device, f"registering {length / MIB:.1f} MiB of memory"):
                return self._stack.enter_context(
                    MR(self.pd, length, _ACCESS, address=self.memory.address)
                )
        except VerbsError as exc:
            if exc.errno in (11, 12):
                raise memlock_error(exc, device=device, length=length) from exc
            raise

    def _make_qps(self) -> None:
        """Inline is a wish: providers refuse at different limits, so smaller ones are tried."""
        wish = self.parameters.inline_bytes
        attempts = sorted({min(wish, limit) for limit in (wish, 128, 64, 32, 0)}, reverse=True)
        for inline in attempts:
            try:
                with translated(self.endpoint.device, "making a queue pair"):
                    self.qps.append(self._qp(inline))
            except VerbsError:
                if inline == attempts[-1]:
                    raise
                continue
            self.inline_bytes = inline
            break
        with translated(self.endpoint.device, f"making {self.parameters.qps} queue pairs"):
            while len(self.qps) < self.parameters.qps:
                self.qps.append(self._qp(self.inline_bytes))

    def _qp(self, inline: int) -> Any:
        cap = QPCap(
            max_send_wr=self.parameters.depth,
            max_recv_wr=self.parameters.recv_depth,
            max_send_sge=1,
            max_recv_sge=1,
            max_inline_data=inline,
        )
        attributes = QPInitAttr(
            qp_type=abi.QPT_RC, scq=self.send_cq, rcq=self.recv_cq, cap=cap, sq_sig_all=0
        )
        return self._stack.enter_context(QP(self.pd, attributes))

    def _to_init(self) -> None:
        attributes = QPAttr(port_num=self.endpoint.port)
        attributes.qp_state = abi.QPS_INIT
        attributes.qp_access_flags = _ACCESS
        with translated(self.endpoint.device, "bringing a queue pair to INIT"):
            for qp in self.qps:
                qp.modify(attributes, abi.MASK_INIT)

    @property
    def address(self) -> LinkAddress:
        """What the other end needs."""
        return LinkAddress(
            qpns=tuple(qp.qp_num for qp in self.qps),
            psns=self._psns,
            gid=self.endpoint.gid,
            gid_index=self.endpoint.gid_index,
            lid=self.endpoint.lid,
            mtu_bytes=self.endpoint.active_mtu_bytes,
            buffer_address=self.memory.address,
            rkey=self.mr.rkey,
            max_rd_atomic=min(self.endpoint.max_qp_rd_atom, 16),
        )

    def connect(self, remote: LinkAddress) -> None:
        """Both ends go to RTS with the smaller MTU; the raw pointers are verified afterwards.

        Raises:
            VerbsError: a transition failed, or a pointer could not be verified.
        """
        self._remote = remote
        self.mtu_bytes = self.parameters.mtu_bytes or min(
            self.endpoint.active_mtu_bytes, remote.mtu_bytes
        )
        depth = max(1, min(remote.max_rd_atomic, self.address.max_rd_atomic))
        for index, qp in enumerate(self.qps):
            with translated(self.endpoint.device, "connecting (RTR)"):
                qp.modify(self._rtr(remote, index, depth), abi.MASK_RTR)
            with translated(self.endpoint.device, "connecting (RTS)"):
                qp.modify(self._rts(index, depth), abi.MASK_RTS)

    def _rtr(self, remote: LinkAddress, index: int, depth: int) -> Any:
        attributes = QPAttr(port_num=self.endpoint.port)
        attributes.qp_state = abi.QPS_RTR
        attributes.path_mtu = abi.MTU_CODE[self.mtu_bytes]
        attributes.dest_qp_num = remote.qpns[index]
        attributes.rq_psn = remote.psns[index]
        attributes.max_dest_rd_atomic = depth
        attributes.min_rnr_timer = self.parameters.min_rnr_timer
        attributes.ah_attr = self._path(remote)
        return attributes

    def _path(self, remote: LinkAddress) -> Any:
        if self.endpoint.link_layer == "InfiniBand":
            return AHAttr(
                dlid=remote.lid,
                sl=self.parameters.service_level,
                port_num=self.endpoint.port,
                is_global=0,
            )
        route = GlobalRoute(
            dgid=GID(remote.gid),
            sgid_index=self.endpoint.gid_index,
            hop_limit=64,
            traffic_class=self.parameters.traffic_class,
        )
        return AHAttr(
            gr=route,
            is_global=1,
            port_num=self.endpoint.port,
            sl=self.parameters.service_level,
        )

    def _rts(self, index: int, depth: int) -> Any:
        attributes = QPAttr(port_num=self.endpoint.port)
        attributes.qp_state = abi.QPS_RTS
        attributes.timeout = self.parameters.timeout
        attributes.retry_cnt = self.parameters.retry_cnt
        attributes.rnr_retry = self.parameters.rnr_retry
        attributes.sq_psn = self._psns[index]
        attributes.max_rd_atomic = depth
        return attributes

    def verify_pointers(self) -> None:
        """Find and verify the `ibv_qp *` of every queue pair; again before each case.

        Raises:
            VerbsError: one of them cannot be verified.
        """
        family = Family(
            context=self.context,
            pd=self.pd,
            send_cq=self.send_cq,
            recv_cq=self.recv_cq,
            send_marker=self._markers[0],
            recv_marker=self._markers[1],
        )
        self.handles = [qp_pointer(qp, family) for qp in self.qps]

    def lanes(self, *, size_bytes: int, count: int, reads_remote: bool) -> tuple[LaneSpec, ...]:
        """Buffers of the first `count` queue pairs; a read aims at the peer's sending half."""
        remote = self._remote
        if remote is None or count > len(self.qps):
            raise DeviceError(
                f"a case of {count} queue pairs on a link of {len(self.qps)}",
                device=self.endpoint.device,
            )
        stride = lane_stride(size_bytes)
        half = self.memory.half_bytes
        target = remote.buffer_address + (0 if reads_remote else half)
        handles = self.handles or [0] * len(self.qps)
        return tuple(
            LaneSpec(
                handle=handles[i],
                send_offset=i * stride,
                recv_offset=half + i * stride,
                remote_addr=target + i * stride,
                lkey=self.mr.lkey,
                rkey=remote.rkey,
            )
            for i in range(count)
        )

    def close(self) -> None:
        """Takes everything down, queue pairs first."""
        self.qps = []
        with translated(self.endpoint.device, "closing"):
            self._stack.close()


def memlock_error(cause: VerbsError, *, device: str, length: int) -> VerbsError:
    """Registration was refused: with the limit that is in force, which is the usual reason."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft / 1024:.0f} KiB"
    return VerbsError(
        f"registering {length / MIB:.1f} MiB of memory was refused: {abi.errno_text(cause.errno)}; "
        f"the memlock limit of this session is {limit}",
        errno=cause.errno,
        device=device,
        remedy="set `* - memlock unlimited` in /etc/security/limits.d/rdma.conf (and "
        "LimitMEMLOCK=infinity for sshd or slurmd), then log in anew",
    )
