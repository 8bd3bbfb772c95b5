"""What makes two rows the same measurement, and which of them may be counted.

`QUESTION` is what was measured, `CHOSEN` how (by the plan), `FOUND` what the fabric imposed.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from rdmabench.model import Evidence, Outcome

QUESTION = ("probe", "op", "size_bytes", "qps")
CHOSEN = (
    "depth",
    "cq_moderation",
    "inline_bytes",
    "completion",
    "direction",
    "loop",
    "memory",
    "engine",
    "iterations",
    "warmup",
    "ranks",
    "variant",
)
FOUND = ("transport", "mtu_bytes", "gid_type", "traffic_class")
NAMES_ONLY = (
    "initiator_gid_index",
    "responder_gid_index",
    "initiator_device",
    "responder_device",
    "inline_used_bytes",
    "clock",
    "timeout",
    "retry_cnt",
)
_OP_ORDER = ("send", "write", "read")
WORST_FIRST = (Evidence.FALLBACK.value, Evidence.ABSENT.value, Evidence.PROVED.value)


def counted(measurements: pd.DataFrame) -> pd.DataFrame:
    """Rows with numbers, without earlier attempts."""
    keep = (
        (measurements["outcome"] == Outcome.MEASURED.value)
        & ~measurements["superseded"]
        & measurements["metric"].notna()
    )
    return measurements[keep]


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its categories as text, so that it joins with that of another run."""
    names = frame.select_dtypes("category").columns
    return frame.astype(dict.fromkeys(names, "str"))


def uncounted(measurements: pd.DataFrame) -> pd.DataFrame:
    """One row per case whose last attempt has no numbers."""
    keep = (measurements["outcome"] != Outcome.MEASURED.value) & ~measurements["superseded"]
    return as_text(measurements[keep])


def worst_evidence(evidence: Iterable[str]) -> str:
    """`fallback` if any row is one, else `absent` if any is, else `proved`."""
    found = set(evidence)
    return next((name for name in WORST_FIRST if name in found), Evidence.ABSENT.value)


def differing(frame: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """Those of the columns that differ between rows that ask the same question."""
    wanted = list(names)
    if frame.empty:
        return []
    spread = frame.groupby(list(QUESTION), observed=True)[wanted].nunique().max()
    return [name for name in wanted if spread[name] > 1]


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Latency before bandwidth, send before write before read, then by size and queue pairs."""
    ops = {op: place for place, op in enumerate(_OP_ORDER)}
    ranked = frame.assign(
        _probe=frame["probe"].map({"latency": 0, "bandwidth": 1}).fillna(2),
        _op=frame["op"].map(ops).fillna(len(ops)),
    )
    by = ["_probe", "_op", "op", "size_bytes", "qps"]
    ordered = ranked.sort_values(by, kind="stable").drop(columns=["_probe", "_op"])
    return ordered.reset_index(drop=True)
