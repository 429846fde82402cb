"""The built-in workloads as data: how many requests, how long, when they come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload before it is drawn. Lengths are inclusive ranges in tokens; `rate_rps` is None for a burst.

    `prompt_tokens` is exact for raw prompts; for `chat` it sizes the user's message and the template comes on top.
    """

    name: str
    description: str
    num_requests: int
    rate_rps: float | None
    arrivals: str
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    chat: bool = False


WORKLOADS: dict[str, WorkloadSpec] = {
    spec.name: spec
    for spec in (
        WorkloadSpec(
            name="mixed",
            description="Answers of very different length: most are short, a few are long. Requests come at random.",
            num_requests=24,
            rate_rps=6.0,
            arrivals="poisson",
            prompt_tokens=(16, 192),
            output_tokens=(8, 256),
        ),
        WorkloadSpec(
            name="equal",
            description="Every prompt and every answer has 32 tokens, and all requests come at once.",
            num_requests=16,
            rate_rps=None,
            arrivals="burst",
            prompt_tokens=(32, 32),
            output_tokens=(32, 32),
        ),
        WorkloadSpec(
            name="chat",
            description="Short questions in the model's chat format, answers of 16 to 96 tokens, at a calm pace.",
            num_requests=16,
            rate_rps=3.0,
            arrivals="poisson",
            prompt_tokens=(12, 64),
            output_tokens=(16, 96),
            chat=True,
        ),
    )
}
