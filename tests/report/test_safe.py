from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmabench.report.safe import clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("node1/rxe0", "node1/rxe0", id="plain"),
        pytest.param("\x1b[31mred\x1b[0m", "[31mred[0m", id="colour"),
        pytest.param("\x1b]0;title\x07name", "]0;titlename", id="title"),
        pytest.param("\x9b2Jwiped", "2Jwiped", id="8-bit CSI"),
        pytest.param("a\r\nb\tc", "a  b c", id="white space"),
        pytest.param("a\u202egnp.exe", "agnp.exe", id="right to left"),
        pytest.param("a\u200bb\ufeffc", "abc", id="zero width"),
        pytest.param("bell\x07\x00", "bell", id="bell and nul"),
        pytest.param("Knoten-\u00fc", "Knoten-\u00fc", id="letters"),
    ],
)
def test_nothing_is_left_that_a_terminal_acts_on(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text())
def test_what_is_left_can_be_printed_on_one_line(text: str) -> None:
    assert clean(text).isprintable()
