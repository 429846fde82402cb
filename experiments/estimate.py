"""How long an experiment will take, before it starts: the warm-up's step times put to the workload's schedule.

Owns the pace of a warm-up and the replay of a schedule at that pace. An estimate, and labelled so wherever it is shown:
it knows neither static batching's idle seats nor preemption nor drafts. Once runs are measured, they tell better.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from experiments.workloads import Workload
from experiments.workloads.schedule import Due, Schedule

NS = 1_000_000_000


@dataclass(frozen=True)
class Pace:
    """Step times that a warm-up saw. decode_s: of a step of `rows` rows; more rows are taken to cost in proportion."""

    prefill_s_per_token: float
    decode_s: float
    rows: int

    def step_s(self, prefill_tokens: int, decode_rows: int) -> float:
        """Seconds of one step."""
        decode_s = self.decode_s * max(1.0, decode_rows / self.rows) if decode_rows else 0.0
        return self.prefill_s_per_token * prefill_tokens + decode_s


def pace_of(steps: Iterable[Mapping[str, Any]]) -> Pace | None:
    """From an engine's step log; None where it has no step of decode alone."""
    decoding: list[tuple[float, Mapping[str, Any]]] = []
    prefilling: list[tuple[float, Mapping[str, Any]]] = []
    for step in steps:
        duration_s = (step["commit_end_ns"] - step["plan_start_ns"]) / NS
        (prefilling if step["prefill_tokens"] else decoding).append((duration_s, step))
    if not decoding:
        return None
    decode_s = median(duration_s for duration_s, _ in decoding)
    rows = max(step["num_seqs"] for _, step in decoding)
    tokens = sum(step["prefill_tokens"] for _, step in prefilling)
    spent_s = sum(duration_s - (decode_s if step["decode_tokens"] else 0.0) for duration_s, step in prefilling)
    return Pace(max(0.0, spent_s) / tokens if tokens else 0.0, decode_s, max(1, rows))


def expected_run_s(workload: Workload, pace: Pace, max_num_seqs: int) -> float:
    """Seconds that a run of `workload` takes at `pace` with `max_num_seqs` seats, by its own schedule and lengths."""
    schedule, waiting, now_ns = Schedule(workload), deque[Due](), 0
    left: dict[int, int] = {}  # request -> output tokens to come
    while schedule.unfinished():
        waiting.extend(schedule.take_due(now_ns))
        if not left and not waiting:
            now_ns = schedule.next_due_ns() or now_ns
            continue
        decode_rows, prefill_tokens = len(left), 0
        while waiting and len(left) < max_num_seqs:
            due = waiting.popleft()
            prefill_tokens += len(due.request.prompt_token_ids)
            left[due.number] = due.request.output_tokens
        now_ns += max(1, round(NS * pace.step_s(prefill_tokens, decode_rows)))
        left = {number: tokens - 1 for number, tokens in left.items()}
        for number in [number for number, tokens in left.items() if tokens <= 0]:
            del left[number]
            schedule.ended(number, now_ns, (0,) * workload.requests[number].output_tokens)
    return now_ns / NS


@dataclass(frozen=True)
class Estimate:
    """What is to come. run_s: of one run of each arm. repeats: of which each makes so many, at most `most_repeats`."""

    run_s: tuple[float, ...]
    repeats: int
    most_repeats: int

    def to_json(self) -> dict[str, Any]:
        """With the totals; "estimated" as its label."""
        a_repeat_s = sum(self.run_s)
        return {
            "run_s": [round(value, 2) for value in self.run_s],
            "repeats": self.repeats,
            "most_repeats": self.most_repeats,
            "total_s": round(self.repeats * a_repeat_s, 1),
            "most_s": round(self.most_repeats * a_repeat_s, 1),
            "provenance": "estimated",
        }
