"""How fast a candidate's steps are beside the baseline's, taken in turns in one process.

Owns which steps are timed and the shape of the result. The steps themselves are experiments/step_probe.py's.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from core_engine.config import EngineConfig
from experiments.calibrate import summary
from experiments.quality.held import sequence_tokens
from experiments.statistics import ALPHA
from experiments.step_probe import ProbedStep, paired_seconds

REPEATS = 9
LONGEST_S = 12.0  # of one kind of step in one arm, but for three repeats
DECODE_BATCHES = (1, 8)

Pairs = dict[ProbedStep, tuple[list[float], list[float]]]


def timed_steps(tokens: int) -> tuple[ProbedStep, ...]:
    """A prefill of so many tokens, and decodes of 1 and 8 sequences of that length."""
    return (ProbedStep("prefill", 1, tokens), *(ProbedStep("decode", batch, tokens) for batch in DECODE_BATCHES))


def measure_speed(
    arms: Sequence[tuple[EngineConfig, Any]],
    check: Callable[[], None] = lambda: None,
    done: Callable[[float, float], None] = lambda share, seconds: None,
) -> tuple[dict[str, Any], Pairs]:
    """(JSON of the last arm's speed, seconds of both by step). arms: configuration and loaded model of the baseline and
    of the candidate; the baseline twice measures the noise. `check` is called between steps and may raise; `done` gets
    the share of the work (in tokens) that is behind and the seconds since it was told last."""
    steps = timed_steps(min(sequence_tokens(loaded.spec) for _, loaded in arms))
    told_s = time.perf_counter()
    runs = Counter[ProbedStep]()
    every = 2 * (REPEATS + 1)
    total = every * sum(_tokens(step) for step in steps)

    def ran(step: ProbedStep) -> None:
        nonlocal told_s
        runs[step] += 1
        share = sum(_tokens(one) * (every if one != step else number) for one, number in runs.items()) / total
        now_s = time.perf_counter()
        done(share, now_s - told_s)
        told_s = now_s

    found = paired_seconds(steps, arms, REPEATS, longest_s=LONGEST_S, check=check, ran=ran)
    done(1.0, time.perf_counter() - told_s)
    pairs = dict(zip(steps, found, strict=True))
    return _json([_paired_row(step, *seconds) for step, seconds in pairs.items()], arms[-1][1]), pairs


def baseline_speed(found: Sequence[Pairs], loaded: Any) -> dict[str, Any]:
    """JSON of the baseline's speed, over its seconds beside all candidates."""
    steps = dict.fromkeys(step for pairs in found for step in pairs)
    seconds = {step: [value for pairs in found if step in pairs for value in pairs[step][0]] for step in steps}
    return _json([_row(step, each) for step, each in seconds.items()], loaded)


def _json(rows: list[dict[str, Any]], loaded: Any) -> dict[str, Any]:
    import torch

    return {
        "steps": rows,
        "kernels": loaded.kernels.kernels,
        "threads": torch.get_num_threads(),
        "provenance": "measured",
    }


def _tokens(step: ProbedStep) -> int:
    """Computed in one step."""
    return step.seq_len if step.phase == "prefill" else step.batch


def _row(step: ProbedStep, seconds: list[float]) -> dict[str, Any]:
    return {
        "phase": step.phase,
        "batch": step.batch,
        "seq_len": step.seq_len,
        "seconds": summary(seconds),
        "tokens_per_s": _tokens(step) / median(seconds),
    }


def _paired_row(step: ProbedStep, before: list[float], after: list[float]) -> dict[str, Any]:
    """With `speedup`, baseline seconds / candidate seconds: the median of the pairs and its interval."""
    ratios = [b / a for b, a in zip(before, after, strict=True)]
    return {
        **_row(step, after),
        "baseline_seconds": summary(before),
        "speedup": median(ratios),
        "speedup_ci95": median_interval(ratios),
        "pairs": len(ratios),
    }


def median_interval(values: Sequence[float]) -> list[float] | None:
    """At least 95 % of the median, from ranks alone: one pair that the system held up can't widen it. None below six.

    The interval of the sign test: the k-th smallest and largest value, k as large as 2 P(Binomial(n, 1/2) < k) <= 5 %.
    """
    ordered, count = sorted(values), len(values)
    outside, rank = 0.0, 0
    while (outside := outside + math.comb(count, rank) / 2 ** (count - 1)) <= ALPHA:
        rank += 1
    return [ordered[rank - 1], ordered[-rank]] if rank else None
