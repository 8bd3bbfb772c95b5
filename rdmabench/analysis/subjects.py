"""What is judged: a row per pair and measurement of the plan, with the values it should have.

Rows come from the cases that were planned, never from what happens to have been measured: a value
that is missing is a row without one, and says so.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rdmabench.analysis.attainable import Attainable, attainable
from rdmabench.analysis.keys import CHOSEN, QUESTION, WORST_FIRST, differing
from rdmabench.analysis.pairs import Floats, Ints
from rdmabench.analysis.stats import MIN_REPEATS, median_intervals
from rdmabench.collector.schema import METRICS
from rdmabench.collector.tables import Tables
from rdmabench.model import Endpoint, LinkFacts, Outcome

WIRE_TOLERANCE = 1.02
NOMINAL_DRIVERS = ("rxe", "siw")  # their port rate is made up
_ENDS = ("initiator_host", "initiator_device", "initiator_port")
_OTHER = ("responder_host", "responder_device", "responder_port")
_LINK = (
    "mtu_bytes",
    "traffic_class",
    "gid_type",
    "initiator_gid_index",
    "responder_gid_index",
)


def subjects(tables: Tables) -> pd.DataFrame:
    """One row per pair and measurement: who, what, and how many of its cases ended how.

    `subject` is its number; `cases` planned, `measured` with numbers; `what` as in the plan, with
    the parameters that set it apart.
    """
    cases = tables.cases
    variants = differing(cases, CHOSEN)
    keys = ["pair", *QUESTION, *variants]
    number = cases.groupby(keys, observed=True, sort=False).ngroup()
    cases = cases.assign(subject=number, is_measured=cases["outcome"] == Outcome.MEASURED.value)
    proof = cases["evidence"].astype("str").map({n: i for i, n in enumerate(WORST_FIRST)})
    cases = cases.assign(proof=proof.where(cases["is_measured"]))
    kept = [*keys, *_ENDS, *_OTHER, "rail", "responder_rail", "transport", "direction"]
    kept = list(dict.fromkeys(kept))
    grouped = cases.groupby("subject", observed=True)
    rows = grouped[kept].first()
    rows = rows.assign(
        cases=grouped.size(), measured=grouped["is_measured"].sum(), proof=grouped["proof"].min()
    )
    texts = rows.select_dtypes("category").columns
    rows = rows.astype(dict.fromkeys(texts, "str"))
    return rows.assign(what=_whats(rows, variants)).reset_index()


def _whats(rows: pd.DataFrame, variants: list[str]) -> list[str]:
    kinds = {"latency": "lat", "bandwidth": "bw"}
    return [
        f"{row['op']}_{kinds.get(row['probe'], row['probe'])}/{row['size_bytes']}/{row['qps']}"
        + "".join(f" {name}={row[name]}" for name in variants)
        for row in rows[["op", "probe", "size_bytes", "qps", *variants]].to_dict("records")
    ]


def case_numbers(tables: Tables) -> pd.Series:
    """The subject's number by case."""
    cases = tables.cases
    keys = ["pair", *QUESTION, *differing(cases, CHOSEN)]
    number = cases.groupby(keys, observed=True, sort=False).ngroup()
    return pd.Series(number.to_numpy(), index=cases["case"].astype("str"))


def with_values(
    rows: pd.DataFrame, tables: Tables, metric: str, numbers: pd.Series | None = None
) -> pd.DataFrame:
    """The subjects with `value`, `lo`, `hi` and `n` of a metric in its base unit, and `defect`.

    `value` is the median of the repeats, `lo` and `hi` its 95 % interval (NaN below three repeats).
    `defect` says what is missing or contradictory; such a row can never pass.
    """
    table = tables.measurements
    keep = (
        (table["metric"] == metric)
        & ~table["superseded"]
        & (table["outcome"] == Outcome.MEASURED.value)
    )
    found = table.loc[keep, ["case", "value", "unit"]]
    numbers = case_numbers(tables) if numbers is None else numbers
    number = found["case"].astype("str").map(numbers).to_numpy()
    values = pd.to_numeric(found["value"], errors="coerce").to_numpy(dtype=np.float64)
    good = np.isfinite(values) & _in_domain(values, metric)
    wrong_unit = (found["unit"].astype("str") != METRICS[metric].unit).to_numpy()
    place = {int(n): i for i, n in enumerate(rows["subject"])}
    index = np.array([place.get(int(n), -1) if n == n else -1 for n in number], dtype=np.int64)
    known = index >= 0
    index, values = index[known], values[known]
    good, wrong_unit = good[known], wrong_unit[known]
    size = len(rows)
    usable = good & ~wrong_unit
    value, lo, hi, n = _intervals(index[usable], values[usable], size)
    defect = np.full(size, "", dtype=object)
    have = np.bincount(index, minlength=size)
    measured = rows["measured"].to_numpy(dtype=np.int64)
    defect[have < measured] = "a repeat has no value"
    defect[have > measured] = "more values than repeats"
    defect[index[~good]] = "a value is no usable number"
    defect[index[wrong_unit]] = f"a value is not in {METRICS[metric].unit}"
    defect[(measured == 0)] = "not measured"
    most = np.full(size, -math.inf)
    np.maximum.at(most, index[usable], values[usable])
    return rows.assign(value=value, lo=lo, hi=hi, n=n, defect=defect, most=most)


