"""The loopback provider under perftest, the ibv tools and pyverbs: bytes, errors, link model."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.native

HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"  # the one that has the distribution's pyverbs
OK = "IBV_WC_SUCCESS"
MIB = 2**20


@dataclass(frozen=True)
class Fabric:
    """One run directory and the way to start programs on it."""

    library: Path
    directory: Path

    def environment(self, **settings: object) -> dict[str, str]:
        """The environment of a program on this fabric."""
        own = {"LD_PRELOAD": str(self.library), "LOOPBACK_RUN": str(self.directory)}
        return os.environ | own | {name: str(value) for name, value in settings.items()}

    def run(self, *command: str, **settings: object) -> str:
        """Run a program to its end and return its standard output."""
        done = subprocess.run(
            command,
            env=self.environment(**settings),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pair(self, *scenario: str) -> dict:
        """What a scenario of pair.py came to."""
        return json.loads(self.run(PYTHON, str(HERE / "pair.py"), *scenario))

    def left_over(self) -> list[str]:
        """Files of the run directory other than the fabric's own."""
        return [path.name for path in self.directory.iterdir() if path.name != "fabric"]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("loopback_build", HERE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build(tmp_path_factory.mktemp("loopback"))


@pytest.fixture
def fabric(library: Path) -> Iterator[Fabric]:
    directory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield Fabric(library, directory)
    shutil.rmtree(directory)


def is_listening(port: int) -> bool:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def perftest(fabric: Fabric, tool: str, *options: str, **settings: object) -> list[float]:
    """The numbers of the client's result row."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [tool, "-d", "loop0", "-x", "1", "-F", "-p", str(port), *options]
    environment = fabric.environment(**settings)
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 20
            while not is_listening(port):
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            output = fabric.run(*command, "127.0.0.1", **settings)
            assert server.wait(20) == 0
        finally:
            server.kill()
    rows = [line.split() for line in output.splitlines()]
    return [float(number) for row in rows if row and row[0].isdigit() for number in row]


def test_the_device_looks_like_a_roce_port(fabric: Fabric) -> None:
    listed = fabric.run("ibv_devices", LOOPBACK_DEVICES=2)
    assert [line.split()[0] for line in listed.splitlines()[2:]] == ["loop0", "loop1"]
    shown = fabric.run("ibv_devinfo", "-v")
    for line in (
        "state:\t\t\tPORT_ACTIVE (4)",
        "active_mtu:\t\t4096 (5)",
        "link_layer:\t\tEthernet",
        "active_width:\t\t4X (2)",
        "active_speed:\t\t25.0 Gbps (32)",
        "GID[  1]:\t\t::ffff:198.18.0.1, RoCE v2",
    ):
        assert line in shown
    assert fabric.left_over() == []


@pytest.mark.parametrize(
    ("tool", "delays"), [("ib_send_lat", 1), ("ib_write_lat", 1), ("ib_read_lat", 2)]
)
@pytest.mark.parametrize("interface", ["--use_old_post_send", ""])
def test_latency_is_the_delay_of_the_link(
    fabric: Fabric, tool: str, delays: int, interface: str
) -> None:
    options = ["-s", "2", "-n", "200", *interface.split()]
    row = perftest(fabric, tool, *options, LOOPBACK_DELAY_NS=200_000)
    shortest_us = row[2]
    assert 200 * delays <= shortest_us < 250 * delays
    assert fabric.left_over() == []


@pytest.mark.parametrize(
    ("tool", "qps"),
    [("ib_write_bw", 1), ("ib_write_bw", 4), ("ib_send_bw", 1), ("ib_read_bw", 1)],
)
def test_bandwidth_is_the_rate_of_each_qp(fabric: Fabric, tool: str, qps: int) -> None:
    options = ["-s", "65536", "-n", "200", "-q", str(qps), "--use_old_post_send"]
    row = perftest(fabric, tool, *options, LOOPBACK_GBIT_S=1)
    rate_gbit_s = row[3] * MIB * 8 / 1e9
    assert 0.8 * qps < rate_gbit_s < 1.02 * qps


@pytest.mark.parametrize("scenario", ["data", "data-unaligned", "data-small"])
def test_every_operation_moves_the_right_bytes(fabric: Fabric, scenario: str) -> None:
    result = fabric.pair(scenario)
    assert result["statuses"] == [OK] * 5
    assert result["written"] == {"right": True}
    assert result["read"] is True
    assert result["received"]["right"] is True
    size = {"data": 65536, "data-unaligned": 12288, "data-small": 100}[scenario]
    received = result["received"]["completions"]
    assert [one["imm"] for one in received] == [None, 0x1234, 0x1234]
    assert [one["byte_len"] for one in received] == [size] * 3
    assert fabric.left_over() == []


@pytest.mark.parametrize("scenario", ["atomics", "atomics-small"])
def test_atomics_return_the_old_word_and_leave_the_new(fabric: Fabric, scenario: str) -> None:
    assert fabric.pair(scenario) == {"statuses": [OK] * 3, "old": [40, 42, 7], "new": 7}


@pytest.mark.parametrize(
    "scenario", [("refused", "rkey"), ("refused", "bounds"), ("read-only", "bounds")], ids="-".join
)
def test_a_wrong_access_is_refused_and_ends_the_connection(
    fabric: Fabric, scenario: tuple[str, str]
) -> None:
    result = fabric.pair(*scenario)
    assert result["status"] == "IBV_WC_REM_ACCESS_ERR"
    assert result["next"] == "IBV_WC_WR_FLUSH_ERR"
    assert result["state"] == 6  # IBV_QPS_ERR


def test_a_killed_peer_is_an_error_completion_and_its_files_are_swept(fabric: Fabric) -> None:
    result = fabric.pair("killed")
    assert result == {"before": OK, "after": "IBV_WC_RETRY_EXC_ERR"}
    fabric.pair("atomics")
    assert fabric.left_over() == []


def test_a_send_waits_for_its_receive(fabric: Fabric) -> None:
    assert fabric.pair("late") == {"early": 0, "status": OK}


def test_a_send_that_may_not_wait_gives_up(fabric: Fabric) -> None:
    assert fabric.pair("never")["status"] == "IBV_WC_RNR_RETRY_EXC_ERR"


def test_a_receive_that_is_too_short_fails_both_ends(fabric: Fabric) -> None:
    result = fabric.pair("short")
    assert result == {"status": "IBV_WC_REM_INV_REQ_ERR", "responder": "IBV_WC_LOC_LEN_ERR"}


def test_writes_show_in_memory_though_neither_side_polls(fabric: Fabric) -> None:
    assert fabric.pair("memory") == {"seen": [10, 21]}


def test_a_completion_channel_becomes_readable(fabric: Fabric) -> None:
    assert fabric.pair("events") == {"early": 0, "woken": 1, "status": OK}


def test_the_extended_interfaces_work(fabric: Fabric) -> None:
    assert fabric.pair("extended") == {"statuses": [OK, OK], "read": True}
