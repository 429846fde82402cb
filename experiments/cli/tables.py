"""Results as plain tables on stdout. Formatting only: every figure is read from the result."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from experiments.quality.agreement import quality_missing
from ledger.counted import counted

if TYPE_CHECKING:
    from experiments.memory_view import AccountRow

LABELS = {
    "capacity_rps": "capacity",
    "ttft_s": "TTFT, p95",
    "itl_s": "ITL, p95",
    "output_tokens_per_s": "throughput",
    "cost_per_request": "cost per request",
    "quality": "quality",
}
UNITS = {
    "capacity_rps": " requests/s",
    "ttft_s": " s",
    "itl_s": " s",
    "output_tokens_per_s": " tokens/s",
    "cost_per_request": "",
    "quality": "",
}
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")


def number(value: float | None, unit: str = "") -> str:
    """Four significant digits with the unit; a dash for a missing value."""
    return "–" if value is None else f"{value:,.4g}{unit}"


def change(value: float | None) -> str:
    """A change in % with its sign."""
    return "–" if value is None else f"{value:+.1f} %".replace("-", "−")


def interval(bounds: list[float] | None) -> str:
    """An interval in %, as [96, 117]."""
    return "–" if bounds is None else f"[{bounds[0]:.1f}, {bounds[1]:.1f}]".replace("-", "−")


def console() -> Console:
    """Where tables go. Without a terminal nothing is wrapped to 80 columns: a pipe or a file has no width."""
    return Console(soft_wrap=True, width=None if sys.stdout.isatty() else 200)


def plain_table(*columns: str) -> Table:
    """A table without lines; the first column is left-aligned, the others right."""
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def print_workload(described: dict[str, Any]) -> None:
    """What a workload sends: counts, times, lengths, and what was changed on the way. Computed, not measured."""
    out = console()
    how = f"{described['concurrency']} clients" if described["concurrency"] else described["arrivals"]
    rate = described["realised_rps"]
    out.print(f"{described['name']}: {counted(described['num_requests'], 'request')}, {how}"
              + ("" if rate is None else f", {number(rate)} requests/s"))  # fmt: skip
    table = plain_table("tokens", "mean", "min", "p50", "p90", "p99", "max")
    for name, spread in described["lengths"].items():
        table.add_row(name.removesuffix("_tokens"), *(number(spread[key]) for key in list(spread)))
    out.print(table)
    trace, sessions = described["trace"], described["sessions"]
    if trace:
        out.print(f"trace {trace['file']} ({trace['format']}), {trace['rows']} used {trace['rows_used']} of "
                  f"{trace['rows_read']} read, sha256 {trace['sha256'][:16]}")  # fmt: skip
    if sessions:
        out.print(f"{sessions['count']} conversations, {number(sessions['mean_turns'])} turns each on average, "
                  f"{sessions['most_turns']} at most")  # fmt: skip
    for line in workload_changes(described):
        out.print(line)


def workload_changes(described: Mapping[str, Any] | None) -> list[str]:
    """What was clipped, dropped or scaled of a workload, and what must be known of its trace, a line each."""
    given = described or {}
    lines = [f"{count} {name} clipped" for name, count in given.get("clipped", {}).items() if count]
    lines += [f"{count} dropped: {reason}" for reason, count in given.get("dropped", {}).items()]
    lines += [f"{name} scale {scale:g}" for name in ("time", "length") if (scale := given.get(f"{name}_scale", 1)) != 1]
    return [f"workload: {line}" for line in (*lines, *given.get("notes", ()))]


def print_comparison(result: dict[str, Any]) -> None:
    """The five curves of a comparison."""
    baseline, candidate = (str(arm["value"]) for arm in result["arms"])
    columns = (f"{baseline} (baseline)", candidate, "change", "95 %", "noise floor", "detectable from", "verdict",
               "label")  # fmt: skip
    table = plain_table("curve", *columns)
    for curve in result["curves"]:
        unit = UNITS[curve["name"]]
        table.add_row(
            LABELS[curve["name"]],
            number(curve["baseline"], unit),
            number(curve["candidate"], unit),
            change(curve["change_pct"]),
            interval(curve["ci95"]),
            number(curve["noise_floor_pct"], " %"),
            number(curve.get("min_detectable_pct"), " %"),
            verdict_text(curve),
            curve["provenance"],
        )
    out = console()
    out.print(f"{result['variable']}: {candidate} against {baseline}, workload {result['workload']['name']}, "
                  f"{counted(result['repeats'], 'repeat')}")  # fmt: skip
    out.print(table)
    for line in workload_changes(result["workload"]):
        out.print(line)
    missing = quality_missing(result)
    if missing is not None:
        out.print(f"quality not measured: {missing}; {result['variable']} can change what the model answers",
                  style="bold red")  # fmt: skip
    share = result["quality"]["same_token_ids_share"]
    if share is not None:
        out.print(f"same token ids: {share:.0%} of requests")
    for name, (first, second) in result["derived"].items():
        out.print(f"changed because of it: {name} {first:,} -> {second:,}")
    for name, item in result.get("held_because", {}).items():
        out.print(f"held because {item['because']} needs it: {name}={item['value']}")
    out.print(f"price assumed: {result['price_per_device_hour']:g} per device-hour; run {result['run_id']}")


def verdict_text(curve: dict[str, Any]) -> str:
    """A verdict, with the repeats that would decide it where it is open."""
    needed = curve.get("repeats_needed")
    if curve["verdict"] == "inconclusive" and needed and curve["pairs_are"] == "repeats":
        return f"inconclusive (about {counted(needed, 'repeat')} would decide)"
    return str(curve["verdict"])


def print_metrics(result: dict[str, Any]) -> None:
    """The metrics of one run."""
    out = console()
    table = plain_table("metric", "mean", "p50", "p95", "p99", "n")
    for name in LATENCIES:
        summary = result[name]
        cells = [number(summary[key], " s") for key in ("mean", "p50", "p95", "p99")]
        table.add_row(name.removesuffix("_s").upper(), *cells, str(summary["n"]))
    out.print(table)
    rows = {
        "output tokens/s": result["output_tokens_per_s"],
        "requests/s": result["requests_per_s"],
        "goodput, requests/s": result["goodput_rps"],
        "completed": result["completed"],
        "failed": result["failed"],
        "tokens per joule": _at(result, "energy", "tokens_per_joule"),
        "mean power, W": _at(result, "energy", "mean_power_w"),
        "cost per request": result["cost_per_request"],
        "cost per million output tokens": result["cost_per_million_output_tokens"],
        "requests/s scheduled": _at(result, "offered_load", "offered_rps"),
        "requests/s sent": _at(result, "offered_load", "achieved_rps"),
        "sender lateness, p99, s": _at(result, "offered_load", "lateness_s", "p99"),
        "requests in flight, mean": _at(result, "in_flight", "mean"),
        "requests running, mean": _at(result, "concurrency", "mean"),
        "slot-steps kept by finished requests, share": _at(result, "slots", "idle_share"),
        "KV wasted, share of the pool": _at(result, "kv_waste", "wasted", "share"),
        "prefix hit rate": _at(result, "prefix", "hit_rate"),
        "latency unexplained, share, p50": _at(result, "unexplained_share", "p50"),
    }
    for line in workload_changes(result.get("workload")):
        out.print(line)
    figures = plain_table("figure", result["provenance"])
    for label, value in rows.items():
        figures.add_row(label, number(value))
    out.print(figures)
    for failure in result.get("failures") or []:
        out.print(f"failed, {failure['count']} requests: {failure['error']}")
    caches = _at(result, "target", "caches")
    if caches is not None:
        out.print(f"caches before the run: {caches}")
    print_other_terms(result.get("in_other_terms") or {})
    print_memory(result["memory"])


def print_other_terms(tools: dict[str, list[dict[str, Any]]]) -> None:
    """The same run as other benchmarks would have reported it; nothing for a run that is older than that."""
    if not any(tools.values()):
        return
    table = plain_table("in other terms", "metric", "mean", "p50", "p99", "differs from ours")
    for column in (table.columns[1], table.columns[-1]):
        column.justify = "left"
    for tool, rows in tools.items():
        for row in rows:
            unit = f" {row['unit']}"
            values = (number(row[key], unit if row[key] is not None else "") for key in ("mean", "p50", "p99"))
            table.add_row(tool, row["name"], *values, row["why"] or "")
    console().print(table)


def print_memory(memory: dict[str, Any]) -> None:
    """Predicted against measured, account by account; nothing for a run that is older than that."""
    from experiments.memory_view import account_rows

    rows = account_rows(memory)
    if not rows:
        return
    table = plain_table("memory, MiB", "predicted", "label", "found", "label", "difference", "how")
    for column in table.columns:
        if column.header in ("label", "how"):
            column.justify = "left"
    for row in rows:
        predicted, found, difference = map(_mib, (row.predicted_bytes, row.measured_bytes, row.difference_bytes))
        how = "; ".join(filter(None, (row.how, row.measured_how)))
        table.add_row(row.name, predicted, _origin(row), found, row.measured_provenance or "", difference, how)
    console().print(table)


def _origin(row: AccountRow) -> str:
    """The label of a prediction; a reading that stands for one is named so."""
    return "reading" if row.provenance == "measured" else row.provenance or ""


def _mib(size: int | None) -> str:
    return "–" if size is None else f"{size / 2**20:,.2f}".replace("-", "−")


def _at(result: dict[str, Any], *path: str) -> Any:
    """A figure by its keys; None in a run that is older than it."""
    value: Any = result
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
