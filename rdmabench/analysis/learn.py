"""Rules made of good runs: what this fabric reached, with the room that its own spread asks for.

A pair whose value lies far from the others of its measurement (modified z above 3.5, Iglewicz and
Hoaglin; again and again until none does) is left out and named: a baseline must not learn a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import yaml

from rdmabench.analysis.acceptance import PASS, accept
from rdmabench.analysis.ruleset import load
from rdmabench.analysis.subjects import subjects, with_values
from rdmabench.collector.schema import METRICS
from rdmabench.collector.tables import Tables
from rdmabench.errors import InputError

CUT = 3.5
_LEAST_MARGIN = 0.05
_SPREADS = 4.0
_LEAST_SCALE = 0.005
_LEARNT = {"bandwidth": ("bw", "Gb/s"), "latency": ("lat_p50", "us")}
_FUNCTIONAL = ("coverage", "evidence", "plausible", "counter")


@dataclass(frozen=True)
class Learnt:
    """The text of a rules file, and what was left out of it: run, pair, measurement, why."""

    text: str
    excluded: pd.DataFrame
    rules: int


def learn(runs: Sequence[Tables]) -> Learnt:
    """Rules from runs of one fabric.

    Raises:
        InputError: no run, runs of several fabrics, or nothing in them that is sound.
    """
    fabrics = {str(name) for tables in runs for name in tables.cases["fabric"].unique()}
    if len(fabrics) != 1:
        found = ", ".join(sorted(fabrics)) or "none"
        raise InputError(f"a baseline is made of runs of one fabric, found {found}")
    (fabric,) = fabrics
    values = pd.concat([_values(tables) for tables in runs], ignore_index=True)
    if values.empty:
        raise InputError("nothing was measured in these runs, so there is nothing to learn")
    rules, excluded = [], [*_unfit(runs)]
    unfit = {(each["run"], each["pair"], each["measurement"]) for each in excluded}
    keys = ["op", "probe", "size_bytes", "qps"]
    for key, group in values.groupby(keys, sort=False):
        sound = [
            (run, pair, what) not in unfit
            for run, pair, what in zip(group["run"], group["pair"], group["what"], strict=True)
        ]
        kept, left = _without_outliers(group[sound])
        excluded += left
        if len(kept):
            rules.append(_rule(dict(zip(keys, key, strict=True)), kept))
    if not rules:
        raise InputError(
            "no measurement of these runs is sound enough to learn from",
            remedy="; ".join(dict.fromkeys(each["reason"] for each in excluded)),
        )
    shipped = load(fabric)
    names = ", ".join(str(next(iter(tables.cases["run"]), "")) for tables in runs)
    document = {
        "name": f"{fabric}-learnt",
        "title": f"learnt from {names}",
        "rules": [*_functional(fabric), *rules],
    }
    frame = pd.DataFrame(excluded, columns=["run", "pair", "measurement", "reason"])
    text = _heading(frame, shipped.performance) + yaml.safe_dump(
        document, sort_keys=False, allow_unicode=True, width=100
    )
    return Learnt(text=text, excluded=frame, rules=len(rules))


def _values(tables: Tables) -> pd.DataFrame:
    rows = subjects(tables)
    found = [
        with_values(rows[rows["probe"] == probe], tables, metric)
        for probe, (metric, _) in _LEARNT.items()
    ]
    run = str(next(iter(tables.cases["run"]), ""))
    joined = pd.concat(found, ignore_index=True)
    return joined[joined["defect"] == ""].assign(run=run)


def _unfit(runs: Sequence[Tables]) -> Iterator[dict[str, str]]:
    """Pairs and measurements whose evidence or whose values are not sound."""
    for tables in runs:
        fabric = str(tables.cases["fabric"].iloc[0])
        rows = accept(tables, load(fabric)).rows
        bad = rows[rows["kind"].isin(["evidence", "plausible"]) & (rows["verdict"] != PASS)]
        for each in bad.to_dict("records"):
            yield {
                "run": str(tables.cases["run"].iloc[0]),
                "pair": str(each["subject"]),
                "measurement": str(each["measurement"]),
                "reason": str(each["remark"]),
            }


def _without_outliers(group: pd.DataFrame) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Those that belong together, and those that do not, each with its distance."""
    kept, left = group, []
    while len(kept) > 3:
        logs = np.log(kept["value"].to_numpy(dtype=np.float64))
        middle = np.median(logs)
        scale = max(float(np.median(np.abs(logs - middle))) * 1.4826, _LEAST_SCALE)
        z = (logs - middle) / scale
        out = np.abs(z) > CUT
        if not out.any():
            break
        for row, distance in zip(kept[out].to_dict("records"), z[out], strict=True):
            left.append(
                {
                    "run": row["run"],
                    "pair": row["pair"],
                    "measurement": row["what"],
                    "reason": f"outlier: {distance:+.1f} deviations from the median",
                }
            )
        kept = kept[~out]
    return kept, left


def _rule(key: dict[str, Any], kept: pd.DataFrame) -> dict[str, Any]:
    """Median and margin: 5 %, or four deviations of pairs or of repeats where that is more."""
    metric, unit = _LEARNT[key["probe"]]
    values = kept["value"].to_numpy(dtype=np.float64)
    logs = np.log(values)
    between = float(np.median(np.abs(logs - np.median(logs)))) * 1.4826
    widths = (kept["hi"] / kept["lo"]).dropna().to_numpy(dtype=np.float64)
    within = np.log(widths) / 4
    scale = max(between, float(np.median(within)) if len(within) else 0.0)
    margin = max(_LEAST_MARGIN, 1 - math.exp(-_SPREADS * scale))
    middle = float(np.median(values)) * METRICS[metric].scale
    lower = METRICS[metric].lower_is_better
    limit = middle / (1 - margin) if lower else middle * (1 - margin)
    kind = "lat" if key["probe"] == "latency" else "bw"
    return {
        "name": f"{key['op']}_{kind}-{key['size_bytes']}-{key['qps']}",
        "kind": "absolute",
        "metric": metric,
        "op": str(key["op"]),
        "size": int(key["size_bytes"]),
        "qps": int(key["qps"]),
        ("max" if lower else "min"): float(f"{limit:.5g}"),
        "unit": unit,
        "source": f"median {middle:.5g} {unit} of {len(values)} pairs, margin {100 * margin:.1f} %",
    }


def _functional(fabric: str) -> Iterator[dict[str, Any]]:
    """The shipped rules that are no limit of performance, as they are written."""
    for rule in load(fabric).rules:
        if rule.kind not in _FUNCTIONAL:
            continue
        plain: dict[str, Any] = {"name": rule.name, "kind": rule.kind, "source": rule.source}
        if rule.kind == "counter":
            plain["max"] = int(rule.high or 0)
            plain["counters"] = {key: list(names) for key, names in rule.counters.items()}
        if rule.severity != "fail":
            plain["severity"] = rule.severity
        yield plain


def _heading(excluded: pd.DataFrame, performance: bool) -> str:
    lines = [
        "# Made by `rdmabench accept --learn`: limits are what these runs reached, less a margin."
    ]
    if not performance:
        lines.append("# Soft-RoCE: such limits hold for this machine only, and prove no fabric.")
    lines += [
        "# left out: "
        + " ".join(f"{e['run']} {e['pair']} {e['measurement']}: {e['reason']}".split())
        for e in excluded.to_dict("records")
    ]
    printable = ("".join(c if c.isprintable() else " " for c in text) for text in lines)
    return "\n".join(printable) + "\n"
