"""Two processes with one RC connection over the loopback provider, driven through pyverbs.

Run as `python3 pair.py SCENARIO` with the provider preloaded; prints what happened as JSON. The
script forks first: the child is the responder, the parent the initiator.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyverbs import enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR

SIZE = 64 * 1024
DEADLINE_S = 5
ALL_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
EXTENDED_OPS = e.IBV_QP_EX_WITH_RDMA_WRITE | e.IBV_QP_EX_WITH_SEND | e.IBV_QP_EX_WITH_RDMA_READ
STATUS_NAMES = {
    getattr(e, name): name
    for name in dir(e)
    if name == "IBV_WC_SUCCESS" or (name.startswith("IBV_WC_") and name.endswith("_ERR"))
}
PATTERN = (bytes(range(251)) * 262)[:SIZE]  # 251 is prime: no two places look alike for long


@dataclass(frozen=True)
class Options:
    """How one end is made; both ends of a scenario are made alike."""

    access: int = ALL_ACCESS
    rnr_retry: int = 7
    has_events: bool = False
    is_extended: bool = False
    offset: int = 0  # of the region in its pages
    size: int = SIZE


@dataclass
class Message:
    """A work request to the peer's region, `offset` bytes in."""

    opcode: int
    size: int
    flags: int = e.IBV_SEND_SIGNALED
    imm: int = 0
    offset: int = 0
    rkey: int | None = None
    atomic: tuple[int, int] | None = None


def open_fds() -> set[int]:
    """The file descriptors of this process that can be read."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if fcntl.fcntl(int(link.name), fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY:
                found.add(int(link.name))
    return found


@dataclass
class End:
    """One end of the connection with its region."""

    link: socket.socket
    options: Options
    peer_pid: int
    peer: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = self.options
        self.context = Context(name="loop0")
        self.pd = PD(self.context)
        before = open_fds()
        self.channel = CompChannel(self.context) if options.has_events else None
        self.channel_fds = open_fds() - before
        if options.is_extended:
            self.cq = CQEX(self.context, CqInitAttrEx(cqe=64))
        else:
            self.cq = CQ(self.context, 64, channel=self.channel)
        self.area = mmap.mmap(-1, 2 * SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.area)) + options.offset
        self.mr = MR(self.pd, options.size, options.access, address=self.address)
        self.qp = self._make_qp()

    def _make_qp(self) -> QP:
        cap = QPCap(16, 16, 2, 2, 64)
        queues = {"qp_type": e.IBV_QPT_RC, "scq": self.cq, "rcq": self.cq, "cap": cap}
        if not self.options.is_extended:
            return QP(self.pd, QPInitAttr(**queues))
        mask = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
        init = QPInitAttrEx(**queues, pd=self.pd, send_ops_flags=EXTENDED_OPS, comp_mask=mask)
        return QPEx(self.context, init)

    def tell(self, **values: object) -> None:
        """Send one line to the other end."""
        self.link.sendall(json.dumps(values).encode() + b"\n")

    def hear(self) -> dict:
        """Wait for one line of the other end."""
        line = b""
        while not line.endswith(b"\n"):
            byte = self.link.recv(1)
            if not byte:
                raise EOFError("the other end is gone")
            line += byte
        return json.loads(line)

    def meet(self) -> None:
        """Return once both ends are here."""
        self.tell()
        self.hear()

    def connect(self) -> None:
        """Exchange addresses and bring the QP to RTS."""
        gid = str(self.context.query_gid(port_num=1, index=1).gid)
        self.tell(qp_num=self.qp.qp_num, gid=gid, rkey=self.mr.rkey, address=self.address)
        self.peer = self.hear()
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = self.options.access
        attr.path_mtu = e.IBV_MTU_4096
        attr.dest_qp_num = self.peer["qp_num"]
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 16
        attr.min_rnr_timer = 12
        attr.timeout = 10
        attr.retry_cnt = 7
        attr.rnr_retry = self.options.rnr_retry
        route = GlobalRoute(dgid=GID(self.peer["gid"]), sgid_index=1)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)
        self.meet()

    def sge(self, size: int) -> SGE:
        """The first `size` bytes of the region."""
        return SGE(self.address, size, self.mr.lkey)

    def post_receive(self, size: int) -> None:
        """Post one receive of `size` bytes."""
        self.qp.post_recv(RecvWR(1, 1, [self.sge(size)]))

    def post(self, message: Message) -> None:
        """Post one message."""
        wr = SendWR(7, message.opcode, 1, message.imm, [self.sge(message.size)], message.flags)
        rkey = self.peer["rkey"] if message.rkey is None else message.rkey
        address = self.peer["address"] + message.offset
        if message.atomic is None:
            wr.set_wr_rdma(rkey, address)
        else:
            wr.set_wr_atomic(rkey, address, *message.atomic)
        self.qp.post_send(wr)

    def poll(self, deadline_s: float = DEADLINE_S) -> dict:
        """Wait for one completion."""
        deadline = time.monotonic() + deadline_s
        while time.monotonic() < deadline:
            count, found = self.cq.poll()
            if count > 0:
                wc = found[0]
                has_imm = wc.wc_flags & e.IBV_WC_WITH_IMM
                return {
                    "status": STATUS_NAMES[wc.status],
                    "opcode": wc.opcode,
                    "byte_len": wc.byte_len,
                    "imm": wc.imm_data if has_imm else None,
                }
        raise TimeoutError("no completion")

    def poll_extended(self) -> str:
        """Wait for one completion of an extended CQ."""
        deadline = time.monotonic() + DEADLINE_S
        while self.cq.start_poll(PollCqAttr()) != 0:
            if time.monotonic() > deadline:
                raise TimeoutError("no completion")
        status = STATUS_NAMES[self.cq.status]
        self.cq.end_poll()
        return status

    def finish(self, message: Message) -> str:
        """Post one message and return its status."""
        self.post(message)
        return self.poll()["status"]


def moves_data(end: End) -> dict:
    """Write, read, send, both with immediate data and both atomics, all verified."""
    size = end.options.size
    end.mr.write(PATTERN[:size], size)
    statuses = [end.finish(Message(e.IBV_WR_RDMA_WRITE, size))]
    end.tell()
    written = end.hear()
    end.mr.write(bytes(size), size)
    statuses.append(end.finish(Message(e.IBV_WR_RDMA_READ, size)))
    read = end.mr.read(size, 0) == PATTERN[:size][::-1]
    end.mr.write(PATTERN[:size], size)
    end.meet()
    for opcode in (e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_IMM, e.IBV_WR_RDMA_WRITE_WITH_IMM):
        statuses.append(end.finish(Message(opcode, size, imm=0x1234)))
    received = end.hear()
    return {"statuses": statuses, "written": written, "read": read, "received": received}


def has_data_moved(end: End) -> None:
    """The responder of moves_data."""
    size = end.options.size
    end.hear()
    is_right = end.mr.read(size, 0) == PATTERN[:size]
    end.mr.write(PATTERN[:size][::-1], size)
    end.tell(right=is_right)
    for _ in range(3):
        end.post_receive(size)
    end.meet()
    completions = [end.poll() for _ in range(3)]
    end.tell(completions=completions, right=end.mr.read(size, 0) == PATTERN[:size])


def adds_and_swaps(end: End) -> dict:
    """Atomics on the peer's second word, whose first value is 40."""
    statuses, old = [], []
    end.meet()
    for opcode, operands in (
        (e.IBV_WR_ATOMIC_FETCH_AND_ADD, (2, 0)),
        (e.IBV_WR_ATOMIC_CMP_AND_SWP, (42, 7)),
        (e.IBV_WR_ATOMIC_CMP_AND_SWP, (42, 8)),
    ):
        statuses.append(end.finish(Message(opcode, 8, offset=8, atomic=operands)))
        old.append(int.from_bytes(end.mr.read(8, 0), "little"))
    end.tell()
    return {"statuses": statuses, "old": old, "new": end.hear()["word"]}


