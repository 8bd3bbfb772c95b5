from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rdmabench.worker.memory import Memory, lane_stride, pattern, wrong_bytes


@given(st.text(max_size=30), st.integers(1, 20_000))
def test_a_pattern_is_reproducible_and_has_no_zero(seed: str, size: int) -> None:
    made = pattern(seed, size)
    assert len(made) == size
    assert 0 not in made
    assert made == pattern(seed, size)


def test_patterns_of_two_lanes_differ() -> None:
    assert pattern("case initiator 0", 64) != pattern("case initiator 1", 64)


def test_a_packet_in_the_place_of_another_is_seen() -> None:
    made = pattern("x", 65536)
    swapped = made[4096:8192] + made[:4096] + made[8192:]
    assert wrong_bytes(memoryview(swapped), made) > 4000


def test_wrong_bytes_are_counted() -> None:
    made = pattern("x", 100)
    spoilt = bytearray(made)
    spoilt[3] ^= 1
    spoilt[99] ^= 1
    assert wrong_bytes(memoryview(spoilt), made) == 2
    assert wrong_bytes(memoryview(made), made) == 0


def test_lanes_begin_on_pages() -> None:
    assert [lane_stride(size) for size in (1, 4096, 4097)] == [4096, 4096, 8192]
    memory = Memory(5000)
    assert memory.length == 2 * 8192
    assert memory.address % 4096 == 0
