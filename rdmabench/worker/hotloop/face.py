"""The ctypes face of hotloop.c: structs that mirror hotloop.h, and clocks.

ctypes releases the interpreter lock during a call, so a stop or a heartbeat is heard meanwhile.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from pathlib import Path

from rdmabench.errors import DeviceError

ABI = 1
CLOCK_RAW = 0
CLOCK_CPU = 1

DONE = 0
POST_SEND = 1
POST_RECV = 2
POLL = 3
COMPLETION = 4
DEADLINE = 5
STOPPED = 6
SOCKET = 7
PEER_CLOSED = 8
ARGUMENT = 9

_U64 = ctypes.c_uint64
_U32 = ctypes.c_uint32
_I32 = ctypes.c_int32


class Lane(ctypes.Structure):
    """`struct hl_lane`: one QP or one TCP stream of a run."""

    _fields_ = (
        ("qp", ctypes.c_void_p),
        ("send_addr", _U64),
        ("recv_addr", _U64),
        ("remote_addr", _U64),
        ("lkey", _U32),
        ("rkey", _U32),
        ("fd", _I32),
        ("reserved", _U32),
        ("posted", _U64),
        ("completed", _U64),
        ("received", _U64),
    )


class Run(ctypes.Structure):
    """`struct hl_run`; it holds addresses only, so the owner keeps lanes, stop and stamps alive."""

    _fields_ = (
        ("abi", _U32),
        ("lane_count", _U32),
        ("lanes", ctypes.POINTER(Lane)),
        ("messages", _U64),
        ("size", _U32),
        ("depth", _U32),
        ("recv_depth", _U32),
        ("cq_moderation", _U32),
        ("send_flags", _U32),
        ("clock", _U32),
        ("deadline_ns", _U64),
        ("stop", ctypes.POINTER(_I32)),
        ("stamps", ctypes.POINTER(_U64)),
        ("first_ns", _U64),
        ("last_ns", _U64),
        ("where", _I32),
        ("error", _I32),
        ("wc_status", _I32),
        ("vendor_err", _U32),
        ("lane", _U32),
        ("reserved", _U32),
    )


_RUN_ONLY = ("hl_post_receives", "hl_read_lat", "hl_write_bw", "hl_read_bw", "hl_send_bw")
_RUN_ONLY_MORE = ("hl_recv_bw", "hl_tcp_send_bw", "hl_tcp_recv_bw")
_RUN_AND_FIRST = ("hl_send_lat", "hl_write_lat", "hl_tcp_lat")


class Hotloop:
    """The loaded shared object.

    Raises:
        DeviceError: the file does not load on this node, or is of another build.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._so = ctypes.CDLL(str(path), use_errno=True)
        except OSError as exc:
            raise DeviceError(
                f"the timed loops do not load on this node: {exc}",
                remedy="mount the home directory without noexec, or use --engine pyverbs",
            ) from exc
        ours = (ABI, ctypes.sizeof(Lane), ctypes.sizeof(Run))
        theirs = (self._so.hl_abi(), self._so.hl_lane_bytes(), self._so.hl_run_bytes())
        if ours != theirs:
            raise DeviceError(f"the timed loops are of another build: {theirs}, expected {ours}")
        self._declare()

    def _declare(self) -> None:
        run = ctypes.POINTER(Run)
        for name in _RUN_ONLY + _RUN_ONLY_MORE:
            getattr(self._so, name).argtypes = (run,)
        for name in _RUN_AND_FIRST:
            getattr(self._so, name).argtypes = (run, ctypes.c_int)
        self._so.hl_cpu_ticks.restype = _U64
        self._so.hl_read_both.argtypes = (ctypes.POINTER(_U64), ctypes.POINTER(_U64))
        self._so.hl_read_both.restype = None
        self._so.hl_clock_cost_ns_times_1000.argtypes = (_U32,)
        self._so.hl_clock_cost_ns_times_1000.restype = _U64
        u64s = ctypes.POINTER(_U64)
        self._so.hl_durations.argtypes = (u64s, _U64, ctypes.c_double, u64s)
        self._so.hl_durations.restype = None

    def post_receives(self, run: Run) -> int:
        """Post the receives of every lane; returns where it ended (`DONE` is good)."""
        return int(self._so.hl_post_receives(ctypes.byref(run)))

    def loop(self, name: str, run: Run, *, first: bool) -> int:
        """Run `hl_<name>` to its end; `first` matters to ping-pongs alone."""
        function = getattr(self._so, f"hl_{name}")
        if f"hl_{name}" in _RUN_AND_FIRST:
            return int(function(ctypes.byref(run), int(first)))
        return int(function(ctypes.byref(run)))

    def durations(self, stamps: ctypes.Array[_U64], ns_per_tick: float) -> ctypes.Array[_U64]:
        """Nanoseconds between neighbouring stamps."""
        out = (_U64 * (len(stamps) - 1))()
        self._so.hl_durations(stamps, len(out), ns_per_tick, out)
        return out

    def read_both(self) -> tuple[int, int]:
        """CLOCK_MONOTONIC_RAW in ns and the CPU's counter, at one moment."""
        raw, ticks = _U64(), _U64()
        self._so.hl_read_both(ctypes.byref(raw), ctypes.byref(ticks))
        return raw.value, ticks.value

    def clock_cost_ns(self, clock: int) -> float:
        """What one reading of the clock costs, in ns: the least of five averages of 1,000."""
        return min(int(self._so.hl_clock_cost_ns_times_1000(clock)) for _ in range(5)) / 1000


@dataclass(frozen=True)
class Clock:
    """The clock of the latency stamps: its name for the rows, and its scale."""

    name: str  # tsc | cntvct | monotonic_raw
    code: int
    ns_per_tick: float
    cost_ns: float


def choose_clock(hotloop: Hotloop, *, invariant: bool, machine: str) -> Clock:
    """The CPU's counter where it is invariant, calibrated over 100 ms; else CLOCK_MONOTONIC_RAW."""
    if not invariant:
        return Clock("monotonic_raw", CLOCK_RAW, 1.0, hotloop.clock_cost_ns(CLOCK_RAW))
    raw_start, ticks_start = hotloop.read_both()
    time.sleep(0.1)
    raw_end, ticks_end = hotloop.read_both()
    name = "cntvct" if machine == "aarch64" else "tsc"
    scale = (raw_end - raw_start) / (ticks_end - ticks_start)
    return Clock(name, CLOCK_CPU, scale, hotloop.clock_cost_ns(CLOCK_CPU))


def counter_is_invariant(cpuinfo: str, clocksource: str, machine: str) -> bool:
    """Whether the CPU's counter runs at one rate on all cores.

    x86: the flags constant_tsc and nonstop_tsc, and the kernel itself trusts it as its clock
    source. aarch64: always (the architecture's generic timer).
    """
    if machine == "aarch64":
        return True
    flags = next((ln for ln in cpuinfo.splitlines() if ln.startswith("flags")), "").split()
    return {"constant_tsc", "nonstop_tsc"} <= set(flags) and clocksource.strip() == "tsc"
