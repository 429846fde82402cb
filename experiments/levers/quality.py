"""What a lever does to answers, judged by the baseline: how likely it finds the answers that each arm gave.

One measure for every lever, whatever it does: an answer to a shortened prompt, another question's answer from a cache,
a small model's answer and a rounded model's are all read as an answer to the whole prompt. The value of a request is
exp of the mean log-probability a token; the baseline's own greedy answers set the level, and a lever that changes
nothing reaches it exactly. It punishes another wording that is as good, so a fall is an upper bound of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.quality.agreement import mean_logprobs, same_token_ids
from experiments.statistics import MIN_NOISE_FLOOR, CurveSamples, CurveVerdict, judge
from experiments.targets.engine import answered_texts
from experiments.workloads import Workload

Record = Mapping[str, Any]


def likelihoods(
    engine: Any, workload: Workload, record: Record, on_each: Callable[[int], None] = lambda _: None
) -> dict[int, float]:
    """Request number -> probability a token that `engine` gives an arm's answer; of the first 16 that it answered."""
    numbers, texts = answered_texts(workload, dict(record))
    values = mean_logprobs(engine, texts, on_each)
    return {number: math.exp(value) for number, value in zip(numbers, values, strict=True) if value is not None}


def judge_quality(baseline: Mapping[int, float], arms: Sequence[Mapping[int, float] | None]) -> list[CurveVerdict]:
    """A verdict for each arm over the requests that both answered, Holm-corrected over the arms; of one that was not
    read (None) an inconclusive one."""
    curves = []
    for arm in arms:
        both = sorted(baseline.keys() & (arm or {}).keys())
        pair = [baseline[number] for number in both], [(arm or {})[number] for number in both]
        curves.append(CurveSamples("quality", "mean", "higher", *pair, "measured", MIN_NOISE_FLOOR))
    return judge(curves)


def same_share(baseline: Record, arm: Record) -> float | None:
    """Share of requests with the very same answer."""
    return same_token_ids(dict(baseline), dict(arm))
