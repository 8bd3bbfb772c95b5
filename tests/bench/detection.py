"""How often the statistics are right: simulated fleets with a known fault, and draws for intervals.

    make bench-detection         (.venv/bin/python -m tests.bench.detection)

64 nodes, 5 % noise per repeat (normal, of the logarithm), a fault of 10 %. Every two nodes meet
once, as `sweep --pairs all` has it, and are measured 5 times: 2,016 pairs. Links: then the 128
slowest pairs, the accused and 32 ordinary ones are measured 10 times more, which is what `suspects
--retest-pairs` asks for; without it so few repeats find fewer than half. Rails: 4 rails, six random
matchings each. A fault counts as found when exactly the right thing is accused, and nothing else.
Fixed seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rdmabench.analysis.causes import Cause, Explanation, explain
from rdmabench.analysis.pairs import Ends, Ints, PairMatrix
from rdmabench.analysis.retest import combined, plan_retest
from rdmabench.analysis.stats import median_intervals

NODES = 64
NOISE = 0.05
FAULT = -math.log(0.9)
REPEATS = 5
RETEST_REPEATS = 10
RAILS = 4
MATCHINGS = 6
DRAWS = 2000
OUT = Path("results/bench/detection.json")

Named = tuple[str, str, int]


def ends(nodes: int, rails: int = 1) -> Ends:
    """One NIC per node and rail."""
    return Ends(
        labels=tuple(f"n{host:03}/mlx5_{rail}" for host in range(nodes) for rail in range(rails)),
        hosts=tuple(f"n{host:03}" for host in range(nodes)),
        host=np.repeat(np.arange(nodes), rails),
        rail=np.tile(np.arange(rails), nodes),
    )


def all_pairs(nodes: int, *, both_ways: bool = False) -> tuple[Ints, Ints]:
    """Every two nodes once, each as sender in half of its pairs; or both ways."""
    low, high = np.triu_indices(nodes, 1)
    if both_ways:
        return np.concatenate([low, high]), np.concatenate([high, low])
    odd = (low + high) % 2 == 1
    return np.where(odd, low, high), np.where(odd, high, low)


def matchings(nodes: int, rails: int, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Random perfect matchings, each of them on every rail; of an odd number one node rests."""
    pairs: dict[tuple[int, int], None] = {}
    for _ in range(count):
        order = rng.permutation(nodes)
        for first, second in zip(order[: nodes // 2], order[-(nodes // 2) :], strict=True):
            pairs.setdefault((int(first), int(second)))
    hosts = np.array(list(pairs))
    both = [hosts * rails + rail for rail in range(rails)]
    found = np.concatenate(both)
    return found[:, 0], found[:, 1]


def fleet(
    who: Ends,
    pairs: tuple[Ints, Ints],
    rng: np.random.Generator,
    *,
    repeats: int = REPEATS,
    noise: float = NOISE,
    slow: np.ndarray | None = None,
    effect: float = FAULT,
) -> PairMatrix:
    """Bandwidths around 390 Gb/s; pairs that are `slow` carry a tenth less."""
    logs = rng.normal(-math.log(48.75e9), noise, (len(pairs[0]), repeats))
    if slow is not None:
        logs[slow] += effect
    return PairMatrix("write_bw/65536/4", "bw", "gbps", who, pairs[0], pairs[1], logs)


def named(causes: tuple[Cause, ...]) -> list[Named]:
    """What was accused."""
    return [(each.kind.name, each.kind.direction, each.key[0]) for each in causes]


def with_retest(
    matrix: PairMatrix, rng: np.random.Generator, slow: np.ndarray | None
) -> Explanation:
    """A first pass, then the retest that it asks for, judged together."""
    first = explain(matrix)
    again = np.array(plan_retest(matrix, first).pairs)
    which = None if slow is None else slow[again]
    pairs = (matrix.sender[again], matrix.receiver[again])
    second = fleet(matrix.ends, pairs, rng, repeats=RETEST_REPEATS, slow=which)
    return explain(combined(matrix, second, first))


def link_found(rng: np.random.Generator, *, repeats: int, retested: bool) -> bool:
    """One link 10 % slow."""
    who, pairs = ends(NODES), all_pairs(NODES)
    slow = np.zeros(len(pairs[0]), dtype=bool)
    place = int(rng.integers(len(slow)))
    slow[place] = True
    matrix = fleet(who, pairs, rng, repeats=repeats, slow=slow)
    found = with_retest(matrix, rng, slow) if retested else explain(matrix)
    return [(c.kind.name, c.pairs.tolist()) for c in found.causes] == [("link", [place])]


def node_found(rng: np.random.Generator) -> bool:
    """One node 10 % slow in all its pairs."""
    pairs, node = all_pairs(NODES), int(rng.integers(NODES))
    slow = (pairs[0] == node) | (pairs[1] == node)
    return named(explain(fleet(ends(NODES), pairs, rng, slow=slow)).causes) == [("node", "", node)]


def direction_found(rng: np.random.Generator) -> bool:
    """One node 10 % slow, sending or receiving."""
    pairs, node, side = all_pairs(NODES), int(rng.integers(NODES)), int(rng.integers(2))
    found = explain(fleet(ends(NODES), pairs, rng, slow=pairs[side] == node))
    return named(found.causes) == [("node", ("sending", "receiving")[side], node)]


def one_way_found(rng: np.random.Generator) -> bool:
    """One link 10 % slow one way, every pair measured both ways, 15 times each."""
    pairs = all_pairs(NODES, both_ways=True)
    slow = np.zeros(len(pairs[0]), dtype=bool)
    place = int(rng.integers(len(slow)))
    slow[place] = True
    found = explain(fleet(ends(NODES), pairs, rng, repeats=15, slow=slow)).causes
    return [(c.kind.direction, c.pairs.tolist()) for c in found] == [("one way", [place])]


def rail_found(rng: np.random.Generator) -> bool:
    """One of four rails 10 % slow."""
    who, pairs = ends(NODES, RAILS), matchings(NODES, RAILS, MATCHINGS, rng)
    rail = int(rng.integers(RAILS))
    found = explain(fleet(who, pairs, rng, slow=who.rail[pairs[0]] == rail))
    return named(found.causes) == [("rail", "", rail)]


def false_alarm(rng: np.random.Generator, *, retested: bool) -> bool:
    """Anything accused in a healthy fleet."""
    matrix = fleet(ends(NODES), all_pairs(NODES), rng)
    return bool((with_retest(matrix, rng, None) if retested else explain(matrix)).causes)


def coverage(repeats: int, draws: int = DRAWS) -> float:
    """How often the 95 % interval of the median of so many repeats holds the true median."""
    rng = np.random.default_rng([9, repeats])
    lo, hi = median_intervals(np.exp(rng.normal(0, NOISE, (draws, repeats))))
    return float(((lo <= 1) & (hi >= 1)).mean())


def share(trial: Callable[[np.random.Generator], bool], *, seed: int, fleets: int) -> float:
    """How often a trial says yes; each fleet has a seed of its own."""
    return sum(trial(np.random.default_rng([seed, place])) for place in range(fleets)) / fleets


def rows(fleets: int = 500) -> Iterator[dict[str, Any]]:
    """Every figure, as `detection.json` keeps it."""
    trials: dict[str, Callable[[np.random.Generator], bool]] = {
        "link_10pct_found": lambda rng: link_found(rng, repeats=REPEATS, retested=True),
        "link_10pct_found/one_pass_5": lambda rng: link_found(rng, repeats=5, retested=False),
        "link_10pct_found/one_pass_15": lambda rng: link_found(rng, repeats=15, retested=False),
        "node_found": node_found,
        "rail_found": rail_found,
        "direction_found": direction_found,
        "direction_found/one_way_link_15": one_way_found,
        "false_alarm": lambda rng: false_alarm(rng, retested=True),
        "false_alarm/one_pass_5": lambda rng: false_alarm(rng, retested=False),
    }
    for seed, (what, trial) in enumerate(trials.items()):
        yield row(what, share(trial, seed=seed, fleets=fleets), fleets)
    for repeats in (10, 5, 6, 7, 8, 12, 20):
        name = "coverage_95" + ("" if repeats == 10 else f"/{repeats}_repeats")
        yield row(name, coverage(repeats), DRAWS)


def row(what: str, ours: float, count: int) -> dict[str, Any]:
    """One figure."""
    empty = dict.fromkeys(("theirs", "ratio", "lo", "hi"))
    return {"what": what, "ours": ours, **empty, "unit": "share", "n": count}


def main() -> None:
    """Prints the table and keeps it."""
    print(__doc__)
    kept = []
    for each in rows():
        kept.append(each)
        print(f"{each['what']:<34} {100 * each['ours']:8.2f} %   n {each['n']}", flush=True)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(kept, indent=2) + "\n")
    print(f"wrote {OUT}")


if __name__ == "__main__":
    main()
