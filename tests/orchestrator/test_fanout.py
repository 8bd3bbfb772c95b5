"""Many at once: bounded, nobody's ending hides another's."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from rdmabench.errors import ConnectError, DeadlineError
from rdmabench.orchestrator.fanout import fanout


def test_every_item_keeps_its_own_ending_in_the_order_given() -> None:
    """Case F12: host 5 is unreachable, and the others are measured."""

    def work(host: int) -> int:
        if host == 5:
            raise ConnectError("no route", host="5")
        return host * 10

    endings = fanout(work, range(1, 9), limit=3, deadline_s=None, key=str)
    assert list(endings) == [str(n) for n in range(1, 9)]
    assert [key for key, ending in endings.items() if not ending.ok] == ["5"]
    assert endings["7"].get() == 70
    with pytest.raises(ConnectError, match="5: no route"):
        endings["5"].get()


def test_no_more_run_at_once_than_allowed() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def work(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    fanout(work, range(30), limit=4, deadline_s=None, key=int)
    assert most == 4


def test_a_deadline_cancels_what_blocks_and_frees_its_place() -> None:
    gates = {name: threading.Event() for name in "abc"}
    gates["a"].set()
    gates["c"].set()
    cancelled = []

    def cancel(name: str) -> None:
        cancelled.append(name)
        gates[name].set()

    def work(name: str) -> str:
        gates[name].wait()
        return name

    endings = fanout(work, "bac", limit=1, deadline_s=0.2, key=str, cancel=cancel)
    assert cancelled == ["b"]
    assert isinstance(endings["b"].error, DeadlineError)
    assert "b: did not end within 0.2 s" in str(endings["b"].error)
    assert (endings["a"].value, endings["c"].value) == ("a", "c")


def test_a_call_that_ignores_its_cancelling_is_left_behind() -> None:
    forever = threading.Event()
    started = time.monotonic()
    endings = fanout(lambda _: forever.wait(), [1], limit=1, deadline_s=0.1, key=int)
    assert time.monotonic() - started < 2
    assert not endings[1].ok
    forever.set()


def test_a_defect_is_seen_and_what_runs_is_cancelled() -> None:
    gate, begun, cancelled = threading.Event(), [], []

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise KeyError("a defect")
        gate.wait()

    def cancel(item: int) -> None:
        cancelled.append(item)
        gate.set()

    with pytest.raises(KeyError, match="a defect"):
        fanout(work, range(9), limit=2, deadline_s=None, key=int, cancel=cancel)
    assert begun == [0, 1]
    assert cancelled == [0]


def test_a_ctrl_c_is_not_swallowed() -> None:
    gate = threading.Event()
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fanout(
            lambda _: gate.wait(), [1], limit=1, deadline_s=5, key=int, cancel=lambda _: gate.set()
        )
    assert gate.is_set()
    assert time.monotonic() - started < 3


def test_nothing_to_do_is_done_at_once_and_equal_keys_are_a_defect() -> None:
    assert fanout(str, [], limit=0, deadline_s=None, key=str) == {}
    with pytest.raises(ValueError, match="must differ"):
        fanout(str, [1, 1], limit=1, deadline_s=None, key=str)
