"""What was not planned, and why: counts by reason, with an example of each."""

from __future__ import annotations

from typing import Any

from experiments.planner.candidates import Candidate

# Reason -> what it means, in the order in which a candidate passes them.
REASONS = {
    "split": "engines refuse the split",
    "memory": "does not fit by the ledger",
    "ttft": "one prompt alone misses the objective on TTFT",
    "tpot": "one sequence alone misses the objective on a token's time",
    "devices": "more cards than allowed, even at best",
    "same": "the same as a smaller limit, since memory holds no more",
    "estimate": "not simulated: others look better by the estimate",
    "halved": "simulated over a short horizon, others were better",
    "objective": "simulated: misses an objective at every rate",
    "too_many": "simulated: more cards than allowed",
}


class Pruned:
    """Counts what is dropped."""

    # Cards of the smallest candidate that met the objectives with more of them than allowed; None without one.
    fewest_devices: int | None = None

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[Candidate, str]]] = {name: [] for name in REASONS}

    def add(self, reason: str, candidate: Candidate, text: str = "") -> None:
        """Drop one."""
        self._found[reason].append((candidate, text))

    def add_too_many(self, candidate: Candidate, devices: int) -> None:
        """Drop one that takes more cards than allowed."""
        self.add("too_many", candidate, f"{devices} cards")
        self.fewest_devices = devices if self.fewest_devices is None else min(devices, self.fewest_devices)

    def count(self, reason: str) -> int:
        """How many were dropped for a reason."""
        return len(self._found[reason])

    def to_json(self) -> list[dict[str, Any]]:
        """[{"reason","what","count","example","why"}] of the reasons that there were."""
        return [
            {
                "reason": name,
                "what": REASONS[name],
                "count": len(found),
                "example": found[0][0].to_json(),
                "why": found[0][1],
            }
            for name, found in self._found.items()
            if found
        ]
