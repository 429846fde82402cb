"""What a run says of its steadiness: gaps between tokens with and without a prompt beside them, and their course."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from experiments.metrics.events import NS_PER_S, Record, emissions, successes
from experiments.metrics.intervals import Intervals
from experiments.statistics import percentile

BIN_S = 0.5
FIGURES = ("itl_p50_s", "itl_p99_s", "itl_max_s", "beside_p99_s", "alone_p99_s", "first_gap_p95_s", "ttft_p95_s",
           "e2e_p95_s", "output_tokens_per_s", "completed", "refused", "failed")  # fmt: skip


def figures_of(record: Record, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """One run's FIGURES, s.

    itl_*: gaps between emissions, over all successful requests. beside_p99_s and alone_p99_s: of the gaps in which some
    prompt was being computed, on whichever side, and of the others. first_gap_p95_s: of the gap behind the first token,
    in which a hand-over lies. refused: requests that were not taken in; failed: those that ended without an answer
    otherwise.
    """
    gaps = _gaps(record)
    prompts = Intervals((s["execute_start_ns"], s["execute_end_ns"]) for s in record["steps"] if s["prefill_tokens"])
    beside = [length for start, length, _ in gaps if prompts.within(start, start + length) > 0]
    alone = [length for start, length, _ in gaps if prompts.within(start, start + length) == 0]
    lengths = [length for _, length, _ in gaps]
    refused = sum(request["admit_ns"] is None and request["error"] is not None for request in record["requests"])
    return {
        "itl_p50_s": _seconds(percentile(lengths, 50)),
        "itl_p99_s": _seconds(percentile(lengths, 99)),
        "itl_max_s": _seconds(max(lengths, default=None)),
        "beside_p99_s": _seconds(percentile(beside, 99)),
        "alone_p99_s": _seconds(percentile(alone, 99)),
        "first_gap_p95_s": _seconds(percentile([length for _, length, first in gaps if first], 95)),
        "ttft_p95_s": metrics["ttft_s"]["p95"],
        "e2e_p95_s": metrics["e2e_s"]["p95"],
        "output_tokens_per_s": metrics["output_tokens_per_s"],
        "completed": metrics["completed"],
        "refused": refused,
        "failed": metrics["failed"] - refused,
    }


def timeline(record: Record) -> list[dict[str, Any]]:
    """By half seconds from the first arrival on: {"t_s", "itl_p50_s", "itl_max_s", "gaps", "prompt_tokens"}.

    Of the gaps that ended in it, None where none did, and the prompt tokens of the steps that began in it.
    """
    start = min((request["arrival_ns"] for request in record["requests"]), default=0)
    ends = [(at + length, length) for at, length, _ in _gaps(record)]
    steps = [(step["execute_start_ns"], step["prefill_tokens"]) for step in record["steps"]]
    last = max([at for at, _ in (*ends, *steps)], default=start)
    width = int(BIN_S * NS_PER_S)
    edges = list(range(start, last + 1, width))
    gaps: list[list[int]] = [[] for _ in edges]
    prompts = [0] * len(edges)
    for at, length in ends:
        gaps[bisect_right(edges, at) - 1].append(length)
    for at, tokens in steps:
        prompts[max(0, bisect_right(edges, at) - 1)] += tokens
    return [
        {
            "t_s": round((edge - start) / NS_PER_S, 3),
            "itl_p50_s": _seconds(percentile(found, 50)),
            "itl_max_s": _seconds(max(found, default=None)),
            "gaps": len(found),
            "prompt_tokens": tokens,
        }
        for edge, found, tokens in zip(edges, gaps, prompts, strict=True)
    ]


def _gaps(record: Record) -> list[tuple[int, int, bool]]:
    """(begin, length, whether it follows the first token) in ns of each gap of the successful requests."""
    found = []
    for request in successes(record):
        moments = [at for at, _ in emissions(request)]
        found += [(before, after - before, place == 0) for place, (before, after) in enumerate(pairwise(moments))]
    return found


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / NS_PER_S
