"""Sections that reports of several kinds of run share: figures, energy, ledger, timeline, set-up, environment,
definitions, terms. Each is plain data of `document.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.report import charts
from experiments.report.definitions import DEFINITIONS
from experiments.report.document import (
    Block,
    Cell,
    Chart,
    Code,
    Fold,
    Heading,
    Note,
    Section,
    Table,
    chart,
    section,
    table,
)
from experiments.report.other_terms import other_terms_rows
from experiments.report.words import MISSING, WORDS, Words, number
from experiments.store import Run, StoredRecord
from experiments.timeline import last_token_s, request_segments

LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
SUMMARY = ("mean", "p50", "p95", "p99")
FIGURES = (
    "output_tokens_per_s", "peak_output_tokens_per_s", "requests_per_s", "goodput_rps", "slo_attainment", "completed",
    "failed", "error_rate", "duration_s",
)  # fmt: skip
COSTS = ("cost_per_request", "cost_per_million_output_tokens", "requests_per_device_hour")
ENERGY = ("joules", "tokens_per_joule", "mean_power_w")
BREAKDOWN = ("queue_s", "prefill_s", "transfer_s", "decode_s", "overhead_s", "stalled_s", "unexplained_s")
# Below so many samples p99 lies between the two largest of them.
FEW_FOR_P99 = 100
ALL_METRICS = tuple(DEFINITIONS)


def plain(value: Any) -> str:
    """A value for a reader: text as it is, anything else as JSON, a dash for none."""
    return MISSING if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def figure(value: Any, digits: int = 3, label: str | None = None) -> Cell:
    """A cell of a number, its exact value with it; a dash for none, a text as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Cell(plain(value), None, label)
    return Cell(number(value, digits), value, label)


def count(value: Any) -> Cell:
    """A cell of a whole number."""
    return Cell(f"{value:,}", value) if isinstance(value, int) and not isinstance(value, bool) else Cell(plain(value))


def share(value: float | None) -> Cell:
    """A cell of a share of 1, in %."""
    return Cell(MISSING if value is None else f"{100 * value:.1f} %", value)


def bounds(found: Sequence[float] | None, text: str | None = None) -> Cell:
    """A cell of an interval."""
    if found is None:
        return Cell(MISSING)
    return Cell(text or f"[{number(found[0])}, {number(found[1])}]", list(found))


def low_high(found: Sequence[float] | None) -> dict[str, float | None]:
    """An interval's ends as a chart's row has them."""
    low, high = found or (None, None)
    return {"low": low, "high": high}


def yes_no(value: Any, words: Words) -> str:
    """Yes, no, or a dash."""
    return words("yes") if value is True else words("no") if value is False else MISSING


def pairs(values: Mapping[str, Any], words: Words) -> Table | Note:
    """A table of names and values."""
    if not values:
        return Note(words("none"), "muted")
    return table(None, [[str(name), Cell(plain(value), value)] for name, value in values.items()])


def named(prefix: str, name: str, words: Words) -> str:
    """The word of a name, or the name itself where there is none."""
    return words(f"{prefix}_{name}") if f"{prefix}_{name}" in WORDS else name


def bars(title: str, rows: Iterable[tuple[str, float | None, str]]) -> Chart:
    """Bars from zero of (name, value, what is written beside it)."""
    return chart("bars", title, [{"name": name, "value": value, "text": text} for name, value, text in rows])


def intervals(
    title: str, rows: Iterable[tuple[str, float | None, Sequence[float] | None, str]], middle: float = 0.0
) -> Chart:
    """Dots with intervals around `middle` of (name, value, bounds, what is written)."""
    drawn = [{"name": name, "value": value, **low_high(ends), "text": text} for name, value, ends, text in rows]
    return chart("intervals", title, drawn, middle=middle)


# -- figures of a run --------------------------------------------------------------------------------------------------


def latencies(metrics: Mapping[str, Any], provenance: str, words: Words) -> Section:
    """The four latencies as bars and as a table, s."""
    shown = {name: metrics[name] for name in LATENCIES if isinstance(metrics.get(name), Mapping)}
    rows = [
        [words(f"m_{name}"), *(figure(one.get(key)) for key in SUMMARY), count(one.get("n"))]
        for name, one in shown.items()
    ]
    drawn = [{"name": words(f"m_{name}"), **{key: one.get(key) for key in SUMMARY[1:]}} for name, one in shown.items()]
    return section(
        words("latencies"), provenance,
        chart("latencies", words("latencies"), drawn),
        table(["s", words("mean"), "p50", "p95", "p99", "n"], rows, range(1, 6)),
        caption=words("latencies_caption"),
    )  # fmt: skip


