"""One picture as plotly's JSON: its axes, its colours, its text made harmless.

plotly reads a few HTML tags in every text it draws, so what came from a run is escaped here; what
comes out is drawn as it was written.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rdmabench.report.safe import clean
from rdmabench.units import size_text

Trace = dict[str, Any]

COLORS = ("#1f83bd", "#d55e00", "#009e73", "#b65796", "#b98300", "#3f97cc", "#7a6bc4", "#808080")
INK, FAINT, GRID, PAPER = "#1a1d21", "#5c646e", "#dfe3e8", "#ffffff"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
_LONGEST = 60
_SIZE_TICKS = 7
_FINE_DECADES = 3
_MOST_DECADES = 8


@dataclass(frozen=True)
class Figure:
    """A picture. `name` is its file's name, `note` says how many samples are in it."""

    name: str
    title: str
    note: str
    traces: tuple[Trace, ...]
    layout: dict[str, Any]
    height: int = 380

    @property
    def point_count(self) -> int:
        """How many values the traces hold."""
        return sum(
            len(trace["z"]) * len(trace["z"][0]) if "z" in trace else len(trace["x"])
            for trace in self.traces
        )


def plain(text: object, *, longest: int = _LONGEST) -> str:
    """Text from a run for a plotly text: no markup, no control characters, not too long."""
    cleaned = clean(text)
    if len(cleaned) > longest:
        cleaned = f"{cleaned[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"
    return html.escape(cleaned, quote=False)


def to_json(value: object) -> str:
    """JSON in ASCII that can stand in a script element: no `<`, `>`, `&`, no NaN."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title, quantity and unit."""
    return {
        "title": {"text": title, "standoff": 10},
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": FAINT,
        "ticks": "outside",
        "tickcolor": FAINT,
        "automargin": True,
        **more,
    }


def log_axis(title: str, values: Iterable[float], **more: Any) -> dict[str, Any]:
    """A logarithmic axis of these values, labelled with whole numbers as far as there is room."""
    found = sorted(value for value in values if math.isfinite(value) and value > 0)
    ticks = _log_ticks(found[0], found[-1]) if found else [1.0]
    return axis(
        title, type="log", tickvals=ticks, ticktext=[f"{tick:,.6g}" for tick in ticks], **more
    )


def _log_ticks(lowest: float, highest: float) -> list[float]:
    """1, 2, 5 of each decade, or each decade alone, or fewer; a tick beyond each end."""
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    decades = max(1, last - first)
    steps = (1, 2, 5) if decades <= _FINE_DECADES else (1,)
    stride = math.ceil(decades / _MOST_DECADES)
    return [step * 10.0**exponent for exponent in range(first, last + 1, stride) for step in steps]


def size_axis(sizes: Iterable[int], title: str = "message size") -> dict[str, Any]:
    """A logarithmic axis of message sizes, labelled at sizes that were measured."""
    known = sorted(set(sizes))
    step = max(1, math.ceil(len(known) / _SIZE_TICKS))
    ticks = known[::step]
    ends = (math.log10(known[0]), math.log10(known[-1])) if known else (0.0, 1.0)
    room = max(0.15, 0.05 * (ends[1] - ends[0]))
    return axis(
        f"{title} (bytes, log)",
        type="log",
        tickvals=ticks,
        ticktext=[size_text(size) for size in ticks],
        range=[ends[0] - room, ends[1] + room],
    )


def layout(x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The frame that all pictures share."""
    return {
        "xaxis": x,
        "yaxis": y,
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER,
        "margin": {"l": 56, "r": 18, "t": 12, "b": 48},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#8a929c", "activecolor": FAINT},
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
        **more,
    }


def line(
    name: str, points: Sequence[tuple[float, float, float, float, str]], **style: Any
) -> Trace:
    """A curve of (x, y, low, high, hover text); an interval that is NaN has no bar."""
    dash = style.get("dash", "solid")
    color = style.get("color", COLORS[0])
    symbol = style.get("symbol", "circle")
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(name),
        "x": [point[0] for point in points],
        "y": [point[1] for point in points],
        "text": [point[4] for point in points],
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": color, "width": 2, "dash": dash},
        "marker": {
            "color": color,
            "size": 8,
            "symbol": symbol if dash == "solid" else f"{symbol}-open",
            "line": {"color": color, "width": 2},
        },
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [_or_zero(high - y) for _, y, _, high, _ in points],
            "arrayminus": [_or_zero(y - low) for _, y, low, _, _ in points],
            "thickness": 1.5,
            "width": 5,
            "color": color,
        },
    }


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0
