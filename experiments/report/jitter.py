"""The report of a jitter run: gaps between tokens while long prompts arrive, arm by arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.jitter_view import against_first, is_decided, steadiest
from experiments.report import parts
from experiments.report.document import Findings, Section, chart, section, table
from experiments.report.parts import bounds, figure
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import MISSING, WORDS, Words, number
from experiments.store import Run

JUDGED = "itl_p99_s"


def of_jitter(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """Which arm is the steadiest, and what it costs."""
    result = _in_words(result, words)
    label, arms = label_of(result), list(result["arms"])
    sections = (
        _figures(arms, label, words),
        _against(result, words),
        *(_course(arm, label, words) for arm in arms),
        parts.ledger([(str(arm["name"]), arm["metrics"]) for arm in arms], label, words),
        parts.energy([(str(arm["name"]), arm["metrics"]) for arm in arms], words),
    )
    answer, undecided = _answer(result, words)
    return Findings(
        title_of(run, words), words("q_jitter"), answer, sections,
        more=() if undecided is None else (undecided,),
        caveats=(words("c_jitter"), *parts.few_samples((arm["metrics"] for arm in arms), words)),
        defined=("itl_s", "ttft_s", "e2e_s", "output_tokens_per_s", "percentiles"),
    )  # fmt: skip


def _in_words(result: Result, words: Words) -> Result:
    """The result with the arms of the default experiment called as the reader calls them."""
    called = {arm["name"]: arm_name(arm["name"], words) for arm in result["arms"]}
    arms = [{**arm, "name": called[arm["name"]]} for arm in result["arms"]]
    against = {called.get(name, name): found for name, found in (result.get("against_first") or {}).items()}
    return {**result, "arms": arms, "against_first": against}


def arm_name(name: str, words: Words) -> str:
    """An arm of the default experiment in the language of `words`, another as it is called."""
    key = f"jitter_arm_{name}"
    return words(key) if key in WORDS else str(name)


def _answer(result: Result, words: Words) -> tuple[str, str | None]:
    best, base = steadiest(result, JUDGED), result["arms"][0]
    if best is None:
        return words("jitter_none"), None
    gap, base_gap = (_gap(arm["figures"][JUDGED]) for arm in (best, base))
    if best["name"] == base["name"]:
        return words("jitter_first", arm=best["name"], gap=gap), None
    told = words("jitter_best", arm=best["name"], gap=gap, base=base["name"], base_gap=base_gap)
    decided = is_decided(against_first(result, best["name"], JUDGED))
    return told, None if decided else words("jitter_undecided")


def _gap(value: float | None) -> str:
    return MISSING if value is None else f"{number(1e3 * value)} ms"


def _figures(arms: list[Mapping[str, Any]], label: str, words: Words) -> Section:
    names = list(arms[0]["figures"])
    rows = [[str(arm["name"]), *(figure(arm["figures"].get(name)) for name in names)] for arm in arms]
    header = [words("arm"), *(parts.named("j", name, words) for name in names)]
    drawn = [(str(arm["name"]), arm["figures"].get(JUDGED), _gap(arm["figures"].get(JUDGED))) for arm in arms]
    return section(
        words("j_arms"), label, parts.bars(words(f"j_{JUDGED}"), drawn),
        table(header, rows, range(1, len(header))), caption=words("j_caption"),
    )  # fmt: skip


def _against(result: Result, words: Words) -> Section | None:
    """The ratios to the first arm with their intervals."""
    known = {name: found for name, found in (result.get("against_first") or {}).items() if found}
    if not known:
        return None
    rows, drawn = [], []
    for name, found in known.items():
        for key, ratio in found.items():
            if ratio is None:
                continue
            ends = None if ratio["low"] is None or ratio["high"] is None else (ratio["low"], ratio["high"])
            rows.append([name, parts.named("j", key, words), figure(ratio["ratio"]), bounds(ends)])
            if key == JUDGED:
                drawn.append((name, ratio["ratio"], ends, f"{number(ratio['ratio'])} ×"))
    title = words("j_against", arm=result["arms"][0]["name"])
    return section(
        title, "computed", parts.intervals(f"{title}: {words(f'j_{JUDGED}')}", drawn, 1.0) if drawn else None,
        table([words("arm"), words("figure"), words("j_ratio"), words("col_interval")], rows, (2, 3)),
        caption=words("change_chart"),
    )  # fmt: skip


def _course(arm: Mapping[str, Any], label: str, words: Words) -> Section | None:
    """The longest gap that ended in each half second of the first repeat."""
    rows = [
        {"name": f"{one['t_s']:g} s", "x": float(one["t_s"]), "y": one["itl_max_s"], "low": None, "high": None}
        for one in arm.get("timeline") or []
    ]
    if not rows:
        return None
    title = words("of_what", what=words("j_course"), of=arm["name"])
    drawn = chart("xy", title, rows, x_label=words("j_time"))
    return section(title, label, drawn, caption=words("j_course_caption"))
