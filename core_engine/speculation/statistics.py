"""What drafts brought: acceptance by position and tokens per pass of the target, after trimming by stops.

alpha = accepted / positions tested, a position being tested when all drafts before it were accepted; acceptance_rate =
accepted / drafted; tokens_per_pass = tokens emitted / target passes, a pass being one decode row of one step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """One decode row of one step: drafts computed, accepted, and tokens emitted, without what a stop cut off."""

    request_id: str
    drafted: int
    accepted: int
    emitted: int

    @property
    def tested(self) -> int:
        """Drafts whose fate was decided: the accepted ones, and the first rejected one if there is one."""
        if self.emitted == self.accepted:  # a stop cut the accepted run
            return self.accepted
        return min(self.accepted + 1, self.drafted)


@dataclass
class AcceptanceCounts:
    """Sums over the outcomes of a run; ratios are None while there is nothing to divide by."""

    tested: list[int] = field(default_factory=list)  # by position
    accepted: list[int] = field(default_factory=list)
    drafted: int = 0
    emitted: int = 0
    passes: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count one row."""
        while len(self.tested) < outcome.drafted:
            self.tested.append(0)
            self.accepted.append(0)
        for position in range(outcome.tested):
            self.tested[position] += 1
            self.accepted[position] += position < outcome.accepted
        self.drafted += outcome.drafted
        self.emitted += outcome.emitted
        self.passes += 1

    @property
    def alpha(self) -> float | None:
        """Pooled over positions."""
        return _ratio(sum(self.accepted), sum(self.tested))

    def to_json(self) -> dict[str, Any]:
        """The counters' JSON."""
        return {
            "alpha": self.alpha,
            "alpha_by_position": [_ratio(*pair) for pair in zip(self.accepted, self.tested, strict=True)],
            "acceptance_rate": _ratio(sum(self.accepted), self.drafted),
            "tokens_per_pass": _ratio(self.emitted, self.passes),
            "drafted_tokens": self.drafted,
            "accepted_tokens": sum(self.accepted),
            "target_passes": self.passes,
        }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
