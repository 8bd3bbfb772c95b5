from __future__ import annotations

import pytest

from rdmabench.errors import ProbeError
from rdmabench.model import Role, SideReport
from rdmabench.orchestrator.pair import check_clock


def a_report(wall_s: float) -> SideReport:
    return SideReport(
        host="n7",
        role=Role.INITIATOR,
        elapsed_ns=1,
        message_count=1,
        payload_bytes=1,
        cpu_ns=1,
        wall_ns=int(wall_s * 1e9),
    )


def test_a_node_that_timed_less_than_was_timed_around_it_is_believed() -> None:
    check_clock(a_report(1.9), outer_s=2.0)
    check_clock(a_report(0.001), outer_s=0.2)


def test_a_node_whose_clock_runs_ten_times_too_fast_is_not() -> None:
    with pytest.raises(ProbeError, match=r"took 20\.0 s, and it took less than 2\.0 s") as bad:
        check_clock(a_report(20.0), outer_s=2.0)
    assert bad.value.host == "n7"
    assert "clock source" in bad.value.remedy
