"""Which devices a selector names: the syntax of NCCL_IB_HCA.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rdmabench.errors import InputError


def select(ports: Sequence[tuple[str, int]], selector: str) -> list[tuple[str, int]]:
    """The (device, port) pairs that the selector names, in natural order (mlx5_2 before mlx5_10).

    `mlx5` prefix, `=mlx5_1` exact, `^mlx5_3,mlx5_4` all but, `^=mlx5_3` all but exactly this,
    `mlx5_1:2` one port. `^` and `=` stand once, before the list, and hold for all of it. An empty
    selector names all.

    Raises:
        InputError: what follows a colon is no port number.
    """
    exclude, exact, wanted = _parse(selector)
    ordered = sorted(ports, key=lambda port: (_natural(port[0]), port[1]))
    if not wanted:
        return ordered
    return [
        port
        for port in ordered
        if any(_matches(port, item, exact) for item in wanted) is not exclude
    ]


def surprises(names: Sequence[str], selector: str) -> tuple[str, ...]:
    """What a user may not have meant: `mlx5_1` names a device, and mlx5_10 and mlx5_11 with it."""
    _, exact, wanted = _parse(selector)
    notes = []
    for name, _ in wanted:
        longer = [other for other in names if other.startswith(name) and other != name]
        if name in names and longer and not exact:
            others = ", ".join(sorted(longer, key=_natural))
            notes.append(f"{name} is a prefix here and means {others} too: ={name} means it alone")
    return tuple(notes)


def _parse(selector: str) -> tuple[bool, bool, list[tuple[str, int]]]:
    """Whether it excludes, whether it is exact, and the names with their ports (0: any)."""
    text = selector.strip()
    exclude = text.startswith("^")
    text = text[1:] if exclude else text
    exact = text.startswith("=")
    wanted = []
    # a second "=" comes from `-x NCCL_IB_HCA==mlx5_0` copied one sign too far
    for item in text.lstrip("=").split(","):
        name, colon, port = item.strip().partition(":")
        if colon and not (port.isascii() and port.isdigit()):
            raise InputError(f"selector {selector!r}: {port!r} after the colon is no port number")
        if name:
            wanted.append((name, int(port or 0)))
    return exclude, exact, wanted


def _matches(port: tuple[str, int], item: tuple[str, int], exact: bool) -> bool:
    name, number = item
    if number not in (0, port[1]):
        return False
    return port[0] == name if exact else port[0].startswith(name)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"([0-9]+)", name)
        if part
    ]
