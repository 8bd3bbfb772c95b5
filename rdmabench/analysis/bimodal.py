"""Two groups of pairs in place of one fleet: nothing is the rule, so nobody is accused."""

from __future__ import annotations

import math

import numpy as np

from rdmabench.analysis.causes import Explanation
from rdmabench.analysis.pairs import PairMatrix

_APART = 6.0  # deviations between the two
_LEAST_GROUP = 0.1


def two_groups(matrix: PairMatrix, explanation: Explanation) -> str:
    """How the pairs fall into two distinct groups that no cause explains; empty where not."""
    rest = explanation.centre.copy()
    for cause in explanation.causes:
        rest[cause.pairs] = np.nan
    ordered = np.sort(rest[np.isfinite(rest)])
    count = len(ordered)
    least = max(3, math.ceil(_LEAST_GROUP * count))
    if count < 2 * least:
        return ""
    gaps = np.diff(ordered)[least - 1 : count - least]
    if not len(gaps):
        return ""
    at = least + int(np.argmax(gaps))
    low, high = ordered[:at], ordered[at:]
    spread = max(float(np.std(low)), float(np.std(high)), 1e-3)
    apart = float(np.median(high) - np.median(low))
    if apart < _APART * spread or float(gaps.max()) < 2 * spread:
        return ""
    fast, slow = matrix.shown(np.array([np.median(low), np.median(high)])).tolist()
    return (
        f"{matrix.what} is bimodal: {len(low)} pairs at about {fast:.3g} {matrix.unit}, "
        f"{len(high)} at about {slow:.3g} {matrix.unit}: two groups rather than a few bad ones"
    )
