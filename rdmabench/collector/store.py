"""One directory per run: its description, its journal, its samples, its logs, its tables."""

from __future__ import annotations

import difflib
import getpass
import hashlib
import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rdmabench import __version__, wire
from rdmabench.collector import journal
from rdmabench.collector.files import (
    create_exclusively,
    make_directory,
    replace_atomically,
    storing,
)
from rdmabench.errors import InputError, StorageError
from rdmabench.model import Fabric, Samples

INFO_NAME = "run.json"
PARTS = ("samples", "logs", "tables")
LATEST = "latest"
SAMPLE_KINDS = ("rtt", "completion")
_SAMPLE_BYTES = 8
_VERSIONED = ("numpy", "pandas", "pyarrow")


@dataclass(frozen=True)
class RunInfo:
    """`run.json`: what a run is, without reading its journal.

    `status` is `running`, `done`, `incomplete` or `interrupted`; only `RunDirectory.info` also
    answers `unknown`, for a directory whose description cannot be read.
    """

    run: str
    fabric: str
    plan: str
    status: str
    started_at: str = ""
    ended_at: str = ""
    user: str = ""
    control_host: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunDirectory:
    """Where one run is kept."""

    path: Path

    @classmethod
    def create(cls, results_root: Path, fabric: Fabric | None, plan: str) -> RunDirectory:
        """A new, private directory named by time (UTC), fabric (if any) and plan.

        Raises:
            StorageError: it cannot be made.
        """
        make_directory(results_root)
        started = datetime.now(UTC)
        plan_name = _slug(Path(plan).stem) or "plan"
        fabric_name = fabric.value if fabric else ""
        name = "-".join(filter(None, (f"{started:%Y%m%d-%H%M%S}", fabric_name, plan_name)))
        run = cls(_make_unique(results_root, name))
        for part in PARTS:
            make_directory(run.path / part)
        run.write_info(
            RunInfo(
                run=run.name,
                fabric=fabric_name,
                plan=plan,
                status="running",
                started_at=started.isoformat(timespec="microseconds"),
                user=_user(),
                control_host=platform.node(),
                versions=_versions(),
            )
        )
        return run

    @property
    def name(self) -> str:
        """The run's name, which is the directory's."""
        return self.path.name

    @property
    def samples(self) -> Path:
        """Compressed latency samples, one file per case."""
        return self.path / "samples"

    @property
    def logs(self) -> Path:
        """What the nodes said on stderr, one file per node."""
        return self.path / "logs"

    @property
    def tables(self) -> Path:
        """Parquet files, made from the journal and made again when it grows."""
        return self.path / "tables"

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.path / journal.JOURNAL_NAME

    def info(self) -> RunInfo:
        """The description; a run that nobody writes any more is not called `running`.

        A description that is missing or damaged hides neither this run nor the others: what the
        name says stands in for it, with status `unknown`.
        """
        try:
            plain = json.loads((self.path / INFO_NAME).read_bytes())
            info: RunInfo = wire.from_plain(RunInfo, plain)
            if info.status == "running" and not journal.is_being_written(self.path):
                info = wire.from_plain(RunInfo, {**plain, "status": "interrupted"})
        except (OSError, ValueError, TypeError):
            return RunInfo(run=self.name, fabric="", plan="", status="unknown")
        return info

    def write_info(self, info: RunInfo) -> None:
        """Replaces `run.json` in one step.

        Raises:
            StorageError: it cannot be written; the old one stands.
        """
        text = json.dumps(wire.to_plain(info), indent=2) + "\n"
        replace_atomically(self.path / INFO_NAME, text.encode())

    def set_status(self, status: str) -> None:
        """Notes how the run stands; every status but `running` also notes when it ended."""
        ended_at = "" if status == "running" else journal.now_text()
        plain = wire.to_plain(self.info()) | {"status": status, "ended_at": ended_at}
        self.write_info(wire.from_plain(RunInfo, plain))

    def keep_samples(self, raw_u64_le: bytes, name: int | str, kind: str) -> Samples:
        """Stores one case's samples, and says where and what they are, as the journal wants it.

        `name` is the case's number, or a name; samples that have that name already (an earlier
        attempt at the case) stay, and the new ones get a longer one. The hash is over the raw
        bytes.

        Raises:
            StorageError: not whole samples, or they cannot be written.
        """
        if kind not in SAMPLE_KINDS or len(raw_u64_le) % _SAMPLE_BYTES:
            raise StorageError(
                f"samples of case {name}: {len(raw_u64_le)} bytes of kind {kind!r} are not whole "
                f"u64 numbers of kind {' or '.join(SAMPLE_KINDS)}"
            )
        stem = f"{name:06d}" if isinstance(name, int) else (_slug(name) or "case")
        path = self._store_new(stem, _compress(raw_u64_le))
        return Samples(
            path=str(path.relative_to(self.path)),
            count=len(raw_u64_le) // _SAMPLE_BYTES,
            kind=kind,
            sha256=hashlib.sha256(raw_u64_le).hexdigest(),
        )

    def _store_new(self, stem: str, data: bytes) -> Path:
        make_directory(self.samples)
        remedy = f"free space, then `rdmabench sweep --resume {self.name}`"
        attempt = 1
        while True:
            suffix = "" if attempt == 1 else f"-{attempt}"
            path = self.samples / f"{stem}{suffix}.u64.zst"
            try:
                with storing(path, remedy=remedy):
                    create_exclusively(path, data)
            except StorageError as exc:
                if not isinstance(exc.__cause__, FileExistsError):
                    raise
                attempt += 1
            else:
                return path

    def load_samples(self, samples: Samples) -> npt.NDArray[np.uint64]:
        """The samples in nanoseconds, in the order they were taken.

        Raises:
            StorageError: the file is missing or damaged, or is not the one the journal means.
        """
        path = (self.path / samples.path).resolve()
        if not path.is_relative_to(self.path.resolve()):
            raise StorageError(f"{samples.path}: samples outside of {self.path} are not read")
        with storing(path):
            raw = _decompress(path.read_bytes())
        if len(raw) != samples.count * _SAMPLE_BYTES:
            raise StorageError(
                f"{path}: {len(raw) // _SAMPLE_BYTES} samples, the journal says {samples.count}"
            )
        if hashlib.sha256(raw).hexdigest() != samples.sha256:
            raise StorageError(f"{path}: not the samples that were measured (SHA-256 differs)")
        return np.frombuffer(raw, dtype="<u8").astype(np.uint64, copy=False)


