"""The traffic of a plan: lengths, and arrivals at any rate from one draw: rates differ by their stretch alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_engine.simulation.job import Job
from experiments.planner.spec import PlanSpec
from ledger.errors import InputError

NS = 1e9
DRAWN = 2000  # requests of a workload whose lengths are used, over and over


@dataclass(frozen=True)
class PlanTraffic:
    """(prompt, answer) tokens of requests, in an order in which any piece is like the whole."""

    lengths: tuple[tuple[int, int], ...]
    seed: int
    about: str

    @property
    def mean_input(self) -> float:
        """Tokens."""
        return sum(prompt for prompt, _ in self.lengths) / len(self.lengths)

    @property
    def mean_output(self) -> float:
        """Tokens."""
        return sum(answer for _, answer in self.lengths) / len(self.lengths)

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return max(prompt + answer for prompt, answer in self.lengths)

    @property
    def longest_prompt(self) -> int:
        """Tokens."""
        return max(prompt for prompt, _ in self.lengths)

    @property
    def mean_sequence(self) -> int:
        """Tokens of a sequence that decodes, on average: long answers are there for longer."""
        weighed = sum(answer * (prompt + answer / 2) for prompt, answer in self.lengths)
        return max(1, round(weighed / sum(answer for _, answer in self.lengths)))

    def percentile_input(self, share: float) -> float:
        """Tokens of a prompt at a percentile."""
        return float(np.percentile([prompt for prompt, _ in self.lengths], share))

    def jobs(self, rate_rps: float, first: int = 0, start_ns: int = 0) -> Iterator[Job]:
        """Poisson arrivals at a rate without end, numbered from `first`; answers end where they are long enough."""
        rng = np.random.default_rng([self.seed, 1])
        at_s = 0.0
        index = first
        while True:
            for gap in rng.exponential(size=256):
                at_s += gap / rate_rps
                prompt, answer = self.lengths[index % len(self.lengths)]
                yield Job(index, start_ns + int(at_s * NS), prompt, answer, answer)
                index += 1

    def to_json(self, rate_rps: float) -> dict[str, Any]:
        """For records and tables."""
        return {
            "about": self.about,
            "requests_per_s": rate_rps,
            "input_tokens_mean": self.mean_input,
            "output_tokens_mean": self.mean_output,
            "longest_tokens": self.longest,
            "output_tokens_per_s": rate_rps * self.mean_output,
        }


def traffic_of(spec: PlanSpec) -> PlanTraffic:
    """The lengths that a spec asks about. InputError for a workload that can't be drawn."""
    if spec.workload is None:
        assert spec.input_tokens is not None and spec.output_tokens is not None
        about = f"{spec.input_tokens:,} tokens in, {spec.output_tokens:,} out"
        return PlanTraffic(((spec.input_tokens, spec.output_tokens),), spec.seed, about)
    lengths = _drawn(spec)
    order = np.random.default_rng([spec.seed, 0]).permutation(len(lengths))
    return PlanTraffic(tuple(lengths[place] for place in order), spec.seed, f"lengths of {spec.workload}")


def _drawn(spec: PlanSpec) -> list[tuple[int, int]]:
    from core_engine.simulation.model import NumberedTokenizer
    from experiments.rig import draw_workload
    from experiments.spec import BenchSpec
    from experiments.targets.simulator import LETTERS

    asked = {
        "workload": spec.workload, "num_requests": DRAWN, "seed": spec.seed, "length_scale": spec.length_scale,
        "max_prompt_tokens": spec.max_prompt_tokens, "max_tokens_cap": spec.max_tokens_cap,
    }  # fmt: skip
    workload = draw_workload(BenchSpec.from_dict(asked), NumberedTokenizer(LETTERS))
    found = [
        (request.prompt_tokens, request.output_tokens)
        for request in workload.requests
        if request.prompt_tokens and request.output_tokens
    ]
    if not found:
        raise InputError("workload", spec.workload, "one whose requests have prompts and answers of known lengths")
    return found
