"""Rules files: what is refused, with the place and the close match."""

from __future__ import annotations

import pytest

from rdmabench.analysis import ruleset
from rdmabench.errors import InputError


def one(text: str) -> ruleset.RuleSet:
    return ruleset.read(f"name: t\nrules:\n  - {{name: r, source: s, {text}}}\n", "my.yml")


@pytest.mark.parametrize("name", ruleset.names())
def test_shipped_rules_are_valid_and_name_their_sources(name: str) -> None:
    rules = ruleset.load(name)
    assert rules.name == name
    kinds = {rule.kind for rule in rules.rules}
    assert {"coverage", "evidence", "plausible", "counter"} <= kinds
    assert all(rule.source for rule in rules.rules)


def test_there_are_rules_for_every_fabric() -> None:
    assert set(ruleset.names()) == {"ib", "roce", "rxe", "tcp"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: share, fail_belw: 0.9", r"my.yml: rules.0.fail_belw: unknown key; did you mean"),
        ("kind: share, fail_below: 1.5", r"my.yml: rules.0.fail_below: .*less than or equal to 1"),
        ("kind: share, fail_below: 0.9, warn_below: 0.8", r"rules.0.warn_below: 0.8 is below"),
        ("kind: shear", r"my.yml: rules.0: .*shear"),
        (
            "kind: absolute, metric: bw, min: 380, unit: us",
            r"my.yml: rules.0.unit: 'us' is no unit of bw",
        ),
        (
            "kind: absolute, metric: lat_p50, max: 2, unit: Gb/s",
            r"my.yml: rules.0.unit: 'Gb/s' is no unit of lat_p50",
        ),
        ("kind: absolute, metric: bw, min: 380", r"my.yml: rules.0.unit: is missing"),
        ("kind: absolute, metric: bw, unit: Gb/s", r"rules.0: min or max is missing"),
        (
            "kind: absolute, metric: lat_p5O, max: 2, unit: us",
            r"rules.0.metric: unknown metric 'lat_p5O'; did you mean lat_p50\?",
        ),
        ("kind: absolute, metric: bw, min: .nan, unit: Gb/s", r"rules.0.min: .*finite|greater"),
        ("kind: baseline, metric: lat_p50, min_ratio: 0.9", r"give max_ratio, not min_ratio"),
        ("kind: fleet, metric: bw", r"give min_ratio"),
        ("kind: quantile, quantile: p98, max: 2, unit: us", r"rules.0.quantile: "),
        ("kind: share, source: ''", r"the key 'source' is there twice"),
        ("kind: share, min_size: 64Q", r"rules.0.min_size: .*64Q"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        one(text)


def test_two_rules_of_one_name_are_refused() -> None:
    text = "name: t\nrules:\n" + "  - {name: r, kind: coverage, source: s}\n" * 2
    with pytest.raises(InputError, match=r"rules.1.name: 'r' is there twice"):
        ruleset.read(text, "my.yml")


@pytest.mark.parametrize("text", ["", "[]", "name: t", "name: t\nrules: []", "a: b: c", "3"])
def test_a_file_that_is_no_rules_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^my.yml: "):
        ruleset.read(text, "my.yml")


def test_units_become_base_units() -> None:
    rule = one("kind: absolute, metric: bw_gbps, min: 380, unit: Gb/s").rules[0]
    assert (rule.metric, rule.low) == ("bw", 47.5e9)
    rule = one("kind: quantile, quantile: p99, max: 4.2, unit: us").rules[0]
    assert (rule.metric, rule.high) == ("lat_p99", pytest.approx(4200.0))


def test_unknown_rules_name_those_there_are() -> None:
    with pytest.raises(InputError, match="choose ib, roce, rxe, tcp"):
        ruleset.load("rocky")
