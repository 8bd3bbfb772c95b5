"""perftest as the yardstick: how it is called so that it does what our probes do, and read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_SAMPLE = re.compile(r"^\d+, (\S+)$", re.MULTILINE)
_BANDWIDTH = re.compile(r"^[ \t]*\d+[ \t]+\d+[ \t]+\S+[ \t]+(\S+)[ \t]+\S+[ \t]*$", re.MULTILINE)
_MIB = 1 << 20


@dataclass(frozen=True)
class Yardstick:
    """One measurement that both instruments make."""

    op: str  # send | write | read
    kind: str  # lat | bw
    size_bytes: int
    qps: int
    iterations: int
    warmup: int
    depth: int = 1
    cq_moderation: int = 1

    @property
    def what(self) -> str:
        """As `Parameters.what`."""
        return f"{self.op}_{self.kind}/{self.size_bytes}/{self.qps}"

    @property
    def unit(self) -> str:
        return "us" if self.kind == "lat" else "Gb/s"

    def argv(self, device: str, *, gid_index: int, port: int, server: str = "") -> list[str]:
        """perftest's command line: no inline, samples of each iteration, long time-outs."""
        argv = [f"ib_{self.op}_{self.kind}", "-d", device, "-x", str(gid_index), "-F"]
        argv += ["-s", str(self.size_bytes), "-p", str(port), "-u", "20"]
        if self.kind == "lat":
            argv += ["-n", str(self.iterations + self.warmup), "-U"]
            argv += [] if self.op == "read" else ["-I", "0"]
        else:
            argv += ["-n", str(self.iterations), "-q", str(self.qps), "-t", str(self.depth)]
            argv += ["-Q", str(self.cq_moderation)]
            argv += ["-N"]
        return [*argv, server] if server else argv

    def value(self, output: str) -> float:
        """The median latency in us without the warm-up, or the average bandwidth in Gb/s.

        Raises:
            ValueError: the output does not hold it.
        """
        if self.kind == "lat":
            samples = [float(text) for text in _SAMPLE.findall(output)]
            return median(samples[self.warmup :])
        rows = _BANDWIDTH.findall(output)
        if not rows:
            raise ValueError(f"no result in perftest's output:\n{output}")
        return float(rows[-1]) * _MIB * 8 / 1e9


def median(values: Sequence[float]) -> float:
    """Nearest-rank median, as everywhere in this project."""
    if not values:
        raise ValueError("no samples")
    return sorted(values)[(len(values) + 1) // 2 - 1]
