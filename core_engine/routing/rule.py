"""Escalation: when a small model's answer goes on, and when the large one is asked instead. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

PROBE_TOKENS = 16


@dataclass(frozen=True)
class Escalation:
    """The small model's first PROBE_TOKENS tokens (all of a shorter answer) decide, by the mean of the natural
    log-probabilities that it gave the tokens it chose: from `threshold` on it goes on, below it the large one answers.

    A probe bounds what an escalation wastes and how long a first token is held back; a mean over a whole answer would
    know more and hold everything back. Log-probabilities are the small model's own opinion of itself: a confident
    mistake passes.
    """

    threshold: float

    def mean(self, logprobs: Sequence[float]) -> float | None:
        """Of the probe; None without tokens."""
        return fmean(logprobs[:PROBE_TOKENS]) if logprobs else None

    def keeps(self, logprobs: Sequence[float]) -> bool:
        """Whether the small model's answer stays."""
        mean = self.mean(logprobs)
        return mean is not None and mean >= self.threshold
