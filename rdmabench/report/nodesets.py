"""Many node names in few words: `gpu[001-127,129]`, as pdsh and Slurm write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBERED = re.compile(r"(?P<head>.*?)(?P<number>\d+)(?P<tail>\D*)", re.ASCII)


def fold(names: Iterable[str]) -> str:
    """The names, those that differ in one number together; the order is that of the names."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    plain: list[str] = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match is None or len(match["number"]) > 9:
            plain.append(name)
            continue
        # numbers with leading zeros are of a width; without, of any
        width = len(match["number"]) if match["number"].startswith("0") else 0
        groups.setdefault((match["head"], match["tail"], width), []).append(int(match["number"]))
    parts = [
        _folded(head, tail, width, sorted(numbers))
        for (head, tail, width), numbers in _merged(groups).items()
    ]
    return ",".join([*parts, *plain])


def _merged(
    groups: dict[tuple[str, str, int], list[int]],
) -> dict[tuple[str, str, int], list[int]]:
    """099 and 100 are of one width, though only one of them shows it."""
    merged = {key: list(numbers) for key, numbers in groups.items() if key[2]}
    for (head, tail, width), numbers in groups.items():
        if width:
            continue
        for number in numbers:
            wide = (head, tail, len(str(number)))
            merged.setdefault(wide if wide in merged else (head, tail, 0), []).append(number)
    return merged


def _folded(head: str, tail: str, width: int, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{head}{numbers[0]:0{width}d}{tail}"
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
        for first, last in ranges
    ]
    return f"{head}[{','.join(texts)}]{tail}"


def some(names: Sequence[str], limit: int = 60) -> str:
    """The folded names, cut where they do not fit, with how many there are."""
    text = fold(names)
    if len(text) <= limit:
        return text
    return f"{text[: limit - 1]}\N{HORIZONTAL ELLIPSIS} ({len(names)} nodes)"
