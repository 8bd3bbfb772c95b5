"""What changed over time, as a person reads it: changes first, then what stood still."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from rdmabench.analysis.changepoint import MIN_SIDE
from rdmabench.analysis.compare import BETTER, WORSE
from rdmabench.analysis.trend import NO_CHANGE, SMALL, TOO_FEW, Trend
from rdmabench.report.formats import qps_fields, texts
from rdmabench.report.layout import Adaptive, Field, line, table
from rdmabench.units import size_text

_ORDER = {WORSE: 0, BETTER: 1, SMALL: 2, TOO_FEW: 3, NO_CHANGE: 4}


def trend_table(found: Trend) -> RenderableType:
    """The changes, then the series without one, then how to read them."""
    return Adaptive(lambda width: _parts(found, width))


def _parts(found: Trend, width: int) -> Iterator[RenderableType]:
    changed = found.rows[found.rows["since"].notna()]
    still = found.rows[found.rows["since"].isna()]
    order = changed["verdict"].map(_ORDER)
    changed = changed.assign(order=order).sort_values(["order"], kind="stable")
    if len(changed):
        yield line("Changed", "bold")
        yield table(_changed_fields(changed), width)
        yield Text()
    for verdict, rows in still.groupby("verdict", sort=False):
        yield line(str(verdict).capitalize(), "bold")
        yield table(_still_fields(rows), width)
        yield Text()
    yield line(
        f"A change is reported from {MIN_SIDE} runs after it on. Where nothing changed, any is "
        f"seen in at most {100 * found.false_alarm:g} of 100 such reports."
    )


def _named(rows: pd.DataFrame) -> list[Field]:
    fabrics = rows[["plan", "fabric"]].drop_duplicates()
    which = [Field(n, list(rows[n]), right=False) for n in ("fabric", "plan") if len(fabrics) > 1]
    return [
        *which,
        Field("op", list(rows["op"]), right=False),
        Field("size", [size_text(size) for size in rows["size_bytes"]]),
        *qps_fields(rows),
        Field("metric", list(rows["metric"]), right=False),
    ]


def _changed_fields(rows: pd.DataFrame) -> list[Field]:
    return [
        *_named(rows),
        Field("before", texts(rows, "before"), drop=2),
        Field("after", texts(rows, "after"), drop=2),
        Field("ratio", [f"{ratio:.3f}" for ratio in rows["ratio"]]),
        Field("95 %", _intervals(rows), drop=3),
        Field("verdict", list(rows["verdict"]), right=False, style=_style),
        Field("since", list(rows["since"]), right=False),
        Field("at the earliest", list(rows["since_earliest"]), drop=5, right=False),
        Field("at the latest", list(rows["since_latest"]), drop=5, right=False),
        Field("p", [f"{p:.4f}" for p in rows["p"]], drop=4),
        Field("runs", texts(rows, "runs"), drop=6),
    ]


def _still_fields(rows: pd.DataFrame) -> list[Field]:
    return [
        *_named(rows),
        Field("level", texts(rows, "level")),
        Field("runs", texts(rows, "runs")),
        Field("pairs", texts(rows, "pairs"), drop=1),
    ]


def _intervals(rows: pd.DataFrame) -> list[str]:
    ends = zip(rows["ratio_lo"], rows["ratio_hi"], strict=True)
    return [f"{lo:.3f}..{hi:.3f}" if math.isfinite(lo) else "-" for lo, hi in ends]


def _style(verdict: str) -> str:
    return {WORSE: "red", BETTER: "green", SMALL: "yellow"}.get(verdict, "")
