"""Causes outside of the engine's steps: the way to the server, and the program around the engine."""

from __future__ import annotations

from experiments.advisor.causes.base import Answer, hurts, line, lines, missed_lines, percent, told
from experiments.advisor.causes.computing import HOST, LAUNCH
from experiments.advisor.evidence import Evidence
from experiments.advisor.finding import ARCHITECTURE, CODE, Bound, Change, Finding, Missing

# Of a request's time, from here what lies outside of the steps is worth looking at.
LARGE = 0.2
# Of the time to first token, from here the way to the server is.
LONG_WAY = 0.3


class NetworkFrameworkBound:
    """Time outside of the steps."""

    name = "network-framework-bound"
    means = "a large part of a request is outside of the engine's steps"
    explains: tuple[str, ...] = ()
    latencies = ("ttft", "itl", "tpot", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        whole = evidence.e2e_s
        outside = self._outside(evidence)
        way = self._way(evidence)
        if (outside is None or not whole) and way is None:
            return Missing(self.name, ("outside_s", "overhead_s", "unexplained_s", "round_trip_s"))
        share = min(1.0, outside / whole) if outside is not None and whole else None
        if evidence.missed(*self.latencies) is False:
            return None
        large, long_way = share is not None and share >= LARGE, way is not None and way >= LONG_WAY
        if not (large or long_way):
            return None
        found = lines(
            line(f"{percent(share or 0)} of a request's time is outside of the engine's steps", "outside_s")
            if large
            else None,
            told(evidence, "outside_s", "{} is outside of the server"),
            told(evidence, "overhead_s", "{} of host work"),
            told(evidence, "unexplained_s", "{} that no timer explains"),
            told(evidence, "round_trip_s", "a round trip takes {}"),
        )  # fmt: skip
        score = hurts(evidence, self.latencies) * min(1.0, 0.4 + max(share or 0.0, way or 0.0))
        return Finding(self.name, score, found + missed_lines(evidence, self.latencies), self._changes(), self._bounds)

    def _outside(self, evidence: Evidence) -> float | None:
        """Seconds that are in no step. Host work in the steps has a cause of its own."""
        in_steps = (evidence.host_share or 0) >= HOST or (evidence.launch_share or 0) >= LAUNCH
        parts = (evidence.outside_s, evidence.unexplained_s, None if in_steps else evidence.overhead_s)
        known = [part for part in parts if part is not None]
        return sum(known) if known else None

    def _way(self, evidence: Evidence) -> float | None:
        if evidence.round_trip_s is None or not evidence.ttft_s:
            return None
        return min(1.0, evidence.round_trip_s / evidence.ttft_s)

    def _changes(self) -> tuple[Change, ...]:
        return (
            Change(
                "network_path", None, None,
                why="keep connections open, serve from nearby, and look at what every proxy between adds",
                refuted_by="the time outside of the server stays as it is",
                effort=ARCHITECTURE,
            ),
            Change(
                "overlap", None, "on",
                why="text and scheduling are done while the device computes",
                refuted_by="host work between tokens stays as it is",
                effort=CODE,
            ),
        )  # fmt: skip

    _bounds = (
        Bound("C29", "No setting of the engine shortens what is not in its steps: measure both sides first."),
        Bound("C33", "Trace a request through every hop before anything is tuned."),
    )
