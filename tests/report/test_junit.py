"""JUnit XML and the terminal views: nothing from a run is markup, nothing untested is a pass."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from rdmabench.analysis import ruleset
from rdmabench.analysis.acceptance import Acceptance, accept
from rdmabench.analysis.selftest import Planted, SelfTest
from rdmabench.analysis.suspects import suspects
from rdmabench.report import verdicts
from rdmabench.report.junit import junit
from rdmabench.report.layout import to_text
from tests.analysis.fleets import fleet_tables

EVIL = '<script>alert(1)</script> & "x" \x1b[31m\x00\x08'


@pytest.fixture(scope="module")
def slow() -> Acceptance:
    tables = fleet_tables(6, slow=lambda s, r, _: np.where((s == 2) | (r == 2), 1.3, 1.0))
    return accept(tables, ruleset.load("roce"))


def test_one_test_case_per_rule_and_subject(slow: Acceptance) -> None:
    root = ET.fromstring(junit(slow))
    assert len(root.findall(".//testcase")) == len(slow.rows)
    assert root.get("tests") == str(len(slow.rows))
    assert len(root.findall(".//failure")) == slow.count("FAIL") == int(root.get("failures", "0"))
    first = root.find(".//failure")
    assert first is not None
    assert "limit from: " in (first.text or "")


def test_not_tested_and_inconclusive_are_errors() -> None:
    tables = fleet_tables(4)
    tables = replace(tables, endpoints=tables.endpoints.assign(rate_gbit_s=0.0))
    root = ET.fromstring(junit(accept(tables, ruleset.load("roce"))))
    errors = root.findall(".//error")
    assert {each.get("type") for each in errors} == {"NOT TESTED"}
    assert root.get("errors") == str(len(errors))
    assert root.findall(".//skipped") == []


def test_text_from_a_run_is_escaped_and_control_characters_are_left_out(slow: Acceptance) -> None:
    rows = slow.rows.assign(subject=EVIL, remark=EVIL, measurement=EVIL)
    text = junit(replace(slow, rows=rows, run=EVIL))
    assert "<script>" not in text
    assert "\x1b" not in text
    names = {each.get("name", "") for each in ET.fromstring(text).iter("testcase")}
    assert all(each.startswith('<script>alert(1)</script> & "x"') for each in names)


def test_no_verdict_at_all_is_an_error(slow: Acceptance) -> None:
    root = ET.fromstring(junit(replace(slow, rows=slow.rows.iloc[0:0])))
    assert (root.get("tests"), root.get("errors")) == ("1", "1")


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_says_what_failed_and_why_it_may_be_believed(
    slow: Acceptance, width: int
) -> None:
    text = to_text(verdicts.acceptance_view(slow), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert text.startswith("FAIL: fleet, rules roce")
    assert ">= 0.9" in text
    assert "published gates" in text
    assert "no --baseline was given" in text


@pytest.mark.parametrize("width", [80, 120])
def test_suspects_show_their_pairs_and_what_could_be_seen(width: int) -> None:
    tables = fleet_tables(8, slow=lambda s, r, _: np.where((s == 2) | (r == 2), 1.3, 1.0))
    text = to_text(verdicts.suspects_view(suspects(tables)), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "1.30x" in text
    assert "of the fleet's median" in text
    assert "At most 1 in 100 healthy fleets" in text


def test_escape_sequences_in_names_never_reach_the_terminal(slow: Acceptance) -> None:
    rows = slow.rows.assign(subject=EVIL, remark=EVIL, source=EVIL)
    text = to_text(verdicts.acceptance_view(replace(slow, rows=rows, run=EVIL)), width=120)
    assert "\x1b" not in text


def test_json_has_null_for_what_there_is_not(slow: Acceptance) -> None:
    import json

    document = json.loads(verdicts.acceptance_json(slow))
    assert document["verdict"] == "FAIL"
    assert len(document["rows"]) == len(slow.rows)
    assert "NaN" not in verdicts.acceptance_json(slow)
    found = suspects(fleet_tables(2))
    assert json.loads(verdicts.suspects_json(found))["answered"] is False


def test_the_selftest_says_which_gate_went_red() -> None:
    planted = (
        Planted("a fallback row", ("evidence",), ("evidence",)),
        Planted("no evidence", ("evidence",), ("evidence",)),
    )
    result = SelfTest(planted=planted, control=(), untried=())
    text = to_text(verdicts.selftest_view(result), width=80)
    assert "a fallback row" in text
    assert text.rstrip().endswith("Every gate went red.")
