"""The built-in workloads as data: how many requests, how long, when they come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload before it is drawn. Lengths are inclusive ranges in tokens; `rate_rps` is None for a burst.

    `prompt_tokens` is exact for raw prompts; for `chat` it sizes the user's message and the template comes on top, with
    `shared_tokens` the request's own question.
    `output_tokens` is how long answers really are, `max_tokens` the limit every request states; clients state one limit
    for all, and nobody knows beforehand how long an answer will be. `tail_share` of the answers is drawn from
    `tail_tokens` instead. `shared_tokens` sizes a text that all prompts begin with. `gives_back`: "text" or "code" of
    about `prompt_tokens` that the prompt asks for once more, which is what a look-up finds.
    """

    name: str
    description: str
    num_requests: int
    rate_rps: float | None
    arrivals: str
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    max_tokens: int
    chat: bool = False
    tail_share: float = 0.0
    tail_tokens: tuple[int, int] = (1, 1)
    shared_tokens: int = 0
    gives_back: str = ""


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
            max_tokens=256,
        ),
        WorkloadSpec(
            name="equal",
            description="Every prompt and every answer has 32 tokens, and all requests come at once.",
            num_requests=16,
            rate_rps=None,
            arrivals="burst",
            prompt_tokens=(32, 32),
            output_tokens=(32, 32),
            max_tokens=32,
        ),
        WorkloadSpec(
            name="chat",
            description="Short questions in the model's chat format, answers of 16 to 96 tokens, at a calm pace.",
            num_requests=16,
            rate_rps=3.0,
            arrivals="poisson",
            prompt_tokens=(12, 64),
            output_tokens=(16, 96),
            max_tokens=96,
            chat=True,
        ),
        WorkloadSpec(
            name="long-tail",
            description="One answer in eight is long, the others very short; every request states a limit of "
            "512 tokens. All come at once.",
            num_requests=24,
            rate_rps=None,
            arrivals="burst",
            prompt_tokens=(16, 64),
            output_tokens=(4, 24),
            max_tokens=512,
            tail_share=1 / 8,
            tail_tokens=(128, 256),
        ),
        WorkloadSpec(
            name="shared-prefix",
            description="Short questions under one system prompt of about 400 tokens, at a pace that lets later ones "
            "reuse it.",
            num_requests=12,
            rate_rps=0.5,
            arrivals="poisson",
            prompt_tokens=(12, 40),
            output_tokens=(8, 24),
            max_tokens=64,
            shared_tokens=400,
        ),
        WorkloadSpec(
            name="code",
            description="A function of a program to be given back with one name changed, one request after another.",
            num_requests=8,
            rate_rps=0.2,
            arrivals="poisson",
            prompt_tokens=(64, 128),
            output_tokens=(48, 64),
            max_tokens=64,
            gives_back="code",
        ),
        WorkloadSpec(
            name="copy",
            description="A text to be repeated word for word, one request after another.",
            num_requests=8,
            rate_rps=0.2,
            arrivals="poisson",
            prompt_tokens=(72, 144),
            output_tokens=(48, 64),
            max_tokens=64,
            gives_back="text",
        ),
    )
}