def figures(metrics: Mapping[str, Any], provenance: str, words: Words) -> Section:
    """Rates, counts and costs, each with the label of where it is from."""
    # The price is assumed, so a cost is computed from it.
    labels = {**dict.fromkeys(FIGURES, provenance), **dict.fromkeys(COSTS, "computed")}
    rows = [[words(f"m_{name}"), figure(metrics[name]), Cell("", None, label)] for name, label in labels.items()
            if metrics.get(name) is not None]  # fmt: skip
    return section(words("figures"), None, table([words("figure"), words("value"), words("label")], rows, (1,)))


def breakdown(metrics: Mapping[str, Any], provenance: str, words: Words) -> Section | None:
    """Where a request's time goes, mean s."""
    parts = metrics.get("latency_breakdown") or {}
    sizes = {name: _mean(parts.get(name)) for name in BREAKDOWN}
    known = [(words(f"b_{name}"), size, f"{number(size)} s") for name, size in sizes.items() if size is not None]
    if not known:
        return None
    title = words("breakdown")
    return section(title, provenance, bars(title, known), caption=words("breakdown_caption"))


def _mean(value: Any) -> float | None:
    found = value.get("mean") if isinstance(value, Mapping) else value
    return float(found) if isinstance(found, int | float) else None


def energy(arms: Sequence[tuple[str, Mapping[str, Any]]], words: Words) -> Section | None:
    """What the device took, a row an arm; nothing where nothing was measured."""
    known = [(name, metrics.get("energy") or {}) for name, metrics in arms]
    measured = [(name, one) for name, one in known if any(one.get(key) is not None for key in ENERGY)]
    if not measured:
        return None
    rows = [[name, *(figure(one.get(key)) for key in ENERGY)] for name, one in measured]
    header = [words("arm"), *(words(f"e_{key}") for key in ENERGY)]
    return section(words("energy"), "measured", table(header, rows, range(1, 4)), caption=words("energy_caption"))


def ledger(arms: Sequence[tuple[str, Mapping[str, Any]]], provenance: str, words: Words) -> Section | None:
    """The memory ledger of (name, metrics): bars and a table; nothing for targets whose memory can't be read."""
    memories = [metrics.get("memory") or {} for _, metrics in arms]
    if all(held.get(key) is None for held in memories for key in ("weights_bytes", "kv_pool_bytes")):
        return None
    accounts = [charts.ledger_accounts(memory) for memory in memories]
    rows = [[words(name), *(_mib(account[name]) for account in accounts)] for name in charts.LEDGER]
    known = [[value for value in account.values() if value is not None] for account in accounts]
    rows.append([words("total"), *(_mib(sum(values) if values else None) for values in known)])
    drawn = [
        {"arm": place, "name": name, "account": account, "bytes": value}
        for place, ((name, _), held) in enumerate(zip(arms, accounts, strict=True))
        for account, value in held.items()
    ]
    names = [name for name, _ in arms]
    return section(
        words("memory"), provenance, chart("ledger", words("memory"), drawn),
        table(["MiB", *names], rows, range(1, len(names) + 1)), caption=words("memory_caption"),
    )  # fmt: skip


def _mib(value: float | None) -> Cell:
    return Cell(MISSING if value is None else f"{value / charts.MIB:,.1f}", value)


def timeline(records: Sequence[tuple[str, StoredRecord]], caption: str, words: Words) -> Section | None:
    """The requests of (name, record) on one time axis; nothing without one."""
    there = [(name, one.record) for name, one in records if one.record.get("requests")]
    if not there:
        return None
    segments = [
        {"arm": place, **segment} for place, (_, record) in enumerate(there) for segment in request_segments(record)
    ]
    arms = [
        {"name": name, "requests": len(record["requests"]), "last_token_s": last_token_s(record)}
        for name, record in there
    ]
    title = words("timeline")
    return section(title, there[0][1].get("provenance"), chart("timeline", title, segments, arms=arms), caption=caption)


