"""The built-in workloads as data: how many requests, how long, when they come."""

from __future__ import annotations

from experiments.workloads.arrivals import Burst, Poisson
from experiments.workloads.lengths import Fixed, LogUniform, LongTailed
from experiments.workloads.spec import Prefixes, WorkloadSpec

WORKLOADS: dict[str, WorkloadSpec] = {
    spec.name: spec
    for spec in (
        WorkloadSpec(
            name="mixed",
            description="Answers of very different length: most are short, a few are long. Requests come at random.",
            num_requests=24,
            arrivals=Poisson(6.0),
            prompt_tokens=LogUniform(16, 192),
            output_tokens=LogUniform(8, 256),
            max_tokens=256,
        ),
        WorkloadSpec(
            name="equal",
            description="Every prompt and every answer has 32 tokens, and all requests come at once.",
            num_requests=16,
            arrivals=Burst(),
            prompt_tokens=Fixed(32),
            output_tokens=Fixed(32),
            max_tokens=32,
        ),
        WorkloadSpec(
            name="chat",
            description="Short questions in the model's chat format, answers of 16 to 96 tokens, at a calm pace.",
            num_requests=16,
            arrivals=Poisson(3.0),
            prompt_tokens=LogUniform(12, 64),
            output_tokens=LogUniform(16, 96),
            max_tokens=96,
            text="question",
            chat=True,
        ),
        WorkloadSpec(
            name="long-doc",
            description="A handbook of 768 to 1,536 tokens and a question about it, short answers, at a calm pace.",
            num_requests=8,
            arrivals=Poisson(0.25),
            prompt_tokens=LogUniform(768, 1536),
            output_tokens=LogUniform(16, 48),
            max_tokens=64,
            text="long-doc",
        ),
        WorkloadSpec(
            name="long-prompts",
            description="Short prompts with long answers, and one prompt in five of 384 to 512 tokens among them.",
            num_requests=20,
            arrivals=Poisson(1.5),
            prompt_tokens=LongTailed(body=(16, 48), tail=(384, 512), share=1 / 5),
            output_tokens=LogUniform(48, 80),
            max_tokens=96,
        ),
        WorkloadSpec(
            name="long-tail",
            description="One answer in eight is long, the others very short; every request states a limit of "
            "512 tokens. All come at once.",
            num_requests=24,
            arrivals=Burst(),
            prompt_tokens=LogUniform(16, 64),
            output_tokens=LongTailed(body=(4, 24), tail=(128, 256), share=1 / 8),
            max_tokens=512,
        ),
        WorkloadSpec(
            name="shared-prefix",
            description="Short questions under one system prompt of about 400 tokens, at a pace that lets later ones "
            "reuse it.",
            num_requests=12,
            arrivals=Poisson(0.5),
            prompt_tokens=LogUniform(12, 40),
            output_tokens=LogUniform(8, 24),
            max_tokens=64,
            text="question",
            prefixes=Prefixes(tokens=400),
        ),
        WorkloadSpec(
            name="code",
            description="A function of a program to be given back with one name changed, one request after another.",
            num_requests=8,
            arrivals=Poisson(0.2),
            prompt_tokens=LogUniform(64, 128),
            output_tokens=LogUniform(48, 64),
            max_tokens=64,
            text="rename",
        ),
        WorkloadSpec(
            name="copy",
            description="A text to be repeated word for word, one request after another.",
            num_requests=8,
            arrivals=Poisson(0.2),
            prompt_tokens=LogUniform(72, 144),
            output_tokens=LogUniform(48, 64),
            max_tokens=64,
            text="repeat",
        ),
        WorkloadSpec(
            name="zh",
            description="Chinese texts of 48 to 256 tokens to be summarised or rewritten, at a calm pace.",
            num_requests=12,
            arrivals=Poisson(1.0),
            prompt_tokens=LogUniform(48, 256),
            output_tokens=LogUniform(16, 96),
            max_tokens=128,
            text="zh",
        ),
        WorkloadSpec(
            name="repetitive",
            description="Questions that come again: word for word, in other words, or with one word changed that makes "
            "another question of it.",
            num_requests=48,
            arrivals=Poisson(2.0),
            prompt_tokens=Fixed(48),
            output_tokens=Fixed(48),
            text="questions",
            chat=True,
        ),
        WorkloadSpec(
            name="assistant",
            description="Questions under one system prompt of about 300 tokens; most come again, word for word or in "
            "other words. Every answer has 32 tokens.",
            num_requests=32,
            arrivals=Poisson(2.0),
            prompt_tokens=Fixed(48),
            output_tokens=Fixed(32),
            text="questions",
            chat=True,
            prefixes=Prefixes(tokens=300),
        ),
        WorkloadSpec(
            name="repetitive-zh",
            description="The same in Chinese.",
            num_requests=48,
            arrivals=Poisson(2.0),
            prompt_tokens=Fixed(48),
            output_tokens=Fixed(48),
            text="questions-zh",
            chat=True,
        ),
    )
}
