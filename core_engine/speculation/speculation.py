"""Speculation: the part of an engine that asks the proposer, bounds drafts, and counts what they cost and brought.

Knows requests and plans; no model, no scheduling beyond the room that the scheduler tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_engine.clock import Clock
from core_engine.outputs import Output
from core_engine.plan import StepPlan, StepResult
from core_engine.request import Request, State
from core_engine.rows import sampling_of
from core_engine.speculation.pace import Pace
from core_engine.speculation.proposer import NO_DRAFT, Ask, Draft, Proposer
from core_engine.speculation.statistics import AcceptanceCounts, Outcome

MEMORY = 0.8  # of a sequence's running acceptance, a step
HOPED = 0.7  # acceptance before anything was tested


@dataclass
class _Running:
    """Decayed counts of one sequence."""

    tested: float = 0.0
    accepted: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.tested = MEMORY * self.tested + outcome.tested
        self.accepted = MEMORY * self.accepted + outcome.accepted

    def alpha(self, prior: float) -> float:
        """The prior counts as one draft."""
        return (self.accepted + prior) / (self.tested + 1)


class Speculation:
    """proposer None: off, and nothing costs anything. adaptive: lengths and the switch-off follow what is measured."""

    def __init__(self, proposer: Proposer | None, most_drafts: int, clock: Clock, *, adaptive: bool) -> None:
        self.proposer = proposer
        self.most_drafts = most_drafts
        self.adaptive = adaptive
        self._clock = clock
        self._pace = Pace()
        self._running: dict[str, _Running] = {}
        self.clear()

    @property
    def needs_hidden(self) -> bool:
        """Whether steps have to bring the target's hidden states."""
        return self.proposer is not None and self.proposer.needs_hidden

    def clear(self) -> None:
        """Count anew; what is known of the pace and of running sequences stays."""
        self._counts = AcceptanceCounts()
        self._draft_ns = self._steps_ns = 0

    def draft(self, requests: Sequence[Request], room: Callable[[Request], int]) -> int:
        """Give drafts to the requests that have room for them, for the step that is planned next. Returns ns it took.

        room: most drafts that may follow a request's newest token.
        """
        if self.proposer is None:
            return 0
        began_ns = self._clock.now_ns()
        asks: list[Ask] = []
        asked: list[Request] = []
        rooms = [(request, room(request)) for request in requests]
        decoding = sum(request.state is State.RUNNING and request.num_pending == 1 for request in requests)
        drafts_now = not self.adaptive or (decoding > 0 and self._pace.drafts_now(decoding))
        for request, most in rooms:
            request.draft = NO_DRAFT
            k = min(most, self._length(request, decoding))
            if drafts_now and k > 0:
                asks.append(Ask(request.id, request.slot, request.tokens, k, sampling_of(request)))
                asked.append(request)
        drafts = self.proposer.propose(asks) if asks else []
        for request, ask, draft in zip(asked, asks, drafts, strict=True):
            request.draft = _bounded(draft, ask.k)
        return self._clock.now_ns() - began_ns

    def _length(self, request: Request, rows: int) -> int:
        if not self.adaptive or not rows:
            return self.most_drafts
        pooled = self._counts.alpha
        alpha = self._running.setdefault(request.id, _Running()).alpha(HOPED if pooled is None else pooled)
        return self._pace.best_length(rows, alpha, self.most_drafts)

    def observe(self, plan: StepPlan, result: StepResult) -> int:
        """Hand the step's hidden states to a proposer that reads them. Returns ns it took."""
        if self.proposer is None or not self.proposer.needs_hidden:
            return 0
        began_ns = self._clock.now_ns()
        self.proposer.observe(plan.rows, result.hidden)
        return self._clock.now_ns() - began_ns

    def committed(
        self, plan: StepPlan, result: StepResult, outputs: Sequence[Output], draft_ns: int, step_ns: int
    ) -> list[Outcome]:
        """Count a step: what its rows emitted, ns that drafting took of the whole step's. Returns its decode rows."""
        if self.proposer is None:
            return []
        emitted = {output.request_id: len(output.token_ids) for output in outputs}
        return self.count(plan, result.accepted, emitted, draft_ns, step_ns)

    def count(
        self, plan: StepPlan, all_accepted: Sequence[int], emitted: Mapping[str, int], draft_ns: int, step_ns: int
    ) -> list[Outcome]:
        """`committed` for who knows only how many tokens each request got."""
        accepted = all_accepted or (0,) * len(plan.rows)
        outcomes = [
            Outcome(row.request_id, row.num_drafts, min(count, emitted[row.request_id]), emitted[row.request_id])
            for row, count in zip(plan.rows, accepted, strict=True)
            if not row.is_prefill and row.request_id in emitted
        ]
        for outcome in outcomes:
            self._counts.add(outcome)
            if outcome.drafted and outcome.request_id in self._running:
                self._running[outcome.request_id].add(outcome)
        self._draft_ns += draft_ns
        self._steps_ns += step_ns
        if len(outcomes) == len(plan.rows):
            drafted = sum(outcome.drafted for outcome in outcomes)
            tokens = sum(outcome.emitted for outcome in outcomes)
            self._pace.add(len(outcomes), step_ns / 1e9, tokens, drafted)
        return outcomes

    def release(self, request_id: str, *, ended: bool) -> None:
        """A request has lost its slot, for good if it has ended."""
        if self.proposer is not None:
            self.proposer.release(request_id)
            if ended:
                self._running.pop(request_id, None)

    def counters(self) -> dict[str, Any]:
        """alpha, acceptance_rate, tokens_per_pass and their like; None each without speculation."""
        if self.proposer is None:
            return {"alpha": None, "acceptance_rate": None, "tokens_per_pass": None}
        return {
            **self._counts.to_json(),
            "draft_time_share": self._draft_ns / self._steps_ns if self._steps_ns else None,
            "pace": self._pace.to_json() if self.adaptive else [],
        }


def _bounded(draft: Draft, k: int) -> Draft:
    """The first k tokens, should a proposer give more."""
    return (
        draft if len(draft.tokens) <= k else Draft(draft.tokens[:k], None if draft.probs is None else draft.probs[:k])
    )
