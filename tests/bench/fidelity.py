"""How near our numbers are to perftest's: both on the same endpoints, in turn, round by round.

Three beds: the loopback verbs provider of tests/loopback (native speed: a microsecond counts);
one lab node in virtual time, whose rxe device loops back (repeats to half a per cent, one-sided
operations only); a pair of lab nodes (the real thing, and noise where QEMU emulates the CPU).

Prints a table and writes results/bench/fidelity.json. `python -m tests.bench.fidelity [ROUNDS]`
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from rdmabench import wire
from rdmabench.analysis.stats import ratio_interval
from rdmabench.lab import lab
from rdmabench.model import (
    Case,
    EndpointRef,
    Fabric,
    LinkParameters,
    Parameters,
    Role,
    SideReport,
)
from rdmabench.orchestrator import deploy, inventory
from rdmabench.orchestrator.agent import ask_both
from rdmabench.orchestrator.ssh import SshOptions
from rdmabench.units import gbit_per_s
from tests.bench.perftest import Yardstick, median
from tests.duo import Duo, samples_of
from tests.local import SYSTEM_PYTHON
from tests.loopback.build import build
from tests.native.sysfs import make_sysfs

ROUNDS = 7
LIMIT_S = 300.0
LATENCIES = [
    ("send", 2),
    ("send", 4096),
    ("write", 2),
    ("write", 4096),
    ("read", 2),
    ("read", 4096),
]
OUT = Path("results/bench/fidelity.json")


@dataclass(frozen=True)
class Row:
    """One line of the result; `lo` and `hi` bound the ratio with 95 % over the rounds."""

    what: str
    ours: float
    theirs: float
    ratio: float
    lo: float
    hi: float
    unit: str
    n: int
    where: str
    note: str = ""


class Bed(Protocol):
    """Somewhere that both instruments can measure."""

    name: str

    def tests(self) -> list[Yardstick]:
        """What can be measured here."""

    def ours(self, test: Yardstick) -> float:
        """rdmabench's value."""

    def theirs(self, test: Yardstick) -> float:
        """perftest's value."""

    def note(self, test: Yardstick) -> str:
        """What a reader of the row must know."""


def case_of(
    test: Yardstick, initiator: EndpointRef, responder: EndpointRef, engine: str = "hotloop"
) -> Case:
    parameters = Parameters(
        probe="latency" if test.kind == "lat" else "bandwidth",
        op=test.op,
        size_bytes=test.size_bytes,
        iterations=test.iterations,
        warmup=test.warmup,
        qps=test.qps,
        depth=test.depth,
        cq_moderation=test.cq_moderation,
        engine=engine,
        deadline_s=LIMIT_S,
    )
    return Case(initiator, responder, parameters)


def link_of(tests: list[Yardstick]) -> LinkParameters:
    depth = max(test.depth for test in tests)
    return LinkParameters(
        qps=max(test.qps for test in tests),
        depth=depth,
        recv_depth=2 * depth,
        buffer_bytes=max(test.qps * test.size_bytes for test in tests) + 4096,
        timeout=20,
    )


def value_of(test: Yardstick, report: SideReport, samples: list[int]) -> float:
    if test.kind == "bw":
        return gbit_per_s(report.payload_bytes, report.elapsed_ns)
    ways = 1 if test.op == "read" else 2
    return median([sample / ways for sample in samples]) / 1000


