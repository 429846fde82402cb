"""A 2 x 2 experiment in words, and its report.

Shows what a stored run says; computes no metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.report import parts
from experiments.report.comparison import change_cells, value_cell, verdict_cell
from experiments.report.definitions import OF_A_RUN
from experiments.report.document import Block, Cell, Findings, Heading, Note, Section, chart, section, table
from experiments.report.titles import Records
from experiments.report.verdict import ORDER
from experiments.report.words import MISSING, Words, number, percent, signed_percent
from experiments.store import Run

EFFECTS = ("first_alone", "second_alone", "together", "first", "second", "interaction")
PLOTTED = "output_tokens_per_s"


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


def of_factorial(run: Run, result: Mapping[str, Any], records: Records, words: Words) -> Findings:
    """The readings are the answer."""
    first, second = settings_of(result)
    lines = [reading_sentence(result, reading, words.lang) for reading in ordered_readings(result)]
    basis = words("f_basis", repeats=result["repeats"], alpha=f"{result['alpha']:g}")
    arms = [(arm_name(arm), arm["metrics"]) for arm in result["arms"]]
    title = words("f_title", first=first, second=second)
    sections = (
        _plot(result, words),
        _effects(result, words),
        _arms(result, words),
        parts.energy(arms, words),
        *(parts.other_terms(metrics, words) for _, metrics in arms[:1]),
    )
    workload = (result.get("workload") or {}).get("name") or run.spec.get("workload", MISSING)
    return Findings(
        title, words("q_factorial", first=first, second=second, workload=workload), lines[0] if lines else "", sections,
        more=(*lines[1:], basis), caveats=(words("price", price=number(result.get("price_per_device_hour", 1.0))),),
        defined=(*OF_A_RUN, "energy"),
    )  # fmt: skip


def arm_name(arm: Mapping[str, Any]) -> str:
    """An arm by its settings."""
    return " ".join(f"{name}={value}" for name, value in arm["values"].items())


def _plot(result: Mapping[str, Any], words: Words) -> Section:
    """Throughput of the four arms, and where both together would be if the gains multiplied."""
    title = f"{words(PLOTTED)}, {words(f'unit_{PLOTTED}')}"
    values = [arm["metrics"][PLOTTED] for arm in result["arms"]]
    if not all(values):  # not measured, or nothing came out: no gain can be formed
        return section(title, "measured", Note(MISSING, "muted"))
    first, second = result["factors"]
    rows = [
        {"name": arm_name(arm), "value": value, "first": f"{first['variable']}={first['values'][place % 2]}",
         "second": f"{second['variable']}={second['values'][place // 2]}", "text": number(value)}
        for place, (arm, value) in enumerate(zip(result["arms"], values, strict=True))
    ]  # fmt: skip
    drawn = chart("cross", title, rows, product=values[1] * values[2] / values[0])
    return section(title, "measured", drawn, Note(words("f_plot"), "caption"))


def _effects(result: Mapping[str, Any], words: Words) -> Section:
    header = [words(f"col_{name}") for name in ("curve", "change", "interval", "floor", "detectable", "verdict")]
    blocks: list[Block] = [Note(words("f_how"))]
    for effect in EFFECTS:
        rows = [
            [
                words(curve["name"]), *change_cells(curve),
                Cell(percent(curve["noise_floor_pct"]), curve["noise_floor_pct"]),
                Cell(percent(curve["min_detectable_pct"]), curve["min_detectable_pct"]),
                verdict_cell(curve["verdict"], words),
            ]
            for curve in sorted(result["effects"][effect], key=lambda curve: ORDER.index(curve["name"]))
        ]  # fmt: skip
        blocks += [Heading(effect_name(effect, result, words)), table(header, rows, range(1, len(header)))]
    return section(words("f_effects"), "computed", *blocks)


def _arms(result: Mapping[str, Any], words: Words) -> Section:
    rows = []
    for arm in result["arms"]:
        metrics = arm["metrics"]
        figures = {"output_tokens_per_s": metrics["output_tokens_per_s"], "ttft_s": metrics["ttft_s"]["p95"],
                   "itl_s": metrics["itl_s"]["p95"]}  # fmt: skip
        rows.append([arm_name(arm), *(value_cell(name, value) for name, value in figures.items())])
    header = [words("f_arm"), words("output_tokens_per_s"), f"{words('ttft_s')} p95", f"{words('itl_s')} p95"]
    return section(words("f_arms"), "measured", table(header, rows, range(1, len(header))))
