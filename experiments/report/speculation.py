"""The report of a run of drafts: what every form of draft gains, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.report import parts
from experiments.report.document import Findings, Section, section, table
from experiments.report.evaluation import verdict_word
from experiments.report.parts import bounds, figure
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import Words, number
from experiments.store import Run

DRAFTS = ("tokens_per_s", "alpha", "acceptance_rate", "tokens_per_pass", "v", "c")


def of_speculation(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """Speed-ups with their intervals."""
    label = label_of(result)
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
        section(words("unavailable"), None, table([words("form"), words("reason")], missing)) if missing else None,
    )
    lines = won or [words("spec_none")]
    return Findings(
        title_of(run, words), words("q_speculation"), lines[0], sections, more=tuple(lines[1:]),
        caveats=(words("c_speculation"), *((words("c_constructed"),) if constructed else ())),
        defined=("alpha", "speedup"),
    )  # fmt: skip


def _best(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    better = [row for row in part.get("rows") or [] if row.get("verdict") == "better" and row.get("speedup_ci95")]
    return max(better, key=lambda row: row["speedup"], default=None)


def _drafts(name: str, part: Mapping[str, Any], label: str, words: Words) -> Section:
    rows = list(part.get("rows") or [])
    shown = [
        [str(row["form"]), *(figure(row.get(key)) for key in DRAFTS), figure(row.get("speedup")),
         bounds(row.get("speedup_ci95")), figure((row.get("predicted") or {}).get("speedup")),
         verdict_word(row.get("verdict"), words)]
        for row in rows
    ]  # fmt: skip
    header = [words("form"), "tokens/s", "alpha", words("accepted_share"), words("tokens_per_pass"), "v", "c",
              words("speedup"), words("col_interval"), words("computed"), words("col_verdict")]  # fmt: skip
    drawn = [(str(row["form"]), row.get("speedup"), row.get("speedup_ci95"), f"{number(row.get('speedup'))} ×")
             for row in rows]  # fmt: skip
    title = words("forms", part=name)
    return section(title, label, parts.intervals(title, drawn, 1.0), table(header, shown, range(1, 10)),
                   caption=words("change_chart"))  # fmt: skip
