"""The real thing: the public commands against two lab nodes with the kernel's soft RoCE.

One lab for all tests of this directory, with a state directory of its own; a lab that somebody
works with is neither used nor ended.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from rdmabench.collector import journal
from rdmabench.lab import lab as labs
from rdmabench.lab.lab import LabOptions
from rdmabench.model import Case, Outcome, Record

NAME = "t-fabric"
OPTIONS = LabOptions(name=NAME, memory_mib=512)
COMMAND = Path(sys.executable).with_name("rdmabench")
LIMIT_S = 150.0
_SSH_LIMIT_S = 60.0
_POLL_S = 0.02


@dataclass(frozen=True)
class Lab:
    """Two running nodes and the state directory that knows them."""

    state_home: Path
    inventory: Path
    nodes: Mapping[str, int]
    """SSH ports by name."""

    @property
    def env(self) -> dict[str, str]:
        """For a command that is to find this lab and no other."""
        own = {"XDG_STATE_HOME": str(self.state_home), "COLUMNS": "160", "NO_COLOR": "1"}
        return {k: v for k, v in os.environ.items() if not k.startswith("RDMABENCH_")} | own

    def ssh(self, node: str, command: str) -> str:
        """What a shell command on a node says; it must succeed."""
        with _environment(self.state_home):
            argv = [*labs.ssh_command(node, NAME), command]
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SSH_LIMIT_S,
        )
        assert done.returncode == 0, f"{node}: {command}: {done.stderr}"
        return done.stdout

    def put_script(self, node: str, path: str, *lines: str) -> str:
        """An executable shell script on the node; returns its path."""
        text = "\n".join(["#!/bin/sh", *lines, ""])
        self.ssh(node, f"printf %s {shlex.quote(text)} > {path} && chmod 755 {path}")
        return path

    def kill(self, node: str) -> None:
        """As if its power failed."""
        with _environment(self.state_home):
            labs.kill_node(node, NAME)

    def up(self) -> None:
        """Bring back what was killed."""
        with _environment(self.state_home):
            labs.up(OPTIONS)

    def left_behind(self, node: str) -> str:
        """Worker processes and sample files that are still on a node some seconds later."""
        command = "pgrep -af '[w]orker.pyz'; ls -A /dev/shm"
        deadline = time.monotonic() + 15
        while (found := self.ssh(node, f"{command}; true")) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def write_inventory(
        self,
        path: Path,
        *,
        changed: Mapping[str, Mapping[str, Any]] | None = None,
        added: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Path:
        """The lab's inventory with other variables; `added` hosts start as a copy of node1."""
        tree = yaml.safe_load(self.inventory.read_text(encoding="utf-8"))
        hosts = tree["rdma"]["hosts"]
        for name, variables in (added or {}).items():
            hosts[name] = {**hosts["node1"], **variables}
        for name, variables in (changed or {}).items():
            hosts[name].update(variables)
        path.write_text(yaml.safe_dump(tree, sort_keys=False, width=1000), encoding="utf-8")
        return path


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    status: int
    stdout: str
    stderr: str


@dataclass
class Running:
    """A sweep that runs."""

    process: subprocess.Popen[str]
    results: Path

    def wait_for_records(self, count: int) -> None:
        """Until the journal holds so many finished cases."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if sum(b'"type":"Record"' in line for line in self._lines()) >= count:
                return
            time.sleep(_POLL_S)
        pytest.fail(f"no {count} records; the sweep ended with {self.end()}")

    def _lines(self) -> list[bytes]:
        found = sorted(self.results.glob("*/journal.jsonl"))
        return found[-1].read_bytes().splitlines() if found else []

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> Ended:
        stdout, stderr = self.process.communicate(timeout=LIMIT_S)
        return Ended(self.process.returncode, stdout, stderr)


@dataclass
class Cli:
    """Runs `rdmabench` with results in a directory of the test."""

    lab: Lab
    results: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *args: str | Path) -> Ended:
        return self._start(args).end()

    def sweep(self, *args: str | Path, inventory: Path | None = None) -> Ended:
        return self.start_sweep(*args, inventory=inventory).end()

    def start_sweep(self, *args: str | Path, inventory: Path | None = None) -> Running:
        return self._start(("sweep", "-i", inventory or self.lab.inventory, *args))

    def _start(self, args: Sequence[str | Path]) -> Running:
        process = subprocess.Popen(
            [COMMAND, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.lab.env, "RDMABENCH_RESULTS": str(self.results)},
        )
        self.started.append(process)
        return Running(process, self.results)

    @property
    def run(self) -> Run:
        """The one run that was made."""
        (path,) = (p for p in self.results.iterdir() if p.name[0].isdigit())
        return Run(path)

    def end_all(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@dataclass(frozen=True)
class Run:
    """The directory of a run."""

    path: Path

    def events(self) -> list[Any]:
        return [envelope.body for envelope in journal.read(self.path)]

    def records(self, outcome: Outcome | None = None) -> list[Record]:
        return [
            event
            for event in self.events()
            if isinstance(event, Record) and outcome in (None, event.outcome)
        ]

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(self.path / "tables" / f"{name}.parquet")

    def planned(self) -> set[str]:
        """Ids of the cases that were to be measured."""
        return {event.id for event in self.events() if isinstance(event, Case)}


@contextmanager
def _environment(state_home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state_home))
        yield


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if missing := labs.missing_packages():
        reason = f"the lab needs {', '.join(missing)}"
        if os.environ.get("RDMABENCH_SKIP_LAB") == "1":
            pytest.skip(reason)
        pytest.fail(f"{reason} (RDMABENCH_SKIP_LAB=1 skips these tests)")
    state_home = tmp_path_factory.mktemp("state")
    with _environment(state_home):
        try:
            status = labs.up(OPTIONS, progress=print)
            ports = {node.name: node.ssh_port for node in status.nodes}
            yield Lab(state_home, status.inventory, ports)
        finally:
            labs.down(NAME)


@pytest.fixture
def cli(lab: Lab, tmp_path: Path) -> Iterator[Cli]:
    runner = Cli(lab, tmp_path / "results")
    yield runner
    runner.end_all()


MakePlan = Callable[..., Path]

_SMALL: tuple[dict[str, Any], ...] = (
    {
        "probe": "latency",
        "op": ["send", "write", "read"],
        "sizes": [64],
        "iterations": 40,
        "warmup": 4,
    },
    {
        "probe": "bandwidth",
        "op": ["write", "send"],
        "sizes": ["4K"],
        "depth": 16,
        "cq_moderation": 4,
        "iterations": 64,
        "warmup": 8,
    },
)


def write_plan(
    path: Path,
    *measurements: Mapping[str, Any],
    repeats: int = 1,
    link: Mapping[str, Any] | None = None,
) -> Path:
    """A plan file; without measurements, three latencies and two bandwidths."""
    document = {
        "name": "small",
        "repeats": repeats,
        "link": dict(link or {}),
        "measurements": [dict(each) for each in measurements or _SMALL],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture
def plan(tmp_path: Path) -> MakePlan:
    """Writes a plan file for this test."""

    def make(*measurements: Mapping[str, Any], **options: Any) -> Path:
        return write_plan(tmp_path / "small.yml", *measurements, **options)

    return make
