"""Rules of function: evidence, coverage, sound values, counters, and nothing that stands out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pandas as pd

from rdmabench.analysis.context import DEFINITE, Context, measured, probe_of
from rdmabench.analysis.errorcounters import matching
from rdmabench.analysis.keys import WORST_FIRST
from rdmabench.analysis.ruleset import Rule
from rdmabench.analysis.verdict import FAIL, INCONCLUSIVE, NOT_TESTED, PASS, Row, limit_text, row
from rdmabench.collector.schema import METRICS
from rdmabench.collector.tables import NOT_REACHED, Tables
from rdmabench.model import Evidence, Outcome

_ALL_CASES, _OF_CASES = "all cases", "of cases"


def evidence(rule: Rule, context: Context) -> Iterator[Row]:
    """By pair and measurement: proved, or which of its cases is not."""
    verdicts = {
        Evidence.PROVED.value: PASS,
        Evidence.FALLBACK.value: FAIL,
        Evidence.ABSENT.value: NOT_TESTED,
    }
    remarks = {
        Evidence.FALLBACK.value: "fallback: the bytes did not go over the asked-for fabric",
        Evidence.ABSENT.value: "absent: no counter proves the path",
    }
    for each in context.subjects.to_dict("records"):
        known = each["measured"] and not math.isnan(each["proof"])
        found = WORST_FIRST[int(each["proof"])] if known else ""
        yield row(
            rule,
            subject=each["pair"],
            measurement=each["what"],
            verdict=verdicts.get(found, NOT_TESTED),
            limit=Evidence.PROVED.value,
            n=int(each["measured"]),
            remark=remarks.get(found, "" if found else "not measured"),
            rank=float(each["proof"]) if known else 9.0,
        )


def coverage(rule: Rule, context: Context) -> Iterator[Row]:
    """Every planned case, every node and port, and that the run came to its end."""
    tables = context.tables
    cases = tables.cases.assign(outcome=tables.cases["outcome"].astype("str"))
    yield _ended(rule, tables)
    odd = (cases["outcome"] != Outcome.MEASURED.value) | (cases["attempts"] > 1)
    plain = cases[~cases["pair"].isin(cases.loc[odd, "pair"])]
    for pair, count in plain["pair"].astype("str").value_counts(sort=False).items():
        yield row(
            rule,
            subject=str(pair),
            verdict=PASS,
            value=1.0,
            n=int(count),
            limit=_ALL_CASES,
            unit=_OF_CASES,
            rank=1.0,
        )
    remarkable = cases[cases["pair"].isin(cases.loc[odd, "pair"])]
    for pair, group in remarkable.groupby("pair", observed=True, sort=False):
        yield _pair_coverage(rule, str(pair), group)
    measured = cases[cases["outcome"] == Outcome.MEASURED.value]
    met = set(measured["initiator_host"].astype("str")) | set(
        measured["responder_host"].astype("str")
    )
    known = {*tables.nodes["host"].astype("str"), *tables.endpoints["host"].astype("str")}
    for host in sorted(known - met):
        yield row(rule, subject=host, verdict=NOT_TESTED, remark="no case of this node is measured")
    ends = {
        (str(first), str(second))
        for side in ("initiator", "responder")
        for first, second in measured[[f"{side}_host", f"{side}_device"]]
        .drop_duplicates()
        .to_numpy()
    }
    for end in tables.endpoints[["host", "device"]].astype("str").to_numpy().tolist():
        if (end[0], end[1]) not in ends and end[0] in met:
            label = f"{end[0]}/{end[1]}"
            yield row(rule, subject=label, verdict=NOT_TESTED, remark="no case of it is measured")


def _ended(rule: Rule, tables: Tables) -> Row:
    ends = tables.events[tables.events["type"] == "RunEnded"]
    starts = tables.events[tables.events["type"] == "RunStarted"]
    text = str(ends["text"].iloc[-1]) if len(ends) else ""
    last = len(ends) > 0 and (starts.empty or ends.index[-1] > starts.index[-1])
    done = last and text.startswith("done")
    remark = "" if done else (text if last else "the run has not come to its end")
    return row(
        rule, subject="run", verdict=PASS if done else NOT_TESTED, limit="done", remark=remark
    )


def _pair_coverage(rule: Rule, pair: str, group: pd.DataFrame) -> Row:
    counts = group["outcome"].value_counts()
    failed = int(counts.get(Outcome.FAILED.value, 0))
    fine = int(counts.get(Outcome.MEASURED.value, 0))
    unsupported = int(counts.get(Outcome.UNSUPPORTED.value, 0))
    if rule.allow_unsupported:
        fine += unsupported
    missing = len(group) - fine
    verdict = FAIL if failed else (NOT_TESTED if missing else PASS)
    other = group[group["outcome"] != Outcome.MEASURED.value]
    reasons = [text for text in other["reason"].astype("str") if text]
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if name != "measured")
    again = int((group["attempts"] > 1).sum())
    remark = f"{said}: {reasons[0]}" if reasons else said
    if not remark and again:
        remark = f"{again} cases took more than one attempt"
    unreached = int(counts.get(NOT_REACHED, 0))
    return row(
        rule,
        subject=pair,
        verdict=verdict,
        value=fine / len(group),
        n=len(group),
        limit=_ALL_CASES,
        unit=_OF_CASES,
        remark=" ".join(remark.split()),
        rank=fine / len(group) - unreached / len(group),
    )


def plausible(rule: Rule, context: Context) -> Iterator[Row]:
    """Each pair and measurement has all of its values, in their unit, and none is impossible."""
    table = context.tables.measurements
    present = set(table["metric"].dropna().astype("str"))
    wanted = {"latency": ("lat_p50",), "bandwidth": ("bw",)}
    for probe, least in wanted.items():
        rows = context.subjects[context.subjects["probe"] == probe]
        others = [m for m in METRICS if m in present and probe_of(m) == probe and m not in least]
        defects = pd.Series("", index=rows.index, dtype=object)
        for metric in (*least, *others):
            found = measured(replace(rule, metric=metric), context)
            found = found[found.index.isin(rows.index)]
            # a quantile that so few samples cannot support is absent, and that is right
            wrong = (
                found["defect"]
                if metric in least
                else found["defect"].where(~found["defect"].isin(DEFINITE), "")
            )
            named = wrong.map(lambda text, m=metric: f"{m}: {text}" if text else "")
            defects = defects.where(defects != "", named.reindex(defects.index).fillna(""))
        for each, defect in zip(rows.to_dict("records"), defects, strict=True):
            verdict = PASS
            if defect:
                verdict = DEFINITE.get(str(defect).split(": ", 1)[1], FAIL)
            yield row(
                rule,
                subject=each["pair"],
                measurement=each["what"],
                verdict=verdict,
                n=int(each["measured"]),
                limit="sound values",
                remark=str(defect),
            )


def counter(rule: Rule, context: Context) -> Iterator[Row]:
    """Per port: how far the named counters moved in all cases that count."""
    tables = context.tables
    ports = tables.endpoints[["host", "device", "driver"]].astype("str").drop_duplicates()
    deltas = _counted_deltas(tables)
    by_port = {
        (str(host), str(device)): group
        for (host, device), group in deltas.groupby(["host", "device"], observed=True)
    }
    for host, device, driver in ports.itertuples(index=False, name=None):
        patterns = patterns_of(rule.counters, driver)
        subject = f"{host}/{device}"
        group = by_port.get((host, device))
        names = matching(map(str, group["counter"].unique()), patterns) if group is not None else ()
        if not patterns or group is None or not names:
            why = "its counters were not read" if patterns else f"no names for driver {driver!r}"
            yield row(rule, subject=subject, verdict=NOT_TESTED, limit=limit_text(rule), remark=why)
            continue
        yield _counter_row(rule, subject, group[group["counter"].isin(names)])


def _counted_deltas(tables: Tables) -> pd.DataFrame:
    """Deltas by port and counter, of the last attempt at each case."""
    counters = tables.counters
    last = counters.groupby("case", observed=True)["attempt"].transform("max")
    return counters[counters["attempt"] == last]


def patterns_of(counters: Mapping[str, Iterable[str]], driver: str) -> tuple[str, ...]:
    """The names of a rule that are of a port's driver."""
    return tuple(
        name
        for key, names in counters.items()
        if key == "any" or driver.startswith(key)
        for name in names
    )


