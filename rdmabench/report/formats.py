"""A table as text of the format that was asked for: table, json, csv or md."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd

from rdmabench.errors import InputError
from rdmabench.report.layout import PLAIN_WIDTH, Adaptive, Field, table, to_text
from rdmabench.report.safe import clean

FORMATS = ("table", "json", "csv", "md")


def render(frame: pd.DataFrame, fmt: str, *, width: int = PLAIN_WIDTH, color: bool = False) -> str:
    """The frame as text that ends in a line feed; units are in its column names.

    `json` is a list of objects in ASCII, with null where there is no value. `width` and `color`
    are of `table` only.

    Raises:
        InputError: an unknown format.
    """
    makers = {"json": _json, "csv": _csv, "md": _markdown}
    if fmt == "table":
        return to_text(frame_table(frame), width=width, color=color)
    if fmt not in makers:
        raise InputError(f"unknown format {fmt!r}", remedy=", ".join(FORMATS))
    return makers[fmt](frame)


def frame_table(frame: pd.DataFrame) -> Adaptive:
    """Any frame as a terminal table; its last columns are dropped first where it is too wide."""
    fields = [
        Field(
            heading=str(name),
            cells=texts(frame, str(name)),
            drop=place,
            right=pd.api.types.is_numeric_dtype(frame[name]),
        )
        for place, name in enumerate(frame.columns)
    ]
    return Adaptive(lambda width: [table(fields, width)])


def number_text(value: Any) -> str:
    """A value for people: three or four digits that matter, `-` for none."""
    if pd.isna(value):
        return "-"
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    if not math.isfinite(size) or size == 0:
        return f"{value:g}"
    for least, digits in ((1000, 0), (100, 1), (1, 2)):
        if size >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.{min(9, 2 - math.floor(math.log10(size)))}f}"


def texts(rows: pd.DataFrame, name: str) -> list[str]:
    """A column for people."""
    return [number_text(value) for value in rows[name]]


def qps_fields(rows: pd.DataFrame) -> list[Field]:
    """The queue pairs, where some row has more than one."""
    return [Field("QPs", texts(rows, "qps"))] if (rows["qps"] != 1).any() else []


def _json(frame: pd.DataFrame) -> str:
    finite = frame.replace([math.inf, -math.inf], math.nan)
    plain = finite.astype(object).where(finite.notna(), None)
    return json.dumps(plain.to_dict("records"), indent=2, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    """What JSON has no type for: times, and numpy's numbers."""
    return value.isoformat() if hasattr(value, "isoformat") else value.item()


def _csv(frame: pd.DataFrame) -> str:
    return _cleaned(frame).to_csv(index=False, lineterminator="\n")


def _cleaned(frame: pd.DataFrame) -> pd.DataFrame:
    texts = frame.select_dtypes(["object", "str", "category"]).columns
    changed: dict[str, Any] = {
        str(name): frame[name].astype(object).map(clean, na_action="ignore") for name in texts
    }
    return frame.assign(**changed)


def _markdown(frame: pd.DataFrame) -> str:
    headings = [_markdown_cell(name) for name in frame.columns]
    right = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns]
    rows = [
        [_markdown_cell(number_text(value)) for value in row]
        for row in frame.itertuples(index=False, name=None)
    ]
    rules = ["---:" if each else "---" for each in right]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headings, rules, *rows))


def _markdown_cell(value: object) -> str:
    """Text that neither ends the cell nor is read as HTML or a link."""
    text = clean(value)
    for char in "\\|[]*`":
        text = text.replace(char, f"\\{char}")
    return text.replace("<", "&lt;").replace(">", "&gt;")
