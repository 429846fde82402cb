"""The report of a profile: the operators of one step under each arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.report import parts
from experiments.report.document import Cell, Findings, Section, section, table
from experiments.report.parts import count, share
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import MISSING, Words, number
from experiments.store import Run


def of_profile(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """Launches and time, operator by operator."""
    label, arms = label_of(result), list(result.get("arms") or [])
    names = [str(arm.get("value")) if arm.get("value") is not None else words("arm") for arm in arms]
    both = list(zip(names, arms, strict=True))
    lines = [words("profile_verdict", arm=name, launches=f"{arm['launches']:,}",
                   step=number(1e3 * arm["step_s"]["median"])) for name, arm in both]  # fmt: skip
    whole = [[name, count(arm["launches"]), _ms(arm["step_s"]["median"]), _ms(arm["operators_s"]),
              _ms(arm.get("outside_s"))] for name, arm in both]  # fmt: skip
    header = [words("arm"), words("launches"), words("step_ms"), words("in_operators_ms"), words("outside_ms")]
    changes = list(result.get("changes") or [])
    sections = (
        section(words("figures"), label, table(header, whole, range(1, 5))),
        *(_operators(name, arm, label, words) for name, arm in both),
        section(words("col_change"), label, *parts.anything(changes, words)) if changes else None,
    )
    return Findings(
        title_of(run, words), words("q_profile", step=run.spec.get("step", MISSING)), lines[0] if lines else "",
        sections, more=tuple(lines[1:]), caveats=(words("c_profile"),),
    )  # fmt: skip


def _operators(name: str, arm: Mapping[str, Any], label: str, words: Words) -> Section:
    rows = sorted(arm.get("operators") or [], key=lambda one: -one["seconds"])
    drawn = [(str(one["name"]), one["seconds"], f"{_ms(one['seconds']).text} ms") for one in rows]
    shown = [[str(one["name"]), count(one["launches"]), _ms(one["seconds"]), share(one.get("share"))] for one in rows]
    title = words("of_what", what=words("operators"), of=name)
    header = [words("operator"), words("launches"), "ms", words("share_of_step")]
    return section(title, label, parts.bars(title, drawn), table(header, shown, (1, 2, 3)))


def _ms(seconds: float | None) -> Cell:
    return Cell(MISSING if seconds is None else number(1e3 * seconds), seconds)
