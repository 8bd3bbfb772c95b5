"""Every probe over real verbs calls, on the loopback provider: values, faults, pointers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from rdmabench import wire
from rdmabench.errors import ProbeError, UnsupportedError, WorkerLostError
from rdmabench.model import Case, LinkParameters, Parameters
from tests.duo import LIMIT_S, Duo, samples_of

pytestmark = pytest.mark.native

ENGINES = ("hotloop", "pyverbs")
LINK = LinkParameters(qps=4, depth=32, recv_depth=64, buffer_bytes=4 * 65536, inline_bytes=64)


def a_case(duo: Duo, **changes: object) -> Case:
    parameters = {
        "probe": "latency",
        "op": "send",
        "size_bytes": 64,
        "iterations": 200,
        "warmup": 20,
        **changes,
    }
    return Case(duo.refs[0], duo.refs[1], Parameters(**parameters))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("op", ["send", "write", "read"])
@pytest.mark.parametrize("size", [1, 2, 4096, 65536])
def test_latency_times_every_iteration(
    start: Callable[..., Duo], op: str, size: int, engine: str
) -> None:
    duo = start()
    duo.connect(parameters=LINK, engine=engine)
    first, second = duo.measure(a_case(duo, op=op, size_bytes=size, engine=engine))
    assert first.samples is not None
    assert first.samples.kind == ("completion" if op == "read" else "rtt")
    times = samples_of(first)
    assert len(times) == 200
    assert 0 < sum(times) <= first.elapsed_ns
    assert first.checked_bytes == size
    assert second.checked_bytes == (0 if op == "read" else size)
    assert second.message_count == (0 if op == "read" else 200)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("op", ["send", "write", "read"])
@pytest.mark.parametrize(("qps", "moderation"), [(1, 1), (1, 7), (4, 16)])
def test_bandwidth_counts_what_every_queue_pair_moved(
    start: Callable[..., Duo], op: str, qps: int, moderation: int, engine: str
) -> None:
    duo = start()
    duo.connect(parameters=LINK, engine=engine)
    case = a_case(
        duo,
        probe="bandwidth",
        op=op,
        size_bytes=8192,
        qps=qps,
        depth=32,
        cq_moderation=moderation,
        iterations=101,
        warmup=5,
        engine=engine,
    )
    first, second = duo.measure(case)
    assert first.payload_bytes == 101 * 8192 * qps
    assert first.payload_bytes_per_qp == (101 * 8192,) * qps
    checked = first if op == "read" else second
    assert checked.checked_bytes == 8192 * qps
    assert second.message_count == (101 * qps if op == "send" else 0)


def test_cases_of_all_kinds_follow_each_other_on_one_link(start: Callable[..., Duo]) -> None:
    duo = start()
    duo.connect(parameters=LINK)
    for size in (2, 65536):
        for op in ("send", "write", "read", "send", "write"):
            assert duo.measure(a_case(duo, op=op, size_bytes=size))[0].message_count == 200
            stream = a_case(duo, probe="bandwidth", op=op, size_bytes=size, qps=4, depth=16)
            assert duo.measure(stream)[0].message_count == 800


def test_latency_is_the_delay_of_the_link(start: Callable[..., Duo]) -> None:
    """The provider delays each way by 20 us: half a round trip is that, and a read is two."""
    duo = start(LOOPBACK_DELAY_NS="20000")
    duo.connect(parameters=LINK)
    for op, ways in (("send", 2), ("write", 2), ("read", 2)):
        times = sorted(samples_of(duo.measure(a_case(duo, op=op, size_bytes=2))[0]))
        shortest = times[0]
        assert shortest >= ways * 20_000, op
        assert shortest < ways * 20_000 * 1.5, op


def test_bandwidth_is_the_rate_of_the_link(start: Callable[..., Duo]) -> None:
    duo = start(LOOPBACK_GBIT_S="2")
    duo.connect(parameters=LINK)
    case = a_case(duo, probe="bandwidth", op="write", size_bytes=65536, iterations=300, depth=16)
    first = duo.measure(case)[0]
    assert first.payload_bytes * 8 / first.elapsed_ns == pytest.approx(2.0, rel=0.05)


def test_inline_is_used_up_to_its_limit_and_recorded(start: Callable[..., Duo]) -> None:
    duo = start()
    duo.connect(parameters=LINK)
    small = duo.measure(a_case(duo, size_bytes=64, inline_bytes=64))[0]
    large = duo.measure(a_case(duo, size_bytes=65, inline_bytes=64))[0]
    read = duo.measure(a_case(duo, size_bytes=64, inline_bytes=64, op="read"))[0]
    assert (small.inline_bytes, large.inline_bytes, read.inline_bytes) == (64, 0, 0)


def test_the_death_of_the_responder_is_a_failed_completion_for_the_initiator(
    start: Callable[..., Duo],
) -> None:
    duo = start()
    duo.connect(parameters=LINK)
    case = a_case(duo, op="write", iterations=50_000_000, deadline_s=20)
    duo.both(wire.PrepareCase("x", a_case(duo, op="read", iterations=10_000_000, deadline_s=20)))
    del case
    running = duo.agents[0].send(wire.RunCase("x"))
    time.sleep(0.3)
    duo.processes[1].kill()
    with pytest.raises(ProbeError, match=r"RETRY_EXC_ERR \(12\): the peer did not acknowledge"):
        running.result(LIMIT_S)
    with pytest.raises(WorkerLostError):
        duo.agents[1].ask(wire.Bye(), deadline_s=LIMIT_S)


def test_a_ping_pong_whose_peer_never_answers_ends_by_its_deadline(
    start: Callable[..., Duo],
) -> None:
    duo = start()
    duo.connect(parameters=LINK)
    for op in ("send", "write"):
        duo.both(wire.PrepareCase("x", a_case(duo, op=op, deadline_s=0.5)))
        with pytest.raises(ProbeError, match=r"not finished within its deadline of 0.5 s"):
            duo.agents[0].ask(wire.RunCase("x"), deadline_s=LIMIT_S)
        duo.both(wire.CloseLink("x"))
        duo.connect(parameters=LINK)


def test_wrong_bytes_fail_the_case(start: Callable[..., Duo]) -> None:
    """The two ends expect different patterns: as if the path had changed the bytes."""
    duo = start()
    duo.connect(parameters=LINK)
    for op, wrong_end in (("send", "b"), ("write", "b"), ("read", "a")):
        ours = a_case(duo, probe="bandwidth", op=op, size_bytes=4096, depth=16, qps=2)
        theirs = a_case(
            duo, probe="bandwidth", op=op, size_bytes=4096, depth=16, qps=2, deadline_s=29.0
        )
        duo.both(wire.PrepareCase("x", ours), wire.PrepareCase("x", theirs))
        duo.both(wire.RunCase("x"))
        with pytest.raises(ProbeError, match="of 4096 bytes arrived wrong on queue pair 0") as bad:
            duo.both(wire.FinishCase("x"))
        assert bad.value.host == wrong_end


def test_event_completions_are_said_to_be_unsupported(start: Callable[..., Duo]) -> None:
    duo = start()
    duo.connect(parameters=LINK)
    with pytest.raises(UnsupportedError, match="completion mode event"):
        duo.both(wire.PrepareCase("x", a_case(duo, completion="event")))
