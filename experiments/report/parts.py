"""Sections that reports of several kinds of run share: figures, energy, settings, environment, definitions, terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.report import charts
from experiments.report.definitions import DEFINITIONS, definitions
from experiments.report.html import Markup, join, tag
from experiments.report.other_terms import other_terms_rows
from experiments.report.page import badge, card, heading, pairs, plain, table
from experiments.report.reproduce import command_of
from experiments.report.words import MISSING, WORDS, Words, number
from experiments.store import Run, StoredRecord

LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
SUMMARY = ("mean", "p50", "p95", "p99")
FIGURES = (
    "output_tokens_per_s", "peak_output_tokens_per_s", "requests_per_s", "goodput_rps", "slo_attainment", "completed",
    "failed", "error_rate", "duration_s",
)  # fmt: skip
COSTS = ("cost_per_request", "cost_per_million_output_tokens", "requests_per_device_hour")
ENERGY = ("joules", "tokens_per_joule", "mean_power_w")
BREAKDOWN = ("queue_s", "prefill_s", "transfer_s", "decode_s", "overhead_s", "stalled_s", "unexplained_s")


def top(run: Run, title: str, words: Words) -> Markup:
    """Title, what was asked in one line, and which run it is."""
    time = run.created_at[:16].replace("T", " ")
    return join(tag("h1", title), tag("p", words("run", id=run.id, time=time), class_="muted"))


def verdict(text: str, result: Mapping[str, Any], words: Words, *more: str) -> Markup:
    """The verdict in words, with its label; `more` are lines below it, then the warnings."""
    provenance = result.get("provenance")
    return card(
        tag("div", badge(str(provenance), words), class_="head") if provenance else None,
        tag("p", text, class_="verdict"),
        *(tag("p", line) for line in more),
        tag("p", words("partial")) if result.get("cancelled") else None,
        *warnings(result, words),
    )


def warnings(result: Mapping[str, Any], words: Words) -> list[Markup]:
    """One line a warning."""
    found = result.get("warnings") or []
    return [tag("p", f"{words('warnings')}: {text}", class_="tone-worse") for text in map(str, found)]


def named(prefix: str, name: str, words: Words) -> str:
    """The word of a name, or the name itself where there is none."""
    return words(f"{prefix}_{name}") if f"{prefix}_{name}" in WORDS else name


def latencies(metrics: Mapping[str, Any], provenance: str, words: Words) -> Markup:
    """The four latencies as bars and as a table, s."""
    shown = {name: metrics[name] for name in LATENCIES if isinstance(metrics.get(name), Mapping)}
    rows = [
        [words(f"m_{name}"), *(number(one.get(key)) for key in SUMMARY), plain(one.get("n"))]
        for name, one in shown.items()
    ]
    header = ["s", words("mean"), "p50", "p95", "p99", "n"]
    return card(
        heading(words("latencies"), provenance, words, words("latencies_caption")),
        charts.latency_bars([(words(f"m_{name}"), one) for name, one in shown.items()]),
        table(header, rows, numeric=range(1, 6)),
    )


def figures(metrics: Mapping[str, Any], provenance: str, words: Words) -> Markup:
    """Rates, counts and costs, each with the label of where it is from."""
    rows = [[words(f"m_{name}"), number(metrics[name]), badge(provenance, words)] for name in FIGURES
            if metrics.get(name) is not None]  # fmt: skip
    # The price is assumed, so a cost is computed from it.
    rows += [[words(f"m_{name}"), number(metrics[name]), badge("computed", words)] for name in COSTS
             if metrics.get(name) is not None]  # fmt: skip
    header = [words("figure"), words("value"), words("label")]
    return card(heading(words("figures"), None, words), table(header, rows, numeric=(1,)))


def breakdown(metrics: Mapping[str, Any], provenance: str, words: Words) -> Markup | None:
    """Where a request's time goes, mean s."""
    parts = metrics.get("latency_breakdown") or {}
    sizes = {name: _mean(parts.get(name)) for name in BREAKDOWN}
    known = [(words(f"b_{name}"), size) for name, size in sizes.items() if size is not None]
    if not known:
        return None
    return card(
        heading(words("breakdown"), provenance, words, words("breakdown_caption")),
        charts.plain_bars([(name, size, f"{number(size)} s") for name, size in known]),
    )


def _mean(value: Any) -> float | None:
    found = value.get("mean") if isinstance(value, Mapping) else value
    return float(found) if isinstance(found, int | float) else None


def energy(arms: Sequence[tuple[str, Mapping[str, Any]]], words: Words) -> Markup | None:
    """What the device took, a row an arm; nothing where nothing was measured."""
    known = [(name, metrics.get("energy") or {}) for name, metrics in arms]
    measured = [(name, one) for name, one in known if any(one.get(key) is not None for key in ENERGY)]
    if not measured:
        return None
    rows = [[name, *(number(one.get(key)) for key in ENERGY)] for name, one in measured]
    header = [words("arm"), *(words(f"e_{key}") for key in ENERGY)]
    return card(
        heading(words("energy"), "measured", words, words("energy_caption")), table(header, rows, numeric=range(1, 4))
    )


