"""One row per operation, size and number of queue pairs: what a sweep found.

A value is the median over repeats of the median over pairs, with a 95 % interval over the repeats;
where there are several pairs, the worst one (by its own median over repeats) is named.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from rdmabench.analysis.attainable import Attainable, attainable
from rdmabench.analysis.keys import CHOSEN, QUESTION, counted, differing, in_order, worst_evidence
from rdmabench.analysis.stats import median_interval
from rdmabench.collector.schema import METRICS
from rdmabench.collector.tables import Tables
from rdmabench.model import Endpoint, LinkFacts

HEADLINES = {"latency": "lat_p50_us", "bandwidth": "bw_gbps"}
INTERVALS = {
    "latency": ("lat_p50_lo_us", "lat_p50_hi_us"),
    "bandwidth": ("bw_lo_gbps", "bw_hi_gbps"),
}
WORST = {"latency": "worst_lat_p50_us", "bandwidth": "worst_bw_gbps"}
SHOWN = (
    "lat_p50_us",
    "lat_p99_us",
    "jitter_pct",
    "cv_pct",
    "bw_gbps",
    "rate_mpps",
    "attainable_gbps",
    "attainable_pct",
    "cpu_initiator_pct",
    "cpu_responder_pct",
    "cpu_initiator_s_per_GB",
    "cpu_responder_s_per_GB",
)
_ENDS = (
    "initiator_host",
    "initiator_device",
    "initiator_port",
    "responder_host",
    "responder_device",
    "responder_port",
)
_SUM = ("op", "size_bytes", "transport", "direction", "mtu_bytes", "gid_type", "traffic_class")
_VALUE = ("outcome", "superseded", "pair", "repeat", "metric", "value", "unit", "evidence")
_INDEXES = ("initiator_gid_index", "responder_gid_index")


def summarise(tables: Tables) -> pd.DataFrame:
    """The summary, units in the column names; empty where nothing was measured.

    `variant` names the parameters that set apart rows of one operation, size and number of queue
    pairs. Intervals and the worst pair are those of the median latency, or of the bandwidth.
    """
    measured = shown_values(tables)
    variants = differing(measured, CHOSEN)
    rows = [
        _summary_row(dict(zip(QUESTION, key[: len(QUESTION)], strict=True)), group, variants)
        for key, group in measured.groupby([*QUESTION, *variants], observed=True)
    ]
    columns = [*QUESTION, "variant", *SHOWN, *sum(INTERVALS.values(), ()), *WORST.values()]
    columns += ["worst_pair", "pairs", "repeats", "samples", "evidence", "note"]
    return in_order(pd.DataFrame(rows, columns=columns))


def shown_values(tables: Tables) -> pd.DataFrame:
    """Counted measurements in the units people read, with attainable rates added."""
    wanted = {*QUESTION, *CHOSEN, *_ENDS, *_SUM, *_INDEXES, *_VALUE}
    measured = counted(tables.measurements[[c for c in tables.measurements if c in wanted]])
    scale = measured["metric"].map({name: each.scale for name, each in METRICS.items()})
    shown = measured["metric"].map({name: each.shown for name, each in METRICS.items()})
    values = measured["value"] * scale.astype("float64")
    measured = measured.assign(value=values, metric=shown.astype("str"), note="")
    return pd.concat([measured, _attainable_rows(measured, tables.endpoints)], ignore_index=True)


def _attainable_rows(measured: pd.DataFrame, endpoints: pd.DataFrame) -> pd.DataFrame:
    """For every bandwidth two more rows: the attainable rate, and the share of it."""
    bandwidths = measured[measured["metric"] == "bw_gbps"]
    keys = list(_ENDS + _SUM + _INDEXES)
    known = {
        key: attainable_of(dict(zip(keys, key, strict=True)), endpoints)
        for key in bandwidths[keys].drop_duplicates().itertuples(index=False, name=None)
    }
    found = [known[key] for key in bandwidths[keys].itertuples(index=False, name=None)]
    rates = pd.Series([each.rate_gbit_s or math.nan for each in found], index=bandwidths.index)
    noted = bandwidths.assign(note=[each.reason for each in found])
    return pd.concat(
        [
            noted.assign(metric="attainable_gbps", value=rates, unit="Gb/s"),
            noted.assign(metric="attainable_pct", value=100 * noted["value"] / rates, unit="%"),
        ]
    )


def attainable_of(row: dict[str, Any], endpoints: pd.DataFrame) -> Attainable:
    """What the link of a row of `measurements` can carry at best."""
    ends = [_endpoint(row, side, endpoints) for side in ("initiator", "responder")]
    if None in ends:
        return Attainable(reason="the journal does not describe both endpoints")
    initiator, responder = (end for end in ends if end is not None)
    return attainable(
        initiator,
        responder,
        op=row["op"],
        size_bytes=int(row["size_bytes"]),
        transport=row["transport"],
        direction=row["direction"],
        link=LinkFacts(
            mtu_bytes=int(row["mtu_bytes"]),
            traffic_class=int(row["traffic_class"]),
            gid_type=row["gid_type"],
            initiator_gid_index=int(row["initiator_gid_index"]),
            responder_gid_index=int(row["responder_gid_index"]),
        ),
    )


def _endpoint(row: dict[str, Any], side: str, endpoints: pd.DataFrame) -> Endpoint | None:
    found = endpoints[
        (endpoints["host"] == row[f"{side}_host"])
        & (endpoints["device"] == row[f"{side}_device"])
        & (endpoints["port"] == row[f"{side}_port"])
    ]
    if found.empty:
        return None
    facts = found.iloc[-1].drop(["run", "fabric"])
    return Endpoint(**facts.to_dict())


def _summary_row(
    question: dict[str, Any], group: pd.DataFrame, variants: list[str]
) -> dict[str, Any]:
    probe = question["probe"]
    headline = HEADLINES.get(probe, "")
    per_repeat = group.groupby(["metric", "repeat"])["value"].median()
    values = per_repeat.groupby(level="metric").median()
    interval = median_interval(per_repeat[headline] if headline in values.index else [])
    notes = [note for note in dict.fromkeys(group["note"]) if note]
    return {
        **question,
        "variant": ", ".join(f"{name}={group[name].iloc[0]}" for name in variants),
        **{name: float(values.get(name, math.nan)) for name in SHOWN},
        **dict(zip(INTERVALS.get(probe, ()), (interval.lo, interval.hi), strict=False)),
        **_worst(group, probe),
        "pairs": group["pair"].nunique(),
        "repeats": group["repeat"].nunique(),
        "samples": int(group.loc[group["metric"] == "lat_n", "value"].sum()),
        "evidence": worst_evidence(group["evidence"]),
        "note": "; ".join(notes),
    }


def _worst(group: pd.DataFrame, probe: str) -> dict[str, Any]:
    """The pair with the highest median latency, or the lowest median bandwidth."""
    chosen = group[group["metric"] == HEADLINES.get(probe, "")]
    per_pair = chosen.groupby("pair", observed=True)["value"].median()
    if len(per_pair) < 2:
        return {"worst_pair": ""}
    ordered = per_pair.sort_values(ascending=probe == "bandwidth")
    return {"worst_pair": ordered.index.tolist()[0], WORST[probe]: float(ordered.iloc[0])}
