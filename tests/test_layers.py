"""The import order of the design is held by import-linter's contracts in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINT = Path(sys.executable).with_name("lint-imports")


def test_rooms_import_only_downwards() -> None:
    done = subprocess.run(
        [str(LINT), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_each_outside_library_has_one_door() -> None:
    """What the contracts cannot say: the very modules that may name a library."""
    doors = {
        "paramiko": {"orchestrator/ssh.py"},
        "pyverbs": {
            "worker/verbs.py",
            "worker/pointers.py",
            "worker/engine_pyverbs.py",
            "worker/facts.py",
        },
        "yaml": {
            "orchestrator/plan.py",
            "orchestrator/inventory.py",
            "lab/access.py",
            "analysis/ruleset.py",
            "analysis/learn.py",
            "analysis/reference.py",
        },
    }
    package = ROOT / "rdmabench"
    for library, allowed in doors.items():
        users = {
            str(path.relative_to(package))
            for path in package.rglob("*.py")
            if any(
                line.strip().startswith((f"import {library}", f"from {library}"))
                for line in path.read_text().splitlines()
            )
        }
        assert users <= allowed, library
