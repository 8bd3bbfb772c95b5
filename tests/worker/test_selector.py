"""Device selectors against the rows of NCCL's own syntax."""

from __future__ import annotations

import pytest

from rdmabench.errors import InputError
from rdmabench.worker.selector import select, surprises

# case A19: selector, candidates, selected
ROWS = (
    ("bond0", "bond0 bond0.2973 bond0.2973.1 eno1", "bond0 bond0.2973 bond0.2973.1"),
    ("=bond0", "bond0 bond0.2973 bond0.2973.1 eno1", "bond0"),
    ("^docker", "eno1 docker0 docker_gwbridge", "eno1"),
    ("^=docker0", "eno1 docker0 docker_gwbridge", "docker_gwbridge eno1"),
    ("mlx5_1", "mlx5_0 mlx5_1 mlx5_10 mlx5_11", "mlx5_1 mlx5_10 mlx5_11"),
    ("=mlx5_1", "mlx5_0 mlx5_1 mlx5_10 mlx5_11", "mlx5_1"),
    ("=mlx5_bond_0", "mlx5_bond_0 mlx5_bond_1", "mlx5_bond_0"),
    ("==mlx5_bond_0", "mlx5_bond_0 mlx5_bond_1", "mlx5_bond_0"),
    ("^mlx5_3,mlx5_4", "mlx5_0 mlx5_3 mlx5_4 mlx5_5", "mlx5_0 mlx5_5"),
    ("", "mlx5_1 mlx5_0", "mlx5_0 mlx5_1"),
    ("^", "mlx5_1 mlx5_0", "mlx5_0 mlx5_1"),
    (" mlx5_0 , mlx5_1 ", "mlx5_0 mlx5_1 mlx5_2", "mlx5_0 mlx5_1"),
)

# case A18: names of every vendor, in an order that is not theirs
DEVICES = [
    "mlx5_10",
    "mlx5_0",
    "mlx5_bond_7",
    "xscale_0",
    "bnxt_re0",
    "rocep133s0f0",
    "ibp12s0",
    "rxe_ens5",
    "hfi1_0",
]


@pytest.mark.parametrize(("selector", "candidates", "selected"), ROWS)
def test_a_selector_means_what_it_means_to_nccl(
    selector: str, candidates: str, selected: str
) -> None:
    found = select([(name, 1) for name in candidates.split()], selector)
    assert found == [(name, 1) for name in selected.split()]


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("mlx5_1:2", [("mlx5_1", 2), ("mlx5_10", 2)]),
        ("=mlx5_1:2", [("mlx5_1", 2)]),
        ("^mlx5_1:2", [("mlx5_1", 1), ("mlx5_10", 1)]),
        ("=mlx5_1:1,mlx5_10", [("mlx5_1", 1), ("mlx5_10", 1), ("mlx5_10", 2)]),
    ],
)
def test_a_port_narrows_its_own_name_alone(selector: str, selected: list[tuple[str, int]]) -> None:
    ports = [(name, port) for name in ("mlx5_10", "mlx5_1") for port in (2, 1)]
    assert select(ports, selector) == selected


def test_no_name_is_special_and_numbers_sort_as_numbers() -> None:
    everything = select([(name, 1) for name in DEVICES], "")
    assert len(everything) == len(DEVICES)
    mlx5 = [name for name, _ in select([(f"mlx5_{n}", 1) for n in (10, 9, 1)], "mlx5")]
    assert mlx5 == ["mlx5_1", "mlx5_9", "mlx5_10"]
    missed = {name for name, _ in select([(name, 1) for name in DEVICES], "^mlx5")}
    assert missed == {"xscale_0", "bnxt_re0", "rocep133s0f0", "ibp12s0", "rxe_ens5", "hfi1_0"}


@pytest.mark.parametrize("selector", ["mlx5_0:", "mlx5_0:x", "=mlx5_0:-1", "mlx5_0:1:2"])
def test_a_port_that_is_no_number_is_named(selector: str) -> None:
    with pytest.raises(InputError, match="is no port number"):
        select([("mlx5_0", 1)], selector)


def test_a_prefix_that_takes_more_than_its_namesake_is_mentioned() -> None:
    names = ["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_11"]
    assert surprises(names, "mlx5_1") == (
        "mlx5_1 is a prefix here and means mlx5_10, mlx5_11 too: =mlx5_1 means it alone",
    )
    assert surprises(names, "=mlx5_1") == surprises(names, "mlx5") == ()
