"""The only (de)serialiser of the vocabulary, and the messages between controller and worker.

A message is one JSON text sequence element (RFC 7464): RS, JSON, LF. Whatever stands before an RS
(a login banner, a stray print) is not ours and is passed over. A journal line is the JSON alone.

Version history:
  1  first.

An unknown field of a newer writer is kept and written back; an unknown type is an error.
Standard library only, Python 3.9: this module is pushed to nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints

from rdmabench import audit, model
from rdmabench.errors import ProtocolError
from rdmabench.model import (
    Case,
    Endpoint,
    Fabric,
    LinkAddress,
    LinkParameters,
    NodeFacts,
    Role,
    SideReport,
)

VERSION = 1
RECORD_SEPARATOR = b"\x1e"
MAX_MESSAGE_BYTES = 16 << 20
_EXTRA = "_unknown_fields"


@dataclass(frozen=True)
class Hello:
    """Controller's first message: names the node, and how long silence may last."""

    host: str
    silence_limit_s: float
    env: Mapping[str, str]


@dataclass(frozen=True)
class Welcome:
    """Answer to Hello."""

    facts: NodeFacts


@dataclass(frozen=True)
class ListEndpoints:
    """Ask for the endpoints of a fabric; `selector` is in NCCL_IB_HCA syntax."""

    fabric: Fabric
    selector: str = ""
    gid_index: Optional[int] = None
    rail_order: tuple[str, ...] = ()
    netdev: str = ""


@dataclass(frozen=True)
class EndpointList:
    """Answer to ListEndpoints."""

    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True)
class Audit:
    """Ask what the node is made of, with the ports that `ports` would list marked by their rail."""

    ports: ListEndpoints


@dataclass(frozen=True)
class AuditReport:
    """Answer to Audit."""

    audit: audit.Audit


@dataclass(frozen=True)
class OpenLink:
    """Make the objects of one end of a pair; nothing is sent yet."""

    link: str
    endpoint: Endpoint
    role: Role
    engine: str
    parameters: LinkParameters


@dataclass(frozen=True)
class LinkOpened:
    """Answer to OpenLink."""

    address: LinkAddress


@dataclass(frozen=True)
class ConnectLink:
    """Bring the link up towards the other end's address."""

    link: str
    remote: LinkAddress


@dataclass(frozen=True)
class PrepareCase:
    """Set buffers, post receives; the answer means this end may be sent to."""

    link: str
    case: Case


@dataclass(frozen=True)
class RunCase:
    """Run the timed part of the prepared case; the answer comes when it ended."""

    link: str


@dataclass(frozen=True)
class FinishCase:
    """Both ends have run: check the bytes, read the counters, report."""

    link: str


@dataclass(frozen=True)
class CaseDone:
    """Answer to FinishCase."""

    report: SideReport


@dataclass(frozen=True)
class CloseLink:
    """Take one end of a pair down; unknown links are not an error."""

    link: str


@dataclass(frozen=True)
class Cancel:
    """End the case that runs on the link: its answer is a Failure. Has no answer of its own."""

    link: str


@dataclass(frozen=True)
class Done:
    """Answer to requests that have nothing to say but that they were carried out."""


@dataclass(frozen=True)
class Heartbeat:
    """The controller is alive. No answer."""


@dataclass(frozen=True)
class Bye:
    """End the worker; it answers Done and exits."""


@dataclass(frozen=True)
class Failure:
    """Any request's other answer. `kind` is the class name in `rdmabench.errors`."""

    kind: str
    what: str
    device: str = ""
    errno: int = 0
    remedy: str = ""


_MESSAGES = (
    Hello,
    Welcome,
    ListEndpoints,
    EndpointList,
    Audit,
    AuditReport,
    OpenLink,
    LinkOpened,
    ConnectLink,
    PrepareCase,
    RunCase,
    FinishCase,
    CaseDone,
    CloseLink,
    Cancel,
    Done,
    Heartbeat,
    Bye,
    Failure,
)
_EVENTS = (
    model.RunStarted,
    model.NodeFacts,
    model.Endpoint,
    model.Case,
    model.Record,
    model.ImportStarted,
    model.Imported,
    model.Notice,
    model.RunEnded,
    audit.Finding,
)
_TYPES: dict[str, type] = {cls.__name__: cls for cls in _MESSAGES + _EVENTS}


@dataclass(frozen=True)
class Envelope:
    """A value with its number: an answer carries the `seq` of its request. `at` is for journals."""

    body: Any
    seq: int = 0
    at: str = ""


