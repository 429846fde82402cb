"""The report of a quality evaluation: accuracy by slice of the baseline and of every candidate against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.quality.slices import ALL
from experiments.report import parts
from experiments.report.document import Cell, Findings, Section, section, table
from experiments.report.parts import bounds, count, figure, plain, share
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import MISSING, WORDS, Words
from experiments.store import Run

VERDICTS = ("worse", "better", "no difference", "inconclusive")


def of_eval(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """Accuracy by slice."""
    label, baseline = label_of(result), result.get("baseline") or {}
    base = list(baseline.get("slices") or [])
    candidates = list(result.get("candidates") or [])
    lines = [_line(one, words) for one in candidates]
    named = [row for row in base if row["slice"] != ALL]
    alone = words("eval_baseline", items=sum(row["items"] for row in named), slices=len(named))
    overlooked = (result.get("overlooked") or {}).get("sentence")
    sections = (
        _baseline(base, label, words),
        *(_candidate(one, label, words) for one in candidates),
        *(_texts(one, label, words) for one in [{"label": words("col_baseline"), **baseline}, *candidates]),
        parts.notes(words("overlooked"), [str(overlooked)] if overlooked else [], label),
    )
    undecided = any(row.get("verdict") == "inconclusive" for one in candidates for row in one.get("slices") or [])
    return Findings(
        title_of(run, words), words("q_eval"), lines[0] if lines else alone, sections, more=tuple(lines[1:]),
        caveats=(words("c_eval_items"), *((words("c_eval_open"),) if undecided else ())), defined=("accuracy",),
    )  # fmt: skip


def _line(candidate: Mapping[str, Any], words: Words) -> str:
    verdicts = [row.get("verdict") for row in candidate.get("slices") or [] if row["slice"] != ALL]
    worse, better, same, undecided = (verdicts.count(name) for name in VERDICTS)
    return words("eval_candidate", label=candidate.get("label"), worse=worse, better=better, same=same, open=undecided)


def _baseline(rows: Sequence[Mapping[str, Any]], label: str, words: Words) -> Section | None:
    if not rows:
        return None
    shown = [
        [str(row["slice"]), count(row["items"]), share(row.get("accuracy")), _shares(row.get("ci95")),
         share(row.get("chance")), "" if row.get("signal", True) else words("no_signal")]
        for row in rows
    ]  # fmt: skip
    header = [words("slice"), words("items"), words("accuracy"), words("col_interval"), words("chance"),
              words("remark")]  # fmt: skip
    title = words("of_what", what=words("slices"), of=words("col_baseline"))
    drawn = [(str(row["slice"]), row.get("accuracy"), share(row.get("accuracy")).text) for row in rows]
    return section(title, label, parts.bars(title, drawn), table(header, shown, range(1, 5)))


def _candidate(candidate: Mapping[str, Any], label: str, words: Words) -> Section | None:
    rows = list(candidate.get("slices") or [])
    if not rows:
        return None
    shown, drawn = [], []
    for row in rows:
        change, ends = row.get("change_points"), row.get("change_ci95")
        shown.append([
            str(row["slice"]), share(row.get("accuracy")), _points(change), _ends(ends),
            figure(row.get("p_adjusted"), 2), verdict_word(row.get("verdict"), words),
        ])  # fmt: skip
        drawn.append((str(row["slice"]), change, ends, _points(change).text))
    header = [words("slice"), words("accuracy"), words("points"), words("col_interval"), words("col_p"),
              words("col_verdict")]  # fmt: skip
    title = words("against", label=candidate.get("label"))
    return section(title, label, parts.intervals(title, drawn), table(header, shown, range(1, 5)),
                   caption=words("change_chart"))  # fmt: skip


def _texts(arm: Mapping[str, Any], label: str, words: Words) -> Section | None:
    rows = [row for row in arm.get("texts") or [] if isinstance(row, Mapping)]
    if not rows:
        return None
    title = words("of_what", what=words("texts"), of=arm.get("label"))
    return section(title, label, *parts.anything(rows, words))


def verdict_word(verdict: Any, words: Words) -> str:
    """A verdict in the reader's language."""
    return words(str(verdict)) if str(verdict) in WORDS else plain(verdict)


def _shares(ends: Sequence[float] | None) -> Cell:
    return bounds(ends, None if ends is None else f"[{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]")


def _points(value: float | None) -> Cell:
    return Cell(MISSING if value is None else f"{value:+.1f}".replace("-", "−"), value)


def _ends(ends: Sequence[float] | None) -> Cell:
    return bounds(ends, None if ends is None else f"[{ends[0]:+.1f}, {ends[1]:+.1f}]".replace("-", "−"))
