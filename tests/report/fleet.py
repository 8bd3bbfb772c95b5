"""Synthetic runs for reports: a few nodes, every pair, latency and bandwidth over sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rdmabench.collector.store import RunDirectory
from rdmabench.model import CounterSet, EndpointRef, Fabric, Notice
from tests.collector.synthetic import BANDWIDTH, LATENCY, SyntheticRun, case_of, endpoint

HOSTILE = "<script>alert(1)</script>"


def fleet_run(
    root: Path,
    fabric: Fabric,
    hosts: Sequence[str],
    *,
    base_us: float,
    gbps: float,
    sizes: Sequence[int] = (2, 64, 1024, 4096),
    bw_sizes: Sequence[int] = (1024, 65536, 1 << 20),
    repeats: int = 3,
    samples: int = 1000,
    slow: str = "",
    trouble: bool = False,
    seed: int = 1,
) -> RunDirectory:
    """All ordered pairs of the hosts; every pair from or to `slow` is 1.6 times as slow."""
    rng = np.random.default_rng(seed)
    device = "eth0" if fabric is Fabric.TCP else "rxe0"
    run = SyntheticRun(root, fabric).begin(*(endpoint(host, device=device) for host in hosts))
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    for repeat in range(repeats):
        for number, (a, b) in enumerate(pairs):
            ends = {
                "initiator": EndpointRef(host=a, device=device),
                "responder": EndpointRef(host=b, device=device),
                "repeat": repeat,
                "round": number,
            }
            factor = (1.6 if slow in (a, b) else 1.0) * rng.normal(1, 0.02)
            at = f"2026-12-01T03:{15 + repeat * 10:02d}:{number % 60:02d}.000001+00:00"
            for size in sizes:
                middle = 2000 * factor * (base_us + size / 4096)
                rtts = middle * rng.lognormal(0, 0.12, samples)
                rtts[rng.random(samples) < 0.02] *= 4
                parameters = replace(LATENCY, size_bytes=size, iterations=samples)
                case = case_of(parameters, **ends)
                run.latency(rtts.astype(int).tolist(), case=case, started_at=at)
            for size in bw_sizes:
                for qps in (1, 4):
                    rate = gbps / factor * size / (size + 8192 / qps)
                    elapsed = int(5000 * size * 8 / rate)
                    moved = {"elapsed_ns": elapsed, "payload_bytes": 5000 * size}
                    if trouble and a == slow:
                        moved |= _retries(int(rng.integers(1, 400)))
                    run.bandwidth(
                        case=case_of(replace(BANDWIDTH, size_bytes=size, qps=qps), **ends),
                        initiator=moved,
                        started_at=at,
                    )
    run.journal.append(
        Notice(severity="warning", host=hosts[0], text=f"{hosts[0]}: governor", remedy="<b>fix</b>")
    )
    return run.end()


def _retries(count: int) -> dict[str, CounterSet]:
    names = ("hw_counters/sent_pkts", "hw_counters/completer_retry_err", "hw_counters/rx_seq_err")
    return {
        "counters_before": CounterSet(values=dict.fromkeys(names, 100)),
        "counters_after": CounterSet(
            values=dict(zip(names, (5100, 100 + count, 100 + count // 3), strict=True))
        ),
    }
