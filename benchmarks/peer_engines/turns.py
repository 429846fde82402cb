"""One engine's turn at one piece of work, and whole rounds of turns: A B C D, A B C D."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

import numpy as np

from experiments.workloads.text import TokenizerLike, exact_prompt
from ledger.errors import CannotRunError
from peer_engines.contestants import Contestant

WARM_PROMPT_TOKENS, WARM_NEW_TOKENS = 16, 4
CUT_NEW_TOKENS = 8


class TooLongError(CannotRunError):
    """A turn that would take longer than it may; the engine is as it was."""


@dataclass(frozen=True)
class Work:
    """`sequences` prompts of `prompt_tokens`, all there at once, each with `new_tokens` to make."""

    name: str
    sequences: int
    prompt_tokens: int
    new_tokens: int

    @property
    def is_prefill(self) -> bool:
        """Whether only the time to the first token is asked for."""
        return self.new_tokens == 1


def works(only: Sequence[str], quick: bool) -> list[Work]:
    """What is measured: decode at 1, 8 and 32 concurrent requests of 128 in and 128 out, prefill of one prompt."""
    length = 32 if quick else 128
    decode = [Work(f"decode {count}", count, length, length) for count in ((1, 8) if quick else (1, 8, 32))]
    prefill = [Work(f"prefill {size}", 1, size, 1) for size in ((128,) if quick else (128, 512, 2048))]
    return [*(decode if "decode" in only else []), *(prefill if "prefill" in only else [])]


def prompts_of(work: Work, tokenizer: TokenizerLike, round_number: int) -> list[list[int]]:
    """The same prompts for every engine, others in every round."""
    rng = np.random.default_rng([round_number, work.sequences, work.prompt_tokens])
    return [list(exact_prompt(tokenizer, work.prompt_tokens, rng)) for _ in range(work.sequences)]


def turn(contestant: Contestant, work: Work, prompts: list[list[int]], longest_s: float) -> dict[str, Any]:
    """Figures of one turn, after a short one that does not count and that brings threads and caches back.

    A turn that would take longer than `longest_s` by what the short one took is cut to a few new tokens ("cut"), and
    its throughput is worked out from the time to the first token and the gaps. TooLongError when even that is longer.
    """
    for _ in range(2):  # the very first may have compiled or allocated something: it is believed only when it is quick
        prefill_s, whole_s = _predicted_s(contestant, work, prompts)
        if whole_s <= longest_s:
            break
    if prefill_s > longest_s:
        raise TooLongError(f"{contestant.name}: a turn of {work.name} would take about {prefill_s:,.0f} s")
    cut = whole_s > longest_s and work.new_tokens > CUT_NEW_TOKENS
    answer = contestant.answer(prompts, CUT_NEW_TOKENS if cut else work.new_tokens)
    return figures(answer["times_s"], work, cut) | {"ids": answer["ids"], "cut": cut}


def _predicted_s(contestant: Contestant, work: Work, prompts: list[list[int]]) -> tuple[float, float]:
    """Seconds of a turn's prefill and of all of it, by what a short turn took."""
    short = contestant.answer([prompt[:WARM_PROMPT_TOKENS] for prompt in prompts], WARM_NEW_TOKENS)["times_s"]
    first_s, last_s = max(times[0] for times in short), max(times[-1] for times in short)
    prefill_s = first_s * work.prompt_tokens / WARM_PROMPT_TOKENS
    return prefill_s, prefill_s + (last_s - first_s) / (WARM_NEW_TOKENS - 1) * (work.new_tokens - 1)


def figures(times_s: list[list[float]], work: Work, cut: bool = False) -> dict[str, float]:
    """ttft_s, ttft_p95_s, itl_s, itl_p95_s and output_tokens_per_s of one turn; for a prefill prefill_tokens_per_s.

    times_s: when each token of each sequence was known, in seconds since all of them were asked for. TTFT and ITL are
    medians: over the sequences, and over all gaps between two tokens of a sequence.
    """
    first = [times[0] for times in times_s]
    found = {"ttft_s": median(first), "ttft_p95_s": _p95(first)}
    if work.is_prefill:
        return found | {"prefill_tokens_per_s": work.prompt_tokens * work.sequences / max(first)}
    gaps = [later - earlier for times in times_s for earlier, later in pairwise(times)]
    found |= {"itl_s": median(gaps), "itl_p95_s": _p95(gaps)}
    whole_s = max(times[-1] for times in times_s)
    if cut:
        whole_s = max(first) + (work.new_tokens - 1) * found["itl_s"]
    return found | {"output_tokens_per_s": work.sequences * work.new_tokens / whole_s}


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def play(
    contestants: list[Contestant],
    work: Work,
    prompts: list[list[int]],
    longest_s: float,
    refused: Callable[[Contestant, str], None],
) -> list[dict[str, Any]]:
    """A turn of each, in the same order; an engine that fails is told to `refused` and left out."""
    found = []
    for contestant in contestants:
        try:
            found.append({"engine": contestant.name, "work": work.name, **turn(contestant, work, prompts, longest_s)})
        except CannotRunError as error:
            refused(contestant, str(error))
    return found
