"""The report as one HTML file that needs nothing else: no network, no server, no second file.

Everything from a run is text: jinja2 escapes it, the pictures' JSON cannot end its script element,
and the page's content security policy lets only the two scripts run whose hashes it names, and
nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from rdmabench import __version__
from rdmabench.report.blocks import Document, Note, Table, VerdictRow
from rdmabench.report.chart import Figure, to_json
from rdmabench.report.document import document
from rdmabench.report.safe import clean
from rdmabench.report.view import ReportRun

__all__ = ["VerdictRow", "render"]


def render(
    runs: Sequence[ReportRun], *, verdicts: Sequence[VerdictRow] = (), made_at: str = ""
) -> str:
    """The whole file. Without `verdicts` there is no section of them.

    Raises:
        InputError: no run.
    """
    return page(document(runs, verdicts), made_at=made_at)


def page(report: Document, *, made_at: str = "") -> str:
    """A document as HTML."""
    draw = _source("draw.js")
    plotly = plotly_source() if report.figures else ""
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            figures_json=to_json([_drawn(number, each) for number, each in _numbered(report)]),
            numbers={figure.name: number for number, figure in _numbered(report)},
            plotly=plotly,
            draw=draw,
            style=_source("report.css"),
            policy=policy(plotly, draw),
            version=__version__,
            made_at=made_at,
        )
    )


def policy(*scripts: str) -> str:
    """A content security policy: these scripts may run, and nothing may be fetched."""
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts if script)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@cache
def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def plotly_source() -> str:
    """plotly.js as it came; the page is UTF-8 and so is its hash."""
    return str(get_plotlyjs()).replace("\r\n", "\n")


def _numbered(report: Document) -> list[tuple[int, Figure]]:
    return list(enumerate(report.figures))


def _drawn(number: int, figure: Figure) -> dict[str, Any]:
    facts = asdict(figure)
    return {"id": f"figure-{number}", "traces": facts["traces"], "layout": facts["layout"]}


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rdmabench.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clean"] = clean
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["note"] = lambda block: isinstance(block, Note)
    environment.tests["figure"] = lambda block: isinstance(block, Figure)
    return environment


@cache
def _source(name: str) -> str:
    """One of our own scripts or style sheets, with Unix line ends."""
    loader = _environment().loader
    if loader is None:
        raise LookupError(name)
    return loader.get_source(_environment(), name)[0]