def _counter_row(rule: Rule, subject: str, mine: pd.DataFrame) -> Row:
    sums = mine.groupby("counter", observed=True)["delta"].sum()
    total = int(sums.clip(lower=0).sum())
    most = rule.high or 0.0
    backwards = bool((mine["delta"] < 0).any())
    moved = sums[sums != 0].sort_values(ascending=False)
    said = ", ".join(f"{name} {delta:+d}" for name, delta in moved.head(4).items())
    verdict = FAIL if total > most else (INCONCLUSIVE if backwards else PASS)
    if backwards:
        said = f"a counter went backwards: {said}"
    return row(
        rule,
        subject=subject,
        verdict=verdict,
        value=float(total),
        n=len(mine),
        limit=limit_text(rule),
        remark=said,
        rank=-float(total),
    )


def suspects(rule: Rule, context: Context) -> Iterator[Row]:
    """One row per suspect; one for the fleet where nothing stands out."""
    result = context.suspects
    for each in result.found:
        times = "" if math.isnan(each.times_slower) else f" {each.times_slower:.2f} times"
        yield row(
            rule,
            subject=each.subject,
            measurement=each.measurement,
            verdict=FAIL,
            value=each.times_slower,
            unit="times slower",
            n=len(each.pairs),
            limit="like the fleet",
            remark=f"{each.kind} {each.symptom}{times}",
            rank=-each.times_slower if math.isfinite(each.times_slower) else -1e9,
        )
    if not result.answered and rule.required:
        yield row(rule, subject="fleet", verdict=NOT_TESTED, remark=result.reason)
    elif result.answered and not result.found:
        yield row(rule, subject="fleet", verdict=PASS, limit="like the fleet")
