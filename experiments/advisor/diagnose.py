"""From evidence to a diagnosis: all causes that match, what explains most first; else healthy, or what to measure.

Owns the order. What each cause looks at is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.advisor.causes import CAUSES, Cause
from experiments.advisor.causes.base import seconds
from experiments.advisor.evidence import Evidence, field_of, how_to_know
from experiments.advisor.finding import Change, Finding, Missing
from experiments.metrics.objectives import Objective

FOUND, HEALTHY, NOT_ENOUGH = "found", "healthy", "not enough evidence"
FAILING = 0.01  # share of requests, from which a run is not healthy whatever the others took
# Without objectives these must be known to be absent before anything is called healthy.
CORE = ("queue-bound", "kv-memory-bound")


@dataclass(frozen=True)
class Diagnosis:
    """findings: what matches, first what explains most. missing: causes that the evidence does not tell.

    verdict is FOUND, HEALTHY or NOT_ENOUGH; why says in words what the verdict rests on.
    """

    verdict: str
    why: str
    findings: tuple[Finding, ...]
    missing: tuple[Missing, ...]
    evidence: Evidence

    @property
    def top(self) -> Finding | None:
        """The finding that explains most."""
        return self.findings[0] if self.findings else None

    @property
    def unjudged(self) -> tuple[Objective, ...]:
        """The objectives that no known number judges."""
        return tuple(one for one in self.evidence.objectives if self.evidence.value_of(one) is None)

    def changes(self) -> list[tuple[Finding, Change]]:
        """Every change that is proposed, those of the first finding first; each (variable, to) once."""
        found: dict[tuple[str, Any], tuple[Finding, Change]] = {}
        for finding in self.findings:
            for change in finding.changes:
                found.setdefault((change.variable, change.to_value), (finding, change))
        return list(found.values())

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as JSON; `evidence` lists every number that is known with where it is from."""
        evidence = self.evidence
        return {
            "verdict": self.verdict,
            "why": self.why,
            "findings": [finding.to_json() for finding in self.findings],
            "missing": [one.to_json() for one in self.missing],
            "evidence": {name: {"value": value, "from": evidence.source_of(name)} for name, value in evidence.known()},
            "objectives": [
                {"name": one.name, "limit": one.limit, "value": evidence.value_of(one)} for one in evidence.objectives
            ],
            "unjudged": [{"name": one.name, "measure": how_to_judge(one)} for one in self.unjudged],
            "engine": evidence.engine,
            "provenance": evidence.provenance,
        }


def how_to_judge(objective: Objective) -> str:
    """The number that an objective is judged by and what measures it, on one line."""
    return how_to_know(field_of(objective))


def diagnose(evidence: Evidence, causes: Sequence[Cause] = CAUSES) -> Diagnosis:
    """What the evidence says. Never raises for evidence that is little or odd."""
    answers = [(cause, cause.match(evidence)) for cause in causes]
    found = {cause.name: answer for cause, answer in answers if isinstance(answer, Finding)}
    missing = tuple(_still_missing(answer, evidence) for _, answer in answers if isinstance(answer, Missing))
    findings = _ranked(found, causes)
    verdict, why = _verdict(evidence, findings, missing)
    return Diagnosis(verdict, why, findings, missing, evidence)


def _still_missing(missing: Missing, evidence: Evidence) -> Missing:
    """Without the numbers that are there: a cause names all that it takes."""
    needs = tuple(name for name in missing.needs if getattr(evidence, name) is None)
    return replace(missing, needs=needs) if needs else missing


def _ranked(found: dict[str, Finding], causes: Sequence[Cause]) -> tuple[Finding, ...]:
    """By score; a cause that explains another one weighs at least as much, and stands before it.

    Causes of causes come first, so weights are handed up from the leaves: each is asked as often as there are causes.
    """
    explains = {
        cause.name: [name for name in cause.explains if name in found] for cause in causes if cause.name in found
    }
    scores = {name: finding.score for name, finding in found.items()}
    for _ in found:
        for name, followers in explains.items():
            scores[name] = max([scores[name], *(scores[one] for one in followers)])
    parents = {one: name for name, followers in explains.items() for one in followers}

    def depth(name: str) -> int:
        """How many causes it follows from, one behind another."""
        levels, seen = 0, {name}
        while (name := parents.get(name, "")) and name not in seen:
            levels, seen = levels + 1, {*seen, name}
        return levels

    order = sorted(found, key=lambda name: (-scores[name], depth(name), -found[name].score))
    return tuple(replace(found[name], score=min(1.0, scores[name]), follows_from=parents.get(name)) for name in order)


def _verdict(evidence: Evidence, findings: Sequence[Finding], missing: Sequence[Missing]) -> tuple[str, str]:
    if findings:
        first = findings[0]
        return FOUND, f"{first.cause} explains most of it" if len(findings) > 1 else f"{first.cause} is what limits it"
    missed = evidence.missed_objectives()
    if missed:
        names = ", ".join(f"{one.name} ({seconds(evidence.value_of(one))})" for one in missed)
        return NOT_ENOUGH, f"{names} missed, and nothing that is known says why"
    failing, allowed = evidence.error_rate or 0.0, evidence.limit("error_rate")
    if failing >= FAILING or (allowed is not None and failing > allowed):
        failed, every = evidence.failed or 0, (evidence.failed or 0) + (evidence.completed or 0)
        return NOT_ENOUGH, f"{failed:.0f} of {every:.0f} requests failed: their errors come before what the others took"
    judged = [one for one in evidence.objectives if evidence.value_of(one) is not None]
    latencies = [one for one in judged if one.latency is not None]
    unjudged = ", ".join(one.name for one in evidence.objectives if one not in judged)
    if latencies:
        met = f"every objective that can be judged is met: {', '.join(one.name for one in judged)}"
        return HEALTHY, f"{met}; not judged: {unjudged}" if unjudged else met
    if unjudged:
        return NOT_ENOUGH, f"nothing that is known judges {unjudged}"
    unknown = {one.cause for one in missing}
    if not any(True for _ in evidence.known()) or unknown.intersection(CORE):
        return NOT_ENOUGH, "no objective can be judged, and too little is known to say that nothing is wrong"
    if evidence.waiting is not None and evidence.waiting >= 1:
        return NOT_ENOUGH, "requests wait, and nothing that is known says why"
    latency = "no objective was given" if not judged else "no objective on a latency was given"
    return HEALTHY, f"nobody waits, memory holds, and no cause that can be told matches ({latency})"
