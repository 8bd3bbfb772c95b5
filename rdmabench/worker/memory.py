"""The bytes that a link moves: where they lie, and the pattern that proves they arrived."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
from dataclasses import dataclass

_PAGE = mmap.PAGESIZE
_BLOCK = 4093  # prime, so that no packet boundary repeats it
_NO_ZERO = bytes([1]) + bytes(range(1, 256))


class Memory:
    """Page-aligned bytes of this process in two halves: what is sent, and what arrives."""

    def __init__(self, half_bytes: int) -> None:
        self.half_bytes = -(-half_bytes // _PAGE) * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, 2 * self.half_bytes, flags=flags)
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._anchor)
        self.view = memoryview(self._map)

    @property
    def length(self) -> int:
        """Both halves, in bytes."""
        return 2 * self.half_bytes


@dataclass(frozen=True)
class LaneSpec:
    """Where one lane of a case works: addresses in this process and at the peer."""

    handle: int  # ibv_qp * or file descriptor
    send_offset: int
    recv_offset: int
    remote_addr: int = 0
    lkey: int = 0
    rkey: int = 0


def lane_stride(size_bytes: int) -> int:
    """Distance between the buffers of neighbouring lanes: the size in whole pages."""
    return -(-size_bytes // _PAGE) * _PAGE


def pattern(seed: str, size_bytes: int) -> bytes:
    """Reproducible bytes without a zero, so that a byte that was not written is told apart."""
    block = hashlib.shake_128(seed.encode()).digest(min(size_bytes, _BLOCK)).translate(_NO_ZERO)
    repeats = -(-size_bytes // len(block))
    return (block * repeats)[:size_bytes]


def wrong_bytes(found: memoryview, expected: bytes) -> int:
    """How many bytes differ."""
    if found == expected:
        return 0
    return sum(a != b for a, b in zip(bytes(found), expected))
