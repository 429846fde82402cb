"""What one step computes (StepPlan) and what came out of it (StepResult). Both are immutable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One request's part of a step: tokens [start, start + count) are written to its blocks and attend to all before.

    `sample` is true when the last of them is the newest token, so that its logits give the next one. `targets`, for a
    scoring request, holds the token that follows each position (-1: not asked for).
    """

    request_id: str
    start: int
    tokens: tuple[int, ...]
    blocks: tuple[int, ...]
    sample: bool
    is_prefill: bool
    temperature: float = 0.0
    seed: int = 0
    targets: tuple[int, ...] = ()

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
    """The rows of one step and the blocks newly reserved for it, by request, so that a failed step can be undone."""

    index: int
    rows: tuple[Row, ...]
    reserved: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(row.count for row in self.rows)


@dataclass(frozen=True)
class StepResult:
    """Sampled token per row (None where nothing was sampled) and log-probabilities per scoring row."""

    tokens: tuple[int | None, ...]
    scores: tuple[tuple[float, ...], ...]
