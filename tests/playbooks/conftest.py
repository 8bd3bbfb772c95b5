"""A lab of its own for preflight and the playbooks: its nodes are broken and mended."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from rdmabench.commands import preflight as command
from rdmabench.lab import lab as labs
from rdmabench.lab.lab import LabOptions

NAME = "t-preflight"
OPTIONS = LabOptions(name=NAME, memory_mib=512)
PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
LIMIT_S = 120.0
_RECAP = re.compile(
    r"^(?P<host>\S+)\s+: ok=\d+\s+changed=(?P<changed>\d+)\s+unreachable=(?P<gone>\d+)\s+"
    r"failed=(?P<failed>\d+)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Played:
    """How a playbook ended: its changes by host."""

    status: int
    changed: dict[str, int]
    text: str


@dataclass(frozen=True)
class Ansible:
    """Runs playbooks with settings of its own."""

    sockets: Path

    def play(self, playbook: Path, inventory: str | Path, *args: str, **env: str) -> Played:
        """Run one; it must reach every host and fail on none."""
        settings = {
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.sockets),
            "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=15s",
        }
        done = subprocess.run(
            [PLAYBOOK, "-i", str(inventory), playbook, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env={**os.environ, **settings, **env},
        )
        text = done.stdout + done.stderr
        recap = list(_RECAP.finditer(done.stdout))
        assert recap, text
        assert all(m["gone"] == m["failed"] == "0" for m in recap), text
        return Played(done.returncode, {m["host"]: int(m["changed"]) for m in recap}, text)


@pytest.fixture(scope="session")
def ansible() -> Iterator[Ansible]:
    # a short path: that of a socket has at most 108 bytes
    directory = Path(tempfile.mkdtemp(prefix="cp-"))
    yield Ansible(directory)
    shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class Nodes:
    """Two running nodes."""

    state_home: Path
    inventory: Path

    def ssh(self, node: str, text: str) -> str:
        """What a shell command on a node says; it must succeed."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(self.state_home))
            argv = [*labs.ssh_command(node, NAME), text]
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{node}: {text}: {done.stderr}"
        return done.stdout

    def with_pythons(self, path: Path, pythons: Mapping[str, str]) -> Path:
        """The inventory with other interpreters."""
        tree = yaml.safe_load(self.inventory.read_text(encoding="utf-8"))
        for name, python in pythons.items():
            tree["rdma"]["hosts"][name]["ansible_python_interpreter"] = python
        path.write_text(yaml.safe_dump(tree, sort_keys=False, width=1000), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    if missing := labs.missing_packages():
        reason = f"the lab needs {', '.join(missing)}"
        if os.environ.get("RDMABENCH_SKIP_LAB") == "1":
            pytest.skip(reason)
        pytest.fail(f"{reason} (RDMABENCH_SKIP_LAB=1 skips these tests)")
    state_home = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state_home))
        try:
            status = labs.up(OPTIONS, progress=print)
            yield Nodes(state_home, status.inventory)
        finally:
            labs.down(NAME)


@dataclass(frozen=True)
class Found:
    """What a preflight said."""

    status: int
    document: dict[str, Any]

    def of(self, host: str) -> dict[str, dict[str, Any]]:
        """A host's findings by id."""
        return {f["id"]: f for f in self.document["findings"] if f["host"] == host}


def preflight(inventory: Path) -> Found:
    """`rdmabench preflight --fabric rxe`."""
    app = typer.Typer()
    command.register(app)
    args = ["--fabric", "rxe", "-i", str(inventory), "--format", "json"]
    ended = CliRunner().invoke(app, args, catch_exceptions=False)
    return Found(ended.exit_code, json.loads(ended.stdout))
