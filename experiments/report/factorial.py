"""A 2 x 2 experiment in words, and its report.

Draws what a stored run says; computes no metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.report import parts
from experiments.report.comparison import TONES
from experiments.report.definitions import OF_A_RUN
from experiments.report.html import Markup, tag
from experiments.report.kinds import Records, Report
from experiments.report.page import card, heading, pairs, table
from experiments.report.verdict import ORDER
from experiments.report.words import MISSING, Words, curve_value, interval, number, percent, signed_percent
from experiments.store import Run

EFFECTS = ("first_alone", "second_alone", "together", "first", "second", "interaction")
PLOTTED = "output_tokens_per_s"
PLOT_WIDTH, PLOT_HEIGHT, PLOT_EDGE = 420, 220, 60


def settings_of(result: Mapping[str, Any]) -> tuple[str, str]:
    """The candidates' NAME=VALUE of the first and the second variable."""
    first, second = (f"{factor['variable']}={factor['values'][1]}" for factor in result["factors"])
    return first, second


def effect_name(effect: str, result: Mapping[str, Any], words: Words) -> str:
    """An effect as a reader calls it, with the variables' names."""
    first, second = settings_of(result)
    variables = [factor["variable"] for factor in result["factors"]]
    return words(f"f_{effect}", first=first, second=second, first_variable=variables[0], second_variable=variables[1])


def ordered_readings(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The readings of a factorial JSON in the order that curves are shown in."""
    return sorted(result["readings"], key=lambda reading: ORDER.index(reading["curve"]))


def reading_sentence(result: Mapping[str, Any], reading: Mapping[str, Any], lang: str = "en") -> str:
    """One line: each alone, "together they give X, their product would be Y", and what follows."""
    words = Words(lang)
    if reading["together_pct"] is None:
        return words("f_no_reading", curve=words(reading["curve"]))
    first, second = settings_of(result)
    return words(
        "f_reading",
        curve=words(reading["curve"]),
        first=first,
        second=second,
        first_change=signed_percent(reading["first_alone_pct"]),
        second_change=signed_percent(reading["second_alone_pct"]),
        together=signed_percent(reading["together_pct"]),
        product=signed_percent(reading["product_pct"]),
        meaning=words(f"f_is_{reading['verdict'].replace(' ', '_')}"),
    )


def of_factorial(run: Run, result: Mapping[str, Any], records: Records, words: Words) -> Report:
    """Its builder, as those of kinds.py: the readings are the verdict."""
    first, second = settings_of(result)
    lines = [reading_sentence(result, reading, words.lang) for reading in ordered_readings(result)]
    basis = words("f_basis", repeats=result["repeats"], alpha=f"{result['alpha']:g}")
    sections = (
        _plot(result, words),
        _effects(result, words),
        _arms(result, words),
        parts.energy([(_arm_name(arm), arm["metrics"]) for arm in result["arms"]], words),
        *(parts.other_terms(arm["metrics"], words) for arm in result["arms"][:1]),
        _held(result, words),
    )
    title = words("f_title", first=first, second=second)
    return Report(title, lines[0] if lines else "", sections, (*lines[1:], basis), (*OF_A_RUN, "energy"))


def _plot(result: Mapping[str, Any], words: Words) -> Markup:
    """Throughput of the four arms, and where both together would be if the gains multiplied."""
    values = [arm["metrics"][PLOTTED] for arm in result["arms"]]
    if any(value is None for value in values):
        return tag("section", heading(words(PLOTTED), "measured", words), tag("p", MISSING), class_="card")
    product = values[1] * values[2] / values[0]
    (first, second), top = result["factors"], max(*values, product)

    def point(arm: int) -> tuple[float, float]:
        x = PLOT_EDGE if arm % 2 == 0 else PLOT_WIDTH - 2 * PLOT_EDGE
        return x, height(values[arm])

    def height(value: float) -> float:
        return PLOT_HEIGHT - 30 - (PLOT_HEIGHT - 60) * value / top

    x_product, y_product = PLOT_WIDTH - 2 * PLOT_EDGE, f"{height(product):.1f}"
    lines = [tag("circle", cx=x_product, cy=y_product, r=5, fill="none", stroke="currentColor")]
    for row, colour in ((0, "var(--base_strong)"), (1, "var(--cand)")):
        (x1, y1), (x2, y2) = point(2 * row), point(2 * row + 1)
        lines.append(tag("line", x1=x1, y1=f"{y1:.1f}", x2=x2, y2=f"{y2:.1f}", stroke=colour, stroke_width=2))
        for arm, (x, y) in ((2 * row, (x1, y1)), (2 * row + 1, (x2, y2))):
            lines.append(tag("circle", cx=x, cy=f"{y:.1f}", r=3.5, fill=colour))
            lines.append(tag("text", number(values[arm]), x=x - 8, y=f"{y - 8:.1f}", fill="currentColor"))
        name = f"{second['variable']}={second['values'][row]}"
        lines.append(tag("text", name, x=x2 + 10, y=f"{y2 + 4:.1f}", fill=colour))
    for place, x in enumerate((PLOT_EDGE, PLOT_WIDTH - 2 * PLOT_EDGE)):
        name = f"{first['variable']}={first['values'][place]}"
        lines.append(tag("text", name, x=x, y=PLOT_HEIGHT - 8, text_anchor="middle", fill="currentColor"))
    svg = tag("svg", *lines, viewBox=f"0 0 {PLOT_WIDTH} {PLOT_HEIGHT}", role="img", style="max-width:640px")
    title = heading(f"{words(PLOTTED)}, {words(f'unit_{PLOTTED}')}", "measured", words)
    return tag("section", title, svg, tag("p", words("f_plot"), class_="caption"), class_="card")


def _effects(result: Mapping[str, Any], words: Words) -> Markup:
    header = [words(name) for name in ("col_curve", "col_change", "col_interval", "col_floor", "col_detectable",
                                       "col_verdict")]  # fmt: skip
    tables: list[Markup] = []
    for effect in EFFECTS:
        rows = []
        for curve in sorted(result["effects"][effect], key=lambda curve: ORDER.index(curve["name"])):
            _, mark = TONES[curve["verdict"]]
            rows.append([
                words(curve["name"]), signed_percent(curve["change_pct"]), interval(curve["ci95"]),
                percent(curve["noise_floor_pct"]), percent(curve["min_detectable_pct"]),
                mark + words(curve["verdict"]),
            ])  # fmt: skip
        tables += [tag("h3", effect_name(effect, result, words)), table(header, rows, numeric=range(1, len(header)))]
    return tag("section", heading(words("f_effects"), "computed", words), tag("p", words("f_how")), *tables,
               class_="card")  # fmt: skip


def _arms(result: Mapping[str, Any], words: Words) -> Markup:
    rows = []
    for arm in result["arms"]:
        metrics = arm["metrics"]
        figures = (metrics["output_tokens_per_s"], metrics["ttft_s"]["p95"], metrics["itl_s"]["p95"])
        names = ("output_tokens_per_s", "ttft_s", "itl_s")
        shown = [curve_value(name, value) for name, value in zip(names, figures, strict=True)]
        rows.append([_arm_name(arm), *shown])
    header = [words("f_arm"), words("output_tokens_per_s"), words("ttft_s"), words("itl_s")]
    return card(heading(words("f_arms"), "measured", words), table(header, rows, numeric=range(1, len(header))))


def _arm_name(arm: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in arm["values"].items())


def _held(result: Mapping[str, Any], words: Words) -> Markup:
    return card(heading(words("held_equal"), None, words), pairs(result["held_equal"], words))
