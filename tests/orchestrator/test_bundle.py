from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from rdmabench.errors import SetupError
from rdmabench.orchestrator import bundle


def test_the_same_code_makes_the_same_bytes() -> None:
    assert bundle.build_zipapp() == bundle.build_zipapp()


def test_the_zipapp_holds_the_worker_and_the_vocabulary_and_no_other_room() -> None:
    names = zipfile.ZipFile(BytesIO(bundle.build_zipapp())).namelist()
    assert "__main__.py" in names
    assert "rdmabench/wire.py" in names
    assert "rdmabench/worker/main.py" in names
    others = [n for n in names if n.startswith(("rdmabench/orch", "rdmabench/coll", "rdmabench/c"))]
    assert others == []
    assert not [n for n in names if n.endswith((".c", ".so", ".pyc"))]


def test_the_worker_starts_on_a_bare_interpreter(tmp_path: Path) -> None:
    """-S hides every site-packages directory: standard library only."""
    zipapp = tmp_path / "worker.pyz"
    zipapp.write_bytes(bundle.build_zipapp())
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(zipapp)],
        input=b"",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b""), done.stderr


def test_the_loops_are_compiled_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = bundle.hotloop_path(os.uname().machine)
    stamp = first.stat().st_mtime_ns
    assert bundle.hotloop_path(os.uname().machine) == first
    assert first.stat().st_mtime_ns == stamp
    assert first.parent.stat().st_mode & 0o077 == 0


def test_a_node_of_another_architecture_names_the_compiler_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="no C compiler for riscv99 nodes") as caught:
        bundle.hotloop_path("riscv99")
    assert "gcc-riscv99-linux-gnu" in caught.value.remedy


def test_a_compiler_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("cc", "gcc", "clang"):
        fake = tmp_path / name
        fake.write_text("#!/bin/sh\necho 'infiniband/verbs.h: No such file' >&2; exit 1\n")
        fake.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SetupError, match=r"infiniband/verbs\.h: No such file") as caught:
        bundle.hotloop_path(os.uname().machine)
    assert "libibverbs-dev" in caught.value.remedy


def test_the_loops_need_no_symbol_newer_than_old_nodes_have(tmp_path: Path) -> None:
    """glibc 2.28 is RHEL 8's; the loops must load there though they were compiled elsewhere."""
    listing = subprocess.run(
        ["objdump", "-T", str(bundle.hotloop_path(os.uname().machine))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    versions = {
        tuple(int(part) for part in word.strip("()").removeprefix("GLIBC_").split("."))
        for line in listing.splitlines()
        for word in line.split()
        if word.strip("()").startswith("GLIBC_")
    }
    assert versions
    assert max(versions) <= (2, 28)


def test_the_loops_need_no_verbs_library_at_link_time() -> None:
    listing = subprocess.run(
        ["objdump", "-p", str(bundle.hotloop_path(os.uname().machine))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "libibverbs" not in listing
