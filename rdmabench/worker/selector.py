"""Which devices a selector names: the syntax of NCCL_IB_HCA."""

from __future__ import annotations

import re
from collections.abc import Sequence


def select(ports: Sequence[tuple[str, int]], selector: str) -> list[tuple[str, int]]:
    """The (device, port) pairs that the selector names, in natural order (mlx5_2 before mlx5_10).

    `mlx5` prefix, `=mlx5_1` exact, `^mlx5_3,mlx5_4` all but, `^=mlx5_3` all but exactly this,
    `mlx5_1:2` one port. An empty selector names all.
    """
    exclude = selector.startswith("^")
    rest = selector.removeprefix("^")
    exact = rest.startswith("=")
    wanted = [item for item in rest.removeprefix("=").split(",") if item]
    ordered = sorted(ports, key=lambda port: (_natural(port[0]), port[1]))
    if not wanted:
        return ordered
    return [
        port
        for port in ordered
        if any(_matches(port, item, exact) for item in wanted) is not exclude
    ]


def _matches(port: tuple[str, int], item: str, exact: bool) -> bool:
    name, _, number = item.partition(":")
    if number and int(number) != port[1]:
        return False
    return port[0] == name if exact else port[0].startswith(name)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]
