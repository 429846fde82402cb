"""Answers prompts with one engine and sums up its decode passes: tokens, time, and what came of the drafts.

Owns which steps count. A pass is a step whose rows are all decode rows and as many as are answered at once, so that
neither prefill nor the thinning end of a batch is counted. Knows no forms and no statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from core_engine.request import SamplingParams
from core_engine.speculation.statistics import AcceptanceCounts, Outcome
from experiments.loadgen import no_garbage_collection


@dataclass
class Passes:
    """What was measured with one engine. Seconds of a pass are without drafting, which is kept apart.

    plain_s, drafted_s: of passes without and with a full draft in every row. draft_s: of the drafting of a pass with
    any draft, reading hidden states included. k: drafts of a full one.
    """

    k: int
    tokens: int = 0
    seconds: float = 0.0
    drafting_s: float = 0.0
    plain_s: list[float] = field(default_factory=list)
    drafted_s: list[float] = field(default_factory=list)
    draft_s: list[float] = field(default_factory=list)
    passes: int = 0
    passes_drafted: int = 0
    counts: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    answers: list[list[int]] = field(default_factory=list)
    held: dict[str, Any] = field(default_factory=dict)

    def add(self, step: Mapping[str, Any]) -> None:
        """Count a step of the trace that is a pass."""
        drafts = {name: (drafted, accepted, emitted) for name, drafted, accepted, emitted in step.get("drafts", ())}
        outcomes = [Outcome(row[0], *drafts.get(row[0], (0, 0, 1))) for row in step["rows"]]
        for outcome in outcomes:
            self.counts.add(outcome)
        whole_s = (step["commit_end_ns"] - step["plan_start_ns"]) / 1e9
        drafting_s = (step.get("draft_ns", 0) + step.get("observe_ns", 0)) / 1e9
        self.tokens += sum(outcome.emitted for outcome in outcomes)
        self.seconds += whole_s
        self.drafting_s += drafting_s
        self.passes += 1
        if drafts:
            self.passes_drafted += 1
            self.draft_s.append(drafting_s)
        else:
            self.plain_s.append(whole_s - drafting_s)
        if drafts and all(outcome.drafted == self.k for outcome in outcomes):
            self.drafted_s.append(whole_s - drafting_s)

    def to_json(self) -> dict[str, Any]:
        """What is kept of a block: sums, and medians of the passes of each kind."""
        return {
            "k": self.k, "tokens": self.tokens, "seconds": self.seconds, "drafting_s": self.drafting_s,
            "passes": self.passes, "passes_drafted": self.passes_drafted,
            "plain_s": _median(self.plain_s), "drafted_s": _median(self.drafted_s), "draft_s": _median(self.draft_s),
            "tested": self.counts.tested, "accepted": self.counts.accepted, "drafted": self.counts.drafted,
            "emitted": self.counts.emitted, "rows": self.counts.passes, "answers": self.answers, "held": self.held,
        }  # fmt: skip


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def drive(
    engine: Any,
    prompts: Sequence[Sequence[int]],
    batch: int,
    max_tokens: int,
    check: Callable[[], None] = lambda: None,
) -> Passes:
    """Answer the prompts greedily, `batch` at a time, each as far as its end or max_tokens.

    `check` is called between steps and may raise. Requests are called p0, p1, ... in the order of the prompts.
    """
    found = Passes(engine.config.num_draft_tokens)
    params = SamplingParams(max_tokens=max_tokens)
    with no_garbage_collection():
        for first in range(0, len(prompts), batch):
            group = range(first, min(first + batch, len(prompts)))
            for place in group:
                engine.add(list(prompts[place]), params, request_id=name_of(place))
            engine.expect_more_arrivals(False)
            while engine.has_unfinished():
                check()
                engine.step()
            found.answers += [list(engine.completion(name_of(place)).token_ids) for place in group]
    for step in engine.trace.steps:
        if step["decode_tokens"] and not step["prefill_tokens"] and len(step["rows"]) == min(batch, len(prompts)):
            found.add(step)
    proposer = engine.speculation.proposer
    if proposer is not None:
        found.held = {"weights_bytes": proposer.weights_bytes(), "cache_bytes": proposer.cache_bytes()}
    return found


def name_of(place: int) -> str:
    """The request id of a prompt."""
    return f"p{place}"
