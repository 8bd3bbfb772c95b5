"""The worker as a process: the very files that are pushed, spoken to over pipes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rdmabench import wire
from rdmabench.errors import (
    DeviceError,
    HostError,
    ProbeError,
    ProtocolError,
    UnsupportedError,
    WorkerLostError,
)
from rdmabench.model import Case, EndpointRef, Fabric, LinkParameters, Parameters
from rdmabench.orchestrator.agent import Agent
from rdmabench.wire import ListEndpoints
from tests.duo import LIMIT_S, ROLES, Duo
from tests.local import LocalProcess, start_worker


@pytest.fixture
def duo(tmp_path: Path) -> Iterator[Duo]:
    made = Duo(tmp_path, ListEndpoints(fabric=Fabric.TCP, netdev="lo"))
    yield made
    made.close()


def tcp_case(**changes: object) -> Case:
    parameters = {
        "probe": "latency",
        "op": "send",
        "size_bytes": 2,
        "iterations": 100,
        "warmup": 10,
        "transport": "TCP",
        **changes,
    }
    return Case(EndpointRef("a", "lo"), EndpointRef("b", "lo"), Parameters(**parameters))


def eventually(condition: Callable[[], bool], limit_s: float = 10.0) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def scratch_of(process: LocalProcess) -> list[Path]:
    return list(Path("/dev/shm").glob(f"rdmabench-{os.getuid()}-{process.pid}-*"))


def test_every_iteration_is_timed_and_the_warm_up_is_dropped(duo: Duo) -> None:
    duo.connect()
    first, second = duo.measure(tcp_case(size_bytes=4096))
    assert first.samples is not None
    assert (first.samples.count, first.samples.kind) == (100, "rtt")
    raw = Path(first.samples.path).read_bytes()
    assert len(raw) == 800
    times = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, 800, 8)]
    assert min(times) > 0
    assert sum(times) <= first.elapsed_ns, "samples are parts of the whole"
    assert (first.message_count, first.payload_bytes) == (100, 100 * 4096)
    assert second.samples is None
    assert (first.checked_bytes, second.checked_bytes) == (4096, 4096)


def test_a_stream_counts_bytes_of_all_lanes_and_checks_them_at_the_receiver(duo: Duo) -> None:
    duo.connect()
    case = tcp_case(probe="bandwidth", size_bytes=65536, iterations=50, qps=4)
    first, second = duo.measure(case)
    assert first.payload_bytes == 50 * 4 * 65536
    assert first.payload_bytes_per_qp == (50 * 65536,) * 4
    assert (first.checked_bytes, second.checked_bytes) == (0, 4 * 65536)
    moved = first.counters_before.delta(first.counters_after)
    assert moved["netdev/tx_bytes"] > 50 * 4 * 65536
    assert first.cpu_ns > 0


def test_one_link_carries_many_cases_without_being_connected_anew(duo: Duo) -> None:
    duo.connect()
    for size in (1, 2, 4096, 65536):
        for probe, qps in (("latency", 1), ("bandwidth", 4)):
            case = tcp_case(probe=probe, size_bytes=size, iterations=20, qps=qps)
            assert duo.measure(case)[0].message_count == 20 * qps


def test_wrong_bytes_fail_the_case(duo: Duo) -> None:
    """The ends are given different cases, so that the bytes are not those expected."""
    duo.connect()
    ours, theirs = tcp_case(size_bytes=64), tcp_case(size_bytes=64, deadline_s=29.0)
    duo.both(wire.PrepareCase("x", ours), wire.PrepareCase("x", theirs))
    duo.both(wire.RunCase("x"))
    with pytest.raises(ProbeError, match=r"of 64 bytes arrived wrong on queue pair 0"):
        duo.both(wire.FinishCase("x"))


def test_a_probe_ends_by_its_own_deadline(duo: Duo) -> None:
    duo.connect()
    case = tcp_case(deadline_s=0.5)
    duo.both(wire.PrepareCase("x", case))
    with pytest.raises(ProbeError, match=r"not finished within its deadline of 0.5 s"):
        duo.agents[1].ask(wire.RunCase("x"), deadline_s=LIMIT_S)  # its peer never starts


def test_a_cancel_is_heard_while_a_loop_runs(duo: Duo) -> None:
    duo.connect()
    duo.both(wire.PrepareCase("x", tcp_case()))
    waiting = duo.agents[1].send(wire.RunCase("x"))
    time.sleep(0.2)
    duo.agents[1].tell(wire.Cancel("x"))
    with pytest.raises(ProbeError, match="stopped by the controller"):
        waiting.result(LIMIT_S)


def test_the_death_of_one_end_ends_the_other_at_once(duo: Duo) -> None:
    duo.connect()
    duo.both(wire.PrepareCase("x", tcp_case(iterations=10_000_000)))
    running = [agent.send(wire.RunCase("x")) for agent in duo.agents]
    time.sleep(0.3)
    duo.processes[1].kill()
    with pytest.raises(WorkerLostError):
        running[1].result(LIMIT_S)
    with pytest.raises(ProbeError, match=r"the peer closed|ECONNRESET"):
        running[0].result(LIMIT_S)


def test_what_a_transport_cannot_do_is_unsupported(duo: Duo) -> None:
    duo.connect()
    with pytest.raises(UnsupportedError, match="TCP has no write"):
        duo.both(wire.PrepareCase("x", tcp_case(op="write")))


def test_a_stranger_on_the_data_port_is_hung_up_on(duo: Duo) -> None:
    """Only who knows the link's token gets a stream; the right peer still does."""
    import socket

    opened = duo.both(
        *(
            wire.OpenLink(
                link="x",
                endpoint=endpoint,
                role=role,
                engine="hotloop",
                parameters=LinkParameters(qps=1, buffer_bytes=4096),
            )
            for endpoint, role in zip(duo.endpoints, ROLES, strict=True)
        )
    )
    first, second = (answer.address for answer in opened)
    assert first.tcp_port == 0, "the initiator listens nowhere"
    with socket.create_connection((second.tcp_address, second.tcp_port), timeout=5) as stranger:
        stranger.sendall(b"x" * 33)
        assert stranger.recv(1) == b""
    duo.both(wire.ConnectLink("x", second), wire.ConnectLink("x", first))
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((second.tcp_address, second.tcp_port), timeout=5)


