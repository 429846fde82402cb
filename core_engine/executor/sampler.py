"""From the logits of a step to its StepResult: tokens, scores and log-probabilities, row by row.

Knows rows and logits; no model, no KV cache, no requests.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core_engine.plan import Row, StepResult, TokenLogprobs
from core_engine.sampling import choose_token, is_plain_greedy

# Rows of a float64 softmax over the vocabulary at a time: 50 MB with its input at 49,152 ids, whatever the length of a
# scored text.
SCORE_ROWS = 64


def logit_places(rows: Sequence[Row]) -> tuple[list[int], list[int]]:
    """Flat token places of a step whose logits are needed, and per row where its own begin among them.

    A row's own are those of its targets in order, then the one that is sampled from.
    """
    wanted: list[int] = []
    places: list[int] = []
    first = 0
    for row in rows:
        places.append(len(wanted))
        wanted.extend(first + offset for offset, target in enumerate(row.targets) if target >= 0)
        if row.sample:
            wanted.append(first + row.count - 1)
        first += row.count
    return wanted, places


def sample_step(rows: Sequence[Row], logits: torch.Tensor, places: Sequence[int]) -> StepResult:
    """Tokens, scores and log-probabilities of all rows. logits [num_wanted, vocab_size] as `logit_places` orders them.

    Plain greedy rows are chosen together; every other row alone, so that no result depends on the rest of the batch.
    """
    last = {
        index: place + sum(target >= 0 for target in row.targets)
        for index, (row, place) in enumerate(zip(rows, places, strict=True))
        if row.sample
    }
    tokens = _choose(rows, logits, last)
    asked = [row.sampling is not None and row.sampling.params.logprobs is not None for row in rows]
    logprobs = tuple(
        _logprobs(logits[last[index]], tokens[index], rows[index]) if asks else None for index, asks in enumerate(asked)
    )
    return StepResult(
        tokens=tuple(tokens.get(index) for index in range(len(rows))),
        scores=tuple(_score(row, logits, place) for row, place in zip(rows, places, strict=True)),
        logprobs=logprobs if any(asked) else (),
    )


def nothing_sampled(rows: Sequence[Row]) -> StepResult:
    """The result of a step that needs no logits: parts of prompts only."""
    nothing: tuple[None, ...] = (None,) * len(rows)
    return StepResult(nothing, ((),) * len(rows))


def _choose(rows: Sequence[Row], logits: torch.Tensor, last: dict[int, int]) -> dict[int, int]:
    """The token of each sampled row, by the row's index."""
    tokens: dict[int, int] = {}
    greedy: list[int] = []
    for index, place in last.items():
        row = rows[index]
        assert row.sampling is not None
        if is_plain_greedy(row.sampling):
            greedy.append(index)
        else:
            tokens[index] = choose_token(logits[place], row.sampling, row.end)
    if greedy:
        places = [last[index] for index in greedy]
        chosen = logits if len(places) == len(logits) else logits[torch.tensor(places, device=logits.device)]
        tokens.update(zip(greedy, chosen.argmax(dim=-1).tolist(), strict=True))
    return tokens


def _score(row: Row, logits: torch.Tensor, place: int) -> tuple[float, ...]:
    """Log-probability of each of the row's targets."""
    targets = [target for target in row.targets if target >= 0]
    scores: list[float] = []
    for start in range(0, len(targets), SCORE_ROWS):
        part = torch.tensor(targets[start : start + SCORE_ROWS], device=logits.device)
        scores.extend(_log_probs(logits[place + start : place + start + len(part)], part))
    return tuple(scores)


def _log_probs(logits: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """Log-probability of one target a row. A function of its own, so that its softmax is freed before the next one."""
    return torch.log_softmax(logits.double(), dim=-1).gather(1, targets[:, None])[:, 0].tolist()


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
