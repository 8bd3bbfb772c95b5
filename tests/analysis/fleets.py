"""Tables of a fleet of any size, made in memory: who meets whom, how fast, with which faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from rdmabench.collector.schema import METRICS, typed
from rdmabench.collector.tables import Tables

Slow = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
LINE_GBIT_S = 400.0
SHARE = 0.97


def fleet_tables(
    nodes: int,
    *,
    repeats: int = 5,
    rails: int = 1,
    both_ways: bool = False,
    pairs: tuple[np.ndarray, np.ndarray] | None = None,
    noise: float = 0.01,
    slow: Slow | None = None,
    metrics: tuple[str, ...] = ("bw", "lat_p50", "lat_p99"),
    fabric: str = "roce",
    seed: int = 1,
) -> Tables:
    """A healthy fleet; `slow(sender, receiver, rail)` gives how many times slower each pair is."""
    rng = np.random.default_rng(seed)
    first, second = pairs if pairs is not None else _all_pairs(nodes, both_ways)
    a = np.concatenate([first] * rails)
    b = np.concatenate([second] * rails)
    rail = np.repeat(np.arange(rails), len(first))
    times = np.ones(len(a)) if slow is None else slow(a, b, rail)
    frames = []
    for metric in metrics:
        bandwidth = metric == "bw"
        level = (
            SHARE * 0.98015 * LINE_GBIT_S * 1e9 / 8
            if bandwidth
            else {"lat_p50": 1800.0}.get(metric, 2400.0)
        )
        value = level * np.exp(rng.normal(0, noise, (len(a), repeats)))
        value = value / times[:, None] if bandwidth else value * times[:, None]
        frames.append(
            _long(a, b, rail, value, metric=metric, size=65536 if bandwidth else 2, repeats=repeats)
        )
    measurements = pd.concat(frames, ignore_index=True).assign(run="fleet", fabric=fabric)
    measurements = typed("measurements", measurements)
    drop = ("attempt", "superseded", "started_at")
    once = measurements.drop_duplicates("case").drop(columns=list(drop))
    cases = typed("cases", once.assign(attempts=1))
    return Tables(
        nodes=typed("nodes", _nodes(nodes, fabric)),
        endpoints=typed("endpoints", _endpoints(nodes, rails, fabric)),
        cases=cases,
        measurements=measurements,
        latency=typed("latency", pd.DataFrame()),
        counters=_counters(cases, fabric),
        events=_events(fabric),
    )


def _all_pairs(nodes: int, both_ways: bool) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.triu_indices(nodes, 1)
    if both_ways:
        return np.concatenate([low, high]), np.concatenate([high, low])
    odd = (low + high) % 2 == 1
    return np.where(odd, low, high), np.where(odd, high, low)


def name(node: int) -> str:
    """`n007`."""
    return f"n{node:03}"


def _codes(values: np.ndarray, names: list[str]) -> pd.Categorical:
    return pd.Categorical.from_codes(values, categories=names)


def _long(
    a: np.ndarray,
    b: np.ndarray,
    rail: np.ndarray,
    value: np.ndarray,
    *,
    metric: str,
    size: int,
    repeats: int,
) -> pd.DataFrame:
    count = len(a)
    row = np.repeat(np.arange(count), repeats)
    repeat = np.tile(np.arange(repeats), count)
    hosts = [name(node) for node in range(int(max(a.max(), b.max())) + 1)]
    devices = [f"mlx5_{each}" for each in range(int(rail.max()) + 1)]
    kind = "bw" if metric == "bw" else "lat"
    labels = [
        f"{hosts[s]}/{devices[k]}>{hosts[r]}/{devices[k]}"
        for s, r, k in zip(a.tolist(), b.tolist(), rail.tolist(), strict=True)
    ]
    cases = [f"write_{kind}/{size}/1 {label} r{n}" for label in labels for n in range(repeats)]
    fixed: dict[str, Any] = {
        "initiator_port": 1,
        "responder_port": 1,
        "probe": "bandwidth" if metric == "bw" else "latency",
        "op": "write",
        "transport": "RC",
        "size_bytes": size,
        "qps": 1,
        "depth": 128,
        "cq_moderation": 16,
        "inline_bytes": 0,
        "completion": "poll",
        "direction": "one-way",
        "loop": "closed",
        "memory": "host",
        "engine": "hotloop",
        "iterations": 1000,
        "warmup": 100,
        "round": 0,
        "attempt": 0,
        "superseded": False,
        "outcome": "measured",
        "reason": "",
        "evidence": "proved",
        "evidence_note": "",
        "started_at": pd.Timestamp("2026-12-01T00:00:00Z"),
        "mtu_bytes": 4096,
        "traffic_class": 0,
        "initiator_gid_index": 3,
        "responder_gid_index": 3,
        "gid_type": "RoCE v2",
        "timeout": 18,
        "retry_cnt": 6,
        "clock": "tsc",
        "clock_cost_ns": 10.0,
        "inline_used_bytes": 0,
        "ranks": 2,
        "variant": "",
        "source": "",
        "tool_version": "",
        "metric": metric,
        "unit": METRICS[metric].unit,
    }
    return pd.DataFrame(
        {
            "case": pd.Categorical.from_codes(np.arange(count * repeats), categories=cases),
            "pair": _codes(row, labels),
            "initiator_host": _codes(a[row], hosts),
            "responder_host": _codes(b[row], hosts),
            "initiator_device": _codes(rail[row], devices),
            "responder_device": _codes(rail[row], devices),
            "rail": rail[row],
            "responder_rail": rail[row],
            "repeat": repeat,
            "value": value.ravel(),
            **{
                key: pd.Categorical.from_codes(np.zeros(len(row), dtype=int), categories=[text])
                if isinstance(text, str)
                else text
                for key, text in fixed.items()
            },
        }
    )


def _nodes(nodes: int, fabric: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run": "fleet",
            "fabric": fabric,
            "host": [name(node) for node in range(nodes)],
            "cpu_count": 64,
            "memlock_bytes": -1,
            "clock_cost_ns": 10.0,
        }
    ).fillna("")


def _endpoints(nodes: int, rails: int, fabric: str) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "run": "fleet",
                "fabric": fabric,
                "host": name(node),
                "device": f"mlx5_{rail}",
                "port": 1,
                "rail": rail,
                "netdev": f"eth{rail}",
                "address": "",
                "link_layer": "Ethernet",
                "state": "ACTIVE",
                "rate_text": "400 Gb/sec (4X NDR)",
                "rate_gbit_s": LINE_GBIT_S,
                "active_mtu_bytes": 4096,
                "gid_index": 3,
                "gid": f"0000:0000:0000:0000:0000:ffff:0a{rail:02x}:{node:04x}",
                "gid_type": "RoCE v2",
                "lid": 0,
                "driver": "mlx5_core",
                "firmware": "28.39",
                "board": "",
                "numa_node": 0,
                "max_qp": 1000,
                "max_qp_rd_atom": 16,
            }
            for node in range(nodes)
            for rail in range(rails)
        ]
    )


def _counters(cases: pd.DataFrame, fabric: str) -> pd.DataFrame:
    """Two counters of the initiator and of the responder in the first case of each pair."""
    first = cases.drop_duplicates("pair")
    frames = [
        pd.DataFrame(
            {
                "run": "fleet",
                "fabric": fabric,
                "case": first["case"],
                "attempt": 0,
                "host": first[f"{role}_host"].astype("str"),
                "device": first[f"{role}_device"].astype("str"),
                "port": 1,
                "role": role,
                "counter": counter,
                "before": 0,
                "after": 0,
                "delta": 0,
            }
        )
        for role in ("initiator", "responder")
        for counter in ("hw_counters/out_of_sequence", "counters/symbol_error")
    ]
    return typed("counters", pd.concat(frames, ignore_index=True))


def _events(fabric: str) -> pd.DataFrame:
    kinds = {"RunStarted": "started: plan", "RunEnded": "done: all measured"}
    rows = [
        {
            "run": "fleet",
            "fabric": fabric,
            "at": "2026-12-01T00:00:00Z",
            "type": kind,
            "severity": "info",
            "host": "",
            "device": "",
            "text": text,
            "remedy": "",
        }
        for kind, text in kinds.items()
    ]
    return typed("events", pd.DataFrame(rows))
