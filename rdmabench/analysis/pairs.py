"""Pair matrices: for one measurement the repeats of every pair, and who takes part in it.

A slow pair has a high value in every matrix: the logarithm of the latency, or minus the logarithm
of the bandwidth. The payload's way counts, so that the responder of a read is its sender.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rdmabench.analysis.keys import CHOSEN, QUESTION, counted, differing
from rdmabench.collector.schema import METRICS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

JUDGED = ("bw", "lat_p50")
_SIDES = ("initiator", "responder")
_END = ("host", "device", "port")
_MANY_REPEATS = 16  # above it the pairwise averages of a row are too many
_CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Ends:
    """Every endpoint of a run; `host` and `rail` are numbers by endpoint."""

    labels: tuple[str, ...]
    hosts: tuple[str, ...]
    host: Ints
    rail: Ints

    @property
    def has_one_nic_each(self) -> bool:
        """Whether node and NIC are the same thing here."""
        return len(self.labels) == len(self.hosts)


@dataclass(frozen=True)
class PairMatrix:
    """One measurement: `logs` has a row per pair and a column per repeat, NaN where one lacks.

    `sender` and `receiver` are endpoint numbers; where `has_ways` is false (latency: a round trip;
    bidirectional bandwidth) the two ways of a pair are one path.
    """

    what: str
    metric: str
    unit: str
    ends: Ends
    sender: Ints
    receiver: Ints
    logs: Floats
    has_ways: bool = True
    reverses: bool = False
    least_noise: float = 0.0  # of a pair's logarithm, where an earlier run tells it better

    @property
    def probe(self) -> str:
        """`latency` or `bandwidth`."""
        return "bandwidth" if self.metric == "bw" else "latency"

    def shown(self, logs: Floats) -> Floats:
        """Logarithms as values that people read, in `unit`."""
        sign = 1.0 if METRICS[self.metric].lower_is_better else -1.0
        return np.asarray(np.exp(sign * logs) * METRICS[self.metric].scale)

    def pair_label(self, pair: int) -> str:
        """`node1/mlx5_0>node2/mlx5_0`, the initiator first, as the run has it."""
        first, second = int(self.sender[pair]), int(self.receiver[pair])
        if self.reverses:
            first, second = second, first
        return f"{self.ends.labels[first]}>{self.ends.labels[second]}"


def matrices(measurements: pd.DataFrame) -> tuple[PairMatrix, ...]:
    """A matrix per measurement of a run, and one of all of a probe where there are several.

    Values that are no positive number are left out here; acceptance says so.
    """
    wanted = {*QUESTION, *CHOSEN, "pair", "repeat", "metric", "value", "outcome", "superseded"}
    wanted |= {f"{side}_{name}" for side in _SIDES for name in _END} | {"rail", "responder_rail"}
    rows = measurements[[name for name in measurements if name in wanted]]
    rows = counted(rows[rows["metric"].isin(JUDGED)])
    values = pd.to_numeric(rows["value"], errors="coerce").to_numpy(dtype=np.float64)
    good = np.isfinite(values) & (values > 0)
    rows = rows[good].assign(value=values[good])
    if rows.empty:
        return ()
    ends, numbers = _ends(rows)
    rows = rows.assign(_initiator=numbers[0], _responder=numbers[1])
    variants = differing(rows, CHOSEN)
    single = tuple(_matrices(rows, ends, variants))
    return single + tuple(_combined(single))


def _ends(rows: pd.DataFrame) -> tuple[Ends, tuple[Ints, Ints]]:
    """The endpoints by name, and the number of each row's two."""
    sides = [
        rows[[*(f"{side}_{name}" for name in _END), rail]].set_axis([*_END, "rail"], axis=1)
        for side, rail in zip(_SIDES, ("rail", "responder_rail"), strict=True)
    ]
    known = pd.concat([side.drop_duplicates() for side in sides]).astype({"host": "str"})
    known = known.astype({"device": "str"}).drop_duplicates(list(_END)).reset_index(drop=True)
    index = pd.MultiIndex.from_frame(known[list(_END)])
    numbers = []
    for side in sides:
        unique = side[list(_END)].drop_duplicates()
        codes = side.groupby(list(_END), observed=True, sort=False).ngroup().to_numpy()
        first = index.get_indexer(pd.MultiIndex.from_frame(unique.astype({"host": "str"})))
        numbers.append(np.asarray(first, dtype=np.int64)[codes])
    host, hosts = pd.factorize(known["host"], sort=True)
    ends = Ends(
        labels=tuple(_label(*row) for row in known[list(_END)].itertuples(index=False, name=None)),
        hosts=tuple(str(name) for name in hosts),
        host=np.asarray(host, dtype=np.int64),
        rail=known["rail"].to_numpy(dtype=np.int64),
    )
    return ends, (numbers[0], numbers[1])


