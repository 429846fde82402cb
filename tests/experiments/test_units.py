"""Quantities as people type them, in both languages; what can be read in two ways is refused."""

from __future__ import annotations

import pytest

from experiments.units import dimension_of, parse_in, parse_quantity
from ledger.errors import InputError


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("16", "GiB", 16),
        ("16 GiB", "GiB", 16),
        ("17,179,869,184 B", "GiB", 16),
        ("17179869184 bytes", "GiB", 16),
        ("17.179869184 GB", "GiB", 16),
        ("17.179869184gb", "GiB", 16),
        ("16384 MiB", "GiB", 16),
        ("约 16 GiB", "GiB", 16),
        ("≈ 16 GiB。", "GiB", 16),
        ("１６ＧｉＢ", "GiB", 16),
        ("137.438953472 Gbit", "GiB", 16),
        ("16 GiB per sequence", "GiB", 16),
        ("320 KiB/token", "KiB", 320),
        ("2^3", "GiB", None),
        ("1.5e3 ms", "s", 1.5),
        ("1.5 x 10^3 ms", "s", 1.5),
        ("15 毫秒", "ms", 15),
        ("2 分钟", "s", 120),
        ("250 µs", "ms", 0.25),
        ("250 us", "ms", 0.25),
        ("12.96 billion tokens", "tokens", 12.96e9),
        ("129.6 亿", "tokens", 12.96e9),
        ("129.6 亿个 token", "tokens", 12.96e9),
        ("1.3万", "tokens", 13_000),
        ("5k tokens/s", "tokens/s", 5000),
        ("5,000 tok/s", "tokens/s", 5000),
        ("5000 tokens per second", "tokens/s", 5000),
        ("10 QPS", "requests/s", 10),
        ("10 请求/秒", "requests/s", 10),
        ("$12.50", "$", 12.5),
        ("12.5 美元", "$", 12.5),
        ("-$260", "$", -260),
        ("-260 美元", "$", -260),
        ("$0.35 / 1M tokens", "$", 0.35),
        ("1.44 万元", "$", 14_400),
        ("30%", "%", 30),
        ("0.3x", "%", 30),
        ("30", "%", 30),
        ("30 ％", "x", 0.3),
        ("1.5倍", "x", 1.5),
        ("7 cards", "cards", 7),
        ("7 张卡", "cards", 7),
        ("4.5 bits", "bits/element", 4.5),
        ("4.5 bits per element", "bits/element", 4.5),
        ("900 GB/s", "GB/s", 900),
        ("400 Gbit/s", "GB/s", 50),
        ("400 Gbps", "GB/s", 50),
        ("242 FLOP/B", "FLOP/B", 242),
        ("-3.5 ms", "ms", -3.5),
        ("−3.5 ms", "ms", -3.5),
        ("10⁹ B", "GB", 1),
        ("10^9 B", "GB", 1),
        ("1.3×10⁹ B", "GB", 1.3),
        ("5 × 10⁻³ s", "ms", 5),
        ("989 TFLOPS", "TFLOP/s", 989),
        ("2 hrs", "h", 2),
        ("16 requests", "sequences", 16),
        ("5 个", "cards", 5),
    ],
)
def test_a_quantity_is_read_in_the_unit_asked_for(text: str, unit: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(InputError):
            parse_in(text, unit)
    else:
        assert parse_in(text, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("16 G", "GiB"), ("16 Gb", "GiB"), ("16K", "KiB"), ("", "s"), ("many", "s"), ("16 s", "GiB"), ("1,5", "GiB"),
        ("16-17 GiB", "GiB"), ("$5", "GiB"), ("nan", "s"), ("inf", "s"), ("1" * 300, "s"), ("3 apples", "cards"),
        ("4 layers", "cards"), ("720 card-hours", "cards"), ("8 头", "layers"), ("5 steps", "blocks"), ("1e999", "GB"),
        ("-1e999", "s"), ("0,700", "x"), ("5²", "x"), ("1.0.0", "x"),
    ],
)  # fmt: skip
def test_what_is_no_quantity_or_can_be_read_in_two_ways_is_refused_in_one_line(text: str, unit: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_in(text, unit, "answer")
    assert "\n" not in str(refused.value) and str(refused.value).startswith("answer")


def test_gb_and_gib_are_never_the_same() -> None:
    assert parse_in("17.18 GB", "GiB") == pytest.approx(16.0, rel=1e-4)
    assert parse_in("17.18 GiB", "GiB") == 17.18


def test_a_quantity_remembers_the_unit_it_was_written_in() -> None:
    assert parse_quantity("17.18 GB", "GiB").written_unit == "GB"
    assert parse_quantity("17.18", "GiB").written_unit == ""
    assert parse_quantity("$3", "$").written_unit == "$"


def test_an_unknown_unit_of_a_question_is_an_error() -> None:
    assert dimension_of("GiB") == "bytes"
    with pytest.raises(InputError):
        dimension_of("furlong")
