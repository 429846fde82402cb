"""Draws a workload: the same name, seed and options give the same requests on every machine."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from experiments.workloads.arrivals import burst_arrivals_ns, poisson_arrivals_ns
from experiments.workloads.builtin import WORKLOADS, WorkloadSpec
from experiments.workloads.lengths import log_uniform_lengths, long_tailed_lengths
from experiments.workloads.text import (
    TokenizerLike,
    chat_prompt,
    exact_prompt,
    give_back_prompt,
    shared_prompt,
    system_prompt,
)
from ledger.errors import InputError

__all__ = ["TokenizerLike", "Workload", "WorkloadRequest", "build"]


@dataclass(frozen=True)
class WorkloadRequest:
    """One request: prompt ids, stated limit, real answer length, and when it is due (ns from the start of the run).

    An engine is told `max_tokens` and must be ready for it; the answer ends after `output_tokens`.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    output_tokens: int
    arrival_ns: int


@dataclass(frozen=True)
class Workload:
    """A drawn workload, requests in order of arrival. `ignore_eos` makes `output_tokens` the exact answer length."""

    name: str
    seed: int
    requests: tuple[WorkloadRequest, ...]
    rate_rps: float | None
    arrivals: str
    ignore_eos: bool = True

    def describe(self) -> dict[str, Any]:
        """The run record's `workload` entry: what was asked for, without the texts."""
        return {
            "name": self.name,
            "seed": self.seed,
            "num_requests": len(self.requests),
            "rate_rps": self.rate_rps,
            "arrivals": self.arrivals,
            "ignore_eos": self.ignore_eos,
            "prompt_tokens": sum(len(request.prompt_token_ids) for request in self.requests),
            "output_tokens": sum(request.output_tokens for request in self.requests),
            "max_tokens": max((request.max_tokens for request in self.requests), default=0),
        }


def build(
    name: str,
    *,
    seed: int,
    tokenizer: TokenizerLike,
    num_requests: int | None = None,
    rate_rps: float | None = None,
    max_tokens_cap: int | None = None,
) -> Workload:
    """Draws workload `name`. None keeps the workload's own value; `max_tokens_cap` shortens long answers and
    lowers the stated limit (tokens).

    Lengths, texts and arrivals come from separate streams of one seed, so a changed rate keeps the requests as they
    were. Raises InputError for an unknown name, a number below its minimum, or a rate for a burst workload.
    """
    spec = WORKLOADS.get(name)
    if spec is None:
        raise InputError("workload", name, ", ".join(WORKLOADS))
    count = spec.num_requests if num_requests is None else num_requests
    _check(spec, seed, count, rate_rps, max_tokens_cap)
    rate = spec.rate_rps if rate_rps is None else float(rate_rps)
    # The name takes part, so that two workloads with one seed do not share their draws.
    streams = np.random.SeedSequence([seed, zlib.crc32(name.encode())]).spawn(5)
    prompt_rng, output_rng, text_rng, arrival_rng, shared_rng = (np.random.default_rng(stream) for stream in streams)
    prompt_lengths = log_uniform_lengths(*spec.prompt_tokens, count, prompt_rng)
    arrivals = burst_arrivals_ns(count) if rate is None else poisson_arrivals_ns(rate, count, arrival_rng)
    if spec.shared_tokens:
        prompt = partial(shared_prompt, system=system_prompt(tokenizer, spec.shared_tokens, shared_rng))
    elif spec.gives_back:
        prompt = partial(give_back_prompt, what=spec.gives_back)
    else:
        prompt = partial(chat_prompt if spec.chat else exact_prompt)
    requests = tuple(
        WorkloadRequest(
            prompt(tokenizer, length, text_rng),
            min(spec.max_tokens, max_tokens_cap or spec.max_tokens),
            min(output, max_tokens_cap or output),
            arrival,
        )
        for length, output, arrival in zip(prompt_lengths, _outputs(spec, count, output_rng), arrivals, strict=True)
    )
    return Workload(name, seed, requests, rate, spec.arrivals)


def _outputs(spec: WorkloadSpec, count: int, rng: np.random.Generator) -> list[int]:
    """Lengths of the answers, in tokens."""
    if spec.tail_share:
        return long_tailed_lengths(spec.output_tokens, spec.tail_tokens, spec.tail_share, count, rng)
    return log_uniform_lengths(*spec.output_tokens, count, rng)


def _check(spec: WorkloadSpec, seed: int, count: int, rate_rps: float | None, cap: int | None) -> None:
    if seed < 0:
        raise InputError("seed", seed, "a whole number from 0")
    if count < 1:
        raise InputError("num_requests", count, "a whole number from 1")
    if cap is not None and cap < 1:
        raise InputError("max_tokens_cap", cap, "a whole number from 1")
    if rate_rps is None:
        return
    if spec.arrivals == "burst":
        raise InputError("rate_rps", rate_rps, f"no rate: all requests of the workload {spec.name} come at once")
    if not rate_rps > 0 or rate_rps == float("inf"):
        raise InputError("rate_rps", rate_rps, "a finite number above 0, in requests/s")
