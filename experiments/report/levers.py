"""The report of an experiment with cost levers: what each saves alone, what all save together, and what it does to the
answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.levers_view import ALL, largest, lever_rows, losing_quality
from experiments.report import parts
from experiments.report.comparison import verdict_cell
from experiments.report.definitions import OF_A_RUN
from experiments.report.document import Cell, Findings, Section, section, table
from experiments.report.parts import bounds, count, figure, share
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import MISSING, Words, number, percent, signed_percent
from experiments.store import Run

MOVED = ("prefill_tokens", "output_tokens_per_s", "ttft_p95_s", "itl_p95_s")
MECHANISM = ("hit_rate", "escalated_share", "kept_share")


def of_levers(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """All together first, then lever by lever."""
    label, rows = label_of(result), lever_rows(result)
    told = [line for line in (_together(result, words), _largest(result, words), _quality(result, words)) if line]
    stored = [*result["levers"], *([result["together"]] if result["together"] is not None else [])]
    sections = (
        _savings(rows, label, words),
        _attribution(result, words),
        _answers(rows, label, words),
        _moved(result, rows, stored, label, words),
        _costs(rows, stored, label, words),
        parts.other_terms(result["baseline"], words),
    )
    workload = (result.get("workload") or {}).get("name") or run.spec.get("workload", MISSING)
    price = words("price", price=number(result["price_per_device_hour"]))
    few = parts.few_samples((row["metrics"] for row in stored), words)
    return Findings(
        title_of(run, words), words("q_levers", workload=workload), told[0], sections, more=tuple(told[1:]),
        caveats=(words("c_levers"), *few, price), defined=(*OF_A_RUN, "quality"),
    )  # fmt: skip


# -- the answer --------------------------------------------------------------------------------------------------------


def _together(result: Result, words: Words) -> str | None:
    """What all save against what adding up or multiplying would promise; None for one lever."""
    found = result["attribution"]
    if found is None:
        return None
    if found["together_pct"] is None:
        return words("lv_no_repeat")
    sizes = {key: _saved(found[f"{key}_pct"]) for key in ("together", "sum_of_each", "product_of_each")}
    return words("lv_together_line", reading=words(f"lv_{found['interaction']['verdict']}"), **sizes)


def _largest(result: Result, words: Words) -> str:
    best = largest(result)
    if best is None:
        return words("lv_none")
    ends = MISSING if best["ends"] is None else _ends(best["ends"])
    return words("lv_largest", lever=_name(best["name"], words), saved=_saved(best["saved"]), ends=ends)


def _quality(result: Result, words: Words) -> str | None:
    if all(row["quality"] is None for row in result["levers"]):
        return words("lv_unread_line")
    lost = losing_quality(result)
    return words("lv_quality_lost", levers=words.listed([_name(name, words) for name in lost])) if lost else None


# -- sections ----------------------------------------------------------------------------------------------------------


def _savings(rows: Sequence[Mapping[str, Any]], label: str, words: Words) -> Section:
    drawn = [(_name(row["name"], words), row["saved"], row["ends"], _saved(row["saved"])) for row in rows]
    told = [
        [_name(row["name"], words), _setting(row), Cell(_saved(row["saved"]), row["saved"]),
         bounds(row["ends"], None if row["ends"] is None else _ends(row["ends"])), verdict_cell(row["verdict"], words),
         figure(row["per_million"], 4, None if row["per_million"] is None else "computed")]
        for row in rows
    ]  # fmt: skip
    header = [words("lv_lever"), words("lv_change"), words("lv_saved"), words("col_interval"), words("col_verdict"),
              words("lv_per_million")]  # fmt: skip
    title = words("lv_savings")
    return section(title, label, parts.intervals(title, drawn), table(header, told, (2, 3, 5)),
                   caption=words("lv_caption"))  # fmt: skip


def _attribution(result: Result, words: Words) -> Section | None:
    found = result["attribution"]
    if found is None:
        return None
    one = found["interaction"]
    rows = [
        *([words(f"lv_row_{key}"), Cell(_saved(found[f"{key}_pct"]), found[f"{key}_pct"]), MISSING]
          for key in ("together", "sum_of_each", "product_of_each")),
        [words("lv_ratio"), figure(one["ratio"]), bounds(one["ci95"])],
    ]  # fmt: skip
    header = [words("figure"), words("value"), words("col_interval")]
    return section(words("lv_attribution"), "computed", table(header, rows, (1, 2)), caption=words("lv_how"))


def _answers(rows: Sequence[Mapping[str, Any]], label: str, words: Words) -> Section | None:
    """What each did to the answers; None where none were read."""
    read = [row for row in rows if row["quality"] is not None]
    if not read:
        return None
    told = [
        [_name(row["name"], words), verdict_cell(row["quality"], words),
         Cell(signed_percent(row["quality_change_pct"]), row["quality_change_pct"]), share(row["same_answers_share"])]
        for row in read
    ]  # fmt: skip
    header = [words("lv_lever"), words("quality"), words("col_change"), words("lv_same")]
    return section(words("lv_answers"), label, table(header, told, (2, 3)))


def _moved(
    result: Result,
    rows: Sequence[Mapping[str, Any]],
    stored: Sequence[Mapping[str, Any]],
    label: str,
    words: Words,
) -> Section:
    base = result["baseline"]
    first = {"prefill_tokens": base["prefix"]["prefill_tokens"], "output_tokens_per_s": base["output_tokens_per_s"],
             "ttft_p95_s": base["ttft_s"]["p95"], "itl_p95_s": base["itl_s"]["p95"]}  # fmt: skip
    told = [[words("col_baseline"), *(_figure(name, first[name]) for name in MOVED), *[MISSING] * len(MECHANISM)]]
    for row, own in zip(rows, stored, strict=True):
        told.append([_name(row["name"], words), *(_figure(name, own["figures"][name]) for name in MOVED),
                     *(share(row[name]) for name in MECHANISM)])  # fmt: skip
    header = [words("lv_lever"), *(words(f"lv_{name}") for name in (*MOVED, *MECHANISM))]
    return section(words("lv_moved"), label, table(header, told, range(1, len(header))))


def _costs(rows: Sequence[Mapping[str, Any]], stored: Sequence[Mapping[str, Any]], label: str, words: Words) -> Section:
    told = [
        [_name(row["name"], words), figure(own["baseline"]), figure(own["candidate"]),
         Cell(percent(own.get("noise_floor_pct")), own.get("noise_floor_pct")), figure(own.get("p_adjusted"), 2),
         count(own.get("pairs")), own.get("method") or MISSING]
        for row, own in zip(rows, stored, strict=True)
    ]  # fmt: skip
    header = [words("lv_lever"), words("lv_cost_before"), words("lv_cost_after"), words("col_floor"), words("col_p"),
              words("col_pairs"), words("col_method")]  # fmt: skip
    return section(words("lv_costs"), label, table(header, told, range(1, 6)), caption=words("lv_costs_caption"))


# -- how they are written ----------------------------------------------------------------------------------------------


def _name(name: str, words: Words) -> str:
    return words("lv_all") if name == ALL else parts.named("lv_n", name, words)


def _setting(row: Mapping[str, Any]) -> str:
    return MISSING if row["is_all"] else f"{row['from']} → {row['to']}"


def _figure(name: str, value: float | None) -> Cell:
    return figure(value, 4) if name == "prefill_tokens" else figure(value)


def _saved(value: float | None) -> str:
    """Saved of the cost of a request, %; below 0 where it became dearer."""
    return MISSING if value is None else f"{value:.1f} %".replace("-", "−")


def _ends(ends: Sequence[float]) -> str:
    return f"[{ends[0]:.1f}, {ends[1]:.1f}]".replace("-", "−")
