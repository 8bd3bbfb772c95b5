"""Which node, NIC, link, rail or direction explains slow pairs, with the evidence beside it.

`causes` finds them in one matrix; here they are sought in every measurement of a run, those of one
subject are put together, and cases that failed or took another path are traced in the same way: a
node is named only by two partners that are well with others, one pair alone points at the path.

The rate of false alarms holds for the whole run: at most 1 in 100 healthy fleets is accused of
anything slow. What could not be measured is no alarm but a fact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from rdmabench.analysis import errorcounters, retest
from rdmabench.analysis.bimodal import two_groups
from rdmabench.analysis.candidates import NIC, NODE
from rdmabench.analysis.causes import FALSE_ALARM_RATE, PROMISED_RATE, Cause, Explanation, explain
from rdmabench.analysis.failures import FAILED, traced
from rdmabench.analysis.naming import named
from rdmabench.analysis.pairs import Floats, PairMatrix, matrices
from rdmabench.collector.tables import Tables
from rdmabench.model import Evidence

SLOW = "slow"
_LEAST_PAIRS = 6
_LEAST_HOSTS = 4
_MOST_ACCUSED = 1 / 3
_COUNTERS = 6
_COLUMNS = (
    "kind",
    "subject",
    "symptom",
    "measurement",
    "value",
    "fleet_median",
    "unit",
    "times_slower",
    "z",
    "pairs",
    "worst_pair",
    "also",
    "counters",
    "fallback_cases",
    "failed_cases",
    "note",
)


@dataclass(frozen=True)
class PairValue:
    """One pair of a suspect: its value, and the value over the fleet's median."""

    pair: str
    value: float
    ratio: float


@dataclass(frozen=True)
class Suspect:
    """One thing that explains slow, failed or misled pairs.

    `kind` is node, NIC, link, rail or direction. `times_slower` and `z` are NaN where the symptom
    is not slowness; `also` lists other measurements in which it was seen.
    """

    kind: str
    subject: str
    symptom: str
    pairs: tuple[PairValue, ...]
    measurement: str = ""
    value: float = math.nan
    fleet_median: float = math.nan
    unit: str = ""
    times_slower: float = math.nan
    z: float = math.nan
    also: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    fallback_cases: int = 0
    failed_cases: int = 0
    note: str = ""


@dataclass(frozen=True)
class Suspects:
    """What a run says about who is to blame.

    `answered` is false where the run cannot tell, with `reason`; `measurements` has what each
    measurement could see at best.
    """

    run: str
    found: tuple[Suspect, ...]
    answered: bool
    reason: str
    notes: tuple[str, ...]
    measurements: pd.DataFrame
    false_alarm_rate: float = PROMISED_RATE
    retest_pairs: str = ""

    def frame(self) -> pd.DataFrame:
        """A row per suspect."""
        rows = []
        for each in self.found:
            row = {name: getattr(each, name) for name in _COLUMNS if name not in _MADE}
            row["pairs"] = len(each.pairs)
            row["worst_pair"] = each.pairs[0].pair if each.pairs else ""
            row["also"] = ", ".join(each.also)
            row["counters"] = "; ".join(each.counters)
            rows.append(row)
        return pd.DataFrame(rows, columns=list(_COLUMNS))


_MADE = ("pairs", "worst_pair", "also", "counters")


@dataclass(frozen=True)
class _Found:
    matrix: PairMatrix
    explanation: Explanation
    cause: Cause
    labels: frozenset[str] = field(default_factory=frozenset)


