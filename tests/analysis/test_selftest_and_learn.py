"""Every gate goes red for a planted fault; a baseline learns no fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rdmabench.analysis import ruleset, selftest
from rdmabench.analysis.acceptance import accept
from rdmabench.analysis.learn import learn
from rdmabench.errors import InputError
from tests.analysis.fleets import fleet_tables, name


def test_every_gate_of_the_shipped_rules_goes_red() -> None:
    result = selftest.selftest(fleet_tables(4, repeats=3), ruleset.load("roce"))
    assert result.control == ()
    assert [each.fault for each in result.planted if each.result != selftest.RED] == []
    assert result.untried == ()
    assert result.exit_code == 0
    faults = {each.fault: set(each.red) for each in result.planted}
    assert {"bandwidth", "fleet-bandwidth", "baseline-bandwidth"} <= faults["low bandwidth"]
    assert {"bandwidth", "plausible"} <= faults["a missing bandwidth"]
    assert {"bandwidth", "plausible"} <= faults["unparsable text"]
    assert {"bandwidth", "plausible"} <= faults["a wrong unit"]
    assert {"bandwidth", "plausible"} <= faults["a rate above the wire"]
    assert "evidence" in faults["a fallback row"]
    assert {"retransmissions", "port-errors"} <= faults["a moved counter"]


def test_a_bad_run_is_tried_all_the_same_and_is_not_touched() -> None:
    bad = fleet_tables(3, repeats=3, slow=lambda s, *_: np.full(len(s), 5.0))
    before = bad.measurements.copy()
    assert selftest.selftest(bad, ruleset.load("ib")).exit_code == 0
    assert bad.measurements.equals(before)


def test_a_gate_that_stays_green_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from rdmabench.analysis import judging

    deaf = dict(judging.JUDGES)
    deaf["evidence"] = lambda rule, context: iter(
        {**each, "verdict": "PASS"} for each in judging.JUDGES["evidence"](rule, context)
    )
    monkeypatch.setattr("rdmabench.analysis.acceptance.JUDGES", deaf)
    rules = ruleset.load("roce")
    functional = tuple(each for each in rules.rules if each.kind == "evidence")
    tables = fleet_tables(3, repeats=3)
    result = selftest.selftest(tables, replace(rules, rules=functional))
    assert result.exit_code == 3
    row = result.frame().set_index("fault").loc["a fallback row"]
    assert (row["result"], row["stayed_green"]) == (selftest.GREEN, "evidence")


def test_learnt_rules_accept_their_own_run_and_refuse_a_slower_one() -> None:
    good = fleet_tables(6, noise=0.004)
    rules = ruleset.read(learn([good]).text, "learnt.yml")
    assert accept(good, rules).exit_code == 0
    slow = fleet_tables(6, noise=0.004, seed=9, slow=lambda s, *_: np.full(len(s), 1.12))
    assert accept(slow, rules).exit_code == 3


def test_a_pair_far_from_the_others_is_left_out_and_named() -> None:
    tables = fleet_tables(8, slow=lambda s, r, _: np.where((s == 3) | (r == 3), 1.3, 1.0))
    made = learn([tables])
    assert made.excluded["pair"].str.contains(f"{name(3)}/").all()
    assert len(made.excluded) == 7 * 2
    assert name(3) in made.text
    rule = next(
        r for r in ruleset.read(made.text, "x").rules if r.kind == "absolute" and r.metric == "bw"
    )
    assert rule.low is not None
    assert rule.low * 8e-9 > 0.9 * 380


def test_a_pair_without_proof_teaches_nothing() -> None:
    tables = fleet_tables(4)
    cases = tables.cases.astype({"evidence": "str"})
    cases.loc[cases["pair"] == cases["pair"].iloc[0], "evidence"] = "fallback"
    made = learn([replace(tables, cases=cases)])
    assert made.excluded["reason"].str.contains("fallback").any()


def test_runs_of_two_fabrics_make_no_baseline() -> None:
    with pytest.raises(InputError, match="one fabric, found ib, roce"):
        learn([fleet_tables(3, fabric="ib"), fleet_tables(3, fabric="roce")])
