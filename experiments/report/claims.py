"""The report of a check of all claims: what holds here, row by row, where each figure is from, and the traps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.report import parts
from experiments.report.document import LABELS, Cell, Findings, section, table
from experiments.report.titles import Records, Result, title_of
from experiments.report.words import MISSING, WORDS, Words
from experiments.store import Run


def of_claims(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """Counts of verdicts first, then every row."""
    from experiments.claims.catalogue import claim_texts  # a check of a claim writes its reasons in a report's words

    rows = [row for row in result["rows"] if isinstance(row, Mapping)]
    counts = [f"{count} {_verdict(verdict, words)}" for verdict, count in result["counts"].items()]
    texts = claim_texts(words.lang)
    header = ["", words("claim"), words("col_verdict"), words("label"), words("reason"), words("claims_when")]
    told = [
        [str(row["id"]), texts[row["id"]].statement if row["id"] in texts else str(row.get("statement")),
         _verdict(row["verdict"], words), _labels(row), str(row.get("reason") or ""), _when(row)]
        for row in rows
    ]  # fmt: skip
    traps = [f"{row['id']}: {texts[row['id']].trap}" for row in rows if row["id"] in texts and texts[row["id"]].trap]
    instead = [f"{row['id']}: {row['simulate']['command']}" for row in rows if row.get("simulate")]
    sections = (
        section(words("claims_rows"), None, table(header, told)),
        parts.notes(words("claims_instead"), instead, "simulated"),
        parts.notes(words("trap"), traps),
    )
    return Findings(
        title_of(run, words), words("q_claims"), words.listed(counts) or MISSING, sections, caveats=(words("c_here"),)
    )


def _verdict(verdict: Any, words: Words) -> str:
    return words(f"v_{verdict}") if f"v_{verdict}" in WORDS else str(verdict)


def _labels(row: Mapping[str, Any]) -> Cell:
    """The label of the row's figures; several are told as text."""
    found = [name for name in LABELS if any(item.get("provenance") == name for item in row.get("evidence") or ())]
    return Cell("", None, found[0]) if len(found) == 1 else Cell(", ".join(found))


def _when(row: Mapping[str, Any]) -> str:
    ran = str(row.get("ran_at") or "")[:16].replace("T", " ")
    return f"{ran} UTC, {row.get('run_id')}" if ran and row.get("run_id") else ""