def suspects(tables: Tables, *, again: Tables | None = None) -> Suspects:
    """What explains the slow pairs of a run; `again` is a retest whose repeats are added."""
    found_matrices = matrices(tables.measurements)
    if again is not None:
        found_matrices = _with_retest(found_matrices, matrices(again.measurements))
    rate = FALSE_ALARM_RATE / max(len(found_matrices), 1)
    explained = [(each, explain(each, false_alarm_rate=rate)) for each in found_matrices]
    notes = list(_notes(explained))
    causes, undecided = _decided(explained)
    slow = [_suspect(group) for group in _grouped(causes)]
    broken = [
        Suspect(
            kind=each.kind,
            subject=each.subject,
            symptom=each.symptom,
            pairs=tuple(PairValue(pair, math.nan, math.nan) for pair in each.pairs),
            note=each.note,
        )
        for each in traced(tables.cases)
    ]
    found = tuple(_with_evidence(each, tables) for each in (*broken, *slow))
    answered, reason = _answered(explained, undecided)
    run = str(next(iter(tables.cases["run"].astype("str")), ""))
    return Suspects(
        run=run,
        found=found,
        answered=answered,
        reason=reason,
        notes=tuple(notes),
        measurements=_measurements(explained),
        retest_pairs=_retest_pairs(explained),
    )


def _with_retest(
    first: tuple[PairMatrix, ...], again: tuple[PairMatrix, ...]
) -> tuple[PairMatrix, ...]:
    by_name = {each.what: each for each in again}
    return tuple(
        retest.combined(each, by_name[each.what], explain(each)) if each.what in by_name else each
        for each in first
    )


_Explained = list[tuple[PairMatrix, Explanation]]


def _answered(explained: _Explained, undecided: str) -> tuple[bool, str]:
    if not explained:
        return False, "no pair has a bandwidth or a latency"
    largest = max((matrix for matrix, _ in explained), key=lambda each: len(each.logs))
    hosts = len(largest.ends.hosts)
    if hosts == 2 and largest.ends.has_one_nic_each:
        return False, (
            "two nodes have one link: a slow value can be either node or the path between them; "
            "measure with other partners, or against a baseline (`rdmabench accept --baseline`)"
        )
    if hosts < _LEAST_HOSTS or len(largest.logs) < _LEAST_PAIRS:
        return False, (
            f"{hosts} nodes in {len(largest.logs)} pairs: there is no fleet to hold one of them "
            f"against; it takes {_LEAST_HOSTS} nodes and {_LEAST_PAIRS} pairs "
            "(`rdmabench sweep --pairs all`)"
        )
    return (False, undecided) if undecided else (True, "")


def _decided(explained: _Explained) -> tuple[list[_Found], str]:
    """The causes; none, and why, where so many are slow that nothing is the rule."""
    causes: list[_Found] = []
    undecided = ""
    for matrix, explanation in explained:
        if _too_few(matrix):
            continue
        split = two_groups(matrix, explanation)
        nodes = {c.key for c in explanation.causes if c.kind.name == NODE}
        crowd = len(nodes) > _MOST_ACCUSED * len(matrix.ends.hosts)
        if (split or crowd) and matrix.probe == "bandwidth":
            undecided = split or (
                f"{matrix.what}: {len(nodes)} of {len(matrix.ends.hosts)} nodes are slower than "
                "the rest: bimodal, two kinds of nodes rather than a few bad ones"
            )
            continue
        causes += [
            _Found(
                matrix, explanation, c, frozenset(matrix.pair_label(p) for p in c.pairs.tolist())
            )
            for c in explanation.causes
        ]
    return causes, undecided


def _too_few(matrix: PairMatrix) -> bool:
    return len(matrix.logs) < _LEAST_PAIRS or len(matrix.ends.hosts) < _LEAST_HOSTS


def _notes(explained: _Explained) -> Iterator[str]:
    for matrix, explanation in explained:
        if matrix.probe == "latency" and not _too_few(matrix):
            split = two_groups(matrix, explanation)
            if split:
                yield split


# ---- one suspect ----


def _grouped(causes: list[_Found]) -> list[list[_Found]]:
    """Findings of one subject together, the strongest first; what a broader one holds joins it."""
    groups: list[list[_Found]] = []
    for each in sorted(causes, key=lambda found: (-len(found.labels), -found.cause.z)):
        for group in groups:
            if each.labels <= group[0].labels:
                group.append(each)
                break
        else:
            groups.append([each])
    return sorted(groups, key=lambda group: -max(each.cause.z for each in group))


