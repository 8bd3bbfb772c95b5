"""Damaged texts: an importer refuses them with one InputError, or reads what stands there.

What it reads is checked by a second, simpler reading: the cell of that line under that heading.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rdmabench import wire
from rdmabench.collector.importers.bring_in import TOOLS, parse
from rdmabench.collector.importers.text import Asked, Parsed
from rdmabench.errors import InputError
from rdmabench.model import Imported, ImportedValue, Outcome
from rdmabench.wire import Envelope
from tests.collector.importers.texts import (
    ALL_GATHER,
    BROADCAST_2019,
    OSU_ALLREDUCE,
    OSU_LATENCY,
    WRITE_BW,
    dumped,
    nccl_document,
    perftest_document,
    recorded,
)

MANY = settings(
    deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow], database=None
)
TEXTS = {
    "perftest": [
        WRITE_BW,
        *(recorded(f"{n}.txt") for n in ("C02-out", "C03-out", "C04-out", "C06-lat", "G02-out")),
        recorded("C06-lat_dur.txt"),
        recorded("C08-out.txt"),
        recorded("C17-client.txt"),
    ],
    "nccl-tests": [
        ALL_GATHER,
        BROADCAST_2019,
        *(recorded(f"{n}.txt") for n in ("C10-out", "C12-out", "C14-out")),
        recorded("all_reduce_per_iteration.txt"),
    ],
    "osu": [
        OSU_LATENCY,
        OSU_ALLREDUCE,
        recorded("C15-osu_bw.txt"),
        recorded("C15-osu_mbw_mr.txt"),
    ],
}
DOCUMENTS = {"perftest": perftest_document(), "nccl-tests": nccl_document()}
OPS = {"perftest": "", "nccl-tests": "", "osu": ""}
TAG = re.compile(r"^\[1,0\]<stdout>:")


@dataclass(frozen=True)
class Damage:
    """One way to spoil a text."""

    name: str
    places: tuple[int, int, int]
    byte: int

    def apply(self, text: str, other: str) -> str:
        data = bytearray(text.encode())
        first = self.places[0] % (len(data) + 1)
        lines, foreign = text.split("\n"), other.split("\n")
        here, there = (place % len(lines) for place in self.places[:2])
        if self.name == "cut":
            del data[first:]
        elif self.name == "hole":
            del data[first : first + self.places[2] % 40]
        elif self.name == "flip" and first < len(data):
            data[first] = self.byte
        elif self.name == "insert":
            data.insert(first, self.byte)
        else:
            changes: dict[str, Callable[[], object]] = {
                "drop line": lambda: lines.pop(here),
                "repeat line": lambda: lines.insert(there, lines[here]),
                "move line": lambda: lines.insert(there, lines.pop(here)),
                "foreign line": lambda: lines.insert(there, foreign[here % len(foreign)]),
                "join lines": lambda: lines.insert(here, lines.pop(here) + foreign[0]),
                "splice": lambda: lines.__setitem__(slice(here, None), foreign[there:]),
            }
            changes.get(self.name, lambda: None)()
            return "\n".join(lines)
        return data.decode(errors="replace")


DAMAGES = st.builds(
    Damage,
    name=st.sampled_from(
        [
            "cut",
            "hole",
            "flip",
            "insert",
            "drop line",
            "repeat line",
            "move line",
            "foreign line",
            "join lines",
            "splice",
        ]
    ),
    places=st.tuples(*[st.integers(0, 10_000)] * 3),
    byte=st.one_of(st.sampled_from(list(b" 0123456789.-+eE#[]()\t\r\n")), st.integers(1, 255)),
)


def attempt(tool: str, text: str) -> Parsed | None:
    """Only our own refusal is allowed, and it names file, line and what was expected."""
    try:
        return parse(text, tool=tool, name="f.txt", asked=Asked(op=OPS[tool]))
    except InputError as exc:
        refusal = str(exc)
    assert re.match(r"f\.txt:\d+: .*; expected ", refusal, re.DOTALL), refusal
    return None


def cell_of(lines: list[str], row: Imported, value: ImportedValue) -> tuple[str, str]:
    """The cell under the value's heading, and the heading: by counting, without our parser."""
    number = int(row.source.rsplit(":", 1)[1])
    cells = re.split(r"[ \t]+", TAG.sub("", lines[number - 1]).strip(" \t\r"))
    tagged = bool(TAG.match(lines[number - 1]))
    above = [TAG.sub("", line) for line in lines[: number - 1] if bool(TAG.match(line)) == tagged]
    if row.case.tool == "perftest":
        heading = next(line for line in reversed(above) if "#bytes" in line)
        place = re.search(re.escape(value.column).replace(r"\ ", r"\s+") + r"(?=[\s\[]|$)", heading)
        assert place is not None
        before = heading[: place.start()]
        return cells[before.count("[") + before.count("#")], heading[place.start() :]
    if row.case.tool == "osu":
        heading = next(
            line for line in reversed(above) if re.match(r"#\s*(Size|Avg|Overall)", line)
        )
        names = re.split(r" {2,}|\t+", heading[1:].strip())
        plain = [re.sub(r" ?\(.*", "", name) for name in names]
        return cells[plain.index(value.column)], names[plain.index(value.column)]
    heading = next(
        line for line in reversed(above) if "algbw" in line and re.match(r"\s*#\s+size", line)
    )
    names = heading.replace("#", "", 1).split()
    places = [place for place, name in enumerate(names) if name == value.column]
    return cells[places[value.metric.endswith("_in_place")]], value.column


