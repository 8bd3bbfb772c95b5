"""How long a million rows of measurements take to load and to group.

    .venv/bin/python tests/bench/bench_tables.py [ROWS]

The rows are those of a real run's table, repeated for other sizes, pairs and repeats, and written
as `tables.write` does.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rdmabench.analysis.compare import compare
from rdmabench.analysis.summary import summarise
from rdmabench.collector import schema, tables
from rdmabench.collector.tables import Tables
from tests.collector.synthetic import SyntheticRun

SIZES = [1 << shift for shift in range(1, 24)]
REPEATS = 5


def timed(what: str, call: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = call()
    print(f"{what:<44} {time.perf_counter() - start:8.2f} s")
    return result


def many(built: Tables, rows: int) -> Tables:
    """The table's rows for every size, repeat and as many pairs as it takes."""
    one = built.measurements
    copies = -(-rows // len(one))
    frame = one.iloc[np.tile(np.arange(len(one)), copies)].reset_index(drop=True)
    copy = np.arange(len(frame)) // len(one)
    pair = copy // (len(SIZES) * REPEATS)
    numbers = pd.Series(copy)
    frame = frame.assign(
        size_bytes=np.array(SIZES)[copy % len(SIZES)],
        repeat=copy // len(SIZES) % REPEATS,
        responder_rail=pair,
        pair=pd.Series(pair).map(lambda n: f"node1/rxe0>node{n}/rxe0").astype("category"),
        case=numbers.map(lambda n: f"case {n}").astype("category"),
        value=frame["value"] * np.random.default_rng(1).normal(1, 0.02, len(frame)),
    )
    return replace(built, measurements=schema.typed("measurements", frame.iloc[:rows]))


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as scratch:
        run = SyntheticRun(Path(scratch)).begin()
        run.latency(range(1000, 3000))
        run.bandwidth()
        directory = run.end()
        big = many(tables.build(directory), rows)
        timed(f"write {rows:,} rows", lambda: tables.write(directory, big))
        loaded = timed("load", lambda: tables.load(directory))
        key = ["probe", "op", "size_bytes", "qps", "pair", "metric"]
        timed(
            "group by size, pair and metric, median",
            loaded.measurements.groupby(key, observed=True)["value"].median,
        )
        timed("summarise", lambda: summarise(loaded))
        timed("compare with itself", lambda: compare([loaded, loaded]))


if __name__ == "__main__":
    main()