def _suspect(group: list[_Found]) -> Suspect:
    broadest = group[0]
    same = [
        e for e in group if (e.cause.kind, e.cause.key) == (broadest.cause.kind, broadest.cause.key)
    ]
    shown = max(same, key=lambda each: each.cause.z)
    matrix, cause = shown.matrix, shown.cause
    values = matrix.shown(shown.explanation.centre[cause.pairs])
    level = float(matrix.shown(np.array([shown.explanation.level]))[0])
    order = np.argsort(-shown.explanation.centre[cause.pairs], kind="stable")
    pairs = tuple(
        PairValue(
            matrix.pair_label(int(cause.pairs[i])), float(values[i]), float(values[i]) / level
        )
        for i in order
    )
    kind, subject, note = named(matrix, cause)
    others = dict.fromkeys(each.matrix.what for each in group if each.matrix is not matrix)
    return Suspect(
        kind=kind,
        subject=subject,
        symptom=SLOW,
        pairs=pairs,
        measurement=matrix.what,
        value=float(np.median(values)),
        fleet_median=level,
        unit=matrix.unit,
        times_slower=cause.ratio,
        z=cause.z,
        also=tuple(others),
        note=note,
    )


def _with_evidence(suspect: Suspect, tables: Tables) -> Suspect:
    """The suspect with what its cases say: counters that moved, other paths, failures."""
    pairs = {each.pair for each in suspect.pairs}
    cases = tables.cases[tables.cases["pair"].isin(pairs)]
    outcome, evidence = cases["outcome"].astype("str"), cases["evidence"].astype("str")
    return replace(
        suspect,
        counters=tuple(_moved(suspect, set(cases["case"].astype("str")), tables.counters)),
        fallback_cases=int((evidence == Evidence.FALLBACK.value).sum()),
        failed_cases=int((outcome == FAILED).sum()),
    )


def _moved(suspect: Suspect, cases: Iterable[str], counters: pd.DataFrame) -> Iterator[str]:
    """Error counters that moved in its cases, on its own ends where it is a node or a NIC."""
    names = errorcounters.matching(map(str, counters["counter"].unique()), errorcounters.ALL)
    mine = counters[
        counters["counter"].isin(names) & (counters["delta"] > 0) & counters["case"].isin(cases)
    ]
    subject = suspect.subject.split(" ")[0]
    if suspect.kind == NODE or (suspect.kind == "direction" and " to " not in suspect.subject):
        mine = mine[mine["host"] == subject.split("/")[0]]
    elif suspect.kind == NIC:
        mine = mine[(mine["host"].astype("str") + "/" + mine["device"].astype("str")) == subject]
    moved = mine.groupby(["host", "device", "counter"], observed=True)["delta"].sum()
    most = moved.sort_values(ascending=False)[:_COUNTERS].reset_index()
    for row in most.to_dict("records"):
        yield f"{row['host']}/{row['device']} {row['counter']} +{row['delta']}"


# ---- the whole ----


def _measurements(explained: _Explained) -> pd.DataFrame:
    """What each measurement is made of, and the least slow-down of one link it would have shown."""
    rows = []
    for matrix, found in explained:
        level: Floats = matrix.shown(np.array([found.level]))
        rows.append(
            {
                "measurement": matrix.what,
                "pairs": len(matrix.logs),
                "repeats": int(np.median(np.isfinite(matrix.logs).sum(axis=1))),
                "fleet_median": float(level[0]),
                "unit": matrix.unit,
                "noise_pct": math.nan if _too_few(matrix) else 100 * found.noise,
                "smallest_link_pct": math.nan
                if _too_few(matrix)
                else 100 * (1 - 1 / found.smallest_link),
            }
        )
    names = ["measurement", "pairs", "repeats", "fleet_median", "unit", "noise_pct"]
    return pd.DataFrame(rows, columns=[*names, "smallest_link_pct"])


def _retest_pairs(explained: _Explained) -> str:
    """The list for `sweep --pairs`, from the measurement that shows most."""
    if not explained:
        return ""
    matrix, found = max(
        explained,
        key=lambda each: (len(each[1].causes), each[0].probe == "bandwidth", -each[1].noise),
    )
    return retest.pairs_option(matrix, retest.plan_retest(matrix, found).pairs)
