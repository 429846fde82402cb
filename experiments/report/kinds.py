"""The report of each kind of run: its title, its verdict in words and its own sections.

One builder a kind; a kind without one gets `of_anything`, which shows all of the result. A builder draws what a result
says and computes no metric. Comparisons have a file of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.kinds import KINDS
from experiments.quality.slices import ALL
from experiments.report import charts, parts
from experiments.report.definitions import OF_A_RUN
from experiments.report.html import Markup, tag
from experiments.report.page import badge, card, heading, plain, table
from experiments.report.words import MISSING, WORDS, Words, number, percent
from experiments.store import Run, StoredRecord

Result = Mapping[str, Any]
Records = Sequence[StoredRecord]


@dataclass(frozen=True)
class Report:
    """Title and verdict as plain text, sections as markup, and the names of the definitions that belong to them."""

    title: str
    verdict: str
    sections: tuple[Markup | None, ...] = ()
    more: tuple[str, ...] = ()
    defined: tuple[str, ...] = ()


Builder = Callable[[Run, Result, Records, Words], Report]


def title_of(run: Run, words: Words) -> str:
    """The kind and what was asked, as the list of runs says it."""
    kind = words(f"kind_{run.kind}") if f"kind_{run.kind}" in WORDS else words("kind_other", kind=run.kind)
    try:
        said = KINDS[run.kind].says(run.spec)
    except (KeyError, TypeError, IndexError):  # a spec of an older version, or of a kind that isn't here
        said = ""
    return f"{kind}: {said}" if said else kind


def of_bench(run: Run, result: Result, records: Records, words: Words) -> Report:
    """One run's metrics."""
    label = str(result.get("provenance", "measured"))
    ttft, itl = ((result.get(name) or {}).get("p95") for name in ("ttft_s", "itl_s"))
    completed = result.get("completed") or 0
    told = words(
        "bench_verdict", tokens=number(result.get("output_tokens_per_s")), ttft=_seconds(ttft), itl=_seconds(itl),
        completed=completed, all=completed + (result.get("failed") or 0),
    )  # fmt: skip
    share = result.get("slo_attainment")
    more = () if share is None else (words("bench_slo", share=percent(100 * share)),)
    sections = (
        parts.latencies(result, label, words),
        parts.figures(result, label, words),
        parts.energy([(words("mean"), result)], words),
        parts.breakdown(result, label, words),
        parts.memory(result, _name(run), label, words),
        parts.timeline(records, words),
        parts.other_terms(result, words),
    )
    defined = (*OF_A_RUN, "energy") if sections[2] is not None else OF_A_RUN
    return Report(title_of(run, words), told, sections, more, defined)


def _name(run: Run) -> str:
    return str(run.spec.get("workload", run.id))


