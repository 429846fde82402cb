"""The report of a comparison: one HTML file without network, scripts or fonts of its own.

Draws what a stored run says; computes no metric.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from experiments.quality.agreement import quality_missing
from experiments.report import charts
from experiments.report.html import Markup, join, tag
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
from ledger.errors import InputError

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
BADGES = {"measured": "● ", "computed": "= ", "simulated": "◌ "}
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


def comparison_html(run: Run, records: Sequence[StoredRecord], lang: str = "en") -> str:
    """The report of a finished comparison as one HTML page in English ("en") or Simplified Chinese ("zh").

    Of `records` the first repeat with both arms is drawn as a timeline and embedded; without one that section is left
    out. Raises InputError for a run without a comparison's result, or an unknown language.
    """
    words = Words(lang)
    result = run.result
    if not result or "curves" not in result:
        raise InputError("run", run.id, "a comparison with at least one finished pair")
    pair = _first_pair(records)
    names = [str(arm["value"]) for arm in result["arms"]]
    title = words("title", baseline=names[0], candidate=names[1])
    sections = (
        _top(run, result, title, words),
        _verdict(result, words),
        _curves(result, names, words),
        _memory(result, names, words),
        _timeline(pair, names, words),
        _how(run, result, words),
        _settings(run, result, words),
        tag("p", words("raw"), class_="muted"),
    )
    head = join(
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        tag("title", f"{title} · Trilemma"),
        tag("style", Markup(files("experiments.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    body = tag("body", tag("main", *sections), _data(run, pair))
    page_lang = "zh-CN" if lang == "zh" else "en"
    return "<!doctype html>\n" + tag("html", tag("head", head), body, lang=page_lang)


def _first_pair(records: Sequence[StoredRecord]) -> list[StoredRecord]:
    """The records of both arms of the first repeat that has both, baseline first; empty without one."""
    found = {(record.repeat, record.arm): record for record in records}
    for repeat in sorted({record.repeat for record in records}):
        if (repeat, 0) in found and (repeat, 1) in found:
            return [found[repeat, 0], found[repeat, 1]]
    return []


def _data(run: Run, pair: Sequence[StoredRecord]) -> Markup:
    """The raw data in a script element of a type no browser runs. "<" is escaped, so that it cannot end the element."""
    data = {
        "run": run.to_json(),
        "records": [{"arm": item.arm, "repeat": item.repeat, "record": item.record} for item in pair],
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return tag("script", Markup(text), type="application/json", id="trilemma-data")


def _badge(provenance: str, words: Words) -> Markup:
    return tag("span", BADGES[provenance] + words(provenance), class_=f"badge {provenance}")


def _heading(text: str, provenance: str | None, words: Words, caption: str | None = None) -> Markup:
    badge = None if provenance is None else _badge(provenance, words)
    return join(
        tag("div", tag("h2", text), badge, class_="head"),
        None if caption is None else tag("p", caption, class_="caption"),
    )


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
            _badge(result.get("provenance", "measured"), words),
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
        _heading(words("five_curves"), None, words, words("five_caption")),
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
        tag("div", tag("h2", words(curve["name"])), _badge(curve["provenance"], words), class_="head"),
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
        _heading(words("memory"), result.get("provenance", "measured"), words, words("memory_caption")),
        charts.legend(list(colours.items()), words),
        charts.ledger_bars(memories, names, words),
        _table(["MiB", *names], rows, numeric=(1, 2)),
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
        _heading(words("timeline"), pair[0].record["provenance"], words, caption),
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
        _heading(words("how"), "computed", words),
        tag("p", words("how_pairs")),
        tag("p", words("how_floor")),
        tag("p", words("how_rule", alpha=f"{alpha:g}")),
        tag("p", words("how_detectable")),
        _table([words(f"col_{name}") for name in COLUMNS], rows, numeric=range(1, 10)),
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
    return tag("details", summary, _table(header, rows, numeric=(1, 2)))


def _settings(run: Run, result: Mapping[str, Any], words: Words) -> Markup:
    price = words("price", price=number(result.get("price_per_device_hour", 1.0)))
    derived = {name: f"{before} → {after}" for name, (before, after) in (result.get("derived") or {}).items()}
    held = {name: f"{item['value']} ({item['because']})" for name, item in (result.get("held_because") or {}).items()}
    return tag(
        "section",
        _heading(words("settings"), None, words),
        tag("h3", words("workload")),
        _pairs(result.get("workload") or {}, words),
        tag("h3", words("held_equal")),
        _pairs(result.get("held_equal") or {}, words),
        *((tag("h3", words("held_because")), _pairs(held, words)) if held else ()),
        tag("h3", words("derived")),
        _pairs(derived, words),
        tag("h3", words("environment")),
        _pairs(result.get("environment") or result["arms"][0]["metrics"].get("environment") or {}, words),
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
    values = ",".join(str(value) for value in spec.get("values", ()))
    parts = ["trilemma", "compare", "--vary", f"{spec.get('variable')}={values}"]
    for option, key in (("--workload", "workload"), ("--repeats", "repeats"), ("--seed", "seed"), ("--slo", "slo")):
        if spec.get(key) is not None:
            parts += [option, str(spec[key])]
    for option, key in LOAD_OPTIONS:
        if spec.get(key) is not None and not (key.endswith("_scale") and spec[key] == 1):
            parts += [option, str(spec[key])]
    for name, value in (spec.get("settings") or {}).items():
        parts += ["--set", f"{name}={value}"]
    return shlex.join(parts)


def _pairs(values: Mapping[str, Any], words: Words) -> Markup:
    if not values:
        return tag("p", words("none"), class_="muted")
    return _table(None, [[name, _plain(value)] for name, value in values.items()])


def _plain(value: Any) -> str:
    return MISSING if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _table(header: Sequence[str] | None, rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> Markup:
    """A table that scrolls inside its box; one of many columns keeps a readable width on a phone."""

    def cells(name: str, row: Sequence[str]) -> Markup:
        return tag("tr", *(tag(name, cell, class_="n" if i in numeric else None) for i, cell in enumerate(row)))

    head = None if header is None else tag("thead", cells("th", header))
    wide = "wide" if header is not None and len(header) > 4 else None
    return tag(
        "div", tag("table", head, tag("tbody", *(cells("td", row) for row in rows)), class_=wide), class_="scroll"
    )
