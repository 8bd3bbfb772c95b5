"""What may be at fault: every rail, node, NIC, direction and link that a run can tell from others.

A candidate is a set of pairs. One that a run cannot accuse is not usable: a node or NIC that met a
single partner, or a set so large that what is left is no fleet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rdmabench.analysis.pairs import Ints, PairMatrix

RAIL, NODE, NIC, LINK = "rail", "node", "NIC", "link"
SENDING, RECEIVING = "sending", "receiving"
ONE_WAY = "one way"
_LARGEST_SHARE = 0.6


@dataclass(frozen=True)
class Kind:
    """What a candidate is: `direction` is empty, `sending`, `receiving` or `one way`."""

    name: str
    direction: str = ""


@dataclass(frozen=True)
class Family:
    """Candidates of one kind: `pair[i]` belongs to group `group[i]`."""

    kind: Kind
    pair: Ints
    group: Ints
    size: Ints
    usable: np.ndarray
    keys: np.ndarray

    def members(self, group: int) -> Ints:
        """The pairs of one candidate."""
        return np.asarray(self.pair[self.group == group], dtype=np.int64)


def families(matrix: PairMatrix) -> Iterator[Family]:
    """Rails, nodes, NICs and their directions, links and their ways: what this run can tell."""
    ends, sender, receiver = matrix.ends, matrix.sender, matrix.receiver
    count = len(sender)
    everyone = np.arange(count)
    host = ends.host
    if len(np.unique(ends.rail)) > 1:
        yield _rail_family(matrix)
    levels = [(NODE, host[sender], host[receiver])]
    if not ends.has_one_nic_each:
        levels.append((NIC, sender, receiver))
    for name, first, second in levels:
        both = np.concatenate([first, second])
        partners = np.concatenate([host[receiver], host[sender]])
        yield _family(Kind(name), np.tile(everyone, 2), both, partners, count)
        yield _family(Kind(name, SENDING), everyone, first, host[receiver], count)
        yield _family(Kind(name, RECEIVING), everyone, second, host[sender], count)
    width = len(ends.labels)
    low, high = np.minimum(sender, receiver), np.maximum(sender, receiver)
    link = _family(Kind(LINK), everyone, low * width + high, None, count)
    yield link
    if matrix.has_ways and (link.size > 1).any():
        yield _family(Kind(LINK, ONE_WAY), everyone, sender * width + receiver, None, count)


def _rail_family(matrix: PairMatrix) -> Family:
    """A pair within one rail belongs to it; one of two rails to both."""
    ends = matrix.ends
    first, second = ends.rail[matrix.sender], ends.rail[matrix.receiver]
    crossing = np.flatnonzero(first != second)
    everyone = np.arange(len(first))
    pair = np.concatenate([everyone, crossing])
    group = np.concatenate([first, second[crossing]])
    width = len(ends.hosts)
    low = np.minimum(ends.host[matrix.sender], ends.host[matrix.receiver])
    high = np.maximum(ends.host[matrix.sender], ends.host[matrix.receiver])
    return _family(Kind(RAIL), pair, group, (low * width + high)[pair], len(first))


def _family(kind: Kind, pair: Ints, raw: Ints, partners: Ints | None, count: int) -> Family:
    keys, group = np.unique(raw, return_inverse=True)
    group = group.astype(np.int64)
    size = np.bincount(group, minlength=len(keys))
    usable = size <= _LARGEST_SHARE * count
    if partners is not None:
        lowest = np.full(len(keys), np.iinfo(np.int64).max)
        highest = np.full(len(keys), -1)
        np.minimum.at(lowest, group, partners)
        np.maximum.at(highest, group, partners)
        usable &= lowest < highest  # two different partners
    return Family(kind=kind, pair=pair, group=group, size=size, usable=usable, keys=keys)
