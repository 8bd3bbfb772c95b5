"""What others claim or measured, each value with its source, beside what a run measured.

A claim says less than a measurement: often neither the message size nor what latency means. So
the best-placed row of the run stands beside it (the smallest message for latencies and jitter, the
fastest row for bandwidths), the row is named, and a claim for another link speed is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rdmabench.analysis.stats import Interval, median_interval
from rdmabench.analysis.summary import shown_values
from rdmabench.collector.tables import Tables
from rdmabench.errors import InputError
from rdmabench.model import Fabric
from rdmabench.units import size_text

AT_MOST, ABOUT = "at most", "about"
HOLDS, DOES_NOT, CANNOT_TELL, NOT_JUDGED = "holds", "does not hold", "cannot tell", "-"

SHIPPED = Path(__file__).parent / "references"
_RATE_TOLERANCE = 0.01
_SHARE = "bw_share_pct"
_COLUMNS = (
    "quantity",
    "scope",
    "bound",
    "claimed",
    "rate_gbit_s",
    "measured",
    "measured_lo",
    "measured_hi",
    "row",
    "verdict",
    "source",
    "note",
)

Quantity = Literal[
    "lat_p50_us",
    "lat_p99_us",
    "lat_mean_us",
    "cv_pct",
    "bw_gbps",
    "bw_share_pct",
    "cpu_initiator_pct",
    "aggregate_gbps",
    "gpu_utilisation_pct",
    "kv_transfer_GBps",
]
_REAL = (Fabric.IB.value, Fabric.ROCE.value)  # what `any` means: RDMA in hardware


@dataclass(frozen=True)
class Source:
    """Where a value comes from."""

    title: str
    kind: str
    url: str = ""
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """One value of a profile; `fabric` is `any` and `rate_gbit_s` 0 where it says no more."""

    quantity: str
    bound: str
    value: float
    fabric: str
    op: str
    rate_gbit_s: float
    scope: str
    note: str
    source: Source


@dataclass(frozen=True)
class Profile:
    """A file of claims."""

    name: str
    title: str
    claims: tuple[Claim, ...]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Source(_Strict):
    title: Annotated[str, Field(min_length=1)]
    kind: Literal["vendor article", "vendor figure", "measurement", "gate"]
    url: str = ""
    note: str = ""


class _Claim(_Strict):
    quantity: Quantity
    bound: Literal["at most", "at least", "about"]
    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    source: str
    fabric: Literal["", "any", "ib", "roce", "tcp"] = ""
    op: Literal["", "send", "write", "read"] = ""
    rate_gbit_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    scope: str = ""
    note: str = ""


class _Profile(_Strict):
    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    title: Annotated[str, Field(min_length=1)]
    fabric: Literal["any", "ib", "roce", "tcp"]
    sources: dict[str, _Source]
    claims: Annotated[list[_Claim], Field(min_length=1)]

    @model_validator(mode="after")
    def _every_value_has_a_source(self) -> _Profile:
        for place, claim in enumerate(self.claims):
            if claim.source not in self.sources:
                known = ", ".join(self.sources) or "none"
                raise ValueError(f"claims.{place}.source: no source {claim.source!r} ({known})")
        return self


def load(path: Path) -> Profile:
    """One profile.

    Raises:
        InputError: it cannot be read, or is not a valid profile; the key is named.
    """
    try:
        parsed = _Profile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
        raise InputError(f"{path}: {exc}") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}: {key + ': ' if key else ''}{first['msg']}") from exc
    sources = {key: Source(**each.model_dump()) for key, each in parsed.sources.items()}
    claims = tuple(
        Claim(
            **each.model_dump(exclude={"source", "fabric"}),
            fabric=each.fabric or parsed.fabric,
            source=sources[each.source],
        )
        for each in parsed.claims
    )
    return Profile(name=parsed.name, title=parsed.title, claims=claims)


def shipped() -> tuple[Profile, ...]:
    """The profiles that come with rdmabench, by name.

    Raises:
        InputError: one of them is not valid.
    """
    return tuple(load(path) for path in sorted(SHIPPED.glob("*.yaml")))


def beside(tables: Tables, profiles: Iterable[Profile] | None = None) -> pd.DataFrame:
    """Measured beside claimed, for the run's fabric; empty where there are no claims for it.

    `verdict`: holds, does not hold, cannot tell (the interval spans the value, or there is none),
    or `-` where the claim is of another link speed, is no bound, or was not measured here.
    Soft-RoCE proves function, never performance, so no claim stands beside it.
    """
    fabric = str(next(iter(tables.cases["fabric"]), ""))
    claims = [
        claim
        for profile in (shipped() if profiles is None else profiles)
        for claim in profile.claims
        if claim.fabric == fabric or (claim.fabric == "any" and fabric in _REAL)
    ]
    rows = list(_rows(claims, tables)) if claims else []
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _rows(claims: list[Claim], tables: Tables) -> Iterator[dict[str, object]]:
    values = _values(tables)
    rates = {float(rate) for rate in tables.endpoints["rate_gbit_s"] if rate > 0}
    for claim in claims:
        measured, row = _measured(claim, values)
        yield {
            "quantity": claim.quantity,
            "scope": claim.scope,
            "bound": claim.bound,
            "claimed": claim.value,
            "rate_gbit_s": claim.rate_gbit_s or math.nan,
            "measured": measured[0],
            "measured_lo": measured[1].lo,
            "measured_hi": measured[1].hi,
            "row": row,
            "verdict": _verdict(claim, measured, rates),
            "source": claim.source.title,
            "note": "; ".join(part for part in (claim.note, claim.source.note) if part),
        }


def _values(tables: Tables) -> pd.DataFrame:
    """Counted one-way values, with the share of the port's rate as one more metric."""
    values = shown_values(tables)
    values = values[values["direction"] == "one-way"]
    rates = tables.endpoints.groupby(["host", "device", "port"])["rate_gbit_s"].last()
    ends = list(
        zip(
            values["initiator_host"].astype("str"),
            values["initiator_device"].astype("str"),
            values["initiator_port"],
            strict=True,
        )
    )
    rate = pd.Series([float(rates.get(end, 0.0)) for end in ends], index=values.index)
    shares = values[(values["metric"] == "bw_gbps") & (rate > 0)]
    share = 100 * shares["value"] / rate[shares.index]
    return pd.concat([values, shares.assign(metric=_SHARE, value=share)], ignore_index=True)


