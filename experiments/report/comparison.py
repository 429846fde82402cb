"""The report of a comparison: one HTML file without network, scripts or fonts of its own.

Draws what a stored run says; computes no metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.quality.agreement import quality_missing
from experiments.report import charts, parts
from experiments.report.definitions import OF_A_RUN
from experiments.report.html import Markup, join, tag
from experiments.report.page import badge, heading, pairs, table
from experiments.report.reproduce import command_of
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
    "better": ("tone-better", "▲ "),
    "worse": ("tone-worse", "▼ "),
    "no difference": ("tone-none", "= "),
    "inconclusive": ("tone-none", "? "),
}


def title_of_comparison(result: Mapping[str, Any], words: Words) -> str:
    """Candidate against baseline."""
    baseline, candidate = (str(arm["value"]) for arm in result["arms"])
    return words("title", baseline=baseline, candidate=candidate)


def comparison_report(run: Run, records: Sequence[StoredRecord], words: Words) -> tuple[str, tuple[Markup | None, ...]]:
    """Title and sections of the report of a comparison that has a result."""
    result = run.result or {}
    pair = first_pair(records)
    names = [str(arm["value"]) for arm in result["arms"]]
    title = title_of_comparison(result, words)
    sections = (
        _top(run, result, title, words),
        _verdict(result, words),
        _curves(result, names, words),
        _memory(result, names, words),
        _timeline(pair, names, words),
        _how(run, result, words),
        parts.energy([(name, arm["metrics"]) for name, arm in zip(names, result["arms"], strict=True)], words),
        *(parts.other_terms(arm["metrics"], words) for arm in result["arms"][:1]),
        _settings(run, result, words),
        parts.code(run, words),
        parts.meanings((*OF_A_RUN, "quality", "energy"), words),
        tag("p", words("raw"), class_="muted"),
    )
    return title, sections


def first_pair(records: Sequence[StoredRecord]) -> list[StoredRecord]:
    """The records of both arms of the first repeat that has both, baseline first; empty without one."""
    found = {(record.repeat, record.arm): record for record in records}
    for repeat in sorted({record.repeat for record in records}):
        if (repeat, 0) in found and (repeat, 1) in found:
            return [found[repeat, 0], found[repeat, 1]]
    return []


def _top(run: Run, result: Mapping[str, Any], title: str, words: Words) -> Markup:
    workload = (result.get("workload") or {}).get("name") or run.spec.get("workload", MISSING)
    time = run.created_at[:16].replace("T", " ")
    return join(
        tag("h1", title),
        tag("p", words("subtitle", variable=result["variable"], workload=workload), class_="muted"),
        tag("p", words("run", id=run.id, time=time), class_="muted"),
    )


def _verdict(result: Mapping[str, Any], words: Words) -> Markup:
    key, text = headline(result, words.lang)
    tone = {"pays": "good", "pays_price": "good", "mixed_undecided": "good", "costs": "bad"}.get(key, "")
    floors = {curve["name"]: curve["noise_floor_pct"] for curve in result["curves"]}
    basis = words(
        "basis",
        repeats=result["repeats"],
        curves=len(result["curves"]),
        floor=percent(floors.get("output_tokens_per_s")),
    )
    warnings = result.get("warnings") or []
    missing = quality_missing(result)
    return tag(
        "section",
        tag(
            "div",
            tag("span", text, class_=f"verdict-badge {tone}"),
            badge(result.get("provenance", "measured"), words),
            class_="head",
        ),
        tag("p", verdict_sentence(result, words.lang), class_="verdict"),
        tag("p", basis, class_="muted"),
        tag("p", words("cancelled")) if result.get("cancelled") else None,
        None
        if missing is None
        else tag("p", words("quality_missing", reason=missing, variable=result["variable"]), class_="missing"),
        *(tag("p", f"{words('warnings')}: {warning}", class_="tone-worse") for warning in warnings),
        class_="card",
    )


def _curves(result: Mapping[str, Any], names: Sequence[str], words: Words) -> Markup:
    cards = [_curve_card(curve, result, names, words) for curve in ordered_curves(result)]
    return tag(
        "section",
        heading(words("five_curves"), None, words, words("five_caption")),
        tag("div", *cards, class_="grid"),
    )


def _curve_card(curve: Mapping[str, Any], result: Mapping[str, Any], names: Sequence[str], words: Words) -> Markup:
    tone, mark = TONES[curve["verdict"]]
    line = words("no_interval")
    if curve["ci95"] is not None:
        line = words("interval_line", interval=interval(curve["ci95"]), floor=percent(curve["noise_floor_pct"]))
        if curve.get("min_detectable_pct") is not None:
            line += " · " + words("detectable_line", change=percent(curve["min_detectable_pct"]))
    same = (result.get("quality") or {}).get("same_token_ids_share") if curve["name"] == "quality" else None
    return tag(
        "div",
        tag("div", tag("h2", words(curve["name"])), badge(curve["provenance"], words), class_="head"),
        tag("div", _unit(curve, words), class_="caption"),
        tag(
            "div",
            signed_percent(curve["change_pct"]),
            tag("small", mark + words(curve["verdict"]), class_=tone),
            class_="change",
        ),
        tag("div", line, class_="caption"),
        None if same is None else tag("div", words("same_tokens", share=f"{100 * same:.3g} %"), class_="caption"),
        charts.curve_bars(curve, names),
        charts.change_strip(curve, words),
        class_="card",
    )


def _unit(curve: Mapping[str, Any], words: Words) -> str:
    if curve["name"] in ("ttft_s", "itl_s"):
        unit = latency_unit(curve["baseline"], curve["candidate"])
        return words("unit_latency", statistic=curve["statistic"], unit=unit)
    return words(f"unit_{curve['name']}")


def _memory(result: Mapping[str, Any], names: Sequence[str], words: Words) -> Markup:
    memories = [arm["metrics"]["memory"] for arm in result["arms"]]
    accounts = [charts.ledger_accounts(memory) for memory in memories]
    rows = [[words(name), *(_mib(account[name]) for account in accounts)] for name in charts.LEDGER]
    known = [[value for value in account.values() if value is not None] for account in accounts]
    rows.append([words("total"), *(_mib(sum(values)) if values else MISSING for values in known)])
    colours = {name: f"var(--{name})" for name in charts.LEDGER} | {"kv_free": "transparent"}
    return tag(
        "section",
        heading(words("memory"), result.get("provenance", "measured"), words, words("memory_caption")),
        charts.legend(list(colours.items()), words),
        charts.ledger_bars(memories, names, words),
        table(["MiB", *names], rows, numeric=(1, 2)),
        class_="card",
    )


def _mib(value: float | None) -> str:
    return MISSING if value is None else f"{value / charts.MIB:,.1f}"


def _timeline(pair: Sequence[StoredRecord], names: Sequence[str], words: Words) -> Markup | None:
    if not pair:
        return None
    kinds = [("queue", "line"), ("prefill", "var(--base_strong)"), ("decode", "var(--base)"), ("held", "dots")]
    caption = words("timeline_caption", repeat=pair[0].repeat)
    return tag(
        "section",
        heading(words("timeline"), pair[0].record["provenance"], words, caption),
        charts.legend(kinds, words),
        charts.timeline([item.record for item in pair], names, words),
        class_="card",
    )


def _how(run: Run, result: Mapping[str, Any], words: Words) -> Markup:
    # A result of before has no alpha; with repeats "auto" it was an equal part for each of five looks.
    was = ALPHA / 5 if result.get("repeats_asked", run.spec.get("repeats")) == "auto" else ALPHA
    alpha = result.get("alpha", was)
    rows = [_how_row(curve, words) for curve in ordered_curves(result)]
    return tag(
        "section",
        heading(words("how"), "computed", words),
        tag("p", words("how_pairs")),
        tag("p", words("how_floor")),
        tag("p", words("how_rule", alpha=f"{alpha:g}")),
        tag("p", words("how_detectable")),
        table([words(f"col_{name}") for name in COLUMNS], rows, numeric=range(1, 10)),
        *(_samples(curve, words) for curve in ordered_curves(result) if curve.get("samples")),
        class_="card",
    )


def _how_row(curve: Mapping[str, Any], words: Words) -> list[str]:
    name = curve["name"]
    return [
        f"{words(name)} ({curve['statistic']})",
        curve_value(name, curve["baseline"]),
        curve_value(name, curve["candidate"]),
        signed_percent(curve["change_pct"]),
        interval(curve["ci95"]),
        signed_percent(curve.get("median_change_pct")),
        percent(curve["noise_floor_pct"]),
        percent(curve.get("min_detectable_pct")),
        str(curve.get("pairs", MISSING)),
        number(curve.get("p_adjusted"), 2),
        curve.get("method") or MISSING,
        words(curve["verdict"]),
    ]


def _samples(curve: Mapping[str, Any], words: Words) -> Markup:
    samples = curve["samples"]
    rows = [
        [str(i), curve_value(curve["name"], base), curve_value(curve["name"], candidate)]
        for i, (base, candidate) in enumerate(zip(samples["baseline"], samples["candidate"], strict=True), 1)
    ]
    header = [words("col_pair"), words("col_baseline"), words("col_candidate")]
    summary = tag("summary", f"{words('samples')}: {words(curve['name'])}")
    return tag("details", summary, table(header, rows, numeric=(1, 2)))


def _settings(run: Run, result: Mapping[str, Any], words: Words) -> Markup:
    price = words("price", price=number(result.get("price_per_device_hour", 1.0)))
    derived = {name: f"{before} → {after}" for name, (before, after) in (result.get("derived") or {}).items()}
    held = {name: f"{item['value']} ({item['because']})" for name, item in (result.get("held_because") or {}).items()}
    return tag(
        "section",
        heading(words("settings"), None, words),
        tag("h3", words("workload")),
        pairs(result.get("workload") or {}, words),
        tag("h3", words("held_equal")),
        pairs(result.get("held_equal") or {}, words),
        *((tag("h3", words("held_because")), pairs(held, words)) if held else ()),
        tag("h3", words("derived")),
        pairs(derived, words),
        tag("h3", words("environment")),
        pairs(result.get("environment") or result["arms"][0]["metrics"].get("environment") or {}, words),
        tag("p", price, class_="muted"),
        tag("h3", words("reproduce")),
        tag("pre", reproduce_command(run.spec)),
        class_="card",
    )


LOAD_OPTIONS = (
    ("--requests", "num_requests"),
    ("--rate", "rate_rps"),
    ("--concurrency", "concurrency"),
    ("--time-scale", "time_scale"),
    ("--length-scale", "length_scale"),
    ("--max-prompt", "max_prompt_tokens"),
    ("--max-output", "max_tokens_cap"),
)


def reproduce_command(spec: Mapping[str, Any]) -> str:
    """The command line that runs the comparison of a spec again."""
    return str(command_of("compare", spec))