class Native:
    """Two processes on the loopback provider."""

    name = "loopback provider"

    def __init__(self, directory: Path) -> None:
        run = directory / "fabric"
        run.mkdir()
        self._env = {"LD_PRELOAD": str(build(directory)), "LOOPBACK_RUN": str(run)}
        self._root = make_sysfs(directory / "root")
        self._directory = directory
        self._port = 18600

    def tests(self) -> list[Yardstick]:
        latencies = [Yardstick(op, "lat", size, 1, 10_000, 1_000) for op, size in LATENCIES]
        streams = [
            Yardstick("write", "bw", 65536, qps, 5_000, 500, depth=128, cq_moderation=16)
            for qps in (1, 4)
        ]
        return latencies + streams

    def ours(self, test: Yardstick, engine: str = "hotloop") -> float:
        """In new processes each time, as perftest is: where memory falls is part of the noise."""
        self._port += 1
        duo = Duo(
            self._directory / f"duo{self._port}",
            wire.ListEndpoints(fabric=Fabric.ROCE),
            python=SYSTEM_PYTHON,
            env=self._env,
            root=self._root,
        )
        try:
            duo.connect(parameters=link_of([test]), engine=engine)
            first = duo.measure(case_of(test, *duo.refs, engine=engine))[0]
            return value_of(test, first, samples_of(first) if first.samples else [])
        finally:
            duo.close()

    def theirs(self, test: Yardstick) -> float:
        self._port += 1
        options = ["--use_old_post_send"]
        argv = test.argv("loop0", gid_index=1, port=self._port)
        env = {**os.environ, **self._env}
        server = subprocess.Popen(
            [*argv, *options], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return test.value(self._client([*argv, *options, "127.0.0.1"], env))
        finally:
            server.kill()
            server.wait()

    @staticmethod
    def _client(argv: list[str], env: dict[str, str]) -> str:
        """The server says nothing when it listens, so a refused connection is tried again."""
        end = time.monotonic() + 20
        while True:
            done = subprocess.run(
                argv, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            if done.returncode == 0:
                return done.stdout
            if time.monotonic() > end:
                raise RuntimeError(f"{argv}: {done.stdout}{done.stderr}")
            time.sleep(0.05)

    def note(self, test: Yardstick) -> str:
        return ""


class Lab:
    """Two lab nodes, or one node twice: there rxe loops back, and virtual time is one clock."""

    def __init__(
        self,
        directory: Path,
        inventory_file: Path,
        *,
        name: str,
        tests: list[Yardstick],
        same_node: bool,
    ) -> None:
        self.name = name
        self._tests = tests
        self._same_node = same_node
        first, second, *_ = inventory.load(str(inventory_file)) * 2
        self._nodes = []
        for number, host in enumerate((first, first if same_node else second)):
            logs = directory / f"{name}-{number}"
            logs.mkdir()
            self._nodes.append(
                deploy.bring_up(host, fabric=Fabric.RXE, options=SshOptions(), logs=logs)
            )
        self._endpoints = [node.endpoints[0] for node in self._nodes]
        self._agents = [node.agent for node in self._nodes]
        self._connect()
        self._port = 18700

    def tests(self) -> list[Yardstick]:
        return self._tests

    def _connect(self) -> None:
        roles = (Role.INITIATOR, Role.RESPONDER)
        parameters = link_of(self.tests())
        opened = self._both(
            *(
                wire.OpenLink(
                    link="x", endpoint=end, role=role, engine="hotloop", parameters=parameters
                )
                for end, role in zip(self._endpoints, roles, strict=True)
            )
        )
        first, second = (answer.address for answer in opened)
        self._both(wire.ConnectLink("x", second), wire.ConnectLink("x", first))

    def _both(self, *bodies: object) -> list[object]:
        pair = bodies if len(bodies) == 2 else (bodies[0], bodies[0])
        return ask_both(list(zip(self._agents, pair, strict=True)), deadline_s=LIMIT_S)

    def ours(self, test: Yardstick) -> float:
        refs = [EndpointRef(host=e.host, device=e.device) for e in self._endpoints]
        self._both(wire.PrepareCase("x", case_of(test, *refs)))
        self._both(wire.RunCase("x"))
        report = self._both(wire.FinishCase("x"))[0].report
        samples: list[int] = []
        if report.samples is not None:
            raw = self._nodes[0].connection.get(report.samples.path)
            self._nodes[0].connection.remove(report.samples.path)
            samples = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, len(raw), 8)]
        return value_of(test, report, samples)

    def theirs(self, test: Yardstick) -> float:
        self._port += 1
        first, second = self._endpoints
        argv = test.argv(second.device, gid_index=second.gid_index, port=self._port)
        log = Path(tempfile.mkdtemp()) / "perftest.log"
        server = self._nodes[1].connection.start(argv, stderr_log=log)
        client = test.argv(
            first.device, gid_index=first.gid_index, port=self._port, server=second.address
        )
        try:
            end = time.monotonic() + 120
            while True:
                done = self._nodes[0].connection.run(client, deadline_s=LIMIT_S)
                if done.exit_status == 0:
                    return test.value(done.stdout.decode())
                if time.monotonic() > end:
                    raise RuntimeError(f"{client}: {done.stdout!r} {done.stderr!r}")
                time.sleep(0.2)
        finally:
            server.close(grace_s=5.0)

    def note(self, test: Yardstick) -> str:
        return "" if self._same_node else "two emulated nodes: noise"

    def close(self) -> None:
        for node in self._nodes:
            node.close(clean=True)


