"""Counters that stand still on a healthy, accepted fabric, by kernel driver.

Sources: InfiniBand Architecture Specification (PortCounters, PortCountersExtended), the drivers'
own tables (drivers/infiniband/sw/rxe/rxe_hw_counters.c, mlx5 `counters.c`, bnxt_re `hw_counters.c`,
irdma, efa) and netdev statistics. Congestion marks (CNP, ECN) are no errors and not in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

RETRANSMISSIONS: Mapping[str, tuple[str, ...]] = {
    "rxe": (
        "out_of_seq_request",
        "rcvd_seq_err",
        "duplicate_request",
        "completer_retry_err",
        "rcvd_rnr_err",
        "send_rnr_err",
    ),
    "mlx5": (
        "out_of_sequence",
        "packet_seq_err",
        "duplicate_request",
        "local_ack_timeout_err",
        "implied_nak_seq_err",
        "rnr_nak_retry_err",
        "roce_adp_retrans",
        "roce_adp_retrans_to",
        "roce_slow_restart",
    ),
    "bnxt": (
        "seq_err_naks_rcvd",
        "to_retransmits",
        "res_oos_drop_count",
        "missing_resp",
        "rx_err*",
    ),
    "irdma": ("tcpRetransSegs", "RxOutOfOrder*", "txRexmit*", "retransSegs"),
    "efa": ("retrans_pkts", "retrans_bytes", "retrans_timeout_events"),
}
BROKEN: Mapping[str, tuple[str, ...]] = {
    "rxe": ("retry_exceeded_err", "retry_rnr_exceeded_err", "send_err", "link_downed"),
    "mlx5": ("rx_icrc_encapsulated", "req_cqe_error", "resp_cqe_error", "req_remote_access_errors"),
    "any": (
        "symbol_error",
        "link_downed",
        "link_error_recovery",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_xmit_discards",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "VL15_dropped",
    ),
    "netdev": ("rx_dropped", "tx_dropped", "rx_errors", "tx_errors"),
}
ALL = tuple(
    dict.fromkeys(
        name for table in (BROKEN, RETRANSMISSIONS) for row in table.values() for name in row
    )
)


def matching(counters: Iterable[str], patterns: Iterable[str]) -> frozenset[str]:
    """Those counters whose last part, or whole name, fits a pattern (`*` and `?` as in a shell)."""
    wanted = tuple(patterns)
    return frozenset(
        name
        for name in counters
        if any(
            fnmatchcase(name, pattern) or fnmatchcase(name.rsplit("/", 1)[-1], pattern)
            for pattern in wanted
        )
    )