def _seconds(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{number(value)} s" if value >= 1 else f"{number(value * 1000)} ms"


# -- claim -----------------------------------------------------------------------------------------------------------


def of_claim(run: Run, result: Result, records: Records, words: Words) -> Report:
    """What the claim says, whether it holds here, and the evidence."""
    verdict = str(result.get("verdict"))
    word = words(f"v_{verdict}") if f"v_{verdict}" in WORDS else verdict
    evidence = [item for item in result.get("evidence") or [] if isinstance(item, Mapping)]
    figures = [item for item in evidence if {"name", "value", "provenance"} <= item.keys()]
    others = [item for item in evidence if item not in figures]
    header = [words("figure"), words("value"), words("label"), words("how")]
    rows = [
        [str(item["name"]), f"{_value(item['value'])} {item.get('unit') or ''}".strip(),
         badge(str(item["provenance"]), words), plain(item.get("formula") or item.get("how"))]
        for item in figures
    ]  # fmt: skip
    sections = (
        card(
            heading(words("evidence"), None, words),
            table(header, rows, numeric=(1,)) if rows else None,
            *(parts.anything(item, words) for item in others),
            tag("p", words("none"), class_="muted") if not evidence else None,
        ),
        card(heading(words("trap"), None, words), tag("p", str(result["trap"]))) if result.get("trap") else None,
    )
    statement = result.get("statement")
    more = (str(result.get("reason") or ""),)
    title = f"{words('claim')} {result.get('id', run.spec.get('claim'))}: {statement or ''}"
    return Report(title, word, sections, tuple(filter(None, more)))


def _value(value: Any) -> str:
    return number(value, 4) if isinstance(value, int | float) and not isinstance(value, bool) else plain(value)


# -- eval ------------------------------------------------------------------------------------------------------------

EVAL_VERDICTS = ("worse", "better", "no difference", "inconclusive")


def of_eval(run: Run, result: Result, records: Records, words: Words) -> Report:
    """Accuracy by slice of the baseline and of every candidate against it."""
    label = str(result.get("provenance", "measured"))
    base = list((result.get("baseline") or {}).get("slices") or [])
    candidates = list(result.get("candidates") or [])
    lines = [_eval_line(one, words) for one in candidates]
    named = [row for row in base if row["slice"] != ALL]
    alone = words("eval_baseline", items=sum(row["items"] for row in named), slices=len(named))
    found = result.get("overlooked") or {}
    sections = (
        _eval_baseline(base, label, words),
        *(_eval_candidate(one, label, words) for one in candidates),
        *(_texts(one, label, words) for one in [{"label": words("col_baseline"), **(result.get("baseline") or {})},
                                                *candidates]),
        card(heading(words("overlooked"), label, words), tag("p", str(found["sentence"])))
        if found.get("sentence") else None,
    )  # fmt: skip
    return Report(title_of(run, words), lines[0] if lines else alone, sections, tuple(lines[1:]), ("accuracy",))


def _eval_line(candidate: Mapping[str, Any], words: Words) -> str:
    verdicts = [row.get("verdict") for row in candidate.get("slices") or [] if row["slice"] != ALL]
    counts = [verdicts.count(name) for name in EVAL_VERDICTS]
    worse, better, same, undecided = counts
    return words("eval_candidate", label=candidate.get("label"), worse=worse, better=better, same=same, open=undecided)


def _eval_baseline(rows: Sequence[Mapping[str, Any]], label: str, words: Words) -> Markup | None:
    if not rows:
        return None
    shown = [
        [str(row["slice"]), plain(row["items"]), _share(row.get("accuracy")), _shares(row.get("ci95")),
         _share(row.get("chance")), "" if row.get("signal", True) else words("no_signal")]
        for row in rows
    ]  # fmt: skip
    header = [words("slice"), words("items"), words("accuracy"), words("col_interval"), words("chance"), ""]
    bars = [(str(row["slice"]), row.get("accuracy") or 0.0, _share(row.get("accuracy"))) for row in rows]
    return card(
        heading(f"{words('slices')}: {words('col_baseline')}", label, words),
        charts.plain_bars(bars),
        table(header, shown, numeric=range(1, 5)),
    )  # fmt: skip


def _eval_candidate(candidate: Mapping[str, Any], label: str, words: Words) -> Markup | None:
    rows = list(candidate.get("slices") or [])
    if not rows:
        return None
    shown, drawn = [], []
    for row in rows:
        change, bounds = row.get("change_points"), row.get("change_ci95")
        shown.append([
            str(row["slice"]), _share(row.get("accuracy")), _points(change), _bounds(bounds),
            number(row.get("p_adjusted"), 2), _verdict(row.get("verdict"), words),
        ])  # fmt: skip
        drawn.append((str(row["slice"]), change, bounds, _points(change)))
    header = [words("slice"), words("accuracy"), words("points"), words("col_interval"), words("col_p"),
              words("col_verdict")]  # fmt: skip
    return card(
        heading(words("against", label=candidate.get("label")), label, words, words("change_chart")),
        charts.interval_rows(drawn),
        table(header, shown, numeric=range(1, 5)),
    )


def _texts(arm: Mapping[str, Any], label: str, words: Words) -> Markup | None:
    rows = [row for row in arm.get("texts") or [] if isinstance(row, Mapping)]
    if not rows:
        return None
    return card(heading(f"{words('texts')}: {arm.get('label')}", label, words), parts.anything(rows, words))


def _verdict(verdict: Any, words: Words) -> str:
    return words(str(verdict)) if str(verdict) in WORDS else plain(verdict)


def _share(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f} %"


def _shares(bounds: Sequence[float] | None) -> str:
    return MISSING if bounds is None else f"[{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"


def _points(value: float | None) -> str:
    return MISSING if value is None else f"{value:+.1f}".replace("-", "−")


def _bounds(bounds: Sequence[float] | None) -> str:
    return MISSING if bounds is None else f"[{bounds[0]:+.1f}, {bounds[1]:+.1f}]".replace("-", "−")


# -- speculation -------------------------------------------------------------------------------------------------------

DRAFTS = ("tokens_per_s", "alpha", "acceptance_rate", "tokens_per_pass", "v", "c")


def of_speculation(run: Run, result: Result, records: Records, words: Words) -> Report:
    """What every form of draft gains, part by part."""
    label = str(result.get("provenance", "measured"))
    named = [(str(part["name"]), part) for part in result.get("tasks") or []]
    named += [(f"{part['batch']} ×", part) for part in result.get("batches") or []]
    won = [words("spec_best", form=best["form"], part=name, speedup=number(best["speedup"]),
                 low=number(best["speedup_ci95"][0]), high=number(best["speedup_ci95"][1]))
           for name, part in named if (best := _best(part)) is not None]  # fmt: skip
    constructed = result.get("constructed")
    every = [*named, *([(str(constructed["name"]), constructed)] if constructed else [])]
    missing = [[str(one["form"]), str(one["reason"])] for one in result.get("unavailable") or []]
    sections = (
        *(_drafts(name, part, label, words) for name, part in every),
        card(heading(words("unavailable"), None, words), table([words("form"), words("reason")], missing))
        if missing else None,
    )  # fmt: skip
    lines = won or [words("spec_none")]
    return Report(title_of(run, words), lines[0], sections, tuple(lines[1:]), ("alpha", "speedup"))


def _best(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    better = [row for row in part.get("rows") or [] if row.get("verdict") == "better" and row.get("speedup_ci95")]
    return max(better, key=lambda row: row["speedup"], default=None)


def _drafts(name: str, part: Mapping[str, Any], label: str, words: Words) -> Markup:
    rows = list(part.get("rows") or [])
    shown = [
        [str(row["form"]), *(number(row.get(key)) for key in DRAFTS), number(row.get("speedup")),
         _ends(row.get("speedup_ci95")), number((row.get("predicted") or {}).get("speedup")),
         _verdict(row.get("verdict"), words)]
        for row in rows
    ]  # fmt: skip
    header = [words("form"), "tokens/s", "alpha", "accepted/drafted", "tokens/pass", "v", "c", words("speedup"),
              words("col_interval"), words("computed"), words("col_verdict")]  # fmt: skip
    drawn = [(str(row["form"]), row.get("speedup"), row.get("speedup_ci95"), f"{number(row.get('speedup'))} ×")
             for row in rows]  # fmt: skip
    return card(
        heading(words("forms", part=name), label, words, words("change_chart")),
        charts.interval_rows(drawn, middle=1.0),
        table(header, shown, numeric=range(1, 10)),
    )


def _ends(bounds: Sequence[float] | None) -> str:
    return MISSING if bounds is None else f"[{number(bounds[0])}, {number(bounds[1])}]"


# -- profile -----------------------------------------------------------------------------------------------------------


def of_profile(run: Run, result: Result, records: Records, words: Words) -> Report:
    """The operators of one step under each arm."""
    label = str(result.get("provenance", "measured"))
    arms = list(result.get("arms") or [])
    names = [str(arm.get("value")) if arm.get("value") is not None else words("arm") for arm in arms]
    lines = [words("profile_verdict", arm=name, launches=f"{arm['launches']:,}",
                   step=number(1e3 * arm["step_s"]["median"]))
             for name, arm in zip(names, arms, strict=True)]  # fmt: skip
    whole = [[name, f"{arm['launches']:,}", number(1e3 * arm["step_s"]["median"]), number(1e3 * arm["operators_s"]),
              MISSING if arm.get("outside_s") is None else number(1e3 * arm["outside_s"])]
             for name, arm in zip(names, arms, strict=True)]  # fmt: skip
    header = [words("arm"), words("launches"), words("step_ms"), words("in_operators_ms"), words("outside_ms")]
    sections = (
        card(heading(words("figures"), label, words), table(header, whole, numeric=range(1, 5))),
        *(_operators(name, arm, label, words) for name, arm in zip(names, arms, strict=True)),
        card(heading(words("col_change"), label, words), parts.anything(list(result["changes"]), words))
        if result.get("changes") else None,
    )  # fmt: skip
    return Report(title_of(run, words), lines[0] if lines else "", sections, tuple(lines[1:]))


def _operators(name: str, arm: Mapping[str, Any], label: str, words: Words) -> Markup:
    rows = sorted(arm.get("operators") or [], key=lambda one: -one["seconds"])
    bars = [(str(one["name"]), one["seconds"], f"{number(1e3 * one['seconds'])} ms") for one in rows]
    shown = [[str(one["name"]), f"{one['launches']:,}", number(1e3 * one["seconds"]), _share(one.get("share"))]
             for one in rows]  # fmt: skip
    header = [words("operator"), words("launches"), "ms", "%"]
    return card(
        heading(f"{words('operators')}: {name}", label, words),
        charts.plain_bars(bars),
        table(header, shown, numeric=(1, 2, 3)),
    )


# -- anything else -----------------------------------------------------------------------------------------------------


def of_anything(run: Run, result: Result, records: Records, words: Words) -> Report:
    """All of a result, for a kind that has no builder of its own."""
    said = next((result[name] for name in ("sentence", "verdict", "reason") if isinstance(result.get(name), str)), None)
    state = words(f"state_{run.state}")
    label = result.get("provenance")
    shown = {name: value for name, value in result.items() if name not in ("warnings", "run_id", "environment")}
    section = card(heading(words("result"), str(label) if label else None, words), parts.anything(shown, words))
    return Report(title_of(run, words), said or state, (section, parts.other_terms(result, words)))


def of_nothing(run: Run, words: Words) -> Report:
    """A run that has no result: how it ended."""
    state = words(f"state_{run.state}")
    told = words("no_result_error", state=state, error=run.error) if run.error else words("no_result", state=state)
    return Report(title_of(run, words), told)
