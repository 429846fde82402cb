"""The palette in numbers: contrast of texts and marks on their grounds, and how far colours stay apart for readers
with a colour vision deficiency."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path

import altair as alt
import pytest

from app.theme import HEAT, REQUESTS, TOKENS, chart_config

APP = Path(__file__).resolve().parents[2] / "app"
MODES = ("light", "dark")
# Machado, Oliveira & Fernandes 2009, severity 1.0, on linear RGB.
DEFICIENCIES = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
# Colours that a chart sets beside each other without a gap, an outline or a name between them.
SIDE_BY_SIDE = (
    *(("base", "cand"), ("better", "worse"), ("weights", "kv_used"), ("kv_used", "kv_reserved")),
    *(("kv_reserved", "activations"), ("activations", "other"), ("kv_used", "cached"), ("queue_base", "base_strong")),
    *(("queue_cand", "cand_strong"), ("base", "base_strong"), ("cand", "cand_strong"), ("simulated", "base")),
)
LEAST_APART = 7.0  # of 100 in OKLab; about two to three times the least difference that is seen


def linear(colour: str) -> tuple[float, ...]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return tuple(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio, 1 to 21."""
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other)))
    return (high + 0.05) / (low + 0.05)


def seen(colour: str, deficiency: str | None) -> tuple[float, ...]:
    """Linear RGB as it is seen."""
    rgb = linear(colour)
    if deficiency is None:
        return rgb
    return tuple(
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, rgb, strict=True))))
        for row in DEFICIENCIES[deficiency]
    )


def oklab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    r, g, b = rgb
    long, middle, short = (
        (x * r + y * g + z * b) ** (1 / 3)
        for x, y, z in (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        )
    )
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def apart(one: str, other: str, deficiency: str | None) -> float:
    """Distance in OKLab, times 100."""
    first, second = oklab(seen(one, deficiency)), oklab(seen(other, deficiency))
    return 100 * sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5


def test_the_measures_agree_with_known_values() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)
    assert apart("#000000", "#FFFFFF", None) == pytest.approx(100, abs=0.1)
    red, green = "#C23B22", "#4E7A1E"  # told apart by hue alone: a warning that the simulation works
    assert apart(red, green, "deuteranopia") < 0.5 * apart(red, green, None)
    for deficiency in DEFICIENCIES:
        assert apart("#808080", "#808080", deficiency) == 0
        assert seen("#FFFFFF", deficiency) == pytest.approx((1, 1, 1), abs=0.001)


@pytest.mark.parametrize("mode", MODES)
def test_texts_and_marks_are_readable_on_their_grounds(mode: str) -> None:
    t = TOKENS[mode]
    texts = {
        "text": ("bg", "bg2", "card", "kv_reserved", "other", "cand_soft"),
        "muted": ("bg", "bg2", "card"),
        "cand": ("bg", "card", "cand_soft"),
        "better": ("better_ground", "card"),
        "worse": ("worse_ground", "card"),
        "simulated": ("simulated_ground", "card"),
        "in_fill": ("weights", "kv_used", "cand"),
    }
    low = [(text, ground) for text, all_of in texts.items() for ground in all_of if contrast(t[text], t[ground]) < 4.5]
    assert low == []
    assert contrast("#FFFFFF", t["primary"]) >= 4.5  # the words of the primary button
    marks = ("base", "base_strong", "cand", "cand_strong", "queue_base", "queue_cand", "weights", "activations",
             "cached", "primary")  # fmt: skip
    assert [mark for mark in marks if contrast(t[mark], t["card"]) < 3] == []
    assert [colour for colour in REQUESTS[mode] if contrast(colour, t["card"]) < 3] == []
    alt.Config.from_dict(chart_config(mode))


@pytest.mark.parametrize("deficiency", [None, *DEFICIENCIES])
@pytest.mark.parametrize("mode", MODES)
def test_colours_beside_each_other_stay_apart_for_every_reader(mode: str, deficiency: str | None) -> None:
    t = TOKENS[mode]
    close = {pair: round(apart(t[pair[0]], t[pair[1]], deficiency), 1) for pair in SIDE_BY_SIDE}
    assert {pair: value for pair, value in close.items() if value < LEAST_APART} == {}
    around = [*REQUESTS[mode], REQUESTS[mode][0]]
    assert [pair for pair in pairwise(around) if apart(*pair, deficiency) < LEAST_APART] == []
    assert len(set(REQUESTS[mode])) == 8
    arms = [t["base"], t["base_strong"], t["cand"]]
    assert all(apart(arm, REQUESTS[mode][1], deficiency) >= LEAST_APART for arm in arms)  # a third arm's


@pytest.mark.parametrize("deficiency", [None, *DEFICIENCIES])
@pytest.mark.parametrize("mode", MODES)
def test_a_heat_map_goes_one_way_from_light_to_dark_for_every_reader(mode: str, deficiency: str | None) -> None:
    lightness = [oklab(seen(colour, deficiency))[0] for colour in HEAT[mode]]
    steps = [second - first for first, second in pairwise(lightness)]
    assert len(steps) == 9
    assert all(step < -0.02 for step in steps) or all(step > 0.02 for step in steps)


def test_only_the_palette_names_colours() -> None:
    colour = re.compile(r"#[0-9A-Fa-f]{6}\b")
    found = [path.name for path in APP.rglob("*") if path.suffix in {".py", ".css"} and path.name != "theme.py"
             and colour.search(path.read_text("utf-8"))]  # fmt: skip
    assert found == []


def test_no_two_tokens_that_mean_a_verdict_are_near_the_baselines_grey() -> None:
    for mode in MODES:
        t = TOKENS[mode]
        for one, other in combinations(("better", "worse", "base"), 2):
            assert min(apart(t[one], t[other], deficiency) for deficiency in DEFICIENCIES) >= LEAST_APART, (one, other)
