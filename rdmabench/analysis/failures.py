"""Cases that failed, or took another path, traced to a node or to a path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from rdmabench.model import Evidence, Outcome

FAILED = Outcome.FAILED.value
SKIPPED = Outcome.SKIPPED.value
FALLBACK = Evidence.FALLBACK.value
_REASON_CHARS = 120


@dataclass(frozen=True)
class Traced:
    """What failed cases, or cases on another path, have in common: a node, or one pair."""

    kind: str
    subject: str
    symptom: str
    pairs: tuple[str, ...]
    note: str


def traced(cases: pd.DataFrame) -> Iterator[Traced]:
    """Nodes with two partners that are well with others; every pair that is left by itself."""
    outcome = cases["outcome"].astype("str")
    evidence = cases["evidence"].astype("str")
    bad = {
        "failed": outcome.isin([FAILED, SKIPPED]),
        "fallback": (evidence == FALLBACK) & (outcome == Outcome.MEASURED.value),
    }
    for symptom, mask in bad.items():
        if mask.any():
            yield from _traced(cases, mask, symptom)


def _traced(cases: pd.DataFrame, mask: pd.Series, symptom: str) -> Iterator[Traced]:
    ends = ["pair", "initiator_host", "responder_host"]
    table = cases[ends].astype("str").assign(bad=mask.to_numpy())
    pairs = table.groupby(ends, sort=False)["bad"].any().reset_index()
    good_hosts = set(pairs.loc[~pairs["bad"], ["initiator_host", "responder_host"]].to_numpy().flat)
    left: dict[str, tuple[str, str]] = {
        str(row["pair"]): (str(row["initiator_host"]), str(row["responder_host"]))
        for row in pairs[pairs["bad"]].to_dict("records")
    }
    reasons = _reasons(cases, mask, symptom)
    while left:
        node, mine = _worst_node(left, good_hosts)
        if not node:
            break
        yield Traced("node", node, symptom, mine, _said(reasons, mine))
        for pair in mine:
            del left[pair]
    for pair in left:
        yield Traced("link", pair, symptom, (pair,), _said(reasons, (pair,)))


def _worst_node(
    left: dict[str, tuple[str, str]], good_hosts: set[str]
) -> tuple[str, tuple[str, ...]]:
    """The node with the most bad pairs to different partners that are well with others."""
    partners: dict[str, set[str]] = defaultdict(set)
    mine: dict[str, list[str]] = defaultdict(list)
    for pair, (first, second) in left.items():
        for me, other in ((first, second), (second, first)):
            mine[me].append(pair)
            if other in good_hosts:
                partners[me].add(other)
    able = [node for node, met in partners.items() if len(met) >= 2]
    if not able:
        return "", ()
    # who has no good pair at all before who has some
    worst = max(able, key=lambda node: (node not in good_hosts, len(partners[node])))
    return worst, tuple(mine[worst])


def _reasons(cases: pd.DataFrame, mask: pd.Series, symptom: str) -> dict[str, str]:
    column = "reason" if symptom == "failed" else "evidence_note"
    rows = cases.loc[mask.to_numpy(), ["pair", column]].astype("str").drop_duplicates("pair")
    return dict(zip(rows["pair"], rows[column], strict=True))


def _said(reasons: dict[str, str], pairs: tuple[str, ...]) -> str:
    return " ".join(reasons.get(pairs[0], "").split())[:_REASON_CHARS]
