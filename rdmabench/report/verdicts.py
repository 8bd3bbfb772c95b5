"""Suspects and verdicts, as a person reads them: what failed first, and why one may believe it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from rdmabench.analysis.acceptance import FAIL, INCONCLUSIVE, NOT_TESTED, PASS, Acceptance
from rdmabench.analysis.selftest import GREEN, NO_GATE, RED, SelfTest
from rdmabench.analysis.suspects import SLOW, Suspect, Suspects
from rdmabench.report.formats import number_text, texts
from rdmabench.report.layout import Adaptive, Field, line, table

_STYLES = {FAIL: "bold red", INCONCLUSIVE: "yellow", NOT_TESTED: "yellow", PASS: "green"}
_PLAIN = ("", "limit missed")  # the verdict says as much
_ROWS_SHOWN = 40
_ROWS_OF_A_RULE = 8
_PAIRS_SHOWN = 4
_REMARKS_SHOWN = 8
_LEAST_SUBJECT = 14


# ---- suspects ----


def suspects_view(result: Suspects) -> RenderableType:
    """The suspects, each with its evidence, then how finely this run could see."""
    return Adaptive(lambda width: _suspect_parts(result, width))


def _suspect_parts(result: Suspects, width: int) -> Iterator[RenderableType]:
    yield line(_suspects_heading(result), "bold")
    if result.found:
        yield Text()
        yield table(_suspect_fields(result.frame(), width), width)
        for each in result.found:
            yield from _evidence_lines(each)
    for note in result.notes:
        yield line(f"note: {note}", "yellow")
    if not result.answered:
        yield line(f"This run cannot tell: {result.reason}.", "yellow")
        return
    yield Text()
    yield table(_sight_fields(result.measurements), width)
    yield line(
        "noise: of a pair's value between repeats and pairs. seen from: how much slower one link "
        "must be to be found in 99 of 100 runs."
    )
    yield line(
        f"At most {100 * result.false_alarm_rate:g} in 100 healthy fleets of such size has "
        "anything called slow here."
    )


def _suspects_heading(result: Suspects) -> str:
    count = len(result.found)
    if not count:
        clean = "nothing stands out" if result.answered else "no answer"
        return f"{result.run}: {clean}"
    return f"{result.run}: {count} suspect{'s' if count > 1 else ''}"


def _suspect_fields(frame: pd.DataFrame, width: int) -> list[Field]:
    times = ["-" if math.isnan(v) else f"{v:.2f}x" for v in frame["times_slower"]]
    fields = [
        Field("kind", list(frame["kind"]), right=False),
        Field("subject", list(frame["subject"]), right=False),
        Field("symptom", list(frame["symptom"]), right=False, style=lambda _cell: "bold red"),
        Field("slower", times),
        Field("measurement", list(frame["measurement"]), drop=1, right=False),
        Field("value", texts(frame, "value"), drop=2),
        Field("fleet", texts(frame, "fleet_median"), drop=3),
        Field("unit", list(frame["unit"]), drop=2, right=False),
        Field("z", ["-" if math.isnan(v) else f"{v:.1f}" for v in frame["z"]], drop=4),
        Field("pairs", [str(count) for count in frame["pairs"]], drop=5),
    ]
    return _subject_cut(fields, width)


def _subject_cut(fields: list[Field], width: int) -> list[Field]:
    """The fields with the subject as long as the needed others leave room for."""
    needed = (field for field in fields if field.heading != "subject" and field.drop < 2)
    left = max(_LEAST_SUBJECT, width - sum(field.width + 2 for field in needed) - 2)
    return [
        replace(field, cells=[_cut(text, left) for text in field.cells])
        if field.heading == "subject"
        else field
        for field in fields
    ]


def _evidence_lines(suspect: Suspect) -> Iterator[RenderableType]:
    yield Text()
    yield line(f"{suspect.kind} {suspect.subject}: {suspect.symptom}")
    if suspect.symptom == SLOW:
        for pair in suspect.pairs[:_PAIRS_SHOWN]:
            yield line(
                f"    {pair.pair}  {number_text(pair.value)} {suspect.unit}, "
                f"{pair.ratio:.2f} of the fleet's median"
            )
    else:
        for pair in suspect.pairs[:_PAIRS_SHOWN]:
            yield line(f"    {pair.pair}")
    more = len(suspect.pairs) - _PAIRS_SHOWN
    if more > 0:
        yield line(f"    and {more} more pairs")
    if suspect.also:
        some = ", ".join(suspect.also[:_PAIRS_SHOWN])
        yield line(f"    also in: {some}{', ...' if len(suspect.also) > _PAIRS_SHOWN else ''}")
    for moved in suspect.counters:
        yield line(f"    counter: {moved}", "yellow")
    if suspect.failed_cases or suspect.fallback_cases:
        yield line(
            f"    {suspect.failed_cases} failed cases, {suspect.fallback_cases} on another path",
            "yellow",
        )
    if suspect.note:
        yield line(f"    {suspect.note}")


def _sight_fields(frame: pd.DataFrame) -> list[Field]:
    return [
        Field("measurement", list(frame["measurement"]), right=False),
        Field("pairs", texts(frame, "pairs")),
        Field("repeats", texts(frame, "repeats"), drop=2),
        Field("fleet median", texts(frame, "fleet_median"), drop=1),
        Field("unit", list(frame["unit"]), drop=1, right=False),
        Field("noise %", texts(frame, "noise_pct")),
        Field("seen from %", texts(frame, "smallest_link_pct")),
    ]


def suspects_json(result: Suspects) -> str:
    """Everything of a result, with null for what there is not."""
    document = {
        "run": result.run,
        "answered": result.answered,
        "reason": result.reason,
        "false_alarm_rate": result.false_alarm_rate,
        "suspects": [asdict(each) for each in result.found],
        "notes": list(result.notes),
        "measurements": result.measurements.to_dict("records"),
        "retest_pairs": result.retest_pairs,
    }
    return _json(document)


# ---- acceptance ----


def acceptance_view(result: Acceptance) -> RenderableType:
    """What did not pass, with number, limit and where the limit comes from; then a line a rule."""
    return Adaptive(lambda width: _acceptance_parts(result, width))


def _acceptance_parts(result: Acceptance, width: int) -> Iterator[RenderableType]:
    counts = ", ".join(f"{result.count(v)} {v}" for v in _STYLES if result.count(v))
    yield line(f"{result.verdict}: {result.run}, rules {result.rules}", _STYLES[result.verdict])
    yield line(f"{counts or 'nothing was judged'}" + _against(result))
    for note in result.notes:
        yield line(note[:1].upper() + note[1:] + ".", "yellow")
    bad = result.rows[result.rows["verdict"] != PASS]
    if not bad.empty:
        yield Text()
        shown = bad.groupby("rule", sort=False).head(_ROWS_OF_A_RULE).head(_ROWS_SHOWN)
        yield table(_verdict_fields(shown, width), width)
        if len(bad) > len(shown):
            yield line(f"and {len(bad) - len(shown)} more; `--format csv` has all of them")
        yield from _sources(bad)
    yield Text()
    yield table(_rule_fields(result), width)
    yield from _remarks(result)
    for name, reason in result.not_applied:
        yield line(f"not applied: {name}: {reason}")


def _against(result: Acceptance) -> str:
    return f"; baseline {result.baseline}" if result.baseline else ""


def _verdict_fields(rows: pd.DataFrame, width: int) -> list[Field]:
    """The subject has what the others leave of the line; the reason is below, rule by rule."""
    fields = [
        Field("verdict", list(rows["verdict"]), right=False, style=lambda c: _STYLES.get(c, "")),
        Field("rule", list(rows["rule"]), right=False),
        Field("subject", list(rows["subject"]), right=False),
        Field("measurement", list(rows["measurement"]), drop=1, right=False),
        Field("value", texts(rows, "value")),
        Field("95 %", _interval_texts(rows), drop=4),
        Field("limit", list(rows["limit"]), right=False),
        Field("unit", list(rows["unit"]), drop=2, right=False),
        Field("n", texts(rows, "n"), drop=5),
    ]
    return _subject_cut(fields, width)


def _cut(text: str, width: int) -> str:
    """The end of a long name, which tells it from its like."""
    return text if len(text) <= width else "…" + text[-(width - 1) :]


def _interval_texts(rows: pd.DataFrame) -> list[str]:
    ends = zip(rows["lo"], rows["hi"], strict=True)
    return [
        f"{number_text(lo)}..{number_text(hi)}" if math.isfinite(lo) else "-" for lo, hi in ends
    ]


def _sources(bad: pd.DataFrame) -> Iterator[RenderableType]:
    for rule, group in bad.groupby("rule", sort=False):
        yield line(f"{rule}: {group['source'].iloc[0]}")
        reasons = [text for text in dict.fromkeys(group["remark"]) if text not in _PLAIN]
        for reason in reasons[:_REMARKS_SHOWN]:
            yield line(f"    {reason}")


def _rule_fields(result: Acceptance) -> list[Field]:
    columns: dict[str, list[str]] = {name: [] for name in ("rule", "verdict", "least", "limit")}
    counts: dict[str, list[str]] = {verdict: [] for verdict in _STYLES}
    for rule, group in result.rows.groupby("rule", sort=False):
        first = group.iloc[0]
        columns["rule"].append(str(rule))
        columns["verdict"].append(str(first["verdict"]))
        columns["least"].append(number_text(float(first["value"])))
        columns["limit"].append(f"{first['limit']} {first['unit']}".strip())
        for verdict, found in counts.items():
            count = int((group["verdict"] == verdict).sum())
            found.append(str(count) if count else "-")
    return [
        Field("rule", columns["rule"], right=False),
        Field("verdict", columns["verdict"], right=False, style=lambda c: _STYLES.get(c, "")),
        Field("worst", columns["least"], drop=1),
        Field("limit", columns["limit"], drop=2, right=False),
        *(Field(verdict, cells, drop=3) for verdict, cells in counts.items()),
    ]


def _remarks(result: Acceptance) -> Iterator[RenderableType]:
    rows = result.rows
    warned = rows[(rows["verdict"] == PASS) & rows["remark"].astype("str").ne("")]
    for row in warned.head(_REMARKS_SHOWN).to_dict("records"):
        where = f"{row['subject']} {row['measurement']}".strip()
        yield line(f"{row['rule']}: {where}: {row['remark']}", "yellow")
    if len(warned) > _REMARKS_SHOWN:
        yield line(f"and {len(warned) - _REMARKS_SHOWN} more remarks")


def acceptance_json(result: Acceptance) -> str:
    """Everything of a result, with null for what there is not."""
    document = {
        "run": result.run,
        "fabric": result.fabric,
        "verdict": result.verdict,
        "rules": result.rules,
        "rules_file": result.origin,
        "baseline": result.baseline or None,
        "counts": {verdict: result.count(verdict) for verdict in _STYLES},
        "rows": result.rows.to_dict("records"),
        "not_applied": [{"rule": rule, "reason": why} for rule, why in result.not_applied],
        "notes": list(result.notes),
    }
    return _json(document)


# ---- the self-test ----


def selftest_view(result: SelfTest) -> RenderableType:
    """Every fault and what it turned red."""
    return Adaptive(lambda width: _selftest_parts(result, width))


def _selftest_parts(result: SelfTest, width: int) -> Iterator[RenderableType]:
    frame = result.frame()
    styles = {RED: "green", GREEN: "bold red", NO_GATE: "yellow"}
    yield table(
        [
            Field("planted", list(frame["fault"]), right=False),
            Field("gates", list(frame["result"]), right=False, style=lambda c: styles.get(c, "")),
            Field("went red", list(frame["gates_red"]), right=False, elastic=True),
            Field("stayed green", list(frame["stayed_green"]), drop=1, right=False),
        ],
        width,
    )
    yield line(
        "Planted into a healthy copy of the run, in memory; limits of performance were on, "
        "whatever the rules say."
    )
    for name in result.control:
        yield line(f"{name}: the healthy copy does not pass it, so nothing is proved", "bold red")
    for name in result.untried:
        yield line(f"{name}: no fault was planted that it looks at", "yellow")
    if result.exit_code == 0:
        yield line("Every gate went red.", "green")


def selftest_json(result: SelfTest) -> str:
    """Faults, and the gates that went red."""
    return _json(
        {
            "passed": result.exit_code == 0,
            "planted": [{**asdict(each), "result": each.result} for each in result.planted],
            "healthy_copy_fails": list(result.control),
            "untried": list(result.untried),
        }
    )


def _json(document: dict[str, Any]) -> str:
    return json.dumps(_plain(document), indent=2) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
