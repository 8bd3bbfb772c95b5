"""What is measured: plans (YAML) become ordered cases.

A plan file is validated at the door and turned into frozen values; what it means for a fabric is
decided by `expand`:

- Repeats are interleaved: repeat 0 of every case, then repeat 1 of every case, so that a slow drift
  of the fabric spreads over all cases instead of falling on one.
- TCP knows no write and no read. Their measurements become `send` at the same sizes, and a case
  that is then there twice is made once; depth, inline and completion moderation do not apply.
- A large message is repeated less often: so often that no more than `max_bytes` move per queue
  pair, but at least `min_iterations` times.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rdmabench.errors import InputError
from rdmabench.model import Case, EndpointRef, Fabric, LinkParameters, Parameters
from rdmabench.units import parse_size

MAX_SIZE_BYTES = 1 << 30
_PAGE_BYTES = 4096
_PLANS = resources.files("rdmabench.orchestrator") / "plans"


@dataclass(frozen=True)
class Measurement:
    """One entry of a plan: a probe over operations, sizes and numbers of queue pairs."""

    probe: str
    ops: tuple[str, ...]
    sizes: tuple[int, ...]
    qps: tuple[int, ...]
    depth: int
    cq_moderation: int
    iterations: int
    min_iterations: int
    warmup: int
    max_bytes: int  # per queue pair, 0: no limit
    inline_bytes: int
    completion: str
    deadline_s: float


@dataclass(frozen=True)
class Plan:
    """A validated plan; `source` is the file's path, for messages."""

    name: str
    title: str
    repeats: int
    link: LinkParameters
    measurements: tuple[Measurement, ...]
    source: str


def names() -> tuple[str, ...]:
    """The plans that come with the program."""
    return tuple(sorted(p.name.removesuffix(".yml") for p in _PLANS.iterdir() if ".yml" in p.name))


