"""Which function judges which kind of rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rdmabench.analysis import functional, limits
from rdmabench.analysis.context import Context
from rdmabench.analysis.ruleset import Rule
from rdmabench.analysis.verdict import Row

JUDGES: Mapping[str, Callable[[Rule, Context], Iterator[Row]]] = {
    "share": limits.share,
    "absolute": limits.absolute,
    "quantile": limits.absolute,
    "baseline": limits.baseline,
    "fleet": limits.fleet,
    "counter": functional.counter,
    "suspects": functional.suspects,
    "evidence": functional.evidence,
    "coverage": functional.coverage,
    "plausible": functional.plausible,
}