Values = dict[str, list[float]]


def measure(bed: Bed, rounds: int) -> tuple[Values, Values]:
    """Ours and perftest's: round by round, test by test, the two in changing order."""
    ours: Values = {test.what: [] for test in bed.tests()}
    theirs: Values = {test.what: [] for test in bed.tests()}
    for number in range(rounds):
        print(f"{bed.name}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for test in bed.tests():
            order = [(ours, bed.ours), (theirs, bed.theirs)]
            for values, instrument in order if number % 2 else order[::-1]:
                values[test.what].append(instrument(test))
    return ours, theirs


def compare(bed: Bed, rounds: int) -> Iterator[Row]:
    """The ratio of medians over the rounds for each test."""
    ours, theirs = measure(bed, rounds)
    for test in bed.tests():
        mine, other = ours[test.what], theirs[test.what]
        interval = ratio_interval(other, mine)
        yield Row(
            what=test.what,
            ours=round(median(mine), 4),
            theirs=round(median(other), 4),
            ratio=round(median(mine) / median(other), 4),
            lo=round(interval.lo, 4),
            hi=round(interval.hi, 4),
            unit=test.unit,
            n=rounds,
            where=bed.name,
            note=bed.note(test),
        )


@contextmanager
def lab_inventory(*, nodes: int, icount: bool) -> Iterator[Path]:
    """A lab of its own, gone afterwards."""
    name = "fidelity"
    options = lab.LabOptions(nodes=nodes, icount=icount, name=name, deadline_s=300)
    try:
        yield lab.up(options, progress=lambda line: print(line, file=sys.stderr)).inventory
    finally:
        lab.down(name)


def on_the_lab(directory: Path, rounds: int) -> Iterator[Row]:
    """All four tests between two nodes; the one-sided ones in one node's virtual time."""
    streams = [
        Yardstick("write", "bw", 65536, qps, 100, 10, depth=32, cq_moderation=8) for qps in (1, 4)
    ]
    with lab_inventory(nodes=1, icount=True) as file:
        reads = [Yardstick("read", "lat", size, 1, 300, 30) for size in (2, 4096)]
        bed = Lab(directory, file, name="rxe, virtual time", tests=reads + streams, same_node=True)
        yield from compare(bed, rounds)
        bed.close()
    with lab_inventory(nodes=2, icount=False) as file:
        latencies = [Yardstick(op, "lat", size, 1, 300, 30) for op, size in LATENCIES]
        bed = Lab(
            directory, file, name="rxe, two nodes", tests=latencies + streams, same_node=False
        )
        yield from compare(bed, rounds)
        bed.close()


def show(rows: list[Row]) -> None:
    print(
        f"{'what':<18}{'ours':>10}{'perftest':>10} {'unit':<6}{'ratio':>7}  {'95 %':<16} n  where"
    )
    for row in rows:
        print(
            f"{row.what:<18}{row.ours:>10.3f}{row.theirs:>10.3f} {row.unit:<6}{row.ratio:>7.3f}  "
            f"{f'{row.lo:.3f}..{row.hi:.3f}':<16} {row.n}  {row.where}"
            + (f" ({row.note})" if row.note else "")
        )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        rows += compare(Native(Path(name)), rounds)
        rows += on_the_lab(Path(name), rounds)
    show(rows)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(f"wrote {OUT}", file=sys.stderr)


if __name__ == "__main__":
    main()
