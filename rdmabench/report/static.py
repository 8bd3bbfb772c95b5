"""Pictures as files of their own, drawn by the same plotly.js in a headless Chromium.

plotly's own exporter fetches a browser; this uses the one that is installed, and says so where
there is none.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Sequence
from pathlib import Path

from rdmabench.collector.files import make_directory, replace_atomically
from rdmabench.errors import InputError, SetupError
from rdmabench.report.chart import Figure, plain, to_json
from rdmabench.report.html import plotly_source, policy

FORMATS = ("svg", "png")
WIDTH_PX = 900
DEADLINE_S = 90.0
_BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_QUIET = (
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-dev-shm-usage",
)
_DRAW = """"use strict";
var figure = JSON.parse(document.getElementById("figure").textContent);
Plotly.toImage({data: figure.traces, layout: figure.layout}, figure.options).then(function (url) {
  document.getElementById("image").textContent = url;
}, function (error) {
  document.getElementById("image").textContent = "error: " + error;
});
"""
_IMAGE = re.compile(r'<pre id="image">(?P<url>[^<]*)</pre>')


def browser() -> str:
    """The browser that draws.

    Raises:
        SetupError: none is installed.
    """
    for name in _BROWSERS:
        if found := shutil.which(name):
            return found
    raise SetupError(
        "pictures as files are drawn by Chromium, which is not installed",
        remedy="apt install chromium, or the HTML report, which needs none",
    )


def quiet_flags() -> tuple[str, ...]:
    """How it is started; its sandbox cannot start as root, and the page runs our scripts only."""
    return (*_QUIET, "--no-sandbox") if os.geteuid() == 0 else _QUIET


def write(figures: Sequence[Figure], directory: Path, fmt: str) -> tuple[Path, ...]:
    """One file per picture, named by it; says which.

    Raises:
        InputError: an unknown format.
        SetupError: no browser, or it did not draw.
        StorageError: a file cannot be written.
    """
    if fmt not in FORMATS:
        raise InputError(f"unknown picture format {fmt!r}", remedy=", ".join(FORMATS))
    program = browser()
    make_directory(directory)
    paths = []
    for figure in figures:
        path = directory / f"{_file_name(figure.name)}.{fmt}"
        replace_atomically(path, image(figure, fmt, program=program))
        paths.append(path)
    return tuple(paths)


def image(figure: Figure, fmt: str, *, program: str) -> bytes:
    """The picture with its title and note.

    Raises:
        SetupError: the browser did not draw it.
    """
    with tempfile.TemporaryDirectory(prefix="rdmabench-figure-") as scratch:
        page = Path(scratch) / "figure.html"
        page.write_text(_page(figure, fmt), encoding="utf-8")
        command = [
            program,
            *quiet_flags(),
            f"--user-data-dir={scratch}/profile",
            "--virtual-time-budget=20000",
            "--dump-dom",
            page.as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise SetupError(f"{program} did not draw {figure.name}: {exc}") from exc
    return _decoded(done.stdout.decode(errors="replace"), figure, program)


def _decoded(dom: str, figure: Figure, program: str) -> bytes:
    found = _IMAGE.search(dom)
    kind, _, data = (found["url"] if found else "").partition(",")
    try:
        if kind.startswith("data:image/svg+xml"):
            return urllib.parse.unquote_to_bytes(data.replace("&amp;", "&"))
        if kind == "data:image/png;base64":
            return base64.b64decode(data, validate=True)
    except binascii.Error:
        pass
    raise SetupError(f"{program} did not draw {figure.name}: {kind[:200] or 'no picture'}")


def _page(figure: Figure, fmt: str) -> str:
    """A page that draws one picture into its own text."""
    lines = _wrapped(figure.note).count("<br>") + 1
    head = 88 + 16 * lines
    layout = {
        **figure.layout,
        "margin": {**figure.layout["margin"], "t": head},
        "title": {
            "text": f"{plain(figure.title, longest=100)}<br><sub>{_wrapped(figure.note)}</sub>",
            "x": 0.01,
            "xanchor": "left",
            "yref": "container",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 28},
            "font": {"size": 16},
        },
    }
    scale = 2 if fmt == "png" else 1
    size = {"format": fmt, "width": WIDTH_PX, "height": figure.height + head, "scale": scale}
    facts = to_json({"traces": list(figure.traces), "layout": layout, "options": size})
    plotly = plotly_source()
    return (
        '<!doctype html><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(plotly, _DRAW)}">'
        f'<script type="application/json" id="figure">{facts}</script>'
        f'<pre id="image"></pre><script>{plotly}</script><script>{_DRAW}</script>'
    )


def _wrapped(text: str, width: int = 135) -> str:
    lines, line = [], ""
    for word in plain(text, longest=600).split(" "):
        if line and len(line) + len(word) >= width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "<br>".join([*lines, line])


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "figure"
