"""Counters of every vendor under one name, and what moved ones mean."""

from __future__ import annotations

import pytest

from rdmabench.analysis.counter_names import Moved, deltas, meaning, moved, split_width
from rdmabench.analysis.counter_notes import notes, priority_note, timeout_meaning


@pytest.mark.parametrize(
    ("raw", "name", "unit", "scale", "priority"),
    [
        ("counters/port_xmit_data", "sent_bytes", "bytes", 4, -1),
        ("hw_counters/out_of_sequence", "out_of_sequence", "packets", 1, -1),
        ("out_of_seq_request", "out_of_sequence", "packets", 1, -1),
        ("np_cnp_sent", "cnp_sent", "packets", 1, -1),
        ("tx_cnp_pkts", "cnp_sent", "packets", 1, -1),
        ("cnpSent", "cnp_sent", "packets", 1, -1),
        ("rx_prio3_pause", "received_pause", "frames", 1, 3),
        ("rx_pfc_ena_frames_pri3", "received_pause", "frames", 1, 3),
        ("tx_priority_4_xoff.nic", "sent_pause", "frames", 1, 4),
        ("rx_prio0_bytes", "received_bytes", "bytes", 1, 0),
    ],
)
def test_one_name_for_each_meaning(
    raw: str, name: str, unit: str, scale: int, priority: int
) -> None:
    found = meaning(raw)
    assert found is not None
    assert (found.name, found.unit, found.scale, found.priority) == (name, unit, scale, priority)


def test_a_counter_that_is_not_known_has_no_meaning() -> None:
    assert meaning("rx_queue_0_kicks") is None


@pytest.mark.parametrize(
    ("raw", "name", "width"),
    [
        ("SDEDscFdCn10,32", "SDEDscFdCn10", 32),
        ("SwLinkUp,32", "SwLinkUp", 32),
        ("RcvHdrOvr10", "RcvHdrOvr10", 64),
        ("TxHcrcInsertionErr", "TxHcrcInsertionErr", 64),
        ("RxPkt", "RxPkt", 64),
        ("odd,name", "odd,name", 64),
        ("odd,99", "odd,99", 64),
    ],
)
def test_d03_a_width_after_the_comma_is_no_part_of_the_name(
    raw: str, name: str, width: int
) -> None:
    """https://github.com/prometheus/node_exporter/issues/2023"""
    assert split_width(raw) == (name, width)


def test_d03_a_narrow_counter_wraps_and_a_wide_one_starts_again() -> None:
    assert moved(4294967290, 5, width=32) == Moved(11)
    assert moved(4294967290, 5) == Moved(reset=True)
    assert moved(5, 5) == Moved(0)


BEFORE = {
    "rx_pause_ctrl_phy": 132000000,
    "tx_pause_ctrl_phy": 0,
    "rx_global_pause": 131000000,
    "rx_global_pause_duration": 4200000,
    "tx_global_pause": 0,
    "rx_prio3_pause": 0,
    "rx_discards_phy": 0,
    "rx_out_of_buffer": 0,
}


def test_d05_received_pause_throttles_though_nothing_is_dropped() -> None:
    """https://github.com/NVIDIA/daqiri/issues/250"""
    after = BEFORE | {
        "rx_pause_ctrl_phy": 141000000,
        "rx_global_pause": 140000000,
        "rx_global_pause_duration": 6370000,
    }
    (note,) = notes(BEFORE, after)
    assert (note.kind, note.amount) == ("paused", 9_000_000)
    assert "received" in note.text
    assert "global" in note.text
    assert deltas(BEFORE, after)["received_discards", -1] == 0
    assert deltas(BEFORE, after)["received_pause_time", -1] == 2_170_000


def test_d05_counters_since_boot_that_stand_still_say_nothing() -> None:
    assert notes(BEFORE, BEFORE) == ()


def test_d05_sent_pause_and_pause_of_one_priority_are_told_apart() -> None:
    sent = notes(BEFORE, BEFORE | {"tx_global_pause": 7})
    assert "this receiver is slow" in sent[0].text
    prio = notes(BEFORE, BEFORE | {"rx_prio3_pause": 7})
    assert "on priority 3" in prio[0].text


def test_d07_all_traffic_in_the_wrong_priority() -> None:
    """https://github.com/bytedance/byteps/issues/179"""
    counters = {f"{way}_prio{n}_bytes": 0 for way in ("rx", "tx") for n in range(8)}
    counters |= {"rx_prio0_bytes": 88178050405854, "tx_prio0_bytes": 14056302074308}
    assert "no traffic in priority 3, all of it in 0" in priority_note(counters, 3)
    assert priority_note(counters, 0) == ""
    assert priority_note({}, 3) == ""


def test_d07_a_busy_node_says_what_moved() -> None:
    zero = {"out_of_sequence": 0, "np_cnp_sent": 0, "packet_seq_err": 0, "rp_cnp_handled": 0}
    busy = {"out_of_sequence": 6140236, "np_cnp_sent": 17269947, "packet_seq_err": 929974}
    (note,) = notes(zero, zero | busy)
    assert note.kind == "resent"
    assert "out_of_sequence 6140236" in note.text
    assert deltas(zero, zero | busy)["cnp_sent", -1] == 17269947


@pytest.mark.parametrize(
    ("before", "after", "status", "text"),
    [
        (91316, 91324, 12, "one QP exhausted 7 retries"),
        (91316, 91316, 0, "clean"),
        (91316, 91316, 12, "the error is the peer's"),
        (91316, 91332, 12, "2 QPs exhausted 7 retries"),
        (91316, 91319, 0, "3 requests were repeated after a timeout"),
    ],
)
def test_d08_only_what_moved_counts(before: int, after: int, status: int, text: str) -> None:
    """https://github.com/NVIDIA/nccl/issues/394"""
    assert timeout_meaning(moved(before, after).amount, status=status) == text


def test_a_counter_that_only_one_reading_has_is_unknown_and_not_zero() -> None:
    assert deltas({"np_cnp_sent": 5}, {}) == {}
    assert deltas({"np_cnp_sent": 5}, {"np_cnp_sent": 3}) == {}
