"""The claims with what became of each on this machine: verdict, figures, when and under what. Knows no page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any

from experiments.claims import Claim, get_claim, load_claims, run_claim
from experiments.claims.budget import running
from experiments.claims.run_all import CANT_RUN, FAILED, NOT_IN_QUICK, TAUGHT
from experiments.claims.runner import CHECKED_BY_FORMULA
from experiments.report.words import number
from experiments.store import Run, Store
from experiments.store.identity import code_hash, environment

OPEN, UNCHECKED = "open", "not checked yet"
# In the order in which a reader is told how many there are.
VERDICTS = ("holds", "holds with a limit", "does not hold here", "undecided", NOT_IN_QUICK, CANT_RUN, FAILED, UNCHECKED,
            TAUGHT, OPEN)  # fmt: skip
MOST_RUNS = 1000
LOOKED_AT = 20  # runs over all claims, for the newest with a result


@dataclass(frozen=True)
class Outcome:
    """What is known of a claim here.

    provenances: of its figures. ran_at: ISO 8601 in UTC, None where it was computed just now. same_code and
    same_machine: whether the run is of this version of the code, and of this machine as it is now; None without a run.
    """

    verdict: str
    reason: str = ""
    evidence: Sequence[Mapping[str, Any]] = ()
    not_checked: str | None = None
    run_id: str | None = None
    ran_at: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] | None = None
    same_code: bool | None = None
    same_machine: bool | None = None
    simulate: str | None = None
    lab: str | None = None
    reason_zh: str | None = None

    def reason_in(self, lang: str) -> str | None:
        """The reason as the check itself words it in that language; None where it has only English."""
        return self.reason if lang == "en" else self.reason_zh

    @property
    def provenances(self) -> list[str]:
        """Where its figures are from, each once, in their order."""
        return list(dict.fromkeys(str(row["provenance"]) for row in self.evidence if row.get("provenance")))


def outcomes(store: Store) -> dict[str, Outcome]:
    """Of every claim: its newest finished run, with its own sizes if there is one; else what the newest run over all
    says of it; else the formula; else that it was not checked."""
    by_claim: dict[str, list[Run]] = {}
    for run in store.list_runs(kind="claim", state="done", limit=MOST_RUNS):
        if run.result is not None:
            by_claim.setdefault(str(run.spec["claim"]), []).append(run)
    told = _newest_rows(store)
    return {claim.id: _outcome(claim, by_claim.get(claim.id, ()), told.get(claim.id)) for claim in load_claims()}


def _newest_rows(store: Store) -> dict[str, Mapping[str, Any]]:
    """Of the newest run over all that has come to something: one that has just begun hides nothing."""
    found = next((run.result for run in store.list_runs(kind="claims", limit=LOOKED_AT) if run.result), {})
    return {row["id"]: row for row in found.get("rows", ())}


def _outcome(claim: Claim, runs: Sequence[Run], told: Mapping[str, Any] | None) -> Outcome:
    if claim.state != "checkable":
        found = run_claim(claim.id)
        return Outcome(TAUGHT if claim.lab else OPEN, found["reason"], lab=claim.lab)
    if runs:
        return _of_run(next((run for run in runs if not run.spec.get("options")), runs[0]))
    if claim.id in CHECKED_BY_FORMULA:
        found = _by_formula(claim.id)
        return Outcome(found["verdict"], found["reason"], found["evidence"], found.get("not_checked"))
    if told is not None and told["verdict"] in (NOT_IN_QUICK, CANT_RUN, FAILED):
        simulate = (told.get("simulate") or {}).get("command")
        return Outcome(told["verdict"], told["reason"], ran_at=told["ran_at"], simulate=simulate)
    return Outcome(UNCHECKED)


@cache
def _by_formula(claim_id: str) -> dict[str, Any]:
    """A row that arithmetic alone settles: it comes out the same as long as this process runs."""
    return run_claim(claim_id)


def _of_run(run: Run) -> Outcome:
    result = run.result or {}
    return Outcome(
        result["verdict"],
        result["reason"],
        result.get("evidence") or (),
        result.get("not_checked"),
        run.id,
        run.updated_at,
        run.spec.get("options") or {},
        run.environment,
        run.code == code_hash(),
        run.environment == environment(run.spec),
        reason_zh=result.get("reason_zh"),
    )


def counts(found: Iterable[Outcome]) -> list[tuple[str, int]]:
    """(verdict, how many rows), in the order of VERDICTS, without those of none."""
    many = Counter(outcome.verdict for outcome in found)
    return [(verdict, many[verdict]) for verdict in VERDICTS if many[verdict]]


def chapter_of(claim: Claim) -> str:
    """The chapter of a claim's section: "2.1" is of "2"."""
    return claim.section.split(".")[0]


def chapters(claims: Iterable[Claim]) -> list[tuple[str, list[Claim]]]:
    """The claims by their chapter."""
    return [(chapter, list(group)) for chapter, group in groupby(claims, chapter_of)]


def expected_s(claim_id: str) -> float | None:
    """About how long the check takes; None for a row of knowledge."""
    row = running().get(claim_id)
    return None if row is None else row.seconds


def figure_tables(evidence: Sequence[Mapping[str, Any]]) -> list[tuple[str | None, list[dict[str, str]]]]:
    """The evidence as tables of rows with the same fields from the same source, in their order: (provenance, rows of
    texts). What a whole table has none of is left out, and so is the provenance, which stands above the table."""
    tables: list[tuple[str | None, list[dict[str, str]]]] = []

    def alike(row: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
        return tuple(row), row.get("provenance")

    for (_, label), group in groupby(evidence, alike):
        rows = list(group)
        names = [name for name in rows[0] if name != "provenance" and any(row[name] is not None for row in rows)]
        tables.append((label, [{name: _text(row[name]) for name in names} for row in rows]))
    return tables


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value, 4)
    if isinstance(value, list | tuple) and not any(isinstance(one, list | tuple | Mapping) for one in value):
        return ", ".join(map(_text, value))
    return json.dumps(value, ensure_ascii=False)


@cache
def here() -> dict[str, Any]:
    """This machine, as runs keep it."""
    return environment()


def claim_command(claim_id: str, options: Mapping[str, Any]) -> str:
    """The command line of a run of a claim."""
    words = [f"trilemma claims run {get_claim(claim_id).id}"]
    for name, option in (("repeats", "--repeats"), ("num_requests", "--requests")):
        if name in options:
            words.append(f"{option} {options[name]}")
    words += [f"--set {name}={value}" for name, value in (options.get("settings") or {}).items()]
    return " ".join(words)