def _in_domain(values: Floats, metric: str) -> np.ndarray:
    """A rate or a latency is above 0; a share or a spread may be 0."""
    with np.errstate(invalid="ignore"):
        above = values > 0 if METRICS[metric].unit in ("ns", "B/s", "1/s") else values >= 0
    return np.asarray(above)


def _intervals(index: Ints, values: Floats, size: int) -> tuple[Floats, Floats, Floats, Ints]:
    """Median, interval and number of values of each group."""
    counts = np.bincount(index, minlength=size).astype(np.int64)
    order = np.lexsort((values, index))
    ordered, start = values[order], np.cumsum(counts) - counts
    value, lo, hi = (np.full(size, math.nan) for _ in range(3))
    for count in np.unique(counts[counts > 0]).tolist():
        groups = np.flatnonzero(counts == count)
        matrix = ordered[start[groups][:, None] + np.arange(count)]
        value[groups] = np.median(matrix, axis=1)
        if count >= MIN_REPEATS:
            lo[groups], hi[groups] = _ends_of(matrix)
    return value, lo, hi, counts


def _ends_of(matrix: Floats) -> tuple[Floats, Floats]:
    """The interval of each row of ordered values.

    Of an odd number the median of a resample is one of the values, so both ends are fixed places.
    """
    count = matrix.shape[1]
    if count % 2 == 0:
        return median_intervals(matrix)
    first, last = _places(count)
    return matrix[:, first], matrix[:, last]


@cache
def _places(count: int) -> tuple[int, int]:
    lo, hi = median_intervals(np.arange(count, dtype=np.float64)[np.newaxis, :])
    return int(lo[0]), int(hi[0])


def with_attainable(rows: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """The subjects with `attainable` in bytes per second (NaN: unknown, and `unknown` says why)."""
    table = tables.measurements
    ends = {
        (each["host"], each["device"], each["port"]): Endpoint(
            **{str(name): value for name, value in each.items()}
        )
        for each in tables.endpoints.drop(columns=["run", "fabric"]).to_dict("records")
    }
    links = table[~table["superseded"] & (table["outcome"] == Outcome.MEASURED.value)]
    links = links[["case", *_LINK]].drop_duplicates("case")
    links = links.assign(
        subject=links["case"].astype("str").map(case_numbers(tables)).to_numpy(),
        gid_type=links["gid_type"].astype("str"),
    ).drop_duplicates("subject")
    by_subject = {
        each["subject"]: {name: each[name] for name in _LINK} for each in links.to_dict("records")
    }
    known: dict[tuple[Any, ...], Attainable] = {}
    rates, unknown = [], []
    for row in rows.to_dict("records"):
        found = _attainable(row, by_subject.get(row["subject"]), ends, known)
        rates.append(found.rate_gbit_s * 1e9 / 8 if found.is_known else math.nan)
        unknown.append(found.reason)
    return rows.assign(attainable=rates, unknown=unknown)


def _attainable(
    row: dict[Any, Any],
    link: dict[str, Any] | None,
    ends: dict[tuple[Any, ...], Endpoint],
    known: dict[tuple[Any, ...], Attainable],
) -> Attainable:
    """As `attainable`, worked out once for all pairs of equal ports."""
    first = ends.get(tuple(row[name] for name in _ENDS))
    second = ends.get(tuple(row[name] for name in _OTHER))
    if first is None or second is None:
        return Attainable(reason="the journal does not describe both endpoints")
    if link is None:
        return Attainable(reason="not measured")
    asked = (row["op"], int(row["size_bytes"]), row["transport"], row["direction"])
    key = (_port(first), _port(second), asked, tuple(link.values()))
    if key not in known or not known[key].is_known:
        known[key] = attainable(
            first,
            second,
            op=asked[0],
            size_bytes=asked[1],
            transport=asked[2],
            direction=asked[3],
            link=LinkFacts(**link),
        )
    return known[key]


def _port(end: Endpoint) -> tuple[Any, ...]:
    """What of an endpoint the attainable rate depends on."""
    mapped = end.gid.lower().startswith("0000:0000:0000:0000:0000:ffff:")
    address = "" if not end.gid else ("4" if mapped else end.gid)
    layer = (end.link_layer, end.rate_text, end.rate_gbit_s, end.active_mtu_bytes)
    return (*layer, address, end.gid_type, ":" in end.address)


def is_nominal(tables: Tables) -> bool:
    """Whether the port rate is made up, so that a higher rate contradicts nothing."""
    drivers = set(tables.endpoints["driver"].astype("str"))
    return bool(drivers) and drivers <= set(NOMINAL_DRIVERS)