FACTORS = {
    "perftest": [("[MB/sec]", 2**20), ("[MiB/sec]", 2**20), ("[Gb/sec]", 1.25e8)],
    "osu": [("MB/s", 1e6), ("Latency", 1e3), ("Overall", 1e3), ("Messages/s", 1)],
    "nccl-tests": [("bw", 1e9), ("time", 1e3), ("i_cv%", 1), ("i_", 1e3), ("#wrong", 1)],
}


def factor_of(tool: str, value: ImportedValue, heading: str) -> float:
    if tool == "perftest" and not value.column.startswith("BW"):
        words = {"MsgRate": 1e6, "CPU_Util": 1, "tps average": 1, "#iterations": 1}
        return words.get(value.column, 1e3)
    own = heading.split("]")[0] + "]" if tool == "perftest" else heading
    return next(factor for text, factor in FACTORS[tool] if text in own)


def check(tool: str, text: str) -> None:
    parsed = attempt(tool, text)
    if parsed is None:
        return
    assert parsed.rows
    lines = [re.sub(r"\x1b\[[0-9;]*[mK]", "", line) for line in text.split("\n")]
    for row in parsed.rows:
        wire.decode(wire.encode(Envelope(body=row)))
        assert (row.outcome is Outcome.MEASURED) == (not row.reason)
        for value in row.values:
            cell, heading = cell_of(lines, row, value)
            assert cell == value.text, (value, heading)
            assert value.value == pytest.approx(float(cell) * factor_of(tool, value, heading))
            assert value.value >= 0


@pytest.mark.parametrize("tool", TOOLS)
def test_whole_texts_pass_the_second_reading(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in TEXTS[tool]:
        for op in ("", "send", "all_reduce", "broadcast"):
            monkeypatch.setitem(OPS, tool, op)
            check(tool, text)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_cut_is_refused_or_read_right(tool: str) -> None:
    for text in TEXTS[tool][:2]:
        for length in range(0, len(text), 7):
            check(tool, text[:length])


@MANY
@given(
    tool=st.sampled_from(TOOLS),
    which=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    damages=st.lists(DAMAGES, min_size=1, max_size=3),
    foreign=st.sampled_from(TOOLS),
)
@example(
    tool="perftest", which=(1, 0), damages=[Damage("flip", (1695, 1695, 0), 13)], foreign="osu"
)
def test_damaged_texts_are_refused_or_read_right(
    tool: str, which: tuple[int, int], damages: list[Damage], foreign: str
) -> None:
    text = TEXTS[tool][which[0] % len(TEXTS[tool])]
    other = TEXTS[foreign][which[1] % len(TEXTS[foreign])]
    for damage in damages:
        text = damage.apply(text, other)
    if "\0" not in text:
        check(tool, text)


@MANY
@given(tool=st.sampled_from(sorted(DOCUMENTS)), damages=st.lists(DAMAGES, min_size=1, max_size=2))
def test_damaged_documents_are_refused_or_read_right(tool: str, damages: list[Damage]) -> None:
    text = dumped(DOCUMENTS[tool])
    for damage in damages:
        text = damage.apply(text, text)
    parsed = attempt(tool, text)
    for row in parsed.rows if parsed else ():
        wire.decode(wire.encode(Envelope(body=row)))
        assert all(value.text in text and value.value >= 0 for value in row.values)


@settings(deadline=None, max_examples=100, database=None)
@given(tool=st.sampled_from(TOOLS), text=st.text(max_size=200))
def test_any_text_is_refused(tool: str, text: str) -> None:
    assert attempt(tool, text) is None
