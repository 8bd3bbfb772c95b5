"""A run as the report sees it: its tables, what to call it, which colour it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from rdmabench.analysis.keys import CHOSEN, differing
from rdmabench.analysis.stats import median_interval
from rdmabench.analysis.summary import shown_values, summarise
from rdmabench.collector import tables as collected
from rdmabench.collector.store import RunDirectory, RunInfo
from rdmabench.collector.tables import Tables
from rdmabench.report.chart import COLORS


@dataclass(frozen=True)
class Point:
    """One place of a curve: the median over repeats, its 95 % interval (NaN: none), its n."""

    size_bytes: int
    value: float
    lo: float
    hi: float
    repeats: int
    pairs: int


@dataclass(frozen=True)
class Curve:
    """One metric against the message size; `variant` sets it apart from others of its kind."""

    probe: str
    op: str
    qps: int
    variant: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class ReportRun:
    """One run; `label` is its fabric where no other run has it."""

    label: str
    color: str
    directory: RunDirectory
    info: RunInfo
    tables: Tables

    @property
    def name(self) -> str:
        """The run's name."""
        return self.directory.name

    @cached_property
    def summary(self) -> pd.DataFrame:
        """As `analysis.summary.summarise`."""
        return summarise(self.tables)

    @cached_property
    def values(self) -> pd.DataFrame:
        """Counted values in the units people read, with `variant` as in the summary."""
        values = shown_values(self.tables)
        names = differing(values, CHOSEN)
        variant = pd.Series("", index=values.index, dtype="str")
        for name in names:
            variant = variant + f", {name}=" + values[name].astype("str")
        return values.assign(variant=variant.str.removeprefix(", "))

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The nodes that have an endpoint, in the order of their names."""
        return tuple(sorted(set(self.tables.endpoints["host"].astype("str"))))

    def curves(self, metric: str) -> Iterator[Curve]:
        """The metric against the message size, one curve per operation, QPs and variant."""
        names = ["probe", "op", "qps", "variant"]
        mine = self.values[self.values["metric"] == metric].dropna(subset=["value"])
        for key, group in mine.groupby(names, observed=True):
            probe, op, qps, variant = key
            points = tuple(_points(group))
            yield Curve(str(probe), str(op), int(str(qps)), str(variant), points)


def _points(group: pd.DataFrame) -> Iterator[Point]:
    for size, rows in group.groupby("size_bytes"):
        per_repeat = rows.groupby("repeat")["value"].median()
        interval = median_interval(per_repeat)
        yield Point(
            size_bytes=int(str(size)),
            value=float(per_repeat.median()),
            lo=interval.lo,
            hi=interval.hi,
            repeats=len(per_repeat),
            pairs=int(rows["pair"].nunique()),
        )


def gather(directories: Sequence[RunDirectory]) -> tuple[ReportRun, ...]:
    """The runs with their tables, in the order they were asked for.

    Raises:
        InputError: a directory has no journal.
        StorageError: a journal cannot be read.
    """
    infos = [directory.info() for directory in directories]
    loaded = [collected.load(directory) for directory in directories]
    fabrics = [_fabric(info, tables) for info, tables in zip(infos, loaded, strict=True)]
    counts = Counter(fabrics)
    return tuple(
        ReportRun(
            label=fabric if counts[fabric] == 1 else directory.name,
            color=COLORS[place % len(COLORS)],
            directory=directory,
            info=info,
            tables=tables,
        )
        for place, (directory, info, tables, fabric) in enumerate(
            zip(directories, infos, loaded, fabrics, strict=True)
        )
    )


def _fabric(info: RunInfo, tables: Tables) -> str:
    return info.fabric or str(next(iter(tables.cases["fabric"]), "")) or "unknown"