def other_terms(metrics: Mapping[str, Any], words: Words) -> Section | None:
    """The run in the terms of other tools, where the metrics carry them."""
    header, rows = other_terms_rows(metrics, words)
    if not rows:
        return None
    found = table(header, rows, (4, 5, 6))
    return section(words("other_terms"), "computed", found, caption=words("other_terms_caption"))


def few_samples(arms: Iterable[Mapping[str, Any]], words: Words) -> tuple[str, ...]:
    """What a p99 of few samples is worth, where there are few."""
    least = [
        one["n"]
        for metrics in arms
        for name in LATENCIES
        if isinstance(one := metrics.get(name), Mapping) and one.get("p99") is not None and one.get("n")
    ]
    return (words("c_few_samples", n=min(least)),) if least and min(least) < FEW_FOR_P99 else ()


# -- what every report ends with ---------------------------------------------------------------------------------------


def set_up(run: Run, result: Mapping[str, Any], words: Words) -> Section:
    """What was asked, the load, what was held, what another value needed, and what changed because of the variable."""
    held = {name: f"{item['value']} ({item['because']})" for name, item in _object(result, "held_because").items()}
    derived = {name: f"{pair[0]} → {pair[1]}" for name, pair in _object(result, "derived").items()}
    shown = _object(result, "settings") or _object(result, "config")
    blocks: list[Block] = [
        Heading(words("asked")),
        pairs({name: value for name, value in run.spec.items() if value not in (None, [], {})}, words),
    ]
    for key, values in (
        ("load", _object(result, "workload")), ("held_equal", _object(result, "held_equal")),
        ("held_throughout", shown), ("held_because", held), ("derived", derived),
    ):  # fmt: skip
        if values:
            blocks += [Heading(words(key)), pairs(values, words)]
    return section(words("settings"), "given", *blocks)


def _object(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = result.get(name)
    return found if isinstance(found, Mapping) else {}


def environment(run: Run, result: Mapping[str, Any], words: Words) -> Section:
    """The machine and the code."""
    arms = result.get("arms")
    first = arms[0] if isinstance(arms, list) and arms and isinstance(arms[0], Mapping) else {}
    found = _object(result, "environment") or _object(_object(first, "metrics"), "environment")
    machine = {**found, **{name: value for name, value in (run.environment or {}).items() if name not in found}}
    return section(
        words("environment"), "measured" if machine else None,
        pairs(machine, words), Heading(words("code")),
        pairs({words("code_version"): run.version, words("code_hash"): run.code}, words),
    )  # fmt: skip


def meanings(defined: Mapping[str, str], words: Words) -> Section | None:
    """The definitions, by name, of the figures that the report shows."""
    rows = [[named("m", name, words), text] for name, text in defined.items()]
    return section(words("definitions"), None, table(None, rows)) if rows else None


def sources(labels: Sequence[str], words: Words) -> Section | None:
    """What the labels beside the figures say."""
    rows = [[Cell("", None, name), words(f"l_{name}")] for name in labels if f"l_{name}" in WORDS]
    return section(words("labels"), None, table(None, rows)) if rows else None


def reproduce(command: str | None, words: Words) -> Section | None:
    """The command that asks for the same again."""
    return None if command is None else section(words("reproduce"), None, Code(command))


def notes(title: str, texts: Sequence[str], label: str | None = None) -> Section | None:
    """A section of paragraphs, where there are any."""
    return section(title, label, *(Note(text) for text in texts)) if texts else None


def anything(value: Any, words: Words) -> tuple[Block, ...]:
    """Any JSON as tables: objects by name and value, lists of objects as rows, the rest as it is."""
    if isinstance(value, Mapping):
        flat = {name: item for name, item in value.items() if not _is_nested(item)}
        nested = [(name, item) for name, item in value.items() if _is_nested(item)]
        shown = [table(None, [[str(name), figure(item, 4)] for name, item in flat.items()])] if flat else []
        return (*shown, *(Fold(str(name), anything(item, words)) for name, item in nested))
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        columns = list(dict.fromkeys(str(name) for item in value for name in item))
        return (table(columns, [[figure(item.get(name), 4) for name in columns] for item in value]),)
    if isinstance(value, list):
        return (table(None, [[figure(item, 4)] for item in value]) if value else Note(words("none"), "muted"),)
    return (Note(figure(value, 4).text),)


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(x, Mapping | list) for x in value))
