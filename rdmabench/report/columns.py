"""Columns that several sections share, and the tone of a word."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from rdmabench.analysis import reference
from rdmabench.analysis.compare import BETTER, CANNOT_TELL, WORSE
from rdmabench.model import Evidence
from rdmabench.report.blocks import BAD, DOUBT, GOOD, NEUTRAL, Column
from rdmabench.report.formats import number_text, texts
from rdmabench.units import size_text

TONES = {
    "FAIL": BAD,
    "INCONCLUSIVE": DOUBT,
    "NOT TESTED": DOUBT,
    "PASS": GOOD,
    WORSE: BAD,
    BETTER: GOOD,
    CANNOT_TELL: DOUBT,
    reference.HOLDS: GOOD,
    reference.DOES_NOT: BAD,
    Evidence.FALLBACK.value: BAD,
    Evidence.ABSENT.value: DOUBT,
    Evidence.PROVED.value: GOOD,
    "error": BAD,
    "warning": DOUBT,
    "failed": BAD,
    "done": GOOD,
    "incomplete": DOUBT,
    "interrupted": DOUBT,
    "unknown": DOUBT,
}


def toned(heading: str, cells: Sequence[str]) -> Column:
    tones = [TONES.get(cell, NEUTRAL) for cell in cells]
    return Column(heading, cells, right=False, tones=tones)


def question(rows: pd.DataFrame) -> list[Column]:
    """What names a row: operation, size, queue pairs where some row has several, variant."""
    columns = [
        Column("op", list(rows["op"]), right=False),
        Column("size", [size_text(size) for size in rows["size_bytes"]]),
    ]
    if (rows["qps"] != 1).any():
        columns.append(Column("QPs", texts(rows, "qps")))
    if "variant" in rows and (rows["variant"] != "").any():
        columns.append(Column("variant", list(rows["variant"]), right=False))
    return columns


def span(los: Iterable[float], his: Iterable[float], text: object = None) -> list[str]:
    said = text if callable(text) else number_text
    pairs = zip(los, his, strict=True)
    return [f"{said(lo)} to {said(hi)}" if math.isfinite(lo) else "-" for lo, hi in pairs]


def both(first: Iterable[object], second: Iterable[object]) -> list[str]:
    return [f"{a} / {b}" for a, b in zip(first, second, strict=True)]


def tenths(values: pd.Series, digits: int = 1) -> list[str]:
    return ["-" if math.isnan(value) else f"{value:.{digits}f}" for value in values]
