"""Playbooks that need hardware, against programs that keep their settings in files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.playbooks.conftest import PLAYBOOK, PLAYBOOKS, Ansible

_LOCAL = ("-c", "local", "-e", "ansible_user=root", "-e", "ansible_python_interpreter=python3")
_MLNX = """#!/bin/sh
state={state}
[ "$3" = --trust ] && echo "$4" > $state/trust
[ "$3" = --pfc ] && echo "$4" > $state/pfc
echo "Priority trust state: $(cat $state/trust)"
echo "PFC configuration:"
printf '\\tpriority    0   1   2   3   4   5   6   7\\n'
printf '\\tenabled     %s   \\n' "$(sed 's/,/   /g' $state/pfc)"
"""
_DCB = """#!/bin/sh
state={state}
case "$1 $2" in
    "pfc set")
        shift 5
        : > $state/on
        for i; do case $i in ?:on) echo "$i" >> $state/on ;; esac; done ;;
    "pfc show") printf 'prio-pfc'; for i in 0 1 2 3 4 5 6 7; do
        grep -q "$i:on" $state/on && printf ' %s:on' $i || printf ' %s:off' $i; done; echo ;;
    "apptrust set") echo "$6" > $state/trust ;;
    "apptrust show") echo "order $(cat $state/trust)" ;;
    "app replace") echo "$6" > $state/app ;;
    "app show") echo "dscp-prio $(cat $state/app)" ;;
esac
"""
_ETHTOOL = """#!/bin/sh
state={state}
[ "$1" = -A ] && echo off > $state/pause
printf 'Pause parameters:\\nRX:\\t\\t%s\\nTX:\\t\\t%s\\n' $(cat $state/pause) $(cat $state/pause)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory of programs, and the state of a NIC as it comes: nothing set."""
    state = tmp_path / "state"
    state.mkdir()
    for name, text in {
        "trust": "pcp",
        "pfc": "0,0,0,0,0,0,0,0",
        "on": "",
        "app": "",
        "pause": "on",
    }.items():
        (state / name).write_text(text)
    for role in ("roce_np", "roce_rp"):
        enable = tmp_path / "sys/class/net/eth9/ecn" / role / "enable"
        enable.mkdir(parents=True)
        (enable / "3").write_text("0")
    (tmp_path / "bin").mkdir()
    return tmp_path


def put(programs: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = programs / "bin" / name
        path.write_text(text.replace("{state}", str(programs / "state")))
        path.chmod(0o755)


@pytest.mark.parametrize("tool", ["mlnx_qos", "dcb"])
def test_roce_qos_sets_what_is_missing_and_then_nothing(
    programs: Path, ansible: Ansible, tool: str
) -> None:
    text = {"mlnx_qos": _MLNX, "dcb": _DCB}[tool]
    put(programs, ethtool=_ETHTOOL, **{tool: text})
    if tool == "dcb":
        put(programs, mlnx_qos="#!/bin/sh\nexit 127\n")
    path = f"{programs / 'bin'}:{os.environ['PATH']}"
    args = (*_LOCAL, "-e", f"rdma_sys={programs / 'sys'}", "-e", '{"rdma_netdevs": ["eth9"]}')

    def play(*more: str) -> int:
        played = ansible.play(PLAYBOOKS / "roce_qos.yml", "here,", *args, *more, PATH=path)
        assert played.status == 0, played.text
        return played.changed["here"]

    if tool == "mlnx_qos":
        play("--check")
        assert (programs / "state/trust").read_text() == "pcp", "a check changes nothing"
    assert play() == 1
    assert (programs / "state/trust").read_text().strip() == "dscp"
    assert (programs / "state/pause").read_text().strip() == "off"
    if tool == "dcb":
        assert (programs / "state/on").read_text().split() == ["3:on"]
        assert (programs / "state/app").read_text().strip() == "26:3"
    else:
        assert (programs / "state/pfc").read_text().strip() == "0,0,0,1,0,0,0,0"
    for role in ("roce_np", "roce_rp"):
        enable = programs / "sys/class/net/eth9/ecn" / role / "enable/3"
        assert enable.read_text().strip() == "1"
    assert play() == 0


def test_gpudirect_changes_nothing_where_there_is_no_gpu(ansible: Ansible) -> None:
    if Path("/sys/module/nvidia").exists():
        pytest.skip("this machine has GPUs of its own")
    played = ansible.play(PLAYBOOKS / "gpudirect.yml", "here,", *_LOCAL)
    assert (played.status, played.changed) == (0, {"here": 0})


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_every_playbook_is_one(path: Path) -> None:
    done = subprocess.run(
        [PLAYBOOK, "--syntax-check", "-i", "here,", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted((PLAYBOOKS / "files").glob("*.sh")), ids=lambda p: p.stem)
def test_every_script_is_posix_shell(path: Path) -> None:
    done = subprocess.run(["sh", "-n", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
