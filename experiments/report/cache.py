"""The report of a run with answer caches: how often they answer, how often wrongly, what went stale, what it saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.report import parts
from experiments.report.document import Cell, Findings, Section, chart, section, table
from experiments.report.parts import bounds, count, figure, yes_no
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import MISSING, Words
from experiments.store import Run

SHARES = ("hit", "wrong", "hit_ungated", "wrong_ungated", "crowd_hit", "crowd_wrong", "stranger_wrong")
LATENCY = ("ttft_hit_s", "ttft_miss_s", "lookup_s")


def of_cache(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """Quality first, then what is saved."""
    label, languages = label_of(result), list(result["pairs"])
    traffic = result.get("traffic")
    told = [
        words("cache_answer", language=one["language"], hit=_percent(one["chosen"]["hit"]),
              wrong=_percent(one["chosen"]["wrong"]), threshold=f"{result['threshold']:g}")
        for one in languages
    ]  # fmt: skip
    fresh = words("cache_fresh" if result["fresh"] else "cache_stale")
    sections = (
        _chosen(languages, label, words),
        *(_curve(one, label, words) for one in languages),
        _stale(result, label, words),
        *(() if traffic is None else (_arms(traffic, label, words), _against(traffic, words))),
    )
    return Findings(
        title_of(run, words), words("q_cache"), told[0] if told else fresh, sections, more=(*told[1:], fresh),
        caveats=(words("c_cache"),), defined=("ttft_s", "output_tokens_per_s", "percentiles"),
    )  # fmt: skip


def _percent(found: Mapping[str, Any]) -> str:
    return f"{100 * found['rate']:.1f} % [{100 * found['low']:.1f}, {100 * found['high']:.1f}]"


def _chosen(languages: list[Mapping[str, Any]], label: str, words: Words) -> Section:
    rows = [
        [one["language"], words(f"ch_{name}"), Cell(f"{100 * found['rate']:.1f} %", found["rate"]),
         bounds((found["low"], found["high"]), f"[{100 * found['low']:.1f}, {100 * found['high']:.1f}]"),
         count(found["count"]), count(found["total"])]
        for one in languages
        for name in SHARES
        if (found := one["chosen"].get(name))
    ]  # fmt: skip
    header = [words("ch_language"), words("what"), words("ch_share"), words("col_interval"), words("ch_count"), "n"]
    return section(words("cache_chosen"), label, table(header, rows, (2, 3, 4, 5)))


def _curve(one: Mapping[str, Any], label: str, words: Words) -> Section:
    drawn = []
    for name in ("hit", "wrong"):
        rows = [
            {"name": f"{row['threshold']:g}", "x": row["threshold"], "y": row[name]["rate"], "low": row[name]["low"],
             "high": row[name]["high"]}
            for row in one["curve"]
        ]  # fmt: skip
        title = words(f"ch_{name}")
        drawn.append(section(title, label, chart("xy", title, rows, x_label=words("ch_threshold"))))
    title = words("of_what", what=words("cache_curve"), of=one["language"])
    return section(title, None, *drawn, layout="wide_grid")


def _stale(result: Result, label: str, words: Words) -> Section:
    rows = [[str(row["change"]), *(yes_no(row[name], words) for name in ("must_hit", "exact", "semantic"))]
            for row in result["staleness"]]  # fmt: skip
    header = [words("ch_change"), words("ch_must_hit"), words("ch_exact"), words("ch_semantic")]
    return section(words("cache_stale_title"), label, table(header, rows))


def _arms(traffic: Mapping[str, Any], label: str, words: Words) -> Section:
    rows = []
    for arm in traffic["arms"]:
        found, metrics = arm["cache"] or {}, arm["metrics"]
        hits = found.get("hits") or {}
        rows.append([
            str(arm["name"]), count(hits.get("exact")), count(hits.get("semantic")), count(found.get("wrong")),
            parts.share(found.get("saved_share")), figure(metrics["ttft_s"]["p50"]),
            *(figure((found.get(name) or {}).get("p50")) for name in LATENCY), figure(metrics["output_tokens_per_s"]),
        ])  # fmt: skip
    header = [words("arm"), words("ch_exact"), words("ch_semantic"), words("ch_wrong"), words("ch_saved"),
              "TTFT p50, s", *(words(f"ch_{name}") for name in LATENCY), "tokens/s"]  # fmt: skip
    return section(words("cache_traffic"), label, table(header, rows, range(1, len(header))))


def _against(traffic: Mapping[str, Any], words: Words) -> Section | None:
    rows = [
        [name, words(f"ch_{key}"), figure(ratio["ratio"]),
         MISSING if ratio["low"] is None else bounds((ratio["low"], ratio["high"]))]
        for name, found in traffic["against_first"].items()
        for key, ratio in found.items()
        if ratio is not None
    ]  # fmt: skip
    if not rows:
        return None
    header = [words("arm"), words("figure"), words("j_ratio"), words("col_interval")]
    return section(words("j_against", arm=traffic["arms"][0]["name"]), "computed", table(header, rows, (2, 3)))
