"""Acceptance rules: a YAML file, validated at the door, then frozen values in base units.

Kinds of rules; every one names its `source`:

- `share`: bandwidth as a share of what the wire can carry (`fail_below`, `warn_below`).
- `absolute`: any metric against `min` or `max` in a `unit` that fits the metric.
- `quantile`: a latency quantile against `max` in a unit of time.
- `baseline`: ratio to a baseline run, `min_ratio` (more is better) or `max_ratio` (less is better).
- `fleet`: the same against the median of this run's pairs.
- `counter`: what may have moved by at most `max`, by driver.
- `suspects`: nothing stands out of the fleet (`rdmabench suspects`).
- `evidence`: counters prove the path. `coverage`: all that was planned is measured.
  `plausible`: every value is a number of its unit that the wire can carry.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rdmabench.collector.schema import METRICS
from rdmabench.errors import InputError
from rdmabench.units import parse_size

PERFORMANCE = ("share", "absolute", "quantile", "baseline")
_RULES = resources.files("rdmabench.analysis") / "rules"

# by base unit of the schema: how many of it is one of what a person writes
UNITS: Mapping[str, Mapping[str, float]] = {
    "ns": {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9},
    "B/s": {
        "B/s": 1.0,
        "Gb/s": 1e9 / 8,
        "Mb/s": 1e6 / 8,
        "GB/s": 1e9,
        "MB/s": 1e6,
        "MiB/s": 2.0**20,
    },
    "1/s": {"1/s": 1.0, "Mmsg/s": 1e6},
    "%": {"%": 1.0},
    "s/GB": {"s/GB": 1.0},
    "1": {"1": 1.0},
}


@dataclass(frozen=True)
class Selection:
    """Which measurements a rule is about; empty means all."""

    ops: tuple[str, ...] = ()
    qps: tuple[int, ...] = ()
    min_size: int = 0
    max_size: int = 1 << 62


@dataclass(frozen=True)
class Rule:
    """One rule; `low` and `high` fail, `warn_low` and `warn_high` only remark, all in base units.

    `severity` warn turns a failure into a remark; a rule that is not `required` may find nothing
    to judge.
    """

    name: str
    kind: str
    source: str
    title: str = ""
    required: bool = True
    severity: str = "fail"
    select: Selection = Selection()
    metric: str = ""
    unit: str = ""
    scale: float = 1.0
    low: float | None = None
    high: float | None = None
    warn_low: float | None = None
    warn_high: float | None = None
    best_of_qps: bool = False
    allow_unsupported: bool = False
    counters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_performance(self) -> bool:
        """Whether it is switched off where performance means nothing."""
        return self.kind in PERFORMANCE


@dataclass(frozen=True)
class RuleSet:
    """A validated file of rules; `origin` is its path, for messages."""

    name: str
    title: str
    origin: str
    performance: bool
    performance_note: str
    rules: tuple[Rule, ...]


def names() -> tuple[str, ...]:
    """The rules that come with the program."""
    return tuple(sorted(p.name.removesuffix(".yml") for p in _RULES.iterdir() if ".yml" in p.name))


def load(name_or_path: str) -> RuleSet:
    """Shipped rules by the fabric's name, or a file by its path.

    Raises:
        InputError: there is none, or a value in it is wrong; names `file: path.to.key`.
    """
    if name_or_path in names():
        text = (_RULES / f"{name_or_path}.yml").read_text(encoding="utf-8")
        return read(text, f"rules/{name_or_path}.yml")
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        raise InputError(
            f"there are no rules {name_or_path!r}",
            remedy=f"choose {', '.join(names())}, or give the path of a YAML file",
        )
    try:
        return read(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError(f"{path}: cannot be read: {exc}") from exc


# ---- the file ----


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


Size = Annotated[int, BeforeValidator(_size), Field(ge=1, strict=True)]
Ops = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_listed)]
Counts = Annotated[list[Annotated[int, Field(ge=1, strict=True)]], BeforeValidator(_listed)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Base(_Strict):
    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    source: str = Field(min_length=1)
    title: str = ""
    required: bool = True
    severity: Literal["fail", "warn"] = "fail"


class _Selecting(_Base):
    op: Ops = []
    qps: Counts = []
    size: Size | None = None
    min_size: Size = 1
    max_size: Size = 1 << 62


class _Share(_Selecting):
    kind: Literal["share"]
    fail_below: Share = 0.90
    warn_below: Share = 0.95
    best_of_qps: bool = True


class _Absolute(_Selecting):
    kind: Literal["absolute"]
    metric: str
    min: Positive | None = None
    max: Positive | None = None
    warn_min: Positive | None = None
    warn_max: Positive | None = None
    unit: str
    best_of_qps: bool = False


class _Quantile(_Selecting):
    kind: Literal["quantile"]
    quantile: Literal["p50", "p90", "p99", "p99_9", "p99_99", "max"]
    max: Positive
    warn_max: Positive | None = None
    unit: str


class _Relative(_Selecting):
    kind: Literal["baseline", "fleet"]
    metric: str
    min_ratio: Positive | None = None
    max_ratio: Positive | None = None


class _Counter(_Base):
    kind: Literal["counter"]
    counters: dict[str, list[str]] = Field(min_length=1)
    max: Annotated[int, Field(ge=0, strict=True)] = 0


class _Functional(_Base):
    kind: Literal["evidence", "coverage", "plausible", "suspects"]
    allow_unsupported: bool = False


_Any = Annotated[
    _Share | _Absolute | _Quantile | _Relative | _Counter | _Functional,
    Field(discriminator="kind"),
]


class _File(_Strict):
    name: str = Field(min_length=1)
    title: str = ""
    performance: bool = True
    performance_note: str = ""
    rules: list[_Any] = Field(min_length=1)


_KEYS = sorted(
    {
        key
        for kind in (_File, _Share, _Absolute, _Quantile, _Relative, _Counter, _Functional)
        for key in kind.model_fields
    }
)


class _Loader(yaml.SafeLoader):
    """A key that stands twice in one mapping is an error, not the last one's victory."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", node.start_mark
                )
        return super().construct_mapping(node, deep=deep)


