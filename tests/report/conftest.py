"""Two runs that the tests of pictures and of the report share: they only read them."""

from __future__ import annotations

import pytest

from rdmabench.model import Fabric
from rdmabench.report.view import ReportRun, gather
from tests.report.fleet import HOSTILE, fleet_run

HOSTS = ("node1", "node2", HOSTILE)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportRun, ...]:
    """Three nodes over rxe, where node2 is slow and has retries, and over TCP."""
    root = tmp_path_factory.mktemp("fleet")
    sizes = {"sizes": (2, 4096), "bw_sizes": (65536, 1 << 20)}
    rxe = fleet_run(
        root, Fabric.RXE, HOSTS, base_us=4, gbps=60, slow="node2", trouble=True, **sizes
    )
    tcp = fleet_run(root, Fabric.TCP, HOSTS, base_us=20, gbps=30, seed=2, **sizes)
    return gather([rxe, tcp])
