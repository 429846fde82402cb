"""The report of a comparison: the curves with their intervals, memory, one pair of repeats, how the verdict is formed.

Shows what a stored run says; computes no metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.quality.agreement import quality_missing
from experiments.report import parts
from experiments.report.definitions import OF_A_RUN
from experiments.report.document import Cell, Change, Findings, Fold, Note, Section, chart, section, table
from experiments.report.parts import bounds, figure, low_high
from experiments.report.reproduce import command_of
from experiments.report.titles import Records, label_of
from experiments.report.verdict import headline, ordered_curves, verdict_sentence
from experiments.report.words import (
    MISSING,
    Words,
    curve_value,
    interval,
    latency_unit,
    number,
    percent,
    signed_percent,
)
from experiments.statistics import ALPHA
from experiments.store import Run, StoredRecord

COLUMNS = (
    "curve", "baseline", "candidate", "change", "interval", "median", "floor", "detectable", "pairs", "p", "method",
    "verdict",
)  # fmt: skip
TONES = {
    "better": ("better", "▲ "),
    "worse": ("worse", "▼ "),
    "no difference": ("none", "= "),
    "inconclusive": ("none", "? "),
}
MARKS = {"pays": "good", "pays_price": "good", "mixed_undecided": "good", "costs": "bad"}
FEW_PAIRS = 5
Curve = Mapping[str, Any]


def title_of_comparison(result: Mapping[str, Any], words: Words) -> str:
    """Candidate against baseline."""
    baseline, candidate = (str(arm["value"]) for arm in result["arms"])
    return words("title", baseline=baseline, candidate=candidate)


def of_comparison(run: Run, result: Mapping[str, Any], records: Records, words: Words) -> Findings:
    """The curves and what they say together."""
    label, pair = label_of(result), first_pair(records)
    names = [str(arm["value"]) for arm in result["arms"]]
    arms = [(name, arm["metrics"]) for name, arm in zip(names, result["arms"], strict=True)]
    key, text = headline(result, words.lang)
    workload = (result.get("workload") or {}).get("name") or run.spec.get("workload", MISSING)
    asked = words("q_compare", variable=result["variable"], baseline=names[0], candidate=names[1], workload=workload)
    floors = {curve["name"]: curve["noise_floor_pct"] for curve in result["curves"]}
    floor = percent(floors.get("output_tokens_per_s"))
    basis = words("basis", repeats=result["repeats"], curves=len(result["curves"]), floor=floor)
    drawn = list(zip(names, pair, strict=True)) if pair else []
    caption = words("timeline_caption", repeat=pair[0].repeat) if pair else ""
    sections = (
        _curves(result, names, words),
        parts.ledger(arms, label, words),
        parts.timeline(drawn, caption, words),
        _how(run, result, words),
        parts.energy(arms, words),
        *(parts.other_terms(metrics, words) for _, metrics in arms[:1]),
    )
    return Findings(
        title_of_comparison(result, words), asked, verdict_sentence(result, words.lang), sections, more=(basis,),
        mark=(text, MARKS.get(key, "none")),
        cautions=_without_quality(result, words),
        caveats=(*_caveats(result, words), *parts.few_samples((metrics for _, metrics in arms), words)),
        defined=(*OF_A_RUN, "quality", "energy"),
    )  # fmt: skip


def first_pair(records: Sequence[StoredRecord]) -> list[StoredRecord]:
    """The records of both arms of the first repeat that has both, baseline first; empty without one."""
    found = {(record.repeat, record.arm): record for record in records}
    for repeat in sorted({record.repeat for record in records}):
        if (repeat, 0) in found and (repeat, 1) in found:
            return [found[repeat, 0], found[repeat, 1]]
    return []


def _without_quality(result: Mapping[str, Any], words: Words) -> tuple[Note, ...]:
    """That quality wasn't measured where the variable can change what the model answers."""
    missing = quality_missing(result)
    if missing is None:
        return ()
    return (Note(words("quality_missing", reason=missing, variable=result["variable"]), "missing"),)


def _caveats(result: Mapping[str, Any], words: Words) -> tuple[str, ...]:
    undecided = [curve for curve in ordered_curves(result) if curve["verdict"] == "inconclusive"]
    return (
        *((words("c_few_pairs", repeats=result["repeats"]),) if result["repeats"] < FEW_PAIRS else ()),
        *((words("c_open", names=words.listed([words(curve["name"]) for curve in undecided])),) if undecided else ()),
        words("price", price=number(result.get("price_per_device_hour", 1.0))),
    )


# -- curves ------------------------------------------------------------------------------------------------------------


def _curves(result: Mapping[str, Any], names: Sequence[str], words: Words) -> Section:
    cards = [_curve(curve, result, names, words) for curve in ordered_curves(result)]
    return section(words("five_curves"), None, *cards, caption=words("five_caption"), layout="grid")