def _label(host: str, device: str, port: int) -> str:
    return f"{host}/{device}" + ("" if port == 1 else f":{port}")


def _matrices(rows: pd.DataFrame, ends: Ends, variants: list[str]) -> Iterator[PairMatrix]:
    keys = [*QUESTION, *variants, "metric"]
    for key, group in rows.groupby(keys, observed=True):
        named: dict[str, Any] = dict(zip(keys, key, strict=True))
        kind = "bw" if named["metric"] == "bw" else "lat"
        what = f"{named['op']}_{kind}/{named['size_bytes']}/{named['qps']}"
        what += "".join(f" {name}={named[name]}" for name in variants)
        reverses = named["op"] == "read"
        initiator, responder, logs = _repeats(group, len(ends.labels))
        sign = 1.0 if METRICS[named["metric"]].lower_is_better else -1.0
        yield PairMatrix(
            what=what,
            metric=str(named["metric"]),
            unit=METRICS[named["metric"]].shown.rsplit("_", 1)[-1],
            ends=ends,
            sender=responder if reverses else initiator,
            receiver=initiator if reverses else responder,
            logs=sign * logs,
            has_ways=kind == "bw" and bool((group["direction"] == "one-way").all()),
            reverses=reverses,
        )


def _repeats(group: pd.DataFrame, count: int) -> tuple[Ints, Ints, Floats]:
    """Initiator, responder and logarithms of every pair, one column per repeat."""
    code = group["_initiator"].to_numpy() * count + group["_responder"].to_numpy()
    pair, unique = pd.factorize(code, sort=True)
    order = np.argsort(pair, kind="stable")
    sizes = np.bincount(pair)
    column = np.arange(len(pair)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    logs = np.full((len(unique), int(sizes.max())), np.nan)
    logs[pair[order], column] = np.log(group["value"].to_numpy(dtype=np.float64)[order])
    keys = np.asarray(unique, dtype=np.int64)
    return keys // count, keys % count, logs


def _combined(single: tuple[PairMatrix, ...]) -> Iterator[PairMatrix]:
    """All measurements of a probe that cover the same pairs, as one: its noise is smaller.

    Each is centred first; a read's ends are turned round only with other reads, so that sender and
    receiver keep their meaning.
    """
    for probe in ("latency", "bandwidth"):
        groups: dict[tuple[object, ...], list[PairMatrix]] = {}
        for each in single:
            if each.probe == probe:
                pairs = (each.sender.tobytes(), each.receiver.tobytes(), each.has_ways)
                groups.setdefault((*pairs, each.reverses), []).append(each)
        for members in groups.values():
            repeats = {each.logs.shape[1] for each in members}
            if len(members) < 2 or len(repeats) > 1:
                continue
            stack = np.stack([each.logs - np.nanmedian(each.logs) for each in members])
            first = members[0]
            level = float(np.mean([np.nanmedian(each.logs) for each in members]))
            yield PairMatrix(
                what=f"all {len(members)} of {probe}",
                metric=first.metric,
                unit=first.unit,
                ends=first.ends,
                sender=first.sender,
                receiver=first.receiver,
                logs=stack.mean(axis=0) + level,
                has_ways=first.has_ways,
                reverses=first.reverses,
            )


def centres(logs: Floats) -> tuple[Floats, Ints]:
    """One value per pair, and from how many repeats.

    The median of all pairwise averages (Hodges and Lehmann): nearly as exact as the mean, and
    unmoved by one wild repeat of four or more. Below four repeats the median, of many the mean of
    the middle half.
    """
    counts = np.asarray(np.isfinite(logs).sum(axis=1), dtype=np.int64)
    ordered = np.sort(logs, axis=1)  # NaN goes last
    found = np.empty(len(logs))
    for count in np.unique(counts).tolist():
        rows = np.flatnonzero(counts == count)
        found[rows] = _centre(ordered[rows, :count])
    return found, counts


def _centre(ordered: Floats) -> Floats:
    count = ordered.shape[1]
    if count < 4:
        return np.asarray(np.median(ordered, axis=1))
    if count > _MANY_REPEATS:
        quarter = count // 4
        return np.asarray(ordered[:, quarter : count - quarter].mean(axis=1))
    first, second = np.triu_indices(count)
    step = max(1, _CELLS_AT_ONCE // len(first))
    parts = [
        np.median((part[:, first] + part[:, second]) / 2, axis=1)
        for part in (ordered[at : at + step] for at in range(0, len(ordered), step))
    ]
    return np.concatenate(parts)
