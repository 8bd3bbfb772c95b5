"""The pictures of a report: each with axis titles, units and the number of samples, or none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from rdmabench.analysis.keys import as_text, counted
from rdmabench.report.chart import (
    COLORS,
    FAINT,
    INK,
    PAPER,
    Figure,
    Trace,
    axis,
    layout,
    line,
    log_axis,
    plain,
    size_axis,
)
from rdmabench.report.formats import number_text
from rdmabench.report.tails import tails
from rdmabench.report.view import Curve, Point, ReportRun
from rdmabench.units import size_text

WORST_MARKED = 5
MATRIX_LEAST_NODES = 3
_COUNTERS_DRAWN = 8
_BOUNDARIES_DRAWN = 60
_OPS = ("send", "write", "read")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "x", "star", "pentagon")

# Counters that stand still on a healthy fabric, by what their names hold.
_TROUBLE = (
    *("err", "retry", "seq", "discard", "drop", "nak", "timeout", "pause", "cnp", "ecn"),
    *("duplicate", "congest", "wait", "downed", "recover", "overrun", "rnr", "retrans"),
)


def figures(runs: Sequence[ReportRun]) -> tuple[Figure, ...]:
    """Every picture that these runs have data for."""
    found = [
        *_against_size(runs, "latency"),
        *_against_size(runs, "bandwidth"),
        *_tail_figures(runs),
    ]
    for run in runs:
        found += [*matrices(run), *counter_figures(run)]
    return tuple(found)


def _against_size(runs: Sequence[ReportRun], probe: str) -> Iterator[Figure]:
    metrics = {"latency": ("lat_p50_us", "lat_p99_us"), "bandwidth": ("bw_gbps",)}[probe]
    curves = [
        (run, metric, curve)
        for run in runs
        for metric in (*metrics, *(("attainable_gbps",) if probe == "bandwidth" else ()))
        for curve in run.curves(metric)
        if curve.probe == probe
    ]
    for op in _in_order(curve.op for _, _, curve in curves):
        mine = [each for each in curves if each[2].op == op]
        traces = [trace for each in mine for trace in _curve_traces(*each, mine)]
        sizes = [point.size_bytes for _, _, curve in mine for point in curve.points]
        measured = [curve for _, metric, curve in mine if metric in metrics[:1]]
        y = "latency (us, log)" if probe == "latency" else "payload rate (Gb/s, log)"
        sides = log_axis(y, _heights(traces))
        across, against = size_axis(sizes), "against message size"
        if len(set(sizes)) == 1:
            across, against = _side_by_side(traces), f"at {size_text(sizes[0])}"
        yield Figure(
            name=f"{probe}-{op}",
            title=f"{probe.capitalize()} of {op} {against}",
            note=f"{_what_is_drawn(probe, mine)} {_count_text(measured)}",
            traces=tuple(traces),
            layout=layout(across, sides),
        )


def _side_by_side(traces: Sequence[Trace]) -> dict[str, Any]:
    """Gives curves of a single size places of their own, and answers the axis of these."""
    for trace in traces:
        trace["x"] = [trace["name"]] * len(trace["y"])
    return axis("fabric and queue pairs or quantile", type="category")


def _heights(traces: Iterable[Trace]) -> list[float]:
    return [float(value) for trace in traces for value in trace["y"]]


def _what_is_drawn(probe: str, curves: Sequence[tuple[ReportRun, str, Curve]]) -> str:
    bars = "Bars are 95 % intervals over the repeats; without a bar there were too few."
    if probe == "latency":
        tail = any(metric == "lat_p99_us" for _, metric, _ in curves)
        return f"Median{' (solid) and p99 (dashed)' if tail else ''} of the latency. {bars}"
    known = any(metric == "attainable_gbps" for _, metric, _ in curves)
    line_text = "Attainable (dotted) is what the wire can carry at best." if known else ""
    return f"Median payload rate. {line_text} {bars}".replace("  ", " ")


def _count_text(curves: Iterable[Curve]) -> str:
    cases = sum(point.repeats * point.pairs for curve in curves for point in curve.points)
    return f"n = {cases:,} cases (repeats x pairs)."


def _curve_traces(
    run: ReportRun, metric: str, curve: Curve, all_curves: Sequence[tuple[ReportRun, str, Curve]]
) -> Iterator[Trace]:
    kinds = sorted({(c.qps, c.variant) for _, _, c in all_curves})
    symbol = _SYMBOLS[kinds.index((curve.qps, curve.variant)) % len(_SYMBOLS)]
    dash = {"lat_p99_us": "dash", "attainable_gbps": "dot"}.get(metric, "solid")
    name = " ".join(part for part in (run.label, _kind(metric, curve, kinds)) if part)
    points = [
        (float(p.size_bytes), p.value, p.lo, p.hi, _hover(name, metric, p)) for p in curve.points
    ]
    trace = line(name, points, color=run.color, dash=dash, symbol=symbol)
    if metric == "attainable_gbps":
        if curve.qps != min(c.qps for r, m, c in all_curves if m == metric and r is run):
            return
        trace |= {"mode": "lines+markers", "marker": _dash_mark(run.color)}
        trace.pop("error_y")
    yield trace


def _dash_mark(color: str) -> dict[str, Any]:
    return {"symbol": "line-ew-open", "size": 16, "color": color, "line": {"width": 2}}


def _kind(metric: str, curve: Curve, kinds: Sequence[tuple[int, str]]) -> str:
    if metric == "attainable_gbps":
        return "attainable"
    parts = [{"lat_p50_us": "p50", "lat_p99_us": "p99"}.get(metric, "")]
    if len({qps for qps, _ in kinds}) > 1:
        parts.append(f"{curve.qps} QP{'s' if curve.qps > 1 else ''}")
    return " ".join(part for part in (*parts, curve.variant) if part)


def _hover(name: str, metric: str, point: Point) -> str:
    unit = metric.rsplit("_", 1)[1].replace("gbps", "Gb/s")
    lines = [
        f"{plain(name)}, {size_text(point.size_bytes)}",
        f"{number_text(point.value)} {unit}",
        f"{point.repeats} repeats, {point.pairs} pairs",
    ]
    if math.isfinite(point.lo):
        lines[1] += f" (95 %: {number_text(point.lo)} to {number_text(point.hi)})"
    return "<br>".join(lines)


def _in_order(ops: Iterable[str]) -> list[str]:
    return sorted(set(ops), key=lambda op: (_OPS.index(op) if op in _OPS else len(_OPS), op))


def _tail_figures(runs: Sequence[ReportRun]) -> Iterator[Figure]:
    found = [tail for run in runs for tail in tails(run)]
    for op in _in_order(tail.op for tail in found):
        for size in sorted({tail.size_bytes for tail in found if tail.op == op}):
            mine = [tail for tail in found if (tail.op, tail.size_bytes) == (op, size)]
            counts = "; ".join(tail.count_text for tail in mine)
            yield Figure(
                name=f"tail-{op}-{size}",
                title=f"Latency tail of {op}, {size_text(size)}",
                note=f"Share of messages that took so long or longer, samples pooled: {counts}.",
                traces=tuple(tail.trace() for tail in mine),
                layout=layout(
                    log_axis("latency (us, log)", (us for tail in mine for us in tail.latency_us)),
                    axis(
                        "messages as slow or slower (%, log)",
                        type="log",
                        tickvals=[100, 50, 10, 1, 0.1, 0.01, 0.001],
                        ticktext=["100", "50", "10", "1", "0.1", "0.01", "0.001"],
                    ),
                ),
            )


def matrices(run: ReportRun) -> Iterator[Figure]:
    """Initiator by responder, where there are more than two nodes; the worst pairs are marked."""
    if len(run.hosts) < MATRIX_LEAST_NODES:
        return
    for probe, metric in (("latency", "lat_p50_us"), ("bandwidth", "bw_gbps")):
        mine = run.values[run.values["metric"] == metric].dropna(subset=["value"])
        names = ["op", "size_bytes", "qps", "variant"]
        if mine.empty:
            continue
        sizes = mine.groupby(names, observed=True)["pair"].nunique().reset_index()
        rising = probe == "bandwidth"
        by = ["pair", "size_bytes"]
        chosen = sizes.sort_values(by, ascending=[False, not rising], kind="stable").iloc[0]
        for name in names:
            mine = mine[mine[name] == chosen[name]]
        yield _matrix(run, probe, mine, chosen)


def _matrix(run: ReportRun, probe: str, values: pd.DataFrame, row: pd.Series) -> Figure:
    by_pair = _ends(values).groupby(["initiator", "responder"])["value"].median()
    cases = len(values.drop_duplicates(["pair", "repeat"]))
    table = by_pair.unstack()
    labels = sorted({*table.index, *table.columns})
    table = table.reindex(index=labels, columns=labels)
    ranked = by_pair.reset_index().sort_values("value", ascending=probe == "bandwidth")
    worst = ranked.head(min(WORST_MARKED, max(1, len(by_pair) // 10)))
    unit = "us" if probe == "latency" else "Gb/s"
    what = f"{row['op']}, {size_text(int(row['size_bytes']))}, {row['qps']} QP"
    quantity = "median latency" if probe == "latency" else "payload rate"
    heat = _heat(table, labels, title=f"{quantity} ({unit})", reverse=probe == "bandwidth")
    heat["hovertemplate"] = f"%{{y}} > %{{x}}<br>%{{z:.4g}} {unit}<extra></extra>"
    marked = list(zip(worst["initiator"], worst["responder"], worst["value"], strict=True))
    named = ", ".join(f"{a} > {b} ({number_text(float(value))})" for a, b, value in marked)
    rank = "slowest" if probe == "latency" else "lowest"
    return Figure(
        name=f"pairs-{probe}-{run.name}",
        title=f"{quantity.capitalize()} by pair: {run.label} ({what})",
        note=f"n = {cases:,} cases over {len(by_pair):,} pairs, median over repeats. "
        f"Marked, the {rank} {len(worst)}: {named}. "
        "Marks are ranks, not verdicts.",
        traces=(heat, _marks([(a, b) for a, b, _ in marked], probe)),
        layout=layout(
            axis("responder", type="category", showgrid=False, tickangle=-45),
            axis("initiator", type="category", showgrid=False, autorange="reversed"),
        ),
        height=max(380, min(760, 170 + 22 * len(labels))),
    )


def _ends(values: pd.DataFrame) -> pd.DataFrame:
    """The two ends by host; with the device where a host has several."""
    text = as_text(values)
    several = text.groupby("initiator_host")["initiator_device"].nunique().max() > 1
    names = {}
    for side in ("initiator", "responder"):
        host, device = text[f"{side}_host"], text[f"{side}_device"]
        names[side] = host + "/" + device if several else host
    return text.assign(**names)


def _heat(table: pd.DataFrame, labels: list[Any], *, title: str, reverse: bool) -> Trace:
    shown = [plain(label, longest=18) for label in labels]
    rows = table.to_numpy(dtype=float).tolist()
    return {
        "type": "heatmap",
        "x": shown,
        "y": shown,
        "z": rows,
        "colorscale": "Cividis",
        "reversescale": reverse,
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": False,
        "name": title,
        "showlegend": False,
        "colorbar": {"title": {"text": title, "side": "right"}, "thickness": 14, "outlinewidth": 0},
    }


def _marks(pairs: Sequence[tuple[str, str]], probe: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [plain(responder, longest=18) for _, responder in pairs],
        "y": [plain(initiator, longest=18) for initiator, _ in pairs],
        "name": "slowest pairs" if probe == "latency" else "pairs with the lowest rate",
        "hoverinfo": "skip",
        "marker": {
            "symbol": "x-thin",
            "size": 10,
            "color": INK,
            "line": {"color": "#d55e00", "width": 3},
        },
    }


def is_trouble(counter: str) -> bool:
    """Whether a counter stands still on a healthy fabric."""
    return any(part in counter.lower() for part in _TROUBLE)


def moved_counters(run: ReportRun) -> pd.DataFrame:
    """Counters that moved, per case: summed over nodes, with when the case began."""
    counters = run.tables.counters
    moved = as_text(counters[counters["delta"] != 0])
    started = as_text(counted(run.tables.measurements)[["case", "attempt", "started_at"]])
    started = started.drop_duplicates(["case", "attempt"])
    return moved.merge(started, on=["case", "attempt"], how="left")


def counter_figures(run: ReportRun) -> Iterator[Figure]:
    """How far the counters of trouble moved, case by case, in time; none where all stood still."""
    moved = moved_counters(run)
    moved = moved[moved["counter"].map(is_trouble).astype(bool)].dropna(subset=["started_at"])
    if moved.empty:
        return
    totals = moved.groupby("counter")["delta"].sum().abs().sort_values(ascending=False)
    names = list(totals.head(_COUNTERS_DRAWN).index)
    per_case = (
        moved[moved["counter"].isin(names)]
        .groupby(["counter", "case", "started_at"])["delta"]
        .sum()
        .reset_index()
        .sort_values("started_at")
    )
    traces = [_counter_trace(place, name, per_case) for place, name in enumerate(names)]
    cases = counted(run.tables.measurements).drop_duplicates(["case", "attempt"])["started_at"]
    left_out = f" {len(totals) - len(names)} more are in the table." if len(totals) > 8 else ""
    lines = " Thin lines: starts of cases." if len(cases) <= _BOUNDARIES_DRAWN else ""
    yield Figure(
        name=f"counters-{run.name}",
        title=f"Counters of trouble over time: {run.label}",
        note=f"Sum over both ends, one mark per case that moved one.{lines} "
        f"n = {per_case['case'].nunique():,} of {len(cases):,} cases.{left_out}",
        traces=tuple(traces),
        layout=layout(
            axis("start of the case (UTC)", type="date"),
            log_axis("increase in the case (count, log)", per_case["delta"].astype("float64")),
            shapes=_boundaries(cases.dropna().sort_values()),
        ),
    )


def _counter_trace(place: int, name: str, per_case: pd.DataFrame) -> Trace:
    mine = per_case[per_case["counter"] == name]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(name.rsplit("/", 1)[-1]),
        "x": [at.strftime("%Y-%m-%dT%H:%M:%S.%f") for at in mine["started_at"]],
        "y": [int(delta) for delta in mine["delta"]],
        "text": [
            f"{plain(name)}<br>+{delta:,}<br>{plain(case, longest=90)}"
            for delta, case in zip(mine["delta"], mine["case"], strict=True)
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "size": 9,
            "color": COLORS[place % len(COLORS)],
            "symbol": _SYMBOLS[place % len(_SYMBOLS)],
            "line": {"color": PAPER, "width": 1},
        },
    }


def _boundaries(started: pd.Series) -> list[dict[str, Any]]:
    if len(started) > _BOUNDARIES_DRAWN:
        return []
    return [
        {
            "type": "line",
            "x0": at,
            "x1": at,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "layer": "below",
            "opacity": 0.25,
            "line": {"color": FAINT, "width": 1},
        }
        for at in started.map(lambda each: each.strftime("%Y-%m-%dT%H:%M:%S.%f"))
    ]
