"""What one step computes (StepPlan) and what came out of it (StepResult). Both are immutable."""

from __future__ import annotations

from dataclasses import dataclass

from core_engine.sampling_params import SamplingParams


@dataclass(frozen=True)
class RowSampling:
    """How the next token of a row is chosen. `history` is every token of the sequence, only where a penalty needs it.

    `banned` are ids that may not be chosen now: end tokens before min_tokens.
    """

    params: SamplingParams
    seed: int
    sample_index: int = 0
    num_prompt_tokens: int = 0
    history: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()


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
    a scoring request, holds the token that follows each position (-1: not asked for).
    """

    request_id: str
    start: int
    tokens: tuple[int, ...]
    blocks: tuple[int, ...]
    is_prefill: bool
    sampling: RowSampling | None = None
    targets: tuple[int, ...] = ()

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
        """Context length after the step."""
        return self.start + len(self.tokens)


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

    logprobs, per row too, is empty when no row asked for them.
    """

    tokens: tuple[int | None, ...]
    scores: tuple[tuple[float, ...], ...]
    logprobs: tuple[TokenLogprobs | None, ...] = ()
