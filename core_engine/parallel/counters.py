"""What parallel steps handed over and waited for: sums of a run, beside the ledger's formula. Knows no processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core_engine.parallel.messages import Stepped
from ledger.model_spec import ModelSpec
from ledger.parallel import RankPart, Traffic, bubble_share, part_traffic, ring_factor, traffic_how

S_PER_NS = 1e-9


@dataclass
class RankTimes:
    """Sums of one rank, ns. idle: of a step's span, what it neither computed nor communicated."""

    all_reduce_ns: int = 0
    send_ns: int = 0
    receive_ns: int = 0
    compute_ns: int = 0
    idle_ns: int = 0


class ParallelCounters:
    """Of all steps since it was made or cleared."""

    def __init__(self, spec: ModelSpec, parts: Sequence[RankPart], element_bytes: int) -> None:
        self._spec, self._parts, self._element_bytes = spec, tuple(parts), element_bytes
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.steps = self.tokens = self.logit_rows = self.micro_batches = self.span_ns = 0
        self.times = [RankTimes() for _ in self._parts]
        self.measured = [Traffic() for _ in self._parts]
        self.formula = [Traffic() for _ in self._parts]

    def add(self, stepped: Sequence[Stepped], tokens: int, logit_rows: int) -> dict[str, Any]:
        """Count one step; returns what its own record says of it."""
        span_ns = max(one.end_ns for one in stepped) - min(one.begin_ns for one in stepped)
        parts = stepped[0].parts
        self.steps, self.tokens, self.logit_rows = self.steps + 1, self.tokens + tokens, self.logit_rows + logit_rows
        self.micro_batches, self.span_ns = self.micro_batches + parts, self.span_ns + span_ns
        most_ns = idle_ns = 0
        for rank, one in enumerate(stepped):
            talked_ns = one.all_reduce_ns + one.send_ns
            compute_ns = one.end_ns - one.begin_ns - talked_ns - one.receive_ns
            idle = span_ns - compute_ns - talked_ns
            times = self.times[rank]
            times.all_reduce_ns += one.all_reduce_ns
            times.send_ns += one.send_ns
            times.receive_ns += one.receive_ns
            times.compute_ns += compute_ns
            times.idle_ns += idle
            most_ns, idle_ns = max(most_ns, talked_ns), max(idle_ns, idle)
            self.measured[rank] += one.traffic
            self.formula[rank] += part_traffic(
                self._spec, self._parts[rank], tokens, logit_rows, self._element_bytes, parts
            )
        return {
            "handed_bytes": sum(one.traffic.total_bytes for one in stepped),
            "communication_ns": most_ns,
            "bubble_ns": idle_ns,
            "micro_batches": parts,
        }

    def to_json(self) -> dict[str, Any]:
        """Bytes and times of the steps; None where there were no steps."""
        tp, pp = self._parts[0].tp, self._parts[0].pp
        measured, formula = sum(self.measured, Traffic()), sum(self.formula, Traffic())
        mean_parts = self.micro_batches / self.steps if self.steps else None
        return {
            "steps": self.steps,
            "tokens": self.tokens,
            "logit_rows": self.logit_rows,
            "all_reduces_per_step": _share(sum(t.all_reduces for t in self.measured) / tp, self.steps),
            "handed": measured.to_json(),
            "handed_by_formula": formula.to_json(),
            "equals_formula": self.measured == self.formula,
            "handed_bytes_per_step": _share(measured.total_bytes, self.steps),
            "handed_bytes_per_token": _share(measured.total_bytes, self.tokens),
            "formula": traffic_how(self._spec, tp, pp, self._element_bytes),
            "ring_factor": ring_factor(tp),
            "ring_bytes": round(ring_factor(tp) * measured.all_reduce_bytes),
            "micro_batches_per_step": mean_parts,
            "bubble_share_if_even": None if mean_parts is None else bubble_share(pp, max(1, round(mean_parts))),
            "span_s": self.span_ns * S_PER_NS,
            "communication_share": _share(max(t.all_reduce_ns + t.send_ns for t in self.times), self.span_ns),
            "bubble_share": _share(max(t.idle_ns for t in self.times), self.span_ns),
            "ranks": [
                {
                    "all_reduce_s": times.all_reduce_ns * S_PER_NS,
                    "send_s": times.send_ns * S_PER_NS,
                    "receive_s": times.receive_ns * S_PER_NS,
                    "compute_s": times.compute_ns * S_PER_NS,
                    "idle_s": times.idle_ns * S_PER_NS,
                    "handed": handed.to_json(),
                }
                for times, handed in zip(self.times, self.measured, strict=True)
            ],
        }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