def has_a_word(end: End) -> None:
    """The responder of adds_and_swaps."""
    end.mr.write((40).to_bytes(8, "little"), 8, 8)
    end.meet()
    end.hear()
    end.tell(word=int.from_bytes(end.mr.read(8, 8), "little"))


def is_refused(end: End) -> dict:
    """What each wrong access comes to; one connection each, since an error ends it."""
    wrong = {
        "rkey": Message(e.IBV_WR_RDMA_WRITE, 8, rkey=end.peer["rkey"] ^ 0x1000),
        "bounds": Message(e.IBV_WR_RDMA_READ, 16, offset=end.options.size - 8),
    }[sys.argv[2]]
    first = end.finish(wrong)
    end.post(Message(e.IBV_WR_RDMA_WRITE, 8))
    return {"status": first, "next": end.poll()["status"], "state": end.qp.query(1)[0].qp_state}


def waits(end: End) -> None:
    """A responder that leaves once the initiator is done."""
    while end.link.recv(1):
        pass


def survives_its_peer(end: End) -> dict:
    """Messages before and after the responder is killed."""
    before = end.finish(Message(e.IBV_WR_RDMA_WRITE, 4096))
    os.kill(end.peer_pid, signal.SIGKILL)
    os.waitid(os.P_PID, end.peer_pid, os.WEXITED | os.WNOWAIT)  # stays a zombie meanwhile
    deadline = time.monotonic() + DEADLINE_S
    after = before
    while after == "IBV_WC_SUCCESS" and time.monotonic() < deadline:
        after = end.finish(Message(e.IBV_WR_RDMA_WRITE, 4096))
    return {"before": before, "after": after}