def read(text: str, origin: str) -> RuleSet:
    """The rules of a text; `origin` names it in messages.

    Raises:
        InputError: a value is wrong; names `origin: path.to.key`.
    """
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 -- a SafeLoader
        found = _File.model_validate(document)
    except yaml.YAMLError as exc:
        raise InputError(f"{origin}: not YAML: {exc}") from exc
    except ValidationError as exc:
        raise InputError(f"{origin}: {_explained(exc)}") from exc
    rules = tuple(_frozen(each, f"{origin}: rules.{i}") for i, each in enumerate(found.rules))
    seen: set[str] = set()
    for place, rule in enumerate(rules):
        if rule.name in seen:
            raise InputError(f"{origin}: rules.{place}.name: {rule.name!r} is there twice")
        seen.add(rule.name)
    return RuleSet(
        name=found.name,
        title=found.title,
        origin=origin,
        performance=found.performance,
        performance_note=found.performance_note,
        rules=rules,
    )


def _frozen(found: Any, where: str) -> Rule:
    common: dict[str, Any] = {
        name: getattr(found, name) for name in ("name", "kind", "source", "title", "required")
    }
    common["severity"] = found.severity
    if isinstance(found, _Selecting):
        common["select"] = Selection(
            ops=tuple(found.op),
            qps=tuple(found.qps),
            min_size=found.size or found.min_size,
            max_size=found.size or found.max_size,
        )
    return Rule(**common, **_limits(found, where))


def _limits(found: Any, where: str) -> dict[str, Any]:
    if isinstance(found, _Share):
        if found.warn_below < found.fail_below:
            raise InputError(f"{where}.warn_below: {found.warn_below} is below fail_below")
        return {
            "metric": "bw",
            "unit": "of attainable",
            "low": found.fail_below,
            "warn_low": found.warn_below,
            "best_of_qps": found.best_of_qps,
        }
    if isinstance(found, _Absolute):
        return _absolute(found, where)
    if isinstance(found, _Quantile):
        metric = f"lat_{found.quantile}"
        scale = _scale(metric, found.unit, where)
        warn = None if found.warn_max is None else found.warn_max * scale
        return {
            "metric": metric,
            "unit": found.unit,
            "scale": scale,
            "high": found.max * scale,
            "warn_high": warn,
        }
    if isinstance(found, _Relative):
        return _relative(found, where)
    if isinstance(found, _Counter):
        return {
            "high": float(found.max),
            "unit": "events",
            "counters": {driver: tuple(each) for driver, each in found.counters.items()},
        }
    return {"allow_unsupported": found.allow_unsupported}


def _absolute(found: _Absolute, where: str) -> dict[str, Any]:
    metric = _metric(found.metric, where)
    scale = _scale(metric, found.unit, where)
    if found.min is None and found.max is None:
        raise InputError(f"{where}: min or max is missing")

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * scale

    return {
        "metric": metric,
        "unit": found.unit,
        "scale": scale,
        "low": scaled(found.min),
        "high": scaled(found.max),
        "warn_low": scaled(found.warn_min),
        "warn_high": scaled(found.warn_max),
        "best_of_qps": found.best_of_qps,
    }


def _relative(found: _Relative, where: str) -> dict[str, Any]:
    metric = _metric(found.metric, where)
    lower = METRICS[metric].lower_is_better
    wanted, other = ("max_ratio", "min_ratio") if lower else ("min_ratio", "max_ratio")
    if getattr(found, wanted) is None or getattr(found, other) is not None:
        better = "less" if lower else "more"
        raise InputError(f"{where}: of {metric} {better} is better: give {wanted}, not {other}")
    return {
        "metric": metric,
        "unit": "of the fleet's median" if found.kind == "fleet" else "of the baseline",
        "low": found.min_ratio,
        "high": found.max_ratio,
    }


def _metric(name: str, where: str) -> str:
    """A metric by its own name, or by the one that tables show."""
    shown = {metric.shown: metric.name for metric in METRICS.values()}
    if name in METRICS or name in shown:
        return name if name in METRICS else shown[name]
    close = difflib.get_close_matches(name, [*METRICS, *shown], n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(f"{where}.metric: unknown metric {name!r}{hint}")


def _scale(metric: str, unit: str, where: str) -> float:
    """How many base units one `unit` is; a unit of another quantity is an error of the rule."""
    fitting = UNITS[METRICS[metric].unit]
    if unit not in fitting:
        raise InputError(
            f"{where}.unit: {unit!r} is no unit of {metric}", remedy=f"use {', '.join(fitting)}"
        )
    return fitting[unit]


def _explained(exc: ValidationError) -> str:
    """The first error as `path.to.key: what is wrong`, with the close match for an unknown key."""
    first = sorted(exc.errors(), key=lambda error: error["type"] != "extra_forbidden")[0]
    loc = list(first["loc"])
    if loc[:1] == ["rules"]:
        del loc[2:3]  # the kind, which pydantic puts after `rules.N`
    where = ".".join(str(part) for part in loc) or "the rules"
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(first["loc"][-1]), _KEYS, n=1)
        return f"{where}: unknown key" + (f"; did you mean {close[0]}?" if close else "")
    if first["type"] == "missing":
        return f"{where}: is missing"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}, found {first['input']!r:.80}"