def test_an_unknown_link_is_an_error_and_closing_it_is_none(duo: Duo) -> None:
    with pytest.raises(DeviceError, match="link is not open"):
        duo.agents[0].ask(wire.RunCase("nowhere"), deadline_s=LIMIT_S)
    assert duo.agents[0].ask(wire.CloseLink("nowhere"), deadline_s=LIMIT_S) == wire.Done()


def test_a_run_without_a_prepared_case_is_an_error(duo: Duo) -> None:
    duo.connect()
    with pytest.raises(ProtocolError, match="no case is prepared"):
        duo.both(wire.RunCase("x"))


def test_the_facts_name_python_clock_and_memlock(duo: Duo) -> None:
    facts = duo.facts[0]
    assert facts.python.startswith("3.")
    assert facts.clock in ("tsc", "cntvct", "monotonic_raw")
    assert facts.clock_cost_ns > 0
    assert facts.cpu_count == os.cpu_count()


@pytest.mark.parametrize("how", ["end of input", "signal", "bye"])
def test_the_worker_ends_itself_and_leaves_nothing(duo: Duo, how: str) -> None:
    duo.connect()
    duo.both(wire.PrepareCase("x", tcp_case(iterations=10_000_000)))
    for agent in duo.agents:
        agent.send(wire.RunCase("x"))
    process = duo.processes[0]
    assert len(scratch_of(process)) == 1
    if how == "end of input":
        process._process.stdin.close()
    elif how == "signal":
        os.kill(process.pid, signal.SIGTERM)
    else:
        assert duo.agents[0].ask(wire.Bye(), deadline_s=LIMIT_S) == wire.Done()
    assert eventually(lambda: process.exit_status is not None)
    assert scratch_of(process) == []


def test_a_silent_controller_is_given_up(tmp_path: Path) -> None:
    agent, process = start_worker(tmp_path / "a", host="a")
    agent._closing.set()  # no heartbeats from here on
    hello = wire.Hello(host="a", silence_limit_s=0.4, env={})
    agent.ask(hello, deadline_s=LIMIT_S)
    assert eventually(lambda: process.exit_status is not None)
    assert "nothing heard for" in (tmp_path / "a" / "a.log").read_text()
    assert scratch_of(process) == []
    agent.close()


def test_what_a_killed_worker_left_is_removed_by_the_next(tmp_path: Path) -> None:
    agent, process = start_worker(tmp_path / "a", host="a")
    agent.hello({}, deadline_s=LIMIT_S)
    process.kill()
    assert eventually(lambda: process.exit_status is not None)
    assert len(scratch_of(process)) == 1
    again, second = start_worker(tmp_path / "b", host="b")
    again.hello({}, deadline_s=LIMIT_S)
    assert scratch_of(process) == []
    assert len(scratch_of(second)) == 1
    again.close()
    agent.close()


def test_garbage_on_the_control_stream_ends_the_worker_with_its_reason(tmp_path: Path) -> None:
    agent, process = start_worker(tmp_path / "a", host="a")
    agent.hello({}, deadline_s=LIMIT_S)
    process.write(b"\x1e{this is no JSON\n")
    assert eventually(lambda: process.exit_status is not None)
    assert process.exit_status == 1
    assert "not a message of rdmabench" in (tmp_path / "a" / "a.log").read_text()
    with pytest.raises(HostError):
        agent.ask(wire.Bye(), deadline_s=LIMIT_S)
    agent.close()


def test_a_worker_that_does_not_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = LocalProcess(
        ["/bin/sh", "-c", "echo python3: not found >&2; exit 127"], env={}, stderr=log
    )
    agent = Agent(process, host="n7", log=log)
    with pytest.raises(
        WorkerLostError, match=r"n7: the worker did not start \(status 127\).*not found"
    ):
        agent.hello({}, deadline_s=LIMIT_S)
    agent.close()
