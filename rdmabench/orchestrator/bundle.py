"""The worker as it is pushed: one zipapp, and the timed loops built for the node's architecture."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from rdmabench.errors import SetupError

ZIPAPP = "worker.pyz"
HOTLOOP = "hotloop.so"
_MODULES = ("__init__.py", "errors.py", "units.py", "model.py", "audit.py", "wire.py")
_MAIN = "from rdmabench.worker.main import main\n\nmain()\n"
_FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wconversion", "-Wshadow")
_COMPILE_LIMIT_S = 120
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Bundle:
    """What goes to one kind of node."""

    zipapp: bytes
    hotloop: bytes

    @cached_property
    def sha256(self) -> str:
        """Over the bytes of both files, as the node verifies it before it runs them."""
        return hashlib.sha256(self.zipapp + self.hotloop).hexdigest()


@lru_cache(maxsize=8)
def build(machine: str) -> Bundle:
    """The bundle for nodes of a machine type (`uname -m`).

    Raises:
        SetupError: the timed loops cannot be compiled for it here.
    """
    return Bundle(zipapp=build_zipapp(), hotloop=hotloop_path(machine).read_bytes())


def build_zipapp() -> bytes:
    """The worker and the vocabulary as a zip; the same bytes for the same code."""
    package = resources.files("rdmabench")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(_sources(package)):
            archive.writestr(zipfile.ZipInfo(f"rdmabench/{name}", _EPOCH), source)
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
    return buffer.getvalue()


def _sources(package: Traversable) -> Iterator[tuple[str, bytes]]:
    for name in _MODULES:
        yield name, (package / name).read_bytes()
    yield from _tree(package / "worker", "worker")


def _tree(directory: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _tree(entry, f"{prefix}/{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{prefix}/{entry.name}", entry.read_bytes()


def hotloop_path(machine: str) -> Path:
    """The compiled loops for a machine type, from the cache or made now.

    Raises:
        SetupError: no compiler, no verbs headers, the compiler refused, or no place to keep it.
    """
    source = resources.files("rdmabench") / "worker" / "hotloop"
    texts = {name: (source / name).read_bytes() for name in _c_files(source)}
    digest = hashlib.sha256(b"".join(texts[name] for name in sorted(texts)))
    digest.update(" ".join((*_FLAGS, machine)).encode())
    try:
        target = _cache() / f"hotloop-{machine}-{digest.hexdigest()[:16]}.so"
        with _Locked(target.with_suffix(".lock")):
            if not target.exists():
                _compile(texts, machine, target)
    except OSError as exc:
        raise SetupError(
            f"the timed loops for {machine} cannot be kept: {exc}",
            remedy="point XDG_CACHE_HOME at a directory that can be written",
        ) from exc
    return target


def _c_files(source: Traversable) -> list[str]:
    return [entry.name for entry in source.iterdir() if entry.name.endswith((".c", ".h"))]


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = base / "rdmabench" / "hotloop"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


class _Locked:
    """Two sweeps at once build it once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._file = self._path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _compile(texts: dict[str, bytes], machine: str, target: Path) -> None:
    compiler = _compiler(machine)
    with tempfile.TemporaryDirectory(prefix="rdmabench-") as name:
        work = Path(name)
        for file, text in texts.items():
            (work / file).write_bytes(text)
        made = work / HOTLOOP
        sources = [str(work / file) for file in sorted(texts) if file.endswith(".c")]
        try:
            done = subprocess.run(
                [compiler, *_FLAGS, *sources, "-o", str(made)],
                capture_output=True,
                text=True,
                timeout=_COMPILE_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise SetupError(f"{compiler} did not end within {_COMPILE_LIMIT_S} s") from exc
        if done.returncode:
            raise SetupError(
                f"the timed loops do not compile for {machine}: {done.stderr.strip()[:600]}",
                remedy="install the verbs headers (Debian, Ubuntu: libibverbs-dev; RHEL: "
                "rdma-core-devel)",
            )
        staged = target.with_suffix(f".{os.getpid()}")
        shutil.copyfile(made, staged)
        staged.replace(target)


def _compiler(machine: str) -> str:
    native = os.uname().machine == machine
    names = ("cc", "gcc", "clang") if native else (f"{machine}-linux-gnu-gcc",)
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    package = "gcc" if native else f"gcc-{machine.replace('_', '-')}-linux-gnu"
    raise SetupError(
        f"no C compiler for {machine} nodes on this machine (looked for {', '.join(names)})",
        remedy=f"install {package}",
    )