def _measured(claim: Claim, values: pd.DataFrame) -> tuple[tuple[float, Interval], str]:
    """The median over repeats of the row that stands beside a claim, and which row that is."""
    wanted = "bandwidth" if claim.quantity.startswith(("bw", "cpu")) else "latency"
    mine = values[(values["metric"] == claim.quantity) & (values["probe"] == wanted)]
    if claim.op:
        mine = mine[mine["op"] == claim.op]
    if claim.quantity.startswith("cpu"):
        mine = mine[mine["completion"] == "event"]
    if mine.empty:
        return (math.nan, median_interval([])), ""
    if not claim.quantity.startswith("bw"):
        mine = mine[mine["size_bytes"] == mine["size_bytes"].min()]
    candidates = [
        (float(repeats.median()), repeats, _named(group.iloc[0]))
        for _, group in mine.groupby(["op", "size_bytes", "qps", "completion"], observed=True)
        for repeats in [group.groupby("repeat")["value"].median()]
    ]
    best = max if claim.quantity.startswith("bw") else min
    value, repeats, row = best(candidates, key=lambda each: each[0])
    return (value, median_interval(repeats)), row


def _named(row: pd.Series) -> str:
    queues = f", {row['qps']} queue pairs" if row["qps"] > 1 else ""
    return f"{row['op']} {size_text(int(row['size_bytes']))}{queues}, {row['completion']}"


def _verdict(claim: Claim, measured: tuple[float, Interval], rates: set[float]) -> str:
    value, interval = measured
    other_speed = claim.rate_gbit_s > 0 and not any(
        abs(rate / claim.rate_gbit_s - 1) <= _RATE_TOLERANCE for rate in rates
    )
    if claim.bound == ABOUT or other_speed or math.isnan(value):
        return NOT_JUDGED
    if not interval.is_available or interval.spans(claim.value):
        return CANNOT_TELL
    below = value < claim.value
    return HOLDS if below == (claim.bound == AT_MOST) else DOES_NOT
