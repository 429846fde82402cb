"""What one step computes (StepPlan) and what came out of it (StepResult). Both are immutable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from core_engine.sampling_params import SamplingParams

# The id of a token that the step before is still computing: a row's only one, of a plan made ahead.
PENDING = -1

# Receives the distributions that a scoring request's targets are read from: (place of the first target in the
# sequence, float64 natural log-probabilities [targets, vocab_size]), in order; again from the start after a preemption.
Watch = Callable[[int, Any], None]


@dataclass(frozen=True)
class RowSampling:
    """How the next token of a row is chosen. `history` is every token of the sequence, only where a penalty needs it.

    `banned` are ids that may not be chosen now, nor for the next bans_left - 1 tokens: end tokens before min_tokens.
    """

    params: SamplingParams
    seed: int
    sample_index: int = 0
    num_prompt_tokens: int = 0
    history: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()
    bans_left: int = 0

    def after(self, tokens: Sequence[int]) -> RowSampling:
        """How the token is chosen that follows `tokens`, when those come first."""
        if not tokens or not (self.params.needs_history or self.banned):
            return self
        left = max(0, self.bans_left - len(tokens))
        history = (*self.history, *tokens) if self.params.needs_history else ()
        return replace(self, history=history, banned=self.banned if left else (), bans_left=left)

    @cached_property
    def is_adjusted(self) -> bool:
        """Whether bias, penalties or bans change the model's own logits."""
        return bool(self.params.needs_history or self.params.logit_bias or self.banned)

    @cached_property
    def is_plain_greedy(self) -> bool:
        """Whether the choice is the argmax of the model's own logits."""
        return self.params.is_greedy and not self.is_adjusted

    @cached_property
    def takes_best(self) -> bool:
        """Whether that choice is all that is wanted."""
        return self.is_plain_greedy and self.params.logprobs is None


GREEDY = RowSampling(SamplingParams(), seed=0)


@dataclass(frozen=True)
class TokenLogprobs:
    """Natural log-probability of the chosen token, and (id, log-probability) of the likeliest ones, likeliest first."""

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Row:
    """One request's part of a step: tokens [start, start + count) are written to its blocks and attend to all before.

    `sampling` is there when the last of them is the newest token, so that its logits give the next one. `targets`, for
    a scoring request, holds the token that follows each position (-1: not asked for); `watch` sees their distributions.
    `slot` is the row's own among the running requests: where formats that quantize full blocks keep its open one. With
    them, a row that begins inside a block ends within it or at a block's end.

    The last num_drafts tokens are proposals, computed to be verified: then `sampling` is of the token at the first of
    their places, and all of these are looked at. draft_probs [num_drafts, vocab_size]: what they were drawn from.
    """

    request_id: str
    start: int
    tokens: tuple[int, ...]
    blocks: tuple[int, ...]
    is_prefill: bool
    sampling: RowSampling | None = None
    targets: tuple[int, ...] = ()
    watch: Watch | None = None
    slot: int = 0
    num_drafts: int = 0
    draft_probs: Any = field(default=None, compare=False)

    @property
    def sample(self) -> bool:
        """Whether the row's last logits give a token."""
        return self.sampling is not None

    @property
    def count(self) -> int:
        """Tokens computed for this row in this step."""
        return len(self.tokens)

    @property
    def end(self) -> int:
        """Context length after the step, drafts included."""
        return self.start + len(self.tokens)

    @property
    def next_position(self) -> int:
        """Where the token stands that `sampling` chooses: after all that is certain."""
        return self.start + len(self.tokens) - self.num_drafts

    @property
    def drafts(self) -> tuple[int, ...]:
        """The proposed tokens."""
        return self.tokens[len(self.tokens) - self.num_drafts :]


@dataclass(frozen=True)
class StepPlan:
    """The rows of one step, and what planning it changed, so that a step that was not executed can be undone.

    reserved: blocks newly taken, by request; admitted and preempted: ids of requests, in order.
    """

    index: int
    rows: tuple[Row, ...]
    reserved: tuple[tuple[str, tuple[int, ...]], ...]
    admitted: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(row.count for row in self.rows)


@dataclass(frozen=True)
class StepResult:
    """Per row: the sampled token (None where nothing was sampled), log-probabilities of a scoring row's targets.

    accepted, per row: how many of its drafts come before that token; empty when no row had any. logprobs, per row too,
    one for each of those tokens, is empty when no row asked for them. model_s: time in the decoder, None where it can't
    be told apart, as on a device that computes while the host goes on. hidden, where a proposer needs it: hidden states
    after the final norm [tokens of the step, hidden_size]. parallel: what the ranks of a step handed over (see
    parallel/counters.py), None without ranks.
    """

    tokens: tuple[int | None, ...]
    scores: tuple[tuple[float, ...], ...]
    logprobs: tuple[tuple[TokenLogprobs, ...], ...] = ()
    model_s: float | None = None
    accepted: tuple[int, ...] = ()
    hidden: Any = field(default=None, compare=False)
    parallel: dict[str, Any] | None = field(default=None, compare=False)
