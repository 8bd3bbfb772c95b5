"""Who talks to whom, when: rounds of pairs in which no node takes part twice.

Pure: nothing here reads a clock or a network. Nodes are taken in the order of their first endpoint
and pair same rail with same rail; a node that lacks a rail rests while the others use it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rdmabench.errors import InputError
from rdmabench.model import EndpointRef

KINDS = ("ring", "all", "rails", "bisection")

_END = r"[^:/,\s]+(?:/[^:,\s]+(?::\d+)?)?"
_GIVEN = re.compile(rf"({_END}):({_END})")

Round = tuple["Pair", ...]
_Indices = list[list[tuple[int, int]]]


@dataclass(frozen=True)
class Pair:
    """Two endpoints on different nodes; the initiator times."""

    initiator: EndpointRef
    responder: EndpointRef


def pairs(kind: str, endpoints: Sequence[EndpointRef]) -> tuple[Round, ...]:
    """The rounds of a kind of schedule; each round may run at once.

    - `ring`: every node initiates to the next one: 2 rounds, 3 for an odd number of nodes.
    - `all`: every two nodes meet once (circle method): N-1 rounds, N for an odd number.
    - `rails`: the ring, one rail after the other instead of rail by rail within a round.
    - `bisection`: the first half to the second, all at once; of an odd number the last node rests.
    - a list: `n1:n2,n3/mlx5_1:n4/mlx5_1`, in as few rounds as its order allows. An end without a
      device is the host's first rail.

    Raises:
        InputError: an unknown kind or end, or no two nodes that could be paired.
    """
    if not endpoints:
        raise InputError("no endpoint takes part, and a pair needs two nodes")
    if ":" in kind:
        return _given(kind, endpoints)
    if kind not in _ROUNDS:
        raise InputError(
            f"unknown pairs {kind!r}",
            remedy=f"choose {', '.join(KINDS)}, or list them as node1:node2,node3:node4",
        )
    by_rail = _by_rail(endpoints)
    rounds_of = _ROUNDS[kind]
    per_rail = [_on_rail(rounds_of(len(nodes)), nodes) for nodes in by_rail if len(nodes) > 1]
    if not per_rail:
        raise InputError(
            f"{len({ref.host for ref in endpoints})} node with endpoints, and a pair needs two "
            "nodes that share a rail",
            remedy="widen --limit, or look at rdma_devices and rdma_rail_order in the inventory",
        )
    if kind == "rails":
        return tuple(made for rounds in per_rail for made in rounds)
    longest = max(len(rounds) for rounds in per_rail)
    return tuple(r[number] for number in range(longest) for r in per_rail if number < len(r))


def _by_rail(endpoints: Sequence[EndpointRef]) -> list[list[EndpointRef]]:
    rails: dict[int, dict[str, EndpointRef]] = {}
    for ref in endpoints:
        there = rails.setdefault(ref.rail, {}).setdefault(ref.host, ref)
        if there != ref:
            raise InputError(
                f"{there.label} and {ref.label} are both on rail {ref.rail}",
                host=ref.host,
                remedy="name one of them in rdma_devices, or order them with rdma_rail_order",
            )
    return [list(rails[rail].values()) for rail in sorted(rails)]


def _on_rail(rounds: _Indices, nodes: Sequence[EndpointRef]) -> list[Round]:
    return [tuple(Pair(nodes[a], nodes[b]) for a, b in each) for each in rounds]


def _ring(count: int) -> _Indices:
    if count == 2:
        return [[(0, 1)]]
    edges = [(node, (node + 1) % count) for node in range(count)]
    if count % 2 == 0:
        return [edges[0::2], edges[1::2]]
    return [edges[0:-1:2], edges[1:-1:2], [edges[-1]]]


def _all(count: int) -> _Indices:
    """The circle method: one node stands, the others move on by one seat each round."""
    seats = count + count % 2  # with an odd number, who meets the empty seat rests
    moving = seats - 1
    rounds = []
    for turn in range(moving):
        meetings = [(turn, moving)]
        meetings += [((turn + k) % moving, (turn - k) % moving) for k in range(1, seats // 2)]
        rounds.append([_fair(a, b) for a, b in meetings if max(a, b) < count])
    return rounds


def _fair(a: int, b: int) -> tuple[int, int]:
    """Who initiates: each node does so in about half of its pairs."""
    low, high = sorted((a, b))
    return (low, high) if (low + high) % 2 else (high, low)


def _bisection(count: int) -> _Indices:
    half = count // 2
    return [[(node, half + node) for node in range(half)]]


_ROUNDS: dict[str, Callable[[int], _Indices]] = {
    "ring": _ring,
    "all": _all,
    "rails": _ring,
    "bisection": _bisection,
}


def _given(text: str, endpoints: Sequence[EndpointRef]) -> tuple[Round, ...]:
    rounds: list[list[Pair]] = []
    for pair in dict.fromkeys(_listed(text, endpoints)):
        hosts = {pair.initiator.host, pair.responder.host}
        for made in rounds:
            if all(hosts.isdisjoint((p.initiator.host, p.responder.host)) for p in made):
                made.append(pair)
                break
        else:
            rounds.append([pair])
    return tuple(tuple(made) for made in rounds)


def _listed(text: str, endpoints: Sequence[EndpointRef]) -> Iterator[Pair]:
    for part in text.split(","):
        match = _GIVEN.fullmatch(part.strip())
        if match is None:
            raise InputError(
                f"{part.strip()!r} is no pair",
                remedy="write node1:node2, or node1/mlx5_0:node2/mlx5_0",
            )
        initiator, responder = (_end(name, endpoints) for name in match.groups())
        if initiator.host == responder.host:
            raise InputError(f"{part.strip()!r} pairs {initiator.host} with itself")
        yield Pair(initiator, responder)


def _end(name: str, endpoints: Sequence[EndpointRef]) -> EndpointRef:
    mine = [ref for ref in endpoints if name in (ref.label, ref.host)]
    if not mine:
        raise InputError(
            f"no endpoint {name!r} takes part",
            remedy="see them with `rdmabench hosts`: an end is HOST or HOST/DEVICE",
        )
    return min(mine, key=lambda ref: ref.rail)
