"""The lab as it boots: real nodes with soft RoCE, in a state directory of their own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from rdmabench.errors import LabError
from rdmabench.lab import image, lab, paths, processes, state
from rdmabench.lab.lab import LabOptions, LabStatus

pytestmark = pytest.mark.lab

_NAME = "t-lab"
_OPTIONS = LabOptions(name=_NAME, memory_mib=512)
_COUNTERS = "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"


@contextmanager
def _state_home(directory: Path) -> Iterator[None]:
    if missing := lab.missing_packages():
        pytest.skip(f"the lab needs {', '.join(missing)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(directory))
        yield


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabStatus]:
    with _state_home(tmp_path_factory.mktemp("state")):
        image.ensure(print)
        try:
            yield lab.up(_OPTIONS)
        finally:
            lab.down(_NAME)


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[None]:
    with _state_home(tmp_path):
        image.ensure(print)
        yield
        lab.down("t-own")


def _ssh(node: str, command: str, *, timeout_s: float = 60) -> str:
    answer = subprocess.run(
        [*lab.ssh_command(node, _NAME), command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert answer.returncode == 0, f"{node}: {command}: {answer.stderr}"
    return answer.stdout


def _token(name: str) -> str:
    known = state.load(paths.lab_directory(name))
    assert known is not None
    return known.token


def test_both_nodes_answer_with_an_active_rxe_device_of_mtu_4096(booted: LabStatus) -> None:
    assert [node.name for node in booted.nodes] == ["node1", "node2"]
    for node in booted.nodes:
        text = _ssh(node.name, "hostname; ulimit -l; ibv_devinfo -d rxe0; command -v modprobe")
        assert text.startswith(f"{node.name}\nunlimited\n")
        assert "PORT_ACTIVE" in text
        assert "active_mtu:\t\t4096" in text
        assert text.endswith("sbin/modprobe\n")


def test_the_inventory_alone_is_enough_to_reach_a_node(booted: LabStatus) -> None:
    inventory = yaml.safe_load(booted.inventory.read_text(encoding="utf-8"))
    variables = inventory["rdma"]["hosts"]["node2"]
    command = [
        *("ssh", *shlex.split(variables["ansible_ssh_common_args"])),
        *("-i", variables["ansible_ssh_private_key_file"]),
        *("-p", str(variables["ansible_port"])),
        f"{variables['ansible_user']}@{variables['ansible_host']}",
        f"{variables['ansible_python_interpreter']} -c 'import pyverbs.device as d;"
        "print(d.get_device_list()[0].name.decode())'",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout == "rxe0\n"


def test_traffic_between_the_nodes_moves_the_devices_counters(booted: LabStatus) -> None:
    before = int(_ssh("node1", _COUNTERS))
    # 18515, 0x4853, is where the responder waits for its peer.
    pingpong = "timeout 50 ibv_rc_pingpong -d rxe0 -g 1 -n 50"
    responder = subprocess.Popen(
        [*lab.ssh_command("node1", _NAME), pingpong],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with responder:
        listening = "until grep -q ':4853 .* 0A ' /proc/net/tcp*; do usleep 50000; done"
        _ssh("node1", f"timeout 30 busybox sh -c {shlex.quote(listening)}")
        assert "50 iters" in _ssh("node2", f"{pingpong} 10.77.0.1")
    assert responder.returncode == 0
    assert int(_ssh("node1", _COUNTERS)) > before


def test_a_second_up_returns_the_running_lab_and_other_options_are_refused(
    booted: LabStatus,
) -> None:
    begun = time.monotonic()
    assert lab.up(_OPTIONS) == booted
    assert time.monotonic() - begun < 2
    with pytest.raises(LabError, match="lab down --name t-lab"):
        lab.up(LabOptions(name=_NAME, memory_mib=512, nodes=3))


def test_up_brings_back_a_killed_node_and_leaves_the_other_alone(booted: LabStatus) -> None:
    lab.kill_node("node2", _NAME)
    present = lab.status(_NAME)
    assert present is not None
    assert [node.running for node in present.nodes] == [True, False]
    with pytest.raises(LabError, match="not running"):
        lab.kill_node("node2", _NAME)
    first, second = lab.up(_OPTIONS).nodes
    assert (first.pid, first.running) == (booted.nodes[0].pid, True)
    assert second.pid != booted.nodes[1].pid
    assert second.ssh_port == booted.nodes[1].ssh_port
    _ssh("node1", "busybox ping -c 1 -W 10 node2 && ssh node2 hostname")


def test_down_ends_exactly_what_up_started(booted: LabStatus, own_home: None) -> None:
    lab.up(LabOptions(name="t-own", nodes=1, memory_mib=512))
    token, directory = _token("t-own"), paths.lab_directory("t-own")
    assert len(processes.find(token)) == 2
    assert sorted(lab.down("t-own")) == ["node1", "switch"]
    assert processes.find(token) == ()
    assert not directory.exists()
    assert not state.sockets_directory(token).exists()
    other = state.load(booted.directory)
    assert other is not None
    assert len(processes.find(other.token)) == 3
    assert lab.down("t-own") == ()
    assert lab.status("t-own") is None


def test_down_ends_what_a_killed_up_left_behind(own_home: None) -> None:
    code = (
        "from rdmabench.lab import lab; lab.up(lab.LabOptions(name='t-own', memory_mib=512),"
        " progress=lambda line: print(line, flush=True))"
    )
    source = str(Path(lab.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    ) as crashing:
        assert crashing.stdout is not None
        assert any(line.startswith("booting") for line in crashing.stdout)
        deadline = time.monotonic() + 20
        while len(processes.find(_token("t-own"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        crashing.send_signal(signal.SIGKILL)
    token = _token("t-own")
    left = lab.down("t-own")
    assert "switch" in left
    assert len(left) >= 2
    time.sleep(0.5)
    assert processes.find(token) == ()


def test_an_up_that_is_too_slow_shows_the_serial_log_and_leaves_nothing(
    own_home: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "new_token", lambda: "5105105105105100aaaabbbbccccdddd")
    with pytest.raises(
        LabError, match=r"node1: not ready after 0 s; last lines of .*node1\.serial"
    ):
        lab.up(LabOptions(name="t-own", nodes=1, memory_mib=512, accel="tcg", deadline_s=0.3))
    assert processes.find("5105105105105100aaaabbbbccccdddd") == ()
    assert lab.status("t-own") is None
