"""Two or more runs side by side, as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from rdmabench.analysis.compare import BETTER, CANNOT_TELL, NO_DIFFERENCE, WORSE, Comparison
from rdmabench.analysis.stats import MIN_REPEATS
from rdmabench.model import Evidence
from rdmabench.report.formats import qps_fields, texts
from rdmabench.report.layout import Adaptive, Field, line, table
from rdmabench.units import size_text

_ROWS_NAMED = 3


def comparison(result: Comparison) -> RenderableType:
    """A table for each run against the first, then what they were made under, and what is left."""
    return Adaptive(lambda width: _comparison_parts(result, width))


def _comparison_parts(result: Comparison, width: int) -> Iterator[RenderableType]:
    for other in result.others:
        rows = result.rows[result.rows["run"] == other]
        first, this = _side_names(result.conditions, other)
        yield line(f"{other} ({this}) against {result.base} ({first})", "bold")
        if rows.empty:
            yield line("Nothing in these two runs can be compared.")
        else:
            yield table(_comparison_fields(rows, first, this), width)
        yield Text()
        yield from _condition_lines(result.conditions, other, first, this)
        yield from _leftover_lines(result.not_compared, other)
        yield Text()
    yield from _comparison_notes(result.rows)


def _side_names(conditions: pd.DataFrame, other: str) -> tuple[str, str]:
    """What to call the two runs: by their fabrics, where these differ."""
    fabrics = conditions[(conditions["run"] == other) & (conditions["condition"] == "fabric")]
    for row in fabrics.to_dict("records"):
        return str(row["base_value"]), str(row["run_value"])
    return "first", "this"


def _comparison_fields(rows: pd.DataFrame, first: str, this: str) -> list[Field]:
    several = rows["hosts"].nunique() > 1
    pairs = Field("pair", list(rows["hosts"]), right=False, elastic=True)
    return [
        Field("op", list(rows["op"]), right=False),
        Field("size", [size_text(size) for size in rows["size_bytes"]]),
        *qps_fields(rows),
        *([pairs] if several else []),
        Field("metric", list(rows["metric"]), right=False),
        Field(first, _marked(rows, "base")),
        Field(this, _marked(rows, "run")),
        Field("ratio", [_ratio_text(value) for value in rows["ratio"]]),
        Field("95 %", _ratio_intervals(rows), drop=1),
        Field("verdict", list(rows["verdict"]), right=False, style=_verdict_style),
        Field("n", [_repeats(row) for row in rows.to_dict("records")], drop=3),
    ]


def _marked(rows: pd.DataFrame, side: str) -> list[str]:
    """The medians; one whose evidence is not `proved` has a star."""
    proved = rows[f"{side}_evidence"] == Evidence.PROVED.value
    return [
        text if good else f"{text}*"
        for text, good in zip(texts(rows, f"{side}_median"), proved, strict=True)
    ]


def _ratio_text(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "-"


def _ratio_intervals(rows: pd.DataFrame) -> list[str]:
    ends = zip(rows["ratio_lo"], rows["ratio_hi"], strict=True)
    return [f"{lo:.3f}..{hi:.3f}" if math.isfinite(lo) else "-" for lo, hi in ends]


def _repeats(row: dict[Any, Any]) -> str:
    return f"{row['base_repeats']}/{row['run_repeats']}"


def _verdict_style(verdict: str) -> str:
    return {WORSE: "red", BETTER: "green", CANNOT_TELL: "yellow"}.get(verdict, "")


def _condition_lines(
    conditions: pd.DataFrame, other: str, first: str, this: str
) -> Iterator[RenderableType]:
    mine = conditions[(conditions["run"] == other) & (conditions["condition"] != "fabric")]
    for row in mine.to_dict("records"):
        yield line(
            f"differs: {row['condition']}: {row['base_value'] or '(none)'} ({first}), "
            f"{row['run_value'] or '(none)'} ({this})"
        )


def _leftover_lines(left: pd.DataFrame, other: str) -> Iterator[RenderableType]:
    mine = left[left["run"] == other]
    for reason, group in mine.groupby("reason", sort=False):
        names = dict.fromkeys(
            f"{row['op']} {row['probe']} {size_text(row['size_bytes'])}"
            for row in group.to_dict("records")
        )
        some = ", ".join(list(names)[:_ROWS_NAMED])
        more = ", ..." if len(names) > _ROWS_NAMED else ""
        yield line(f"not compared: {reason}: {some}{more} ({len(group)} in all)")


def _comparison_notes(rows: pd.DataFrame) -> Iterator[RenderableType]:
    verdicts = set(rows["verdict"])
    yield line("ratio is second / first, of medians over the repeats; n is their repeats.")
    if NO_DIFFERENCE in verdicts:
        yield line("no difference: the 95 % interval of the ratio spans 1, so none is shown.")
    if CANNOT_TELL in verdicts:
        yield line(f"cannot tell: fewer than {MIN_REPEATS} repeats on a side.", "yellow")
    if (rows[["base_evidence", "run_evidence"]] != Evidence.PROVED.value).any(axis=None):
        yield line("*: not every repeat has proof that it used the asked-for fabric.", "yellow")