def memory(metrics: Mapping[str, Any], name: str, provenance: str, words: Words) -> Markup | None:
    """The memory ledger of one arm; nothing for a target whose memory can't be read."""
    held = metrics.get("memory") or {}
    if all(held.get(key) is None for key in ("weights_bytes", "kv_pool_bytes")):
        return None
    colours = {name: f"var(--{name})" for name in charts.LEDGER} | {"kv_free": "transparent"}
    return card(
        heading(words("memory"), provenance, words),
        charts.legend(list(colours.items()), words),
        charts.ledger_bars([held], [name], words),
    )


def timeline(records: Sequence[StoredRecord], words: Words) -> Markup | None:
    """The requests of the first record on a time axis; nothing without one."""
    there = [one for one in records if one.record.get("requests")][:1]
    if not there:
        return None
    kinds = [("queue", "line"), ("prefill", "var(--base_strong)"), ("decode", "var(--base)"), ("held", "dots")]
    (first,) = there
    return card(
        heading(words("timeline"), first.record.get("provenance"), words,
                words("events_of", arm=first.arm, repeat=first.repeat)),
        charts.legend(kinds, words),
        charts.timeline([first.record], [str(first.arm)], words),
    )  # fmt: skip


def settings(run: Run, result: Mapping[str, Any], words: Words) -> Markup:
    """What was asked, what was held, and what another value needed."""
    held = {name: f"{item['value']} ({item['because']})" for name, item in (result.get("held_because") or {}).items()}
    shown = result.get("settings") or (result.get("config") if isinstance(result.get("config"), Mapping) else None)
    workload = result.get("workload")
    return card(
        heading(words("settings"), None, words),
        tag("h3", words("asked")),
        pairs({name: value for name, value in run.spec.items() if value not in (None, [], {})}, words),
        *((tag("h3", words("load")), pairs(workload, words)) if isinstance(workload, Mapping) else ()),
        *((tag("h3", words("held_throughout")), pairs(shown, words)) if shown else ()),
        *((tag("h3", words("held_because")), pairs(held, words)) if held else ()),
    )


def environment(run: Run, result: Mapping[str, Any], words: Words) -> Markup:
    """The machine and the code."""
    machine = dict(result.get("environment") or {}) | {
        name: value for name, value in (run.environment or {}).items() if name not in (result.get("environment") or {})
    }
    return card(
        heading(words("environment"), "measured" if machine else None, words),
        pairs(machine, words),
        tag("h3", words("code")),
        pairs({words("code_version"): run.version, words("code_hash"): run.code}, words),
    )


def code(run: Run, words: Words) -> Markup | None:
    """The code alone, for a report that shows the environment elsewhere."""
    if run.code is None and run.version is None:
        return None
    return card(
        heading(words("code"), None, words),
        pairs({words("code_version"): run.version, words("code_hash"): run.code}, words),
    )


def meanings(names: Iterable[str], words: Words) -> Markup:
    """The definitions of the metrics that the report shows."""
    found = definitions(names, words.lang)
    rows = [[named("m", name, words), text] for name, text in found]
    return card(heading(words("definitions"), None, words), table(None, rows))


def other_terms(metrics: Mapping[str, Any], words: Words) -> Markup | None:
    """The run in the terms of other tools, where the metrics carry them."""
    header, rows = other_terms_rows(metrics, words)
    if not rows:
        return None
    label = heading(words("other_terms"), "computed", words, words("other_terms_caption"))
    return card(label, table(header, rows, numeric=(4, 5, 6)))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return plain(value)
    return number(value, 4) if isinstance(value, int | float) else plain(value)


def reproduce(run: Run, words: Words) -> Markup | None:
    """The command that asks for the same again."""
    command = command_of(run.kind, run.spec)
    return None if command is None else card(heading(words("reproduce"), None, words), tag("pre", command))


def anything(value: Any, words: Words, depth: int = 0) -> Markup:
    """Any JSON as tables: objects by name and value, lists of objects as rows, the rest as it is."""
    if isinstance(value, Mapping):
        flat = {name: item for name, item in value.items() if not _is_nested(item)}
        nested = [(name, item) for name, item in value.items() if _is_nested(item)]
        parts = [tag("details", tag("summary", str(name)), anything(item, words, depth + 1)) for name, item in nested]
        shown = table(None, [[str(name), _cell(item)] for name, item in flat.items()]) if flat else None
        return join(shown, *parts)
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        columns = list(dict.fromkeys(str(name) for item in value for name in item))
        rows = [[_cell(item.get(name)) for name in columns] for item in value]
        return table(columns, rows)
    if isinstance(value, list):
        return table(None, [[_cell(item)] for item in value]) if value else tag("p", words("none"), class_="muted")
    return tag("p", MISSING if value is None else _cell(value))


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(x, Mapping | list) for x in value))


ALL_METRICS = tuple(DEFINITIONS)
