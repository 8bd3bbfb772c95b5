"""Our latency is perftest's, on the same endpoints in the same minutes, where a microsecond counts.

`make bench-fidelity` measures more operations, and the lab's rxe device, and prints the ratios.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdmabench import wire
from tests.bench.fidelity import Native, case_of, compare, link_of, value_of
from tests.bench.perftest import Yardstick, median
from tests.duo import samples_of

pytestmark = pytest.mark.native

ROUNDS = 5
TESTS = [Yardstick(op, "lat", 2, 1, 5_000, 500) for op in ("send", "write", "read")]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Native]:
    made = Native(tmp_path)
    made.tests = lambda: TESTS  # type: ignore[method-assign]
    yield made
    made.close()


def test_latency_is_within_two_per_cent_of_perftests(bed: Native) -> None:
    rows = list(compare(bed, ROUNDS))
    assert [row.what for row in rows] == ["send_lat/2/1", "write_lat/2/1", "read_lat/2/1"]
    for row in rows:
        assert row.ratio <= 1.02, rows
        assert row.ratio >= 0.90, f"faster than the yardstick by a tenth: {rows}"


def test_the_pure_python_engine_would_not_pass_that_test(bed: Native) -> None:
    """So the test above can fail: Python objects for each completion cost microseconds."""
    duo, test = bed._duo, TESTS[2]
    duo.both(wire.CloseLink("x"))
    duo.connect(parameters=link_of(TESTS), engine="pyverbs")
    case = case_of(test, *duo.refs)
    case = replace(case, parameters=replace(case.parameters, engine="pyverbs"))
    slow = []
    for _ in range(3):
        first = duo.measure(case)[0]
        slow.append(value_of(test, first, samples_of(first)))
    yardstick = median([bed.theirs(test) for _ in range(3)])
    assert median(slow) > 1.5 * yardstick
