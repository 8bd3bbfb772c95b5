"""A headless Chromium that says what a page did: console messages, requests, its text."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rdmabench.report.static import browser, quiet_flags


@dataclass(frozen=True)
class Visit:
    dom: str
    console: tuple[str, ...]
    requests: tuple[str, ...]


def visit(page: Path, *, width: int = 1280) -> Visit:
    """Opens the page; `requests` are those that the page itself made over a network."""
    with tempfile.TemporaryDirectory(prefix="rdmabench-browser-") as scratch:
        net_log = Path(scratch) / "net.json"
        done = subprocess.run(
            [
                browser(),
                *quiet_flags(),
                "--enable-logging=stderr",
                f"--log-net-log={net_log}",
                f"--user-data-dir={scratch}/profile",
                f"--window-size={width},2000",
                "--virtual-time-budget=20000",
                "--dump-dom",
                page.as_uri(),
            ],
            capture_output=True,
            timeout=90,
            check=True,
        )
        events = _events(net_log.read_text())
    said = done.stderr.decode(errors="replace").splitlines()
    return Visit(
        dom=done.stdout.decode(),
        console=tuple(each for each in said if "CONSOLE" in each),
        requests=tuple(
            url
            for event in events
            for parameters in [event.get("params") or {}]
            for url in [str(parameters.get("url", ""))]
            if url.startswith(("http", "ws")) and parameters.get("initiator") != "not an origin"
            if "initiator" in parameters
        ),
    )


def _events(text: str) -> list[dict[str, dict[str, str]]]:
    """The events of a net log, which a browser that ends quickly leaves without its end."""
    _, _, rest = text.partition('"events": [')
    lines = (each.strip().rstrip(",") for each in rest.splitlines())
    return [json.loads(each) for each in lines if each.startswith("{") and each.endswith("}")]