def list_runs(root: Path) -> tuple[RunDirectory, ...]:
    """Every run under the root, oldest first; an absent root has none.

    Raises:
        StorageError: the root cannot be read.
    """
    if not root.is_dir():
        return ()
    with storing(root):
        found = [RunDirectory(path) for path in root.iterdir() if _is_run(path)]
    return tuple(sorted(found, key=_age))


def find(results_root: Path, run: str) -> RunDirectory:
    """The run meant by a path, a name, the start of exactly one name, or `latest`.

    Raises:
        InputError: none, or more than one; close matches are named.
    """
    if _is_run(Path(run)):
        return RunDirectory(Path(run).resolve())
    runs = list_runs(results_root)
    if not runs:
        raise InputError(
            f"{results_root}: no runs here",
            remedy="make one with `rdmabench sweep`, or name the directory of a run",
        )
    if run == LATEST:
        return runs[-1]
    exact = [found for found in runs if found.name == run]
    matching = exact or [found for found in runs if run and found.name.startswith(run)]
    if len(matching) != 1:
        raise _no_single_run(results_root, run, matching, runs)
    return matching[0]


def _no_single_run(
    root: Path, run: str, matching: list[RunDirectory], runs: tuple[RunDirectory, ...]
) -> InputError:
    if matching:
        some = ", ".join(found.name for found in matching[-5:])
        more = f" and {len(matching) - 5} more" if len(matching) > 5 else ""
        return InputError(f"run {run!r} fits {len(matching)} runs: {some}{more}")
    names = [found.name for found in runs]
    close = difflib.get_close_matches(run, names, n=3, cutoff=0.4) or names[-3:]
    return InputError(
        f"no run {run!r} in {root}", remedy=", ".join(close) + ", latest, or the path of a run"
    )


def _is_run(path: Path) -> bool:
    return (path / INFO_NAME).is_file() or (path / journal.JOURNAL_NAME).is_file()


def _age(run: RunDirectory) -> tuple[str, int, str]:
    started = run.info().started_at.replace("-", "").replace(":", "").replace("T", "-")
    return (started or run.name, len(run.name), run.name)


def _make_unique(root: Path, name: str) -> Path:
    attempt = 1
    while True:
        path = root / (name if attempt == 1 else f"{name}-{attempt}")
        with storing(path):
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                attempt += 1
            else:
                return path


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:60]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        return ""


def _versions() -> dict[str, str]:
    found = {"rdmabench": __version__, "python": platform.python_version()}
    for package in _VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = ""
    return found


def _compress(raw: bytes) -> bytes:
    """One standard zstd frame, readable with `zstd -d`."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(raw)
    return bytes(sink.getvalue())


def _decompress(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())
