"""The section that sets runs side by side: over all pairs, and the pairs that stand out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from rdmabench.analysis.compare import WORSE
from rdmabench.analysis.overall import Overall, compare_overall
from rdmabench.errors import InputError
from rdmabench.model import Evidence
from rdmabench.report.blocks import DOUBT, Block, Column, Note, Table
from rdmabench.report.columns import both, question, span, toned
from rdmabench.report.formats import texts
from rdmabench.report.view import ReportRun
from rdmabench.units import size_text

_NAMED = 3
_PAIRS_NAMED = 10


def comparison_blocks(runs: Sequence[ReportRun]) -> Iterator[Block]:
    if len(runs) < 2:
        return
    try:
        overall = compare_overall([run.tables for run in runs])
    except InputError as exc:
        yield Note(f"These runs cannot be compared: {exc.what}.", DOUBT)
        return
    base = runs[0]
    yield Note(
        f"The base is {base.label} ({base.name}). A ratio is that of medians, run / base, over "
        f"{_pairs_text(overall)}, with its 95 % interval over the repeats; where the interval "
        "spans 1 there is no difference to show."
    )
    for run in runs[1:]:
        rows = overall.rows[overall.rows["run"] == run.name]
        if len(rows):
            yield _comparison_table(base, run, rows, several=len(overall.pairs) > 1)
        yield from _pair_table(base, run, overall)
        yield from _condition_notes(base, run, overall)


def _pairs_text(overall: Overall) -> str:
    count = len(overall.pairs)
    if count == 1:
        return f"the pair {overall.pairs[0]}"
    return f"the {count:,} pairs that every run has" if count else "no common pair"


def _comparison_table(
    base: ReportRun, run: ReportRun, rows: pd.DataFrame, *, several: bool
) -> Table:
    columns = [
        *question(rows),
        Column("metric", list(rows["metric"]), right=False),
        Column(base.label, _starred(rows, "base")),
        Column(run.label, _starred(rows, "run")),
        Column("ratio", [_ratio(value) for value in rows["ratio"]]),
        Column("95 %", span(rows["ratio_lo"], rows["ratio_hi"], _ratio)),
        toned("verdict", list(rows["verdict"])),
        Column("n", both(rows["base_repeats"], rows["run_repeats"])),
    ]
    if several:
        counts = [str(text) for text in rows["pair_verdicts"].fillna("-")]
        columns.append(Column("pairs by themselves", counts, right=False))
    return Table(f"{run.label} against {base.label}", tuple(columns))


def _starred(rows: pd.DataFrame, side: str) -> list[str]:
    proved = rows[f"{side}_evidence"] == Evidence.PROVED.value
    values = zip(texts(rows, f"{side}_median"), proved, strict=True)
    return [text if good else f"{text}*" for text, good in values]


def _ratio(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "-"


def _pair_table(base: ReportRun, run: ReportRun, overall: Overall) -> Iterator[Block]:
    """Where single pairs stand out for the worse, the most first."""
    rows = overall.by_pair.rows
    rows = rows[(rows["run"] == run.name) & (rows["verdict"] == WORSE)]
    if rows["hosts"].nunique() < 2 or rows.empty:
        return
    far = rows["ratio"].map(lambda ratio: abs(math.log(ratio)) if ratio > 0 else math.inf)
    worst = rows.loc[far.sort_values(ascending=False, kind="stable").head(_PAIRS_NAMED).index]
    yield Table(
        f"Pairs that are worse in {run.label} than in {base.label}: the {len(worst)} farthest of "
        f"{len(rows):,} rows",
        (
            Column("pair", list(worst["hosts"]), right=False),
            *question(worst),
            Column("metric", list(worst["metric"]), right=False),
            Column("ratio", [_ratio(value) for value in worst["ratio"]]),
            Column("95 %", span(worst["ratio_lo"], worst["ratio_hi"], _ratio)),
        ),
        folded=True,
    )


def _condition_notes(base: ReportRun, run: ReportRun, overall: Overall) -> Iterator[Block]:
    conditions = overall.by_pair.conditions
    rows = conditions[conditions["run"] == run.name]
    if len(rows):
        yield Table(
            f"Made under other conditions: {base.label} and {run.label}",
            (
                Column("condition", list(rows["condition"]), right=False),
                Column(base.label, [text or "(none)" for text in rows["base_value"]], right=False),
                Column(run.label, [text or "(none)" for text in rows["run_value"]], right=False),
            ),
            folded=True,
        )
    left = overall.by_pair.not_compared
    for reason, group in left[left["run"] == run.name].groupby("reason", sort=False):
        what = [f"{r['op']} {r['probe']} {size_text(r['size_bytes'])}" for r in _dicts(group)]
        named = list(dict.fromkeys(what))
        more = ", ..." if len(named) > _NAMED else ""
        some = ", ".join(named[:_NAMED])
        yield Note(f"Not compared ({reason}): {some}{more}; {len(group):,} rows.")


def _dicts(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