def to_plain(value: Any) -> Any:
    """The JSON-ready form of a value of the vocabulary."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        plain = dict(getattr(value, _EXTRA, {}))
        plain.update((f.name, to_plain(getattr(value, f.name))) for f in fields(value))
        return plain
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: Any, plain: Any) -> Any:
    """The value of type `kind` that `to_plain` turned into `plain`.

    Raises:
        ValueError, TypeError: the data does not fit the type.
    """
    origin = get_origin(kind)
    if origin is Union:
        inner = next(arg for arg in get_args(kind) if arg is not type(None))
        return None if plain is None else from_plain(inner, plain)
    if origin is tuple:
        return tuple(from_plain(get_args(kind)[0], item) for item in _expect(list, plain))
    if origin is not None:  # a mapping
        value_kind = get_args(kind)[1]
        return {key: from_plain(value_kind, v) for key, v in _expect(dict, plain).items()}
    if is_dataclass(kind):
        return _dataclass_from_plain(kind, _expect(dict, plain))
    return _scalar_from_plain(kind, plain)


def _scalar_from_plain(kind: Any, plain: Any) -> Any:
    if issubclass(kind, Enum):
        return kind(plain)
    if kind is float:
        return float(_expect((int, float), plain))
    if kind is int and isinstance(plain, bool):
        raise TypeError(f"expected a whole number, found {plain!r}")
    return _expect(kind, plain)


def _expect(kind: Any, plain: Any) -> Any:
    if not isinstance(plain, kind):
        raise TypeError(f"expected {kind}, found {type(plain).__name__} {plain!r:.60}")
    return plain


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _dataclass_from_plain(kind: Any, plain: dict[str, Any]) -> Any:
    hints = _hints(kind)
    known = {name: from_plain(hints[name], item) for name, item in plain.items() if name in hints}
    value = kind(**known)
    unknown = {name: item for name, item in plain.items() if name not in hints}
    if unknown:
        object.__setattr__(value, _EXTRA, unknown)
    return value


def encode(envelope: Envelope) -> bytes:
    """One line of JSON, without separator and line feed."""
    plain = {
        "v": VERSION,
        "type": type(envelope.body).__name__,
        "seq": envelope.seq,
        "body": to_plain(envelope.body),
    }
    if envelope.at:
        plain["at"] = envelope.at
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def decode(line: bytes, *, source: str = "") -> Envelope:
    """The envelope of one line.

    Raises:
        ProtocolError: not JSON, another version, an unknown type, or fields that do not fit;
            `source` (a host or a file) stands in the message.
    """
    try:
        plain = _expect(dict, json.loads(line))
        version, name = plain["v"], plain["type"]
        if version != VERSION:
            raise ProtocolError(
                f"message version {version}, this program speaks {VERSION}",
                host=source,
                remedy="use the same rdmabench release on both sides",
            )
        if name not in _TYPES:
            raise ProtocolError(f"unknown message type {name!r:.80}", host=source)
        body = from_plain(_TYPES[name], plain["body"])
        return Envelope(body=body, seq=int(plain.get("seq", 0)), at=str(plain.get("at", "")))
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ProtocolError(
            f"not a message of rdmabench ({type(exc).__name__}: {exc}): {line[:120]!r}",
            host=source,
        ) from exc


def frame(envelope: Envelope) -> bytes:
    """The envelope as an element of a JSON text sequence (RFC 7464)."""
    return RECORD_SEPARATOR + encode(envelope) + b"\n"


class Deframer:
    """Cuts a byte stream into envelopes; the last 4 KiB outside of them are kept in `noise`."""

    def __init__(self, source: str = "") -> None:
        self._source = source
        self._pending = b""
        self.noise = b""

    def feed(self, data: bytes) -> Iterator[Envelope]:
        """The envelopes that `data` completes.

        Raises:
            ProtocolError: a message that cannot be read, or one that does not end.
        """
        self._pending += data
        while True:
            start = self._pending.find(RECORD_SEPARATOR)
            if start < 0:
                self._keep_noise(self._pending)
                self._pending = b""
                return
            self._keep_noise(self._pending[:start])
            end = self._pending.find(b"\n", start)
            if end < 0:
                self._pending = self._pending[start:]
                self._refuse_endless()
                return
            line = self._pending[start + 1 : end]
            self._pending = self._pending[end + 1 :]
            yield decode(line, source=self._source)

    def _keep_noise(self, data: bytes) -> None:
        self.noise = (self.noise + data)[-4096:]

    def _refuse_endless(self) -> None:
        if len(self._pending) > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                f"a message of more than {MAX_MESSAGE_BYTES} bytes", host=self._source
            )