def load(name_or_path: str) -> Plan:
    """A packaged plan by name, or a plan file by path.

    Raises:
        InputError: there is none, or a value in it is wrong; names `file: path.to.key`.
    """
    path = Path(name_or_path).expanduser()
    if name_or_path in names():
        return _read((_PLANS / f"{name_or_path}.yml").read_text(encoding="utf-8"), name_or_path)
    if not path.is_file():
        close = difflib.get_close_matches(name_or_path, names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(
            f"there is no plan {name_or_path!r}",
            remedy=f"{hint}choose {', '.join(names())}, or give the path of a YAML file",
        )
    try:
        return _read(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError(f"{path}: cannot be read: {exc}") from exc


def expand(
    plan: Plan,
    *,
    initiator: EndpointRef,
    responder: EndpointRef,
    fabric: Fabric,
    engine: str,
    round_number: int = 0,
) -> tuple[Case, ...]:
    """The cases of one pair, in the order in which they are to be made."""
    return tuple(
        Case(
            initiator=initiator,
            responder=responder,
            parameters=parameters,
            repeat=repeat,
            round=round_number,
        )
        for repeat in range(plan.repeats)
        for parameters in parameters_of(plan, fabric=fabric, engine=engine)
    )


def parameters_of(plan: Plan, *, fabric: Fabric, engine: str) -> tuple[Parameters, ...]:
    """What one repeat measures on a fabric."""
    over_verbs = [replace(each, engine=engine) for each in _all_parameters(plan)]
    if fabric is not Fabric.TCP:
        return tuple(over_verbs)
    # a plan's own send stands before what is mapped to send
    candidates = sorted(over_verbs, key=lambda each: each.op != "send")
    chosen: dict[tuple[str, int, int], Parameters] = {}
    for each in candidates:
        chosen.setdefault((each.probe, each.size_bytes, each.qps), _over_tcp(each))
    return tuple(chosen.values())


def link_parameters(plan: Plan, cases: Sequence[Case]) -> LinkParameters:
    """The link that carries all of these cases without being connected anew."""
    wanted = [case.parameters for case in cases]
    depth = max(each.depth for each in wanted)
    return replace(
        plan.link,
        qps=max(each.qps for each in wanted),
        depth=max(plan.link.depth, depth),
        recv_depth=max(plan.link.recv_depth, 2 * depth),
        buffer_bytes=max(each.qps * _pages(each.size_bytes) for each in wanted),
        inline_bytes=max(each.inline_bytes for each in wanted),
    )


@dataclass(frozen=True)
class _Speed:
    """A rough model of a fabric: enough to say minutes or hours, no expectation of a result."""

    message_s: float
    bytes_per_s: float
    case_s: float
    connect_s: float


_SOFT = _Speed(message_s=1.2e-3, bytes_per_s=15e6, case_s=0.3, connect_s=3.0)
_HARD = _Speed(message_s=4e-6, bytes_per_s=20e9, case_s=0.1, connect_s=1.0)
_KERNEL = _Speed(message_s=40e-6, bytes_per_s=2e9, case_s=0.1, connect_s=1.0)


def estimate_s(cases: Sequence[Case], *, fabric: Fabric, lab: bool = False) -> float:
    """Roughly how long the cases take; soft-RoCE, and any fabric in the lab, at the lab's speed.

    A round lasts as long as its longest pair.
    """
    hardware = _KERNEL if fabric is Fabric.TCP else _HARD
    speed = _SOFT if lab or fabric is Fabric.RXE else hardware
    pair_s: dict[tuple[int, EndpointRef, EndpointRef], float] = {}
    for case in cases:
        key = (case.round, case.initiator, case.responder)
        pair_s[key] = pair_s.get(key, speed.connect_s) + _case_s(case.parameters, speed)
    round_s: dict[int, float] = {}
    for (number, *_), spent in pair_s.items():
        round_s[number] = max(round_s.get(number, 0.0), spent)
    return sum(round_s.values())


def _case_s(parameters: Parameters, speed: _Speed) -> float:
    count = parameters.iterations + parameters.warmup
    wire_s = parameters.size_bytes / speed.bytes_per_s
    if parameters.probe == "latency":
        ways = 1 if parameters.op == "read" else 2
        return speed.case_s + count * (speed.message_s + ways * wire_s)
    posted = count * parameters.qps
    return speed.case_s + posted * max(wire_s, speed.message_s / 16)


# ---- parameters ----


def _all_parameters(plan: Plan) -> Iterator[Parameters]:
    for measurement in plan.measurements:
        yield from _parameters(measurement)


def _parameters(measurement: Measurement) -> Iterator[Parameters]:
    for op in measurement.ops:
        for qps in measurement.qps:
            for size in measurement.sizes:
                count = _iterations(measurement, size)
                yield Parameters(
                    probe=measurement.probe,
                    op=op,
                    size_bytes=size,
                    iterations=count,
                    warmup=min(measurement.warmup, count),
                    qps=qps,
                    depth=measurement.depth,
                    cq_moderation=measurement.cq_moderation,
                    inline_bytes=0 if op == "read" else measurement.inline_bytes,
                    completion=measurement.completion,
                    deadline_s=measurement.deadline_s,
                )


def _iterations(measurement: Measurement, size_bytes: int) -> int:
    if not measurement.max_bytes:
        return measurement.iterations
    fitting = max(measurement.max_bytes // size_bytes, measurement.min_iterations)
    return min(measurement.iterations, fitting)


def _over_tcp(parameters: Parameters) -> Parameters:
    return replace(parameters, op="send", transport="TCP", inline_bytes=0, depth=1, cq_moderation=1)


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES


# ---- the file ----


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _powers(value: object) -> object:
    """`{from: 2, to: 8M}` as a list; other values stay for the list's own validation."""
    if not isinstance(value, Mapping):
        return value
    span = _Span.model_validate(value)
    if span.first > span.last:
        raise ValueError(f"from {span.first} is above to {span.last}")
    sizes = [span.first]
    while sizes[-1] * span.factor <= span.last:
        sizes.append(sizes[-1] * span.factor)
    return sizes


Size = Annotated[int, BeforeValidator(_size), Field(ge=1, le=MAX_SIZE_BYTES, strict=True)]
Bytes = Annotated[int, BeforeValidator(_size), Field(ge=0, strict=True)]
Count = Annotated[int, Field(ge=1, le=100_000_000, strict=True)]
Probe = Literal["latency", "bandwidth"]
Op = Literal["send", "write", "read"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Span(_Strict):
    first: Size = Field(alias="from")
    last: Size = Field(alias="to")
    factor: int = Field(2, ge=2, le=1024)


class _Measurement(_Strict):
    probe: Probe
    op: list[Op] = Field(min_length=1)
    sizes: Annotated[list[Size], BeforeValidator(_powers)] = Field(min_length=1)
    iterations: Count
    min_iterations: Count = 16
    warmup: int = Field(0, ge=0)
    qps: list[Annotated[int, Field(ge=1, le=1024, strict=True)]] = Field([1], min_length=1)
    depth: int = Field(1, ge=1, le=65536)
    cq_moderation: int = Field(1, ge=1)
    max_bytes: Bytes = 0
    inline_bytes: int = Field(0, ge=0, le=4096)
    completion: Literal["poll", "event"] = "poll"
    deadline_s: float = Field(30.0, gt=0, le=86_400)


class _Link(_Strict):
    mtu_bytes: int = 0
    traffic_class: int = 0
    service_level: Annotated[int, Field(ge=0, le=15)] = 0
    timeout: int = 18
    retry_cnt: int = 6
    rnr_retry: Annotated[int, Field(ge=0, le=7)] = 7
    min_rnr_timer: Annotated[int, Field(ge=0, le=31)] = 12


class _Plan(_Strict):
    name: str = Field(min_length=1)
    title: str = ""
    repeats: int = Field(3, ge=1, le=1000)
    link: _Link = _Link()
    measurements: list[_Measurement] = Field(min_length=1)


_KEYS = sorted({key for kind in (_Plan, _Link, _Measurement) for key in kind.model_fields})


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


def _read(text: str, source: str) -> Plan:
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 -- a SafeLoader
        found = _Plan.model_validate(document)
        link = LinkParameters(**found.link.model_dump())
    except yaml.YAMLError as exc:
        raise InputError(f"{source}: not YAML: {exc}") from exc
    except ValidationError as exc:
        raise InputError(f"{source}: {_explained(exc)}") from exc
    except ValueError as exc:
        raise InputError(f"{source}: link: {exc}") from exc
    measurements = tuple(_frozen(each) for each in found.measurements)
    for index, measurement in enumerate(measurements):
        try:
            _ = [*_parameters(measurement)]
        except ValueError as exc:
            raise InputError(f"{source}: measurements.{index}: {exc}") from exc
    return Plan(
        name=found.name,
        title=found.title,
        repeats=found.repeats,
        link=link,
        measurements=measurements,
        source=source,
    )


def _frozen(found: _Measurement) -> Measurement:
    plain = found.model_dump(exclude={"op", "sizes", "qps"})
    return Measurement(
        **plain,
        ops=tuple(dict.fromkeys(found.op)),
        sizes=tuple(dict.fromkeys(found.sizes)),
        qps=tuple(dict.fromkeys(found.qps)),
    )


def _explained(exc: ValidationError) -> str:
    """The first error as `path.to.key: what is wrong`, with the close match for an unknown key."""
    # an unknown key before a missing one: the one is often the other, misspelt
    first = sorted(exc.errors(), key=lambda error: error["type"] != "extra_forbidden")[0]
    where = ".".join(str(part) for part in first["loc"]) or "the plan"
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(first["loc"][-1]), _KEYS, n=1)
        return f"{where}: unknown key" + (f"; did you mean {close[0]}?" if close else "")
    if first["type"] == "missing":
        return f"{where}: is missing"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}, found {first['input']!r:.80}"
