"""The report as Markdown, for a pull request or a wiki: the tables and notes, without pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rdmabench.report.blocks import Block, Document, Note, Table, VerdictRow
from rdmabench.report.document import document
from rdmabench.report.safe import clean
from rdmabench.report.view import ReportRun

_SPECIAL = "\\|[]*`_#"


def render(runs: Sequence[ReportRun], *, verdicts: Sequence[VerdictRow] = ()) -> str:
    """The whole text. Without `verdicts` there is no section of them.

    Raises:
        InputError: no run.
    """
    return "\n".join(_lines(document(runs, verdicts)))


def _lines(report: Document) -> Iterator[str]:
    yield f"# {escaped(report.title)}"
    yield ""
    yield f"**{escaped(report.lead)}**"
    for section in report.sections:
        blocks = [line for block in section.blocks for line in _block(block)]
        if blocks:
            yield from ("", f"## {escaped(section.title)}", "", *blocks)
    yield ""


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Note):
        yield from (escaped(block.text), "")
    elif isinstance(block, Table):
        yield from _table(block)


def _table(block: Table) -> Iterator[str]:
    if block.caption:
        yield from (f"**{escaped(block.caption)}**", "")
    yield _row(column.heading for column in block.columns)
    yield f"| {' | '.join('---:' if column.right else '---' for column in block.columns)} |"
    for row in block.shown:
        yield _row(text for text, _, _ in row)
    if block.row_count > len(block.shown):
        yield from ("", f"The first {len(block.shown)} of {block.row_count} rows.")
    yield ""


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"


def escaped(text: str) -> str:
    """Text that is neither markup, nor HTML, nor a link, nor the end of a cell."""
    cleaned = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for char in _SPECIAL:
        cleaned = cleaned.replace(char, f"\\{char}")
    return cleaned.replace("://", ":&#8203;//").replace("@", "&#64;")