def _curve(curve: Curve, result: Mapping[str, Any], names: Sequence[str], words: Words) -> Section:
    tone, mark = TONES[curve["verdict"]]
    line = words("no_interval")
    if curve["ci95"] is not None:
        line = words("interval_line", interval=interval(curve["ci95"]), floor=percent(curve["noise_floor_pct"]))
        if curve.get("min_detectable_pct") is not None:
            line += " · " + words("detectable_line", change=percent(curve["min_detectable_pct"]))
    same = (result.get("quality") or {}).get("same_token_ids_share") if curve["name"] == "quality" else None
    title = words(curve["name"])
    arms = [
        {"name": name, "value": curve[arm], **low_high(curve.get(f"{arm}_ci95")),
         "text": curve_value(curve["name"], curve[arm])}
        for name, arm in zip(names, ("baseline", "candidate"), strict=True)
    ]  # fmt: skip
    change = {"name": names[1], "value": curve["change_pct"], **low_high(curve["ci95"]),
              "floor": curve.get("noise_floor_pct"), "text": signed_percent(curve["change_pct"])}  # fmt: skip
    return section(
        title, curve["provenance"],
        Change(signed_percent(curve["change_pct"]), mark + words(curve["verdict"]), tone),
        Note(line, "caption"),
        None if same is None else Note(words("same_tokens", share=f"{100 * same:.3g} %"), "caption"),
        chart("arms", f"{title}: {words.listed(list(names))}", arms),
        chart("change", words("of_what", what=words("col_change"), of=title), [change]),
        caption=_unit(curve, words),
    )  # fmt: skip


def _unit(curve: Curve, words: Words) -> str:
    if curve["name"] in ("ttft_s", "itl_s"):
        unit = latency_unit(curve["baseline"], curve["candidate"])
        return words("unit_latency", statistic=curve["statistic"], unit=unit)
    return words(f"unit_{curve['name']}")


# -- how the verdict is formed -----------------------------------------------------------------------------------------


def _how(run: Run, result: Mapping[str, Any], words: Words) -> Section:
    # A result of before has no alpha; with repeats "auto" it was an equal part for each of five looks.
    was = ALPHA / 5 if result.get("repeats_asked", run.spec.get("repeats")) == "auto" else ALPHA
    alpha = result.get("alpha", was)
    curves = ordered_curves(result)
    return section(
        words("how"), "computed",
        *(Note(words(key)) for key in ("how_pairs", "how_floor")),
        Note(words("how_rule", alpha=f"{alpha:g}")),
        Note(words("how_detectable")),
        table([words(f"col_{name}") for name in COLUMNS], [_how_row(curve, words) for curve in curves], range(1, 10)),
        *(_samples(curve, words) for curve in curves if curve.get("samples")),
    )  # fmt: skip


def _how_row(curve: Curve, words: Words) -> list[Any]:
    name = curve["name"]
    return [
        f"{words(name)} ({curve['statistic']})",
        value_cell(name, curve["baseline"]),
        value_cell(name, curve["candidate"]),
        *change_cells(curve),
        Cell(signed_percent(curve.get("median_change_pct")), curve.get("median_change_pct")),
        Cell(percent(curve["noise_floor_pct"]), curve["noise_floor_pct"]),
        Cell(percent(curve.get("min_detectable_pct")), curve.get("min_detectable_pct")),
        Cell(str(curve.get("pairs", MISSING)), curve.get("pairs")),
        figure(curve.get("p_adjusted"), 2),
        curve.get("method") or MISSING,
        verdict_cell(curve["verdict"], words),
    ]


def value_cell(name: str, value: float | None) -> Cell:
    """A curve's value with its unit."""
    return Cell(curve_value(name, value), value)


def change_cells(curve: Curve) -> tuple[Cell, Cell]:
    """The change and its interval, %."""
    return (
        Cell(signed_percent(curve["change_pct"]), curve["change_pct"]),
        bounds(curve["ci95"], interval(curve["ci95"])),
    )


def verdict_cell(verdict: str, words: Words) -> Cell:
    """A verdict with its mark."""
    tone, mark = TONES[verdict]
    return Cell(mark + words(verdict), None, None, tone)


def _samples(curve: Curve, words: Words) -> Fold:
    samples, name = curve["samples"], curve["name"]
    rows = [
        [Cell(str(i), i), value_cell(name, base), value_cell(name, candidate)]
        for i, (base, candidate) in enumerate(zip(samples["baseline"], samples["candidate"], strict=True), 1)
    ]
    header = [words("col_pair"), words("col_baseline"), words("col_candidate")]
    return Fold(words("of_what", what=words("samples"), of=words(name)), (table(header, rows, (1, 2)),))


def reproduce_command(spec: Mapping[str, Any]) -> str:
    """The command line that runs the comparison of a spec again."""
    return str(command_of("compare", spec))
