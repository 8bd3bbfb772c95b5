"""Reference profiles: what is shipped, what is refused, what stands beside a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from rdmabench.analysis import reference
from rdmabench.collector import tables as collected
from rdmabench.collector.tables import Tables
from rdmabench.errors import InputError
from rdmabench.model import Fabric
from tests.collector.synthetic import BANDWIDTH, LATENCY, SyntheticRun, case_of

VALID = """
name: mine
title: Mine
fabric: roce
sources:
  paper: {title: A paper, kind: measurement}
claims:
  - {quantity: lat_p50_us, bound: at most, value: 2.5, rate_gbit_s: 100, source: paper}
"""


def run_of(root: Path, fabric: Fabric, *, rtt_ns: int = 4000) -> Tables:
    run = SyntheticRun(root, fabric).begin()
    for repeat in range(3):
        run.latency([rtt_ns] * 1000, case=case_of(LATENCY, repeat=repeat))
        run.bandwidth(case=case_of(BANDWIDTH, repeat=repeat))
    return collected.build(run.end())


def profile(tmp_path: Path, text: str = VALID) -> reference.Profile:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return reference.load(path)


def test_every_shipped_value_has_a_source() -> None:
    claims = [claim for each in reference.shipped() for claim in each.claims]
    assert len(claims) > 30
    assert all(claim.source.title and claim.value > 0 for claim in claims)


def test_the_articles_values_are_those_of_the_articles() -> None:
    by_name = {each.name: each for each in reference.shipped()}

    def values(name: str, quantity: str, rate: float) -> list[float]:
        return [
            claim.value
            for claim in by_name[name].claims
            if (claim.quantity, claim.rate_gbit_s) == (quantity, rate)
        ]

    assert values("starverse-ib", "lat_p50_us", 100) == [1.2]
    assert values("starverse-ib", "lat_p50_us", 200)[0] == 0.8
    assert values("starverse-roce", "lat_p50_us", 100) == [2.5]
    assert values("starverse-roce", "cv_pct", 200) == [3.2, 5.7, 12.3]
    assert values("xiangliang-roce", "kv_transfer_GBps", 400) == [190]


def test_jitter_rates_stand_beside_cv_and_say_so() -> None:
    claims = [c for each in reference.shipped() for c in each.claims if c.quantity == "cv_pct"]
    assert claims
    assert all("without a definition" in claim.note for claim in claims)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("source: paper}", "source: other}", "no source 'other'"),
        ("value: 2.5", "value: -1", "claims.0.value"),
        ("at most", "roughly", "claims.0.bound"),
        ("fabric: roce", "fabric: token-ring", "fabric"),
        ("title: Mine", "title: Mine\nextra: 1", "extra"),
        ("name: mine", "name: [", "mine.yaml"),
    ],
)
def test_a_wrong_profile_is_refused_by_its_key(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(InputError, match=r"mine\.yaml") as caught:
        profile(tmp_path, VALID.replace(old, new))
    assert message in str(caught.value)


def only(frame: pd.DataFrame) -> dict[str, object]:
    assert len(frame) == 1
    return {str(name): frame.iloc[0][name] for name in frame.columns}


@pytest.mark.parametrize(("rtt_ns", "verdict"), [(4000, "holds"), (8000, "does not hold")])
def test_measured_stands_beside_claimed(tmp_path: Path, rtt_ns: int, verdict: str) -> None:
    tables = run_of(tmp_path / "run", Fabric.ROCE, rtt_ns=rtt_ns)
    row = only(reference.beside(tables, [profile(tmp_path)]))
    assert row["measured"] == pytest.approx(rtt_ns / 2000)
    assert row["row"] == "send 2 B, poll"
    assert row["verdict"] == verdict


def test_a_claim_for_another_speed_is_not_judged(tmp_path: Path) -> None:
    tables = run_of(tmp_path / "run", Fabric.ROCE)
    faster = profile(tmp_path, VALID.replace("rate_gbit_s: 100", "rate_gbit_s: 200"))
    assert only(reference.beside(tables, [faster]))["verdict"] == reference.NOT_JUDGED


def test_one_repeat_cannot_tell(tmp_path: Path) -> None:
    tables = run_of(tmp_path / "run", Fabric.ROCE)
    first = tables.measurements[tables.measurements["repeat"] == 0]
    tables = replace(tables, measurements=first)
    row = only(reference.beside(tables, [profile(tmp_path)]))
    assert row["verdict"] == reference.CANNOT_TELL


def test_a_share_of_the_ports_rate_is_measured(tmp_path: Path) -> None:
    text = VALID.replace(
        "lat_p50_us, bound: at most, value: 2.5", "bw_share_pct, bound: at least, value: 90"
    )
    tables = run_of(tmp_path / "run", Fabric.ROCE)
    row = only(reference.beside(tables, [profile(tmp_path, text)]))
    assert row["measured"] == pytest.approx(50)
    assert row["verdict"] == "does not hold"


@pytest.mark.parametrize("fabric", [Fabric.RXE, Fabric.TCP])
def test_no_claim_stands_beside_soft_roce_or_tcp(tmp_path: Path, fabric: Fabric) -> None:
    assert reference.beside(run_of(tmp_path / "run", fabric)).empty
