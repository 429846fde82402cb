"""The report of a check of a claim: what it says, whether it holds here, and the evidence."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.claims.reasons import result_in_language
from experiments.report import parts
from experiments.report.document import Cell, Findings, section, table
from experiments.report.parts import figure, plain
from experiments.report.titles import Records, Result
from experiments.report.words import WORDS, Words
from experiments.store import Run

TONES = {"holds": "good", "holds with a limit": "good", "does not hold here": "bad"}


def of_claim(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """A verdict with its evidence."""
    result = result_in_language(words.lang, result)
    verdict = str(result.get("verdict"))
    evidence = [item for item in result.get("evidence") or [] if isinstance(item, Mapping)]
    figures = [item for item in evidence if {"name", "value", "provenance"} <= item.keys()]
    others = [item for item in evidence if item not in figures]
    header = [words("figure"), words("value"), words("label"), words("formula")]
    rows = [
        [str(item["name"]), _with_unit(item), Cell("", None, str(item["provenance"])),
         plain(item.get("formula") or item.get("how"))]
        for item in figures
    ]  # fmt: skip
    shown = [table(header, rows, (1,))] if rows else []
    rest = [block for item in others for block in parts.anything(item, words)]
    none = () if evidence else (parts.pairs({}, words),)
    sections = (
        section(words("evidence"), None, *shown, *rest, *none),
        parts.notes(words("trap"), [str(result["trap"])] if result.get("trap") else []),
    )
    statement, name = str(result.get("statement") or ""), result.get("id", run.spec.get("claim"))
    return Findings(
        f"{words('claim')} {name}: {statement}", words("q_claim", statement=statement),
        words(f"v_{verdict}") if f"v_{verdict}" in WORDS else verdict, sections,
        more=tuple(filter(None, [str(result.get("reason") or "")])),
        mark=(words(f"v_{verdict}"), TONES.get(verdict, "none")) if f"v_{verdict}" in WORDS else None,
    )  # fmt: skip


def _with_unit(item: Mapping[str, object]) -> Cell:
    found = figure(item["value"], 4)
    return Cell(f"{found.text} {item.get('unit') or ''}".strip(), found.value)
