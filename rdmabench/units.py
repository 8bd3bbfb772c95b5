"""Units and the few constants of link arithmetic, so that a conversion is written once.

Stored quantities are bytes, nanoseconds, seconds, bytes per second; tables convert at the edge.
Standard library only, Python 3.9: this module is pushed to nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NS_PER_S = 1_000_000_000
NS_PER_US = 1_000
BITS_PER_BYTE = 8
GIGA = 1_000_000_000
MIB = 1 << 20

# Gb/s per lane on the wire after line encoding, for generations whose printed rate is before it:
# SDR, DDR and QDR use 8b/10b, FDR 64b/66b (14.0625 GBd). FDR10, EDR and later, and Ethernet, print
# the data rate. InfiniBand Architecture Specification, volume 2; drivers/infiniband/core/sysfs.c.
_ENCODED_LANE_GBIT_S = {"SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR": 14.0625 * 64 / 66}

_RATE = re.compile(
    r"(?P<rate>\d+(?:\.\d+)?) ?Gb/sec(?: \((?P<width>\d+)X(?: (?P<generation>[A-Z]+\d*))?\))?"
)

_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def gbit_per_s(size_bytes: int, elapsed_ns: int) -> float:
    """10^9 bits per second for so many bytes in so many nanoseconds (`elapsed_ns` > 0)."""
    return size_bytes * BITS_PER_BYTE / elapsed_ns


def parse_size(text: str) -> int:
    """Bytes of `64`, `64K`, `8M`, `1GiB`; powers of 1024, as perftest and nccl-tests read them.

    Raises:
        ValueError: the text is not a size.
    """
    cleaned = text.strip().upper().removesuffix("IB").removesuffix("B")
    suffix = cleaned[-1:] if cleaned[-1:] in ("K", "M", "G") else ""
    digits = cleaned.removesuffix(suffix) if suffix else cleaned
    if not digits.isdigit():
        raise ValueError(f"{text!r} is not a size: write bytes, or a number with K, M or G")
    return int(digits) * _SUFFIXES[suffix]


def size_text(size_bytes: int) -> str:
    """`2 B`, `4 KiB`, `8 MiB`: exact, with the largest binary unit that divides the size."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size_bytes >= 1 << shift and size_bytes % (1 << shift) == 0:
            return f"{size_bytes >> shift} {unit}"
    return f"{size_bytes} B"


def duration_text(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 05 min`: for people, rounded to what matters."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


@dataclass(frozen=True)
class LinkRate:
    """A port's rate as sysfs prints it; width 0 and generation "" where it does not say."""

    printed_gbit_s: float
    width: int = 0
    generation: str = ""

    def data_gbit_s(self, link_layer: str) -> float:
        """What the lanes carry after line encoding; Ethernet prints just that."""
        lane = _ENCODED_LANE_GBIT_S.get(self.generation)
        if link_layer != "InfiniBand" or lane is None:
            return self.printed_gbit_s
        return lane * self.width


def parse_rate(text: str) -> LinkRate:
    """The rate of `200 Gb/sec (4X HDR)`, `800Gb/sec`, `2.5 Gb/sec (1X SDR)`.

    Raises:
        ValueError: the text is not a rate; there is no default.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a port rate")
    return LinkRate(
        printed_gbit_s=float(match["rate"]),
        width=int(match["width"] or 0),
        generation=match["generation"] or "",
    )
