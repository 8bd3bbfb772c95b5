from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmabench import wire
from rdmabench.errors import ProtocolError
from rdmabench.model import (
    Case,
    CounterSet,
    EndpointRef,
    Evidence,
    Fabric,
    LinkFacts,
    Outcome,
    Parameters,
    Record,
    Role,
    Samples,
    SideReport,
)


def a_case(repeat: int = 0) -> Case:
    return Case(
        initiator=EndpointRef(host="a", device="rxe0"),
        responder=EndpointRef(host="b", device="rxe0"),
        parameters=Parameters(probe="latency", op="read", size_bytes=2, iterations=10),
        repeat=repeat,
    )


def a_report(role: Role) -> SideReport:
    return SideReport(
        host="a",
        role=role,
        elapsed_ns=1000,
        message_count=10,
        payload_bytes=20,
        cpu_ns=5,
        wall_ns=10,
        payload_bytes_per_qp=(10, 10),
        samples=Samples(path="x", count=10, kind="rtt", sha256="00"),
        counters_before=CounterSet({"hw_counters/sent_pkts": 1}),
        counters_after=CounterSet({"hw_counters/sent_pkts": 11}),
    )


def a_record() -> Record:
    return Record(
        case=a_case(),
        outcome=Outcome.MEASURED,
        link=LinkFacts(mtu_bytes=4096),
        initiator=a_report(Role.INITIATOR),
        responder=a_report(Role.RESPONDER),
        evidence=Evidence.PROVED,
    )


@pytest.mark.parametrize(
    "body",
    [
        a_record(),
        wire.Hello(host="a", silence_limit_s=60, env={"A": "1"}),
        wire.ListEndpoints(fabric=Fabric.RXE, gid_index=None, rail_order=("x", "y")),
        wire.ListEndpoints(fabric=Fabric.IB, gid_index=3),
        wire.Done(),
        wire.Failure(kind="VerbsError", what="no", errno=12),
    ],
)
def test_what_is_written_is_read_back(body: object) -> None:
    assert wire.decode(wire.encode(wire.Envelope(body, seq=7))) == wire.Envelope(body, seq=7)


def test_an_unknown_field_is_kept_and_written_back() -> None:
    plain = json.loads(wire.encode(wire.Envelope(a_case())))
    plain["body"]["colour"] = "blue"
    plain["body"]["parameters"]["shape"] = [1, 2]
    read = wire.decode(json.dumps(plain).encode())
    assert read.body == a_case()
    again = json.loads(wire.encode(read))
    assert again["body"]["colour"] == "blue"
    assert again["body"]["parameters"]["shape"] == [1, 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "Nonsense"}, "unknown message type 'Nonsense'"),
        ({"v": 99}, "message version 99"),
        ({"body": []}, "not a message"),
        ({"body": {"initiator": 3}}, "not a message"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    change: dict[str, object], said: str
) -> None:
    plain = json.loads(wire.encode(wire.Envelope(a_case()))) | change
    with pytest.raises(ProtocolError, match=said):
        wire.decode(json.dumps(plain).encode(), source="node7")


def test_a_truth_value_is_not_a_number() -> None:
    plain = json.loads(wire.encode(wire.Envelope(a_case())))
    plain["body"]["repeat"] = True
    with pytest.raises(ProtocolError):
        wire.decode(json.dumps(plain).encode())


@given(st.lists(st.integers(1, 40), max_size=60), st.binary(max_size=50))
def test_messages_are_found_however_the_stream_is_cut(cuts: list[int], noise: bytes) -> None:
    noise = noise.replace(b"\x1e", b"")
    envelopes = [wire.Envelope(a_case(repeat), seq=repeat) for repeat in range(3)]
    stream = b"".join(noise + wire.frame(each) for each in envelopes)
    deframer, found, at = wire.Deframer("a"), [], 0
    for cut in [*cuts, len(stream)]:
        found += deframer.feed(stream[at : at + cut])
        at += cut
    assert found == envelopes


def test_a_banner_before_the_first_message_is_noise_and_kept_for_the_error() -> None:
    deframer = wire.Deframer("a")
    assert list(deframer.feed(b"Welcome to gpu001\n")) == []
    assert deframer.noise == b"Welcome to gpu001\n"


def test_a_message_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 1000)
    deframer = wire.Deframer("a")
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        list(deframer.feed(b"\x1e" + b"x" * 2000))
