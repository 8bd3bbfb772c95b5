"""Outputs of other tools: recorded and rewritten ones from `data/`, and small ones made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rdmabench.model import Imported

DATA = Path(__file__).parent / "data"
RULE = "-" * 87
WRITE_BW = f"""{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 4\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 TX depth        : 128
 CQ Moderation   : 100
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
{RULE}
 local address: LID 0000 QPN 0x0108 PSN 0x63ad7d RKey 0x17eedf VAddr 0x007f760c947000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:00:02:05
 remote address: LID 0000 QPN 0x0076 PSN 0xf3810c RKey 0x201600 VAddr 0x007fbb4c981000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:00:02:04
{RULE}
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      20000            11731.10           11728.47\t\t   0.187656
 131072     20000            11731.90           11729.80\t\t   0.093838
{RULE}
"""
OSU_ALLREDUCE = """
# OSU MPI-CUDA Allreduce Latency Test v7.4
# Datatype: MPI_INT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                       2.35              2.10              2.60        1000
1048576               201.35            199.10            203.60         100
"""
OSU_LATENCY = """# OSU MPI Latency Test v5.6.2
# Size          Latency (us)
0                       1.02
1                       1.05
8192                    4.11
"""


def recorded(name: str) -> str:
    """A file of `data/`."""
    return (DATA / name).read_text()


ALL_GATHER = recorded("all_gather_2025.txt")
BROADCAST_2019 = recorded("broadcast_2019.txt")


def values(row: Imported) -> dict[str, float]:
    """The row's values by metric."""
    return {each.metric: each.value for each in row.values}


def perftest_document(**results: Any) -> dict[str, Any]:
    """What `ib_write_bw --report_gbits --out_json` writes."""
    found = {
        "MsgSize": 65536,
        "n_iterations": 5000,
        "BW_peak": 196.02,
        "BW_average": 195.8,
        "MsgRate": 0.373459,
    }
    return {
        "test_info": {
            "test": "RDMA_Write_BW_Test",
            "Dual_port": "OFF",
            "Device": "mlx5_0",
            "Number_of_qps": 2,
            "Transport_type": "IB",
            "Connection_type": "RC",
            "Using_SRQ": "OFF",
            "TX_depth": 128,
            "CQ_Moderation": 100,
            "Mtu": 4096,
            "Link_type": "IB",
            "Max_inline_data": 0,
            "rdma_cm_QPs": "OFF",
            "Data_ex_method": "Ethernet",
        },
        "results": found | results,
    }


def nccl_document(*, version: int = 3, **changes: Any) -> dict[str, Any]:
    """What `all_reduce_perf -J` writes: 2 ranks on 2 hosts."""
    body = {"time": 1000.0, "alg_bw": 100.0, "bus_bw": 100.0, "nwrong": 0.0}
    average = "average_bus_bandwidith" if version == 1 else "average_bus_bandwidth"
    inner = "bandwidith" if version == 1 else "bandwidth"
    return {
        "version": version,
        "start_time": "2026-12-01 03:15:00",
        "args": ["./build/all_reduce_perf", "-J", "out.json"],
        "env": ["SECRET=hunter2"],
        "nccl_version": 22803,
        "config": {
            "iterations": 20,
            "warmup_iters": 1,
            "devices": [
                {"rank": 0, "group": 0, "hostname": "gpu01", "device": 0},
                {"rank": 1, "group": 0, "hostname": "gpu02", "device": 0},
            ],
        },
        "results": [
            {
                "size": 100000000,
                "count": 25000000,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": body,
                "in_place": {**body, "nwrong": None},
                "actual_iterations": 20,
                "experiment_name": "AllReduce",
            }
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        average: {inner: 100.0, "okay": "unchecked"},
        **changes,
    }


def dumped(document: Any) -> str:
    """As a file."""
    return json.dumps(document, indent=1) + "\n"
