"""One name for each meaning of a counter, whatever its vendor and source call it.

Sources: the drivers' own sources and manuals (mlx5, bnxt_re, irdma, ice, hfi1, rxe), and
Documentation/ABI/stable/sysfs-class-infiniband. Port data counters count 4-byte words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_WORD_BYTES = 4
_FULL_WIDTH = 64


@dataclass(frozen=True)
class Meaning:
    """What a counter counts: `scale` turns its value into `unit`."""

    name: str
    unit: str
    scale: int = 1
    priority: int = -1


# canonical name, unit, names of drivers; of several that a port has, the first here is taken
_SYNONYMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("received_packets", "packets", ("port_rcv_packets", "rcvd_pkts", "rx_roce_pkts", "RxPkt")),
    ("sent_packets", "packets", ("port_xmit_packets", "sent_pkts", "tx_roce_pkts", "TxPkt")),
    ("xmit_wait", "ticks", ("port_xmit_wait", "TxWait")),
    ("out_of_sequence", "packets", ("out_of_sequence", "out_of_seq_request", "oos_drop_count")),
    ("sequence_errors", "packets", ("packet_seq_err", "rcvd_seq_err", "seq_err_naks_rcvd")),
    ("ack_timeouts", "timeouts", ("local_ack_timeout_err", "completer_retry_err",
                                  "to_retransmits")),
    ("retries_exceeded", "QPs", ("req_transport_retries_exceeded", "retry_exceeded_err",
                                 "max_retry_exceeded")),
    ("receiver_not_ready", "naks", ("rnr_nak_retry_err", "rcvd_rnr_err", "rnr_naks_rcvd")),
    ("duplicate_requests", "requests", ("duplicate_request", "dup_req")),
    ("implied_naks", "naks", ("implied_nak_seq_err",)),
    ("out_of_buffer", "packets", ("out_of_buffer", "rx_out_of_buffer")),
    ("icrc_errors", "packets", ("rx_icrc_encapsulated", "rx_icrc_errors")),
    ("cnp_sent", "packets", ("np_cnp_sent", "tx_cnp_pkts", "cnpSent")),
    ("cnp_handled", "packets", ("rp_cnp_handled", "rx_cnp_pkts", "cnpHandled")),
    ("cnp_ignored", "packets", ("rp_cnp_ignored", "cnpIgnored")),
    ("ecn_marked", "packets", ("np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd")),
    ("received_discards", "packets", ("rx_discards_phy", "rx_total_discard_pkts",
                                      "rx_dropped.nic", "port_rcv_errors")),
    ("sent_discards", "packets", ("tx_discards_phy", "tx_total_discard_pkts",
                                  "port_xmit_discards")),
    ("received_pause", "frames", ("rx_global_pause", "rx_pause_ctrl_phy", "rx_pause_frames",
                                  "link_xoff_rx.nic")),
    ("sent_pause", "frames", ("tx_global_pause", "tx_pause_ctrl_phy", "tx_pause_frames",
                              "link_xoff_tx.nic")),
    ("received_pause_time", "us", ("rx_global_pause_duration",)),
    ("sent_pause_time", "us", ("tx_global_pause_duration",)),
    ("link_downed", "events", ("link_downed", "link_down_events_phy", "LinkDown")),
    ("link_recoveries", "events", ("link_error_recovery",)),
    ("symbol_errors", "errors", ("symbol_error", "rx_symbol_err_phy")),
    ("buffer_overruns", "events", ("excessive_buffer_overrun_errors",)),
)  # fmt: skip
_PLAIN = {
    raw: (Meaning(name, unit), rank)
    for name, unit, raws in _SYNONYMS
    for rank, raw in enumerate(raws)
}
_WORDS = {"port_rcv_data": "received_bytes", "port_xmit_data": "sent_bytes"}
_PRIORITY = (
    (re.compile(r"(?P<way>[rt]x)_prio(?P<n>[0-7])_pause"), "pause", "frames"),
    (re.compile(r"(?P<way>[rt]x)_pfc_ena_frames_pri(?P<n>[0-7])"), "pause", "frames"),
    (re.compile(r"(?P<way>[rt]x)_priority_(?P<n>[0-7])_xoff\.nic"), "pause", "frames"),
    (re.compile(r"(?P<way>[rt]x)_prio(?P<n>[0-7])_pause_duration"), "pause_time", "us"),
    (re.compile(r"(?P<way>[rt]x)_prio(?P<n>[0-7])_bytes"), "bytes", "bytes"),
    (re.compile(r"(?P<way>[rt]x)_bytes_pri(?P<n>[0-7])"), "bytes", "bytes"),
)
_WAYS = {"rx": "received", "tx": "sent"}


def split_width(raw: str) -> tuple[str, int]:
    """`SwLinkUp` and 32 of hfi1's `SwLinkUp,32`: such a counter wraps at 2^32; 64 bits else."""
    name, comma, bits = raw.rpartition(",")
    if comma and bits.isascii() and bits.isdigit() and 0 < int(bits) <= _FULL_WIDTH:
        return name, int(bits)
    return raw, _FULL_WIDTH


def meaning(raw: str) -> Meaning | None:
    """What a counter of that name (a path before it is passed over) counts, if it is known."""
    name, _ = split_width(raw.rsplit("/", 1)[-1])
    if name in _WORDS:
        return Meaning(_WORDS[name], "bytes", scale=_WORD_BYTES)
    if name in _PLAIN:
        return _PLAIN[name][0]
    for pattern, what, unit in _PRIORITY:
        match = pattern.fullmatch(name)
        if match:
            canonical = f"{_WAYS[match['way']]}_{what}"
            return Meaning(canonical, unit, priority=int(match["n"]))
    return None


@dataclass(frozen=True)
class Moved:
    """How far a counter moved; `reset` where it started again and nothing can be said."""

    amount: int = 0
    reset: bool = False


def moved(before: int, after: int, *, width: int = _FULL_WIDTH) -> Moved:
    """From one reading to a later one: a narrow counter wraps, a wide one only starts again."""
    if after >= before:
        return Moved(after - before)
    if width < _FULL_WIDTH and before < 1 << width:
        return Moved((after - before) % (1 << width))
    return Moved(reset=True)


def deltas(before: Mapping[str, int], after: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """What moved, by canonical name and priority (-1: none), in the unit of its meaning.

    A counter that only one reading has, or that was reset, is left out: it is unknown, not zero.
    Of synonyms the best is taken, so that nothing is counted twice.
    """
    ranked: dict[tuple[str, int], tuple[int, int]] = {}
    for raw in before.keys() & after.keys():
        found = meaning(raw)
        name, width = split_width(raw.rsplit("/", 1)[-1])
        change = moved(before[raw], after[raw], width=width)
        if found is None or change.reset:
            continue
        rank = _PLAIN[name][1] if name in _PLAIN else 0
        key = (found.name, found.priority)
        if key not in ranked or rank < ranked[key][0]:
            ranked[key] = (rank, change.amount * found.scale)
    return {key: amount for key, (_, amount) in ranked.items()}
