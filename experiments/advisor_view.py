"""What the page Advisor shows: stored runs to look at, typed evidence, predictions and outcomes as rows, the score.

Owns no rule: diagnosis, advice and score are of experiments/advisor. Figures stay numbers; the page writes them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.advisor.advice import TESTABLE, Advice, advise, base_of
from experiments.advisor.diagnose import Diagnosis, diagnose
from experiments.advisor.evidence import MOST_BYTES, TYPED, Evidence, evidence_of
from experiments.advisor.from_run import evidence_from_run, with_extras
from experiments.advisor.metrics_page import evidence_from_pages
from experiments.advisor.record import Outcome, outcomes
from experiments.store import Run, Store
from ledger.errors import CannotRunError, InputError

LISTED = 50
METRICS_FIELD, NUMBERS_FIELD = "/metrics", "numbers"


def runs_to_ask_about(store: Store, also: str | None = None) -> list[Run]:
    """Finished runs that a change can be tested against, newest first; `also` by its id, wherever it is."""
    found = [run for kind in TESTABLE for run in store.list_runs(LISTED, kind=kind, results=False, state="done")]
    found.sort(key=lambda run: run.ticket or 0, reverse=True)
    if also and also not in [run.id for run in found]:
        try:
            asked = store.get_run(also)
        except InputError:
            return found
        found += [asked] if asked.kind in TESTABLE and asked.state == "done" else []
    return found


def arm_names_of(run: Run) -> list[str]:
    """What tells the arms of a comparison apart; none of a run with one."""
    return [str(value) for value in run.spec["values"]] if run.kind == "compare" else []


def evidence_of_run(run_id: str, store: Store, arm: int, slo: str | None) -> Evidence:
    """Evidence of one arm; InputError and CannotRunError as the advisor has them."""
    return evidence_from_run(run_id, store, arm=arm, slo=slo or None)


def evidence_of_metrics(first: str, later: str, seconds: float, slo: str | None) -> Evidence:
    """Evidence of a pasted /metrics page, or of two of one server so many seconds apart (0: not known)."""
    _require_bounded(METRICS_FIELD, first)
    _require_bounded(METRICS_FIELD, later)
    return evidence_from_pages(first, later or None, seconds=seconds or None, slo=slo or None)


def evidence_of_numbers(text: str, slo: str | None) -> Evidence:
    """Evidence of numbers typed as JSON or TOML; InputError where the text is neither, or a number is wrong."""
    _require_bounded(NUMBERS_FIELD, text)
    accepted = "one JSON object, or TOML"
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(NUMBERS_FIELD, text.strip()[:60], f"{accepted} ({error})") from None
    return evidence_of(with_extras(found), TYPED, slo=slo or None)


def _require_bounded(field: str, text: str) -> None:
    """A page's box takes as much as a browser sends; a file of as much would be refused."""
    if len(text) > MOST_BYTES:
        raise InputError(field, f"{len(text):,} characters", f"at most {MOST_BYTES // 2**20} Mi characters")


@dataclass(frozen=True)
class Asked:
    """What the page is asked: the diagnosis, and the one change that comes next."""

    diagnosis: Diagnosis
    advice: Advice | None


def asked(evidence: Evidence, run: Run | None, arm: int, store: Store) -> Asked:
    """Diagnosis and advice; without a run of this machine there is no prediction."""
    diagnosis = diagnose(evidence)
    base = None if run is None else base_of(run, arm)
    return Asked(diagnosis, advise(diagnosis.findings, base, store))


def next_step(run: Run, store: Store) -> Diagnosis | None:
    """The diagnosis of a finished comparison's candidate, without any prediction; None where its record is gone."""
    try:
        return diagnose(evidence_from_run(run.id, store, arm=1))
    except (InputError, CannotRunError):
        return None


def prediction_rows(prediction: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """A row a curve of a stored prediction: name, median_pct, band80_pct, verdict, source, provenance, basis, exact."""
    keys = ("name", "median_pct", "band80_pct", "verdict", "source", "provenance", "basis", "exact")
    return [{key: curve[key] for key in keys} for curve in (prediction or {}).get("curves") or ()]


def outcome_rows(run: Run) -> list[Outcome]:
    """Predicted beside measured of a finished test."""
    return outcomes(run)


def score_rows(score: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The score as rows: part, group ("all", "curve", "source" or "rule"), direction, bands, half_width, error."""
    parts = [("all", "all", score["overall"]), ("timed", "all", score["timed"])]
    parts += [(name, "curve", part) for name, part in score["by_curve"].items()]
    parts += [(name, "source", part) for name, part in score["by_source"].items()]
    parts += [(name, "rule", {"bands": {"of": 0}, "half_width_points": None, **part})
              for name, part in score["baselines"].items()]  # fmt: skip
    return [
        {
            "part": name, "group": group, "direction": part["direction"], "bands": part["bands"],
            "half_width": part["half_width_points"], "error": part["error_points"],
        }
        for name, group, part in parts
        if part["direction"]["of"] or part["bands"]["of"]
    ]  # fmt: skip
