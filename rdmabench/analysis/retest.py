"""What to measure again before anyone is accused.

Pure: the orchestrator, or a person, makes the runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from rdmabench.analysis.candidates import LINK, NIC, NODE
from rdmabench.analysis.causes import Cause, Explanation
from rdmabench.analysis.pairs import Floats, PairMatrix, centres

CONTROLS = 32
_HEALTHY_Z = 1.0
_PARTNERS = 2
_END = re.compile(r"[^:/,\s]+(?:/[^:,\s]+(?::\d+)?)?")


@dataclass(frozen=True)
class Retest:
    """Pairs (rows of the matrix) to measure again.

    `suspected`: accused links and the slowest pairs; `with_healthy`: accused nodes and NICs with
    partners that are beyond doubt; `controls`: ordinary pairs, which tell drift from repair.
    """

    suspected: tuple[int, ...]
    with_healthy: tuple[int, ...]
    controls: tuple[int, ...]

    @property
    def pairs(self) -> tuple[int, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.suspected, *self.with_healthy, *self.controls)))


def plan_retest(matrix: PairMatrix, found: Explanation, *, slowest: int | None = None) -> Retest:
    """The accused, and twice as many of the slowest other pairs as the run has nodes."""
    count = 2 * len(matrix.ends.hosts) if slowest is None else slowest
    links = [int(p) for cause in found.causes if cause.kind.name == LINK for p in cause.pairs]
    order = np.argsort(-found.link_z, kind="stable")[: count + len(links)].tolist()
    accused = _accused_hosts(matrix, found.causes)
    candidates = [p for p in order if found.link_z[p] > _HEALTHY_Z and p not in links]
    tested: list[int] = []
    for cause in found.causes:
        tested += _with_healthy(matrix, found, cause, accused)
    return Retest(
        suspected=(*links, *candidates[:count]),
        with_healthy=tuple(dict.fromkeys(tested)),
        controls=_controls(matrix, found, accused, {*links, *candidates[:count], *tested}),
    )


def _controls(
    matrix: PairMatrix, found: Explanation, accused: set[int], doubted: set[int]
) -> tuple[int, ...]:
    """The most ordinary pairs, none of them with an accused node."""
    hosts, distance = matrix.ends.host, np.abs(found.link_z)
    calm = distance < _HEALTHY_Z
    for side in (matrix.sender, matrix.receiver):
        calm &= ~np.isin(hosts[side], list(accused))
    calm[list(doubted)] = False
    ordinary = np.flatnonzero(calm)
    order = np.argsort(distance[ordinary], kind="stable")
    return tuple(ordinary[order][:CONTROLS].tolist())


def _accused_hosts(matrix: PairMatrix, causes: Iterable[Cause]) -> set[int]:
    hosts: set[int] = set()
    for cause in causes:
        if cause.kind.name == NODE:
            hosts.add(cause.key[0])
        elif cause.kind.name == NIC:
            hosts.add(int(matrix.ends.host[cause.key[0]]))
    return hosts


def _with_healthy(
    matrix: PairMatrix, found: Explanation, cause: Cause, accused: set[int]
) -> list[int]:
    """Two pairs of an accused node or NIC whose partners are the least suspicious."""
    if cause.kind.name not in (NODE, NIC):
        return []
    hosts = matrix.ends.host
    chosen: dict[int, int] = {}
    for pair in sorted(cause.pairs.tolist(), key=lambda p: abs(float(found.link_z[p]))):
        both = {int(hosts[matrix.sender[pair]]), int(hosts[matrix.receiver[pair]])}
        for partner in both - accused:
            chosen.setdefault(partner, pair)
    return list(chosen.values())[:_PARTNERS]


def pairs_option(matrix: PairMatrix, pairs: Iterable[int]) -> str:
    """`n1/mlx5_0:n2/mlx5_0,...` for `rdmabench sweep --pairs`; by host alone where that is clear.

    A pair whose names cannot be written in that list is left out.
    """
    lone = matrix.ends.has_one_nic_each
    texts = []
    for pair in pairs:
        ends = matrix.pair_label(pair).split(">")
        if lone:
            ends = [end.split("/")[0] for end in ends]
        if len(ends) == 2 and all(_END.fullmatch(end) for end in ends):
            texts.append(":".join(ends))
    return ",".join(texts)


def combined(first: PairMatrix, again: PairMatrix, before: Explanation) -> PairMatrix:
    """Both runs' repeats, pair by pair, those of the second moved to the level of the first.

    The level is told by pairs that were ordinary in the first run: the suspected ones were chosen
    for being slow, and would come out faster the second time for that reason alone. For the same
    reason the noise is that of the first run: both together lack the slow tail.
    """
    width = len(first.ends.labels)
    number = {label: place for place, label in enumerate(first.ends.labels)}
    known = {
        int(s * width + r): row
        for row, (s, r) in enumerate(zip(first.sender, first.receiver, strict=True))
    }
    rows = []
    for row, (s, r) in enumerate(zip(again.sender.tolist(), again.receiver.tolist(), strict=True)):
        ends = (number.get(again.ends.labels[s], -1), number.get(again.ends.labels[r], -1))
        place = known.get(ends[0] * width + ends[1], -1) if min(ends) >= 0 else -1
        if place >= 0:
            rows.append((place, row))
    if not rows:
        return first
    places, sources = (np.array(column) for column in zip(*rows, strict=True))
    centre, _ = centres(again.logs[sources])
    calm = np.abs(before.link_z[places]) < _HEALTHY_Z
    if not calm.any():
        return first
    drift = float(np.median(centre[calm] - before.centre[places][calm]))
    more: Floats = np.full((len(first.logs), again.logs.shape[1]), np.nan)
    more[places] = again.logs[sources] - drift
    return replace(first, logs=np.concatenate([first.logs, more], axis=1), least_noise=before.noise)
