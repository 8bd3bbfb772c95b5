from __future__ import annotations

import io
import json
import math

import pandas as pd
import pytest

from rdmabench.errors import InputError
from rdmabench.report.formats import number_text, render

FRAME = pd.DataFrame(
    {
        "host": ["node1", "evil\x1b[2J|x\n<b>"],
        "bw_gbps": [92.5, math.nan],
        "ratio": [1.0, math.inf],
        "n": [3, 1000],
        "at": pd.to_datetime(["2026-12-01T03:15:00Z", None], utc=True),
    }
).astype({"host": "category"})


def test_json_is_a_list_of_objects_with_null_for_nothing() -> None:
    text = render(FRAME, "json")
    assert text.isascii()
    assert json.loads(text) == [
        {
            "host": "node1",
            "bw_gbps": 92.5,
            "ratio": 1.0,
            "n": 3,
            "at": "2026-12-01T03:15:00+00:00",
        },
        {"host": "evil\x1b[2J|x\n<b>", "bw_gbps": None, "ratio": None, "n": 1000, "at": None},
    ]
    assert "\x1b" not in text


def test_json_of_nothing_is_an_empty_list() -> None:
    assert render(FRAME.iloc[:0], "json") == "[]\n"


def test_csv_is_read_back_with_every_digit() -> None:
    frame = pd.DataFrame({"host": ["node1"], "value": [1 / 3]})
    back = pd.read_csv(io.StringIO(render(frame, "csv")))
    assert back["value"].iloc[0] == 1 / 3


def test_csv_holds_no_escape_sequence_and_no_line_break_in_a_cell() -> None:
    lines = render(FRAME, "csv").splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("evil[2J|x <b>,")


def test_markdown_cells_end_where_they_should() -> None:
    lines = render(FRAME[["host", "bw_gbps"]], "md").splitlines()
    assert lines == [
        "| host | bw_gbps |",
        "| --- | ---: |",
        "| node1 | 92.50 |",
        "| evil\\[2J\\|x &lt;b&gt; | - |",
    ]


def test_a_table_drops_columns_and_never_wraps() -> None:
    frame = pd.DataFrame({f"column_{n}": ["x" * 15] * 3 for n in range(12)})
    for width in (80, 120):
        lines = render(frame, "table", width=width).splitlines()
        assert len(lines) == 5
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("column_0")
    assert "\x1b" not in render(FRAME, "table")


def test_colour_is_used_only_when_asked_for() -> None:
    assert "\x1b[" in render(FRAME[["n"]], "table", color=True)
    assert "\x1b" not in render(FRAME[["n"]], "table")


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown format 'xml'\n  try: table, json, csv, md"):
        render(FRAME, "xml")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234.5, "1,234"),
        (123.45, "123.5"),
        (1.234, "1.23"),
        (0.1, "0.100"),
        (0.01234, "0.0123"),
        (0.0000882, "0.0000882"),
        (math.inf, "inf"),
        (0.0, "0"),
        (-5.5, "-5.50"),
        (math.nan, "-"),
        (None, "-"),
        (1000, "1000"),
        ("text", "text"),
    ],
)
def test_numbers_show_the_digits_that_matter(value: object, shown: str) -> None:
    assert number_text(value) == shown
