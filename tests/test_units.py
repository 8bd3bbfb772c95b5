from __future__ import annotations

import pytest

from rdmabench.units import duration_text, gbit_per_s, parse_rate, parse_size, size_text

# Strings seen in public sysfs captures; a parser that takes the first integer, or knows only the
# parenthesis of today's generations, gets several of them wrong.
RATES = [
    ("2.5 Gb/sec (1X SDR)", 2.5, 1, "SDR"),
    ("10 Gb/sec (1X QDR)", 10, 1, "QDR"),
    ("100 Gb/sec (4X EDR)", 100, 4, "EDR"),
    ("100 Gb/sec (2X HDR)", 100, 2, "HDR"),
    ("200 Gb/sec (4X HDR)", 200, 4, "HDR"),
    ("200 Gb/sec", 200, 0, ""),
    ("50 Gb/sec (4X)", 50, 4, ""),
    ("400 Gb/sec (4X NDR)", 400, 4, "NDR"),
    ("400 Gb/sec (8X HDR)", 400, 8, "HDR"),
    ("800 Gb/sec (4X XDR)", 800, 4, "XDR"),
    ("800Gb/sec", 800, 0, ""),
]


@pytest.mark.parametrize(("text", "rate", "width", "generation"), RATES)
def test_port_rates_are_read_as_printed(
    text: str, rate: float, width: int, generation: str
) -> None:
    found = parse_rate(text + "\n")
    assert (found.printed_gbit_s, found.width, found.generation) == (rate, width, generation)


@pytest.mark.parametrize("text", ["invalid", "", "Gb/sec", "-1 Gb/sec", "100 Gb/sec (4X EDR) x"])
def test_what_is_no_rate_has_no_default(text: str) -> None:
    with pytest.raises(ValueError, match="is not a port rate"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "layer", "data"),
    [
        ("40 Gb/sec (4X QDR)", "InfiniBand", 32.0),
        ("10 Gb/sec (4X SDR)", "InfiniBand", 8.0),
        ("20 Gb/sec (4X DDR)", "InfiniBand", 16.0),
        ("56 Gb/sec (4X FDR)", "InfiniBand", 54.545),
        ("100 Gb/sec (4X EDR)", "InfiniBand", 100.0),
        ("400 Gb/sec (4X NDR)", "InfiniBand", 400.0),
        ("40 Gb/sec (4X QDR)", "Ethernet", 40.0),
        ("2.5 Gb/sec (1X SDR)", "Ethernet", 2.5),
    ],
)
def test_line_encoding_is_taken_off_where_the_printed_rate_holds_it(
    text: str, layer: str, data: float
) -> None:
    assert parse_rate(text).data_gbit_s(layer) == pytest.approx(data, abs=0.001)


@pytest.mark.parametrize(
    ("text", "size"), [("2", 2), ("64K", 65536), ("8M", 8 << 20), ("1GiB", 1 << 30), ("4kb", 4096)]
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "ten", "1T"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_text_for_people() -> None:
    assert [size_text(n) for n in (2, 1024, 1025, 8 << 20)] == ["2 B", "1 KiB", "1025 B", "8 MiB"]
    assert duration_text(59.4) == "59 s"
    assert duration_text(200) == "3 min 20 s"
    assert duration_text(7500) == "2 h 05 min"


def test_a_gigabit_is_ten_to_the_nine_bits() -> None:
    assert gbit_per_s(12_500_000_000, 1_000_000_000) == 100.0