def sends_early(end: End) -> dict:
    """A send for which the responder posts its receive only when told to."""
    end.post(Message(e.IBV_WR_SEND, 64))
    early = end.cq.poll()[0]
    end.tell()
    return {"early": early, "status": end.poll()["status"]}


def receives_late(end: End) -> None:
    """The responder of sends_early."""
    end.hear()
    time.sleep(0.02)
    end.post_receive(64)
    waits(end)


def sends_too_much(end: End) -> dict:
    """A send of 64 bytes to a receive of 8."""
    end.meet()
    status = end.finish(Message(e.IBV_WR_SEND, 64))
    return {"status": status, "responder": end.hear()["status"]}


def receives_little(end: End) -> None:
    """The responder of sends_too_much."""
    end.post_receive(8)
    end.meet()
    end.tell(status=end.poll()["status"])
    waits(end)


def writes_and_leaves(end: End) -> dict:
    """Unsignalled writes, one on an idle queue and two in a row, without a single poll."""
    seen = []
    for count in (1, 2):
        for turn in range(count):
            end.mr.write(bytes([10 * count + turn]) * 128, 128)
            end.post(Message(e.IBV_WR_RDMA_WRITE, 128, flags=0))
        seen.append(end.hear()["last"])
    return {"seen": seen}


def watches_memory(end: End) -> None:
    """A responder that calls no verb and reads its memory."""
    for last in (10, 21):
        deadline = time.monotonic() + DEADLINE_S
        while end.area[127] != last and time.monotonic() < deadline:
            pass
        end.tell(last=end.area[127])


def sleeps(end: End) -> dict:
    """Takes a receive from a completion channel, waiting for its file descriptor."""
    end.post_receive(64)
    end.cq.req_notify()
    end.meet()
    early = select.select(end.channel_fds, [], [], 0.02)[0]
    end.tell()
    woken = select.select(end.channel_fds, [], [], DEADLINE_S)[0]
    end.channel.get_cq_event(end.cq)
    end.cq.ack_events(1)
    return {"early": len(early), "woken": len(woken), "status": end.poll(0.1)["status"]}


def wakes(end: End) -> None:
    """The responder of sleeps."""
    end.meet()
    end.hear()
    end.post(Message(e.IBV_WR_SEND, 64))
    end.poll()
    waits(end)


def uses_extended_verbs(end: End) -> dict:
    """A write and a read through ibv_wr_* and the extended CQ."""
    end.mr.write(PATTERN, len(PATTERN))
    statuses = [extended(end, end.qp.wr_rdma_write)]
    end.mr.write(bytes(4096), 4096)
    statuses.append(extended(end, end.qp.wr_rdma_read))
    return {"statuses": statuses, "read": end.mr.read(4096, 0) == PATTERN[:4096]}


def extended(end: End, start: Callable) -> str:
    """One operation of 4096 bytes through ibv_wr_*."""
    end.qp.wr_start()
    end.qp.wr_id = 9
    end.qp.wr_flags = e.IBV_SEND_SIGNALED
    start(end.peer["rkey"], end.peer["address"])
    end.qp.wr_set_sge(end.sge(4096))
    end.qp.wr_complete()
    return end.poll_extended()


PAGES = Options()
SCENARIOS: dict[str, tuple[Callable, Callable, Options]] = {
    "data": (moves_data, has_data_moved, PAGES),
    "data-unaligned": (moves_data, has_data_moved, Options(offset=123, size=3 * 4096)),
    "data-small": (moves_data, has_data_moved, Options(offset=64, size=100)),
    "atomics": (adds_and_swaps, has_a_word, PAGES),
    "atomics-small": (adds_and_swaps, has_a_word, Options(size=16)),
    "refused": (is_refused, waits, PAGES),
    "read-only": (is_refused, waits, Options(access=e.IBV_ACCESS_LOCAL_WRITE)),
    "killed": (survives_its_peer, waits, PAGES),
    "late": (sends_early, receives_late, PAGES),
    "never": (sends_early, waits, Options(rnr_retry=0)),
    "short": (sends_too_much, receives_little, PAGES),
    "memory": (writes_and_leaves, watches_memory, PAGES),
    "events": (sleeps, wakes, Options(has_events=True)),
    "extended": (uses_extended_verbs, waits, Options(is_extended=True)),
}


def main() -> None:
    """Run the scenario of the command line in two processes."""
    initiate, respond, options = SCENARIOS[sys.argv[1]]
    ours, theirs = socket.socketpair()
    child = os.fork()
    (theirs if child else ours).close()
    end = End(ours if child else theirs, options, child)
    end.connect()
    if child == 0:
        respond(end)
        return
    print(json.dumps(initiate(end)))
    ours.close()
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
