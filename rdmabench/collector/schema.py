"""The tables: which columns, of which type and unit, meaning what. The one place that says so.

Stored values are in base units (bytes, nanoseconds, bytes per second); `METRICS` says how each is
shown to people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

VERSION = 2  # of the columns: tables of another version are built again
TIME = "datetime64[us, UTC]"


@dataclass(frozen=True)
class Column:
    """One column of a table; `unit` is empty where the value is not a quantity."""

    name: str
    dtype: str
    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Metric:
    """One kind of value in `measurements`; people see `shown`, which is `value * scale`."""

    name: str
    unit: str
    shown: str
    scale: float
    meaning: str
    lower_is_better: bool = True


_RUN = (
    Column("run", "category", "name of the run"),
    Column("fabric", "category", "ib, roce, tcp or rxe; imported: empty where nobody said it"),
)

_CASE = (
    *_RUN,
    Column("case", "category", "id of the case, unique in its run"),
    Column("pair", "category", "initiator>responder, each as host/device"),
    Column("initiator_host", "category", "the host that times"),
    Column("initiator_device", "category", "its RDMA device; for TCP its netdev"),
    Column("initiator_port", "int64", "its port"),
    Column("rail", "int64", "the initiator's rail"),
    Column("responder_host", "category", "the host that answers"),
    Column("responder_device", "category", "its RDMA device; for TCP its netdev"),
    Column("responder_port", "int64", "its port"),
    Column("responder_rail", "int64", "the responder's rail"),
    Column("probe", "category", "latency or bandwidth"),
    Column("op", "category", "send, write or read"),
    Column("transport", "category", "RC or TCP"),
    Column("size_bytes", "int64", "message size", "B"),
    Column("qps", "int64", "queue pairs, or TCP streams"),
    Column("depth", "int64", "messages outstanding per queue pair"),
    Column("cq_moderation", "int64", "one signalled message in so many"),
    Column("inline_bytes", "int64", "inline limit that was asked for", "B"),
    Column("completion", "category", "poll (spin) or event (completion channel)"),
    Column("direction", "category", "one-way, or bidir: both directions summed"),
    Column("loop", "category", "closed, or open: due on a schedule"),
    Column("memory", "category", "where the buffers lie"),
    Column("engine", "category", "which code timed it"),
    Column("iterations", "int64", "timed messages"),
    Column("warmup", "int64", "messages before them that are dropped"),
    Column("ranks", "int64", "processes that took part; 2 for a pair, 0: not known"),
    Column("variant", "category", "imported: what else sets rows of one operation apart"),
    Column("repeat", "int64", "which repeat, from 0"),
    Column("round", "int64", "which round of the schedule, from 0"),
)

_OUTCOME = (
    Column("outcome", "category", "measured, unsupported, skipped, failed; cases: or not reached"),
    Column("reason", "category", "why there are no numbers"),
    Column("evidence", "category", "proved, fallback or absent: whether counters prove the path"),
    Column("evidence_note", "category", "what the counters said"),
)

_RECORD = (
    *_CASE,
    Column("attempt", "int64", "which record of this case, from 0: a resumed run tries again"),
    Column("superseded", "bool", "a later attempt at the case exists"),
    *_OUTCOME,
    Column("started_at", TIME, "when the case began"),
    Column("mtu_bytes", "int64", "path MTU of the link", "B"),
    Column("traffic_class", "int64", "traffic class (DSCP and ECN) of the link"),
    Column("initiator_gid_index", "int64", "-1: no GID in use"),
    Column("responder_gid_index", "int64", "-1: no GID in use"),
    Column("gid_type", "category", "RoCE v2, IB/RoCE v1, or empty"),
    Column("timeout", "int64", "RC timeout exponent: 4.096 us * 2^timeout"),
    Column("retry_cnt", "int64", "RC retries before the link is given up"),
    Column("clock", "category", "the initiator's clock"),
    Column("clock_cost_ns", "float64", "cost of reading it, never subtracted", "ns"),
    Column("inline_used_bytes", "int64", "inline limit that was in force", "B"),
    Column("source", "str", "imported: file:line of the text; empty: measured here"),
    Column("tool_version", "category", "imported: version of the tool, as far as its text says"),
)

TABLES: Mapping[str, tuple[Column, ...]] = {
    "nodes": (
        *_RUN,
        Column("host", "str", "name in the inventory"),
        Column("hostname", "str", "what the node calls itself"),
        Column("kernel", "str", "kernel release"),
        Column("machine", "str", "architecture"),
        Column("cpu_model", "str", "processor"),
        Column("cpu_count", "int64", "logical processors"),
        Column("python", "str", "Python of the worker"),
        Column("pyverbs", "str", "pyverbs of the node"),
        Column("rdma_core", "str", "rdma-core of the node"),
        Column("memlock_bytes", "int64", "limit of locked memory; -1: none", "B"),
        Column("clock", "str", "clock of the timed loops"),
        Column("clock_cost_ns", "float64", "cost of reading it", "ns"),
        Column("worker_sha256", "str", "which worker ran"),
    ),
    "endpoints": (
        *_RUN,
        Column("host", "str", "name in the inventory"),
        Column("device", "str", "RDMA device; for TCP the netdev"),
        Column("port", "int64", "port of the device"),
        Column("rail", "int64", "its rail"),
        Column("netdev", "str", "network interface of the port"),
        Column("address", "str", "IP address of a TCP endpoint"),
        Column("link_layer", "str", "InfiniBand or Ethernet"),
        Column("state", "str", "port state"),
        Column("rate_text", "str", "rate as the node says it"),
        Column("rate_gbit_s", "float64", "data rate after encoding; 0: unknown", "Gb/s"),
        Column("active_mtu_bytes", "int64", "active MTU", "B"),
        Column("gid_index", "int64", "GID in use; -1: none"),
        Column("gid", "str", "that GID"),
        Column("gid_type", "str", "its type"),
        Column("lid", "int64", "LID; 0 on Ethernet"),
        Column("driver", "str", "kernel driver"),
        Column("firmware", "str", "firmware version"),
        Column("board", "str", "board id"),
        Column("numa_node", "int64", "NUMA node; -1: unknown"),
        Column("max_qp", "int64", "queue pairs the device has"),
        Column("max_qp_rd_atom", "int64", "reads outstanding per queue pair"),
    ),
    "cases": (
        *_CASE,
        *_OUTCOME,
        Column("attempts", "int64", "records of this case; 0: not reached"),
    ),
    "measurements": (
        *_RECORD,
        Column("metric", "category", "which quantity; none where the case has no numbers"),
        Column("value", "float64", "its value in `unit`; none where the case has no numbers"),
        Column("unit", "category", "unit of the value"),
    ),
    "latency": (
        *_RECORD,
        Column("n", "int64", "samples"),
        Column("min_ns", "float64", "smallest", "ns"),
        Column("mean_ns", "float64", "arithmetic mean", "ns"),
        Column("stdev_ns", "float64", "standard deviation of the sample (n - 1)", "ns"),
        Column("p50_ns", "float64", "nearest-rank median; n >= 20", "ns"),
        Column("p90_ns", "float64", "nearest-rank quantile; n >= 100", "ns"),
        Column("p99_ns", "float64", "nearest-rank quantile; n >= 1,000", "ns"),
        Column("p99_9_ns", "float64", "nearest-rank quantile; n >= 10,000", "ns"),
        Column("p99_99_ns", "float64", "nearest-rank quantile; n >= 100,000", "ns"),
        Column("max_ns", "float64", "largest", "ns"),
        Column("jitter_pct", "float64", "100 (p99 - p50) / p50", "%"),
        Column("cv_pct", "float64", "100 stdev / mean", "%"),
        Column("samples", "str", "file of the samples in the run's directory"),
    ),
    "counters": (
        *_RUN,
        Column("case", "category", "id of the case"),
        Column("attempt", "int64", "which record of this case"),
        Column("host", "category", "the host that was read"),
        Column("device", "category", "the device that was read"),
        Column("port", "int64", "the port that was read"),
        Column("role", "category", "initiator or responder"),
        Column("counter", "category", "name of the counter"),
        Column("before", "uint64", "value before the timed part"),
        Column("after", "uint64", "value after it"),
        Column("delta", "int64", "after - before; a counter that wrapped at 2^64 is undone"),
    ),
    "events": (
        *_RUN,
        Column("at", TIME, "when it was written"),
        Column("type", "category", "RunStarted, ImportStarted, Notice or RunEnded"),
        Column("severity", "category", "info, warning or error"),
        Column("host", "str", "the node it is about"),
        Column("device", "str", "the device it is about"),
        Column("text", "str", "what happened"),
        Column("remedy", "str", "what to do"),
    ),
}

_COLLECTIVE = {
    "time": "time of one operation; imported: mean over ranks and iterations",
    "time_min": "smallest time of an iteration",
    "time_max": "largest time of an iteration",
    "time_p99": "99th percentile of the iterations' times",
}
_PLACES = {"": "", "_in_place": ", in place"}
_LATENCIES = {
    "min": "smallest latency",
    "mean": "mean latency",
    "stdev": "standard deviation of the latency",
    "p50": "median latency",
    "p90": "90th percentile of the latency",
    "p99": "99th percentile of the latency",
    "p99_9": "99.9th percentile of the latency",
    "p99_99": "99.99th percentile of the latency",
    "max": "largest latency",
}
_IMPORTED = (
    Metric("bw_peak", "B/s", "bw_peak_gbps", 8e-9, "best moment; never judged", False),
    Metric("bw_min", "B/s", "bw_min_gbps", 8e-9, "worst window", lower_is_better=False),
    Metric("bw_total", "B/s", "bw_total_gbps", 8e-9, "payload over time, all pairs", False),
    Metric("rate_total", "1/s", "rate_total_mpps", 1e-6, "messages over time, all pairs", False),
    Metric("messages", "1", "messages", 1.0, "messages of the test", lower_is_better=False),
    Metric("tps", "1/s", "tps", 1.0, "round trips over time", lower_is_better=False),
    Metric("cpu_util_pct", "%", "cpu_util_pct", 1.0, "busy share of the host, as perftest has it"),
    Metric("lat_stdev_printed", "ns", "lat_stdev_printed_us", 1e-3, "as perftest prints it"),
    Metric("lat_rank_min", "ns", "lat_rank_min_us", 1e-3, "the quickest rank's mean"),
    Metric("lat_rank_max", "ns", "lat_rank_max_us", 1e-3, "the slowest rank's mean"),
    Metric("time_rank_min", "ns", "time_rank_min_us", 1e-3, "the quickest rank's mean time"),
    Metric("time_rank_max", "ns", "time_rank_max_us", 1e-3, "the slowest rank's mean time"),
)
_COLLECTIVES = tuple(
    metric
    for place, words in _PLACES.items()
    for metric in (
        *(
            Metric(f"{name}{place}", "ns", f"{name}{place}_us", 1e-3, meaning + words)
            for name, meaning in _COLLECTIVE.items()
        ),
        Metric(f"time_cv_pct{place}", "%", f"time_cv_pct{place}", 1.0, "100 stdev / mean" + words),
        Metric(f"algbw{place}", "B/s", f"algbw{place}_GBps", 1e-9, "size over time" + words, False),
        Metric(f"busbw{place}", "B/s", f"busbw{place}_GBps", 1e-9, "algbw * factor" + words, False),
        Metric(f"wrong{place}", "1", f"wrong{place}_elements", 1.0, "wrong elements" + words),
    )
)
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("lat_n", "1", "lat_n", 1.0, "latency samples", lower_is_better=False),
        *(
            Metric(f"lat_{name}", "ns", f"lat_{name}_us", 1e-3, meaning)
            for name, meaning in _LATENCIES.items()
        ),
        Metric("jitter_pct", "%", "jitter_pct", 1.0, "100 (p99 - p50) / p50"),
        Metric("cv_pct", "%", "cv_pct", 1.0, "100 stdev / mean"),
        Metric("bw", "B/s", "bw_gbps", 8e-9, "payload over time", lower_is_better=False),
        Metric("rate", "1/s", "rate_mpps", 1e-6, "messages over time", lower_is_better=False),
        Metric("qp_spread_pct", "%", "qp_spread_pct", 1.0, "100 (most - least) / mean QP bytes"),
        Metric("cpu_initiator_pct", "%", "cpu_initiator_pct", 1.0, "CPU over wall time"),
        Metric("cpu_responder_pct", "%", "cpu_responder_pct", 1.0, "CPU over wall time"),
        Metric("cpu_initiator", "s/GB", "cpu_initiator_s_per_GB", 1.0, "CPU per payload moved"),
        Metric("cpu_responder", "s/GB", "cpu_responder_s_per_GB", 1.0, "CPU per payload moved"),
        *_IMPORTED,
        *_COLLECTIVES,
    )
}


def schema() -> pd.DataFrame:
    """Every column of every table, as a table: table, column, dtype, unit, meaning."""
    rows = [
        (table, column.name, column.dtype, column.unit, column.meaning)
        for table, columns in TABLES.items()
        for column in columns
    ]
    return pd.DataFrame(rows, columns=["table", "column", "dtype", "unit", "meaning"])


def typed(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The table's columns in order and of their types; a column the frame lacks is empty."""
    frame = frame.reindex(columns=[column.name for column in TABLES[table]])
    changed: dict[str, Any] = {
        column.name: _typed_column(frame[column.name], column.dtype)
        for column in TABLES[table]
        if str(frame[column.name].dtype) != column.dtype
    }
    return frame.assign(**changed)


def _typed_column(values: Any, dtype: Any) -> Any:
    if dtype == TIME:
        return pd.to_datetime(values, utc=True, errors="coerce").astype(dtype)
    if dtype == "category":
        return values.astype("str").astype("category")
    return values.astype(dtype)
