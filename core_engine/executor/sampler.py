"""From the logits of a step to its StepResult: tokens, accepted drafts, scores and log-probabilities, row by row.

Knows rows and logits; no model, no KV cache, no requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from core_engine.executor.choices import Choice, choose
from core_engine.plan import Row, StepResult, TokenLogprobs, Watch
from core_engine.sampling import processed_probs
from core_engine.speculation.verify import verify

# Rows of a float64 softmax over the vocabulary at a time: 50 MB with its input at 49,152 ids, whatever the length of a
# scored text.
SCORE_ROWS = 64


def logit_places(rows: Sequence[Row]) -> tuple[list[int], list[int]]:
    """Flat token places of a step whose logits are needed, and per row where its own begin among them.

    A row's own are those of its targets in order, then the one that is sampled from and those of its drafts.
    """
    wanted: list[int] = []
    places: list[int] = []
    first = 0
    for row in rows:
        places.append(len(wanted))
        if row.targets:
            wanted.extend(first + offset for offset, target in enumerate(row.targets) if target >= 0)
        first += len(row.tokens)
        if row.sampling is not None:
            wanted.extend(range(first - 1 - row.num_drafts, first))
    return wanted, places


def sample_step(
    rows: Sequence[Row],
    logits: torch.Tensor,
    places: Sequence[int],
    best: NDArray[np.int32] | None = None,
    known: Mapping[int, int] | None = None,
) -> StepResult:
    """Tokens, scores and log-probabilities of all rows. logits [num_wanted, vocab_size] as `logit_places` orders them.

    best [num_wanted]: the lowest id of each largest logit, where whoever computed them knows. known: the token chosen
    at each place, where all have been chosen already. Every row is chosen alone, so that no result depends on the rest
    of the batch.
    """
    if best is not None and len(best) == len(rows) and all(map(_takes_best, rows)):
        return StepResult(tokens=tuple(best.tolist()), scores=((),) * len(rows))
    choices = {
        index: choices_of(row, place) for index, (row, place) in enumerate(zip(rows, places, strict=True)) if row.sample
    }
    if known is None:
        known = choose([choice for index, own in choices.items() for choice in _eager(rows[index], own)], logits, best)
    verified = {index: _verified(rows[index], own, known, logits) for index, own in choices.items()}
    none = (0, None)
    return StepResult(
        tokens=tuple(verified.get(index, none)[1] for index in range(len(rows))),
        scores=tuple(_score(row, logits, place) for row, place in zip(rows, places, strict=True)),
        logprobs=_all_logprobs(rows, logits, choices, verified),
        accepted=tuple(verified.get(index, none)[0] for index in range(len(rows)))
        if any(row.num_drafts for row in rows)
        else (),
    )


def _takes_best(row: Row) -> bool:
    """Whether the token of its largest logit is all that is wanted of a row, as in most steps of greedy decoding."""
    sampling = row.sampling
    return sampling is not None and not row.targets and sampling.takes_best


def nothing_sampled(rows: Sequence[Row]) -> StepResult:
    """The result of a step that needs no logits: parts of prompts only."""
    nothing: tuple[None, ...] = (None,) * len(rows)
    return StepResult(nothing, ((),) * len(rows))


def choices_of(row: Row, place: int) -> list[Choice]:
    """The row's next token and, at each of its drafts, the one after that; place: where its logits begin."""
    assert row.sampling is not None
    first, drafts = place + sum(target >= 0 for target in row.targets), row.drafts
    return [
        Choice(first + after, row.sampling.after(drafts[:after]), row.next_position + after)
        for after in range(len(drafts) + 1)
    ]


def _eager(row: Row, own: list[Choice]) -> list[Choice]:
    """Those that are sure or likely to be asked for. Where drafts were drawn that is the last alone."""
    return own if row.draft_probs is None else own[-1:]


def _verified(row: Row, own: list[Choice], known: Mapping[int, int], logits: torch.Tensor) -> tuple[int, int]:
    """(accepted drafts, the token after them)."""
    return verify(
        row.drafts,
        row.draft_probs,
        lambda after: known[own[after].place],
        lambda after: processed_probs(logits[own[after].place], own[after].sampling).cpu(),
        own[0].sampling,
        row.next_position,
    )


def _all_logprobs(
    rows: Sequence[Row],
    logits: torch.Tensor,
    choices: dict[int, list[Choice]],
    verified: dict[int, tuple[int, int]],
) -> tuple[tuple[TokenLogprobs, ...], ...]:
    """Per row, of each token that it gives; nothing at all when no row asks."""
    asking = [row.sampling is not None and row.sampling.params.logprobs is not None for row in rows]
    if not any(asking):
        return ()
    found: list[tuple[TokenLogprobs, ...]] = []
    for index, row in enumerate(rows):
        if not asking[index]:
            found.append(())
            continue
        accepted, token = verified[index]
        tokens = (*row.drafts[:accepted], token)
        found.append(
            tuple(_logprobs(logits[at.place], new, row) for at, new in zip(choices[index], tokens, strict=False))
        )
    return tuple(found)


def _score(row: Row, logits: torch.Tensor, place: int) -> tuple[float, ...]:
    """Log-probability of each of the row's targets."""
    targets = [target for target in row.targets if target >= 0]
    if not targets:
        return ()
    position = row.start + 1 + next(offset for offset, target in enumerate(row.targets) if target >= 0)
    scores: list[float] = []
    for start in range(0, len(targets), SCORE_ROWS):
        part = torch.tensor(targets[start : start + SCORE_ROWS], device=logits.device)
        rows = logits[place + start : place + start + len(part)]
        scores.extend(_log_probs(rows, part, position + start, row.watch))
    return tuple(scores)


def _log_probs(logits: torch.Tensor, targets: torch.Tensor, position: int, watch: Watch | None) -> list[float]:
    """Log-probability of one target a row. A function of its own, so that its softmax is freed before the next one."""
    log_probs = torch.log_softmax(logits.double(), dim=-1)
    if watch is not None:
        watch(position, log_probs)
    return log_probs.gather(1, targets[:, None])[:, 0].tolist()


def _logprobs(logits: torch.Tensor, token: int, row: Row) -> TokenLogprobs:
    """Of the model's own distribution, before bias, penalties, temperature and filters: vLLM V1's raw_logprobs.

    logits [vocab_size]. The likeliest come first, equals by lowest id; the chosen one is there only if it ranks.
    """
    assert row.sampling is not None
    log_probs = torch.log_softmax(logits.double(), dim=-1)
    count = min(row.sampling.params.logprobs or 0, len(log_probs))
    top: tuple[tuple[int, float], ...] = ()
    if count:
        edge = torch.topk(log_probs, count).values[-1]
        ids = torch.nonzero(log_probs >= edge)[:, 0]  # more than asked for where some tie with the last
        values, order = torch.sort(log_probs[ids], descending=True, stable=True)
        top = tuple(zip(ids[order][:count].tolist(), values[:count].tolist(), strict=True))
    return TokenLogprobs(float(log_probs[token]), top)
