"""How the attainable rate of one case comes about, and what of it was measured."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from rdmabench.analysis.keys import counted
from rdmabench.analysis.subjects import is_nominal
from rdmabench.analysis.summary import attainable_of
from rdmabench.collector.tables import Tables
from rdmabench.errors import InputError


def explained(tables: Tables, case: str) -> Iterator[str]:
    """The sum for a case, a line each; `case` is its id, or a part that fits a bandwidth case.

    Raises:
        InputError: no measured bandwidth case fits; close ones are named.
    """
    row = _case(tables, case)
    found = attainable_of(row, tables.endpoints)
    measured = float(row["value"]) * 8e-9
    yield str(row["case"])
    yield from found.explain()
    if found.is_known:
        share = measured / found.rate_gbit_s
        yield f"measured: {measured:.2f} Gb/s, {100 * share:.1f} % of attainable"
    else:
        yield f"measured: {measured:.2f} Gb/s"
    if is_nominal(tables):
        yield "the port rate of soft-RoCE is nominal: this share says nothing of a wire"


def _case(tables: Tables, wanted: str) -> dict[Any, Any]:
    """The measured bandwidth row that is meant; of several the first."""
    rows = counted(tables.measurements)
    rows = rows[rows["metric"] == "bw"]
    names = rows["case"].astype("str")
    fitting = rows[names == wanted] if (names == wanted).any() else rows[_fits(names, wanted)]
    if fitting.empty:
        close = difflib.get_close_matches(wanted, list(dict.fromkeys(names)), n=3, cutoff=0.2)
        raise InputError(
            f"no measured bandwidth case fits {wanted!r}",
            remedy="; ".join(close or list(dict.fromkeys(names))[:3]) or "measure a bandwidth",
        )
    return {str(name): value for name, value in fitting.iloc[0].to_dict().items()}


def _fits(names: Any, wanted: str) -> Any:
    words = wanted.split()
    return names.map(lambda name: all(word in name for word in words)) & bool(words)
