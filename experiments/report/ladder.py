"""The report of a ladder: what came of it in words, the steps one by one, the whole, and the return on effort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.playbook.decide import ADOPTED, NOT_DECIDED
from experiments.report import parts
from experiments.report.comparison import change_cells, value_cell
from experiments.report.definitions import OF_A_RUN
from experiments.report.document import Block, Cell, Findings, Heading, Note, Section, section, table
from experiments.report.parts import figure
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import MISSING, Words, signed_percent
from experiments.store import Run

if TYPE_CHECKING:
    from experiments.playbook.words import Says

TONES = {ADOPTED: "better", NOT_DECIDED: "none"}


def of_ladder(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """Step by step, and the end against the start."""
    from experiments.playbook.words import Says  # late: its words are written with those of the reports

    says, label, steps = Says(words.lang), label_of(result), list(result["steps"])
    headline, *rest = says.report(result)
    opening, after = rest[0], rest[1 + len(steps) :]
    sections = (
        _steps(steps, says, label, words),
        _whole(result, says, label, words),
        _returns(result, says, words),
        *(_figures(row, says, label, words) for row in steps if row["comparison"]),
    )
    return Findings(
        title_of(run, words), words("q_ladder", workload=run.spec.get("workload", MISSING)), headline, sections,
        more=(opening, *after), caveats=(words("ladder_whole_caption"),), defined=OF_A_RUN,
    )  # fmt: skip


def _steps(steps: Sequence[Mapping[str, Any]], says: Says, label: str, words: Words) -> Section:
    blocks: list[Block] = []
    for place, row in enumerate(steps, 1):
        reasons = says("gap").join(says.reasons(row))
        blocks += [
            Heading(f"{place}. {says.step(row['name'])} {says.changes(row)}".strip()),
            Note(f"{says.outcome(row['outcome'])}. {reasons}"),
        ]
        if says.trap(row["name"]):
            blocks.append(Note(words("of_what", what=words("trap"), of=says.trap(row["name"])), "muted"))
    return section(words("ladder_steps"), label, *blocks, caption=words("ladder_rule"))


def _whole(result: Result, says: Says, label: str, words: Words) -> Section | None:
    overall = result.get("overall")
    if not overall:
        return None
    curves = _curves(overall["comparison"]["curves"], says, words)
    return section(words("ladder_whole"), label, *curves, caption=words("ladder_whole_caption"))


def _figures(row: Mapping[str, Any], says: Says, label: str, words: Words) -> Section:
    caption = words("ladder_pairs", repeats=row["comparison"]["repeats"])
    return section(says.step(row["name"]), label, *_curves(row["comparison"]["curves"], says, words), caption=caption)


def _curves(curves: Sequence[Mapping[str, Any]], says: Says, words: Words) -> tuple[Block, ...]:
    rows = [
        [says.curve(curve["name"]), value_cell(curve["name"], curve["baseline"]),
         value_cell(curve["name"], curve["candidate"]), *change_cells(curve), says.verdict(curve["verdict"])]
        for curve in curves
    ]  # fmt: skip
    header = [words("col_curve"), words("ladder_before"), words("ladder_after"), words("col_change"),
              words("col_interval"), words("col_verdict")]  # fmt: skip
    drawn = [(says.curve(curve["name"]), curve["change_pct"], curve["ci95"], signed_percent(curve["change_pct"]))
             for curve in curves]  # fmt: skip
    return parts.intervals(words("col_change"), drawn), table(header, rows, range(1, 5))


def _returns(result: Result, says: Says, words: Words) -> Section | None:
    rows = [
        [str(row["place"]), says.step(row["step"]), Cell(says.outcome(row["outcome"]), None, None,
                                                         TONES.get(row["outcome"])),
         Cell(signed_percent(row["measured_pct"]), row["measured_pct"]),
         Cell(signed_percent(row["gain_pct"]), row["gain_pct"]), says.effort(row),
         figure(row["return_pct_per_hour"]), MISSING if row["rank"] is None else str(row["rank"])]
        for row in result["returns"]
    ]  # fmt: skip
    if not rows:
        return None
    header = ["#", words("ladder_step"), words("ladder_outcome"), words("ladder_measured"), words("ladder_kept"),
              words("ladder_effort"), words("ladder_return"), words("ladder_rank")]  # fmt: skip
    caption = words("ladder_returns_caption", curve=says.curve(result["aim"]))
    return section(
        words("ladder_returns"), "computed", table(header, rows, (3, 4, 6, 7)), Note(words("ladder_hours"), "caption"),
        Note(says.order(result)), caption=caption,
    )  # fmt: skip
