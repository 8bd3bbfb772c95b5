from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from rdmabench import cli
from rdmabench.console import clean

BIN = Path(sys.executable).with_name("rdmabench")


def rdmabench(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN), *arguments],
        cwd=cwd,
        env={**os.environ, "XDG_STATE_HOME": str(cwd / "state"), **env},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def all_commands() -> list[tuple[str, ...]]:
    root = typer.main.get_command(cli.app)
    found = []
    for name, command in root.commands.items():
        below = getattr(command, "commands", {})
        found += [(name, sub) for sub in below] or [(name,)]
    return found


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_every_command_explains_itself_with_an_example(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    done = rdmabench(*command, "--help", cwd=tmp_path, COLUMNS="120")
    assert done.returncode == 0
    assert "Example" in done.stdout
    assert f"rdmabench {' '.join(command)}" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep"], "--fabric is missing"),
        (["sweep", "--fabric", "roce"], "-i is missing"),
        (["sweep", "--fabric", "token-ring"], "token-ring"),
        (["sweep", "--fabric", "rxe", "--plan", "quik"], "did you mean quick"),
        (["sweep", "--fabric", "tcp", "-i", "nowhere.yml"], "nowhere.yml"),
        (["sweep", "--fabric", "tcp", "-i", "only-one"], "at least two hosts"),
        (["sweep", "--fabric", "rxe", "--pairs", "star", "--dry-run"], "unknown pairs 'star'"),
        (["sweep", "--resume", "latest"], "run"),
        (["runs", "show", "nothing"], "no runs here"),
        (["compare", "a"], "a"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_wrong_use_is_one_clear_message_and_exit_2(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    done = rdmabench(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_dry_run_prints_every_measurement_and_touches_nothing(tmp_path: Path) -> None:
    done = rdmabench("sweep", "--fabric", "rxe", "--dry-run", "--format", "json", cwd=tmp_path)
    would = json.loads(done.stdout)
    assert {(r["op"], r["probe"], r["size_bytes"]) for r in would["measurements"]} >= {
        ("send", "latency", 2),
        ("write", "latency", 4096),
        ("read", "latency", 2),
        ("write", "bandwidth", 65536),
    }
    assert would["rounds"] == [[["node1/?", "node2/?"]]]
    assert (would["cases"], would["repeats"]) == (27, 3)
    assert "27 cases in all (3 repeats)" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_many_hosts_counts_rounds_and_time(tmp_path: Path) -> None:
    done = rdmabench(
        *("sweep", "--fabric", "ib", "-i", "gpu[001-128]", "--pairs", "all"),
        *("--plan", "standard", "--dry-run", "--format", "json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "128 hosts, 127 rounds" in done.stderr
    would = json.loads(done.stdout)
    assert len({tuple(pair) for pairs in would["rounds"] for pair in pairs}) == 128 * 127 // 2
    assert would["cases"] == 128 * 127 // 2 * len(would["measurements"]) * 5


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    assert rdmabench("--version", cwd=tmp_path).stdout == "rdmabench 0.1.0\n"


def test_no_runs_yet_is_not_an_error(tmp_path: Path) -> None:
    done = rdmabench("runs", "list", cwd=tmp_path)
    assert (done.returncode, "No runs yet" in done.stdout) == (0, True)
    assert json.loads(rdmabench("runs", "list", "--format", "json", cwd=tmp_path).stdout) == []


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{BIN} runs schema | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_text_from_a_node_cannot_colour_or_clear_the_screen() -> None:
    assert clean("[red]x[/] \x1b[2J") == "\\[red]x\\[/] \N{REPLACEMENT CHARACTER}\\[2J".replace(
        "\\[2J", "[2J"
    )
