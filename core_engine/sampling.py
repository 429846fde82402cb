"""Choosing the next token from logits.

Order in which `process_logits` acts on one row (bans and the first three can change a greedy choice, the rest can't):

1. logit_bias is added
2. repetition_penalty on the tokens of prompt and output, then frequency_penalty and presence_penalty on the output's
3. banned ids become -inf (end tokens before min_tokens)
4. temperature divides
5. min_p drops what is less likely than min_p times the likeliest
6. top_k keeps the k highest; all that tie with the k-th stay
7. top_p keeps the smallest set whose mass, after 5 and 6, reaches top_p; of equals on its edge the lowest ids stay;
   never empty

vLLM V1 (`vllm/v1/sample/sampler.py`) and transformers (`GenerationMixin._get_logits_processor`) agree on 1-4 (bans come
first in vLLM and after the penalties in transformers; -inf stays -inf, so that is the same) and on top_k before top_p,
each on the renormalised rest. They differ in min_p: vLLM applies it before top_k and top_p, transformers (and
llama.cpp) after them. Its own rule is a ratio of two probabilities and doesn't notice; top_p does, because less mass is
left when the tail has gone before. This engine follows vLLM, which it is compared with as a server. Sources of the
formulas: repetition penalty Keskar et al. 2019, section 4.1 (division for positive logits, multiplication for
negative); frequency and presence as in OpenAI's API, logit - frequency * count - presence * (count > 0).

Random numbers are those of core_engine/random_stream.py. What is here is float64 over the whole vocabulary, about 2 ms
a row at 49,152 ids, and the definition. The executor asks kernels/cpu/sampling.py first, or core_engine/shortlist.py
where there are no compiled kernels: both give the same token or say that they can't tell.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from numpy.typing import NDArray

from core_engine.plan import RowSampling
from core_engine.random_stream import uniform

# Sizes tried before the whole vocabulary is sorted for top_p: 0.1 and 2 ms instead of 29 ms at 49,152 ids on a CPU.
TOP_P_SIZES = (256, 4096)


def adjust_logits(logits: torch.Tensor, sampling: RowSampling) -> torch.Tensor:
    """Steps 1-3: a float64 copy [vocab_size] of `logits` after bias, penalties and bans."""
    scores = logits.to(torch.float64, copy=True)
    ids = adjusted_ids(sampling)
    places = torch.from_numpy(ids).to(scores.device)
    scores[places] = torch.from_numpy(adjusted_scores(ids, scores[places].numpy(force=True), sampling)).to(
        places.device
    )
    return scores


def adjusted_ids(sampling: RowSampling) -> NDArray[np.int64]:
    """The ids that steps 1-3 concern, ascending, each once."""
    params = sampling.params
    ids = [*sampling.banned, *(token for token, _ in params.logit_bias)]
    if params.needs_history:
        ids += sampling.history
    return np.array(sorted(set(ids)), dtype=np.int64)


def adjusted_scores(ids: NDArray[np.int64], logits: NDArray[np.floating], sampling: RowSampling) -> NDArray[np.float64]:
    """Steps 1-3 for the ids of `adjusted_ids` alone, whose logits are given; float64, of the same length."""
    params = sampling.params
    scores = logits.astype(np.float64)
    if params.logit_bias:
        biased, values = zip(*params.logit_bias, strict=True)
        scores[np.searchsorted(ids, biased)] += values
    if params.repetition_penalty != 1:
        places = np.searchsorted(ids, list(set(sampling.history)))
        seen = scores[places]
        scores[places] = np.where(seen > 0, seen / params.repetition_penalty, seen * params.repetition_penalty)
    if params.frequency_penalty or params.presence_penalty:
        counts = Counter(sampling.history[sampling.num_prompt_tokens :])
        penalties = (
            params.frequency_penalty * np.array(list(counts.values()), dtype=np.float64) + params.presence_penalty
        )
        scores[np.searchsorted(ids, list(counts))] -= penalties
    if sampling.banned:
        scores[np.searchsorted(ids, sampling.banned)] = -np.inf
    return scores


def process_logits(logits: torch.Tensor, sampling: RowSampling) -> torch.Tensor:
    """The logits that the choice is made from, in the order at the top of this file; `logits` is left as it was.

    logits [vocab_size] of any float type; returns float64 [vocab_size], -inf where a token can't be chosen. For greedy
    rows steps 4-7 are left out: they never change the argmax.
    """
    params = sampling.params
    scores = adjust_logits(logits, sampling)
    if params.is_greedy:
        return scores
    scores /= params.temperature
    if params.min_p > 0:
        scores[(scores - scores.max()).exp() < params.min_p] = -torch.inf
    if 0 < params.top_k < len(scores):
        scores[scores < torch.topk(scores, params.top_k).values[-1]] = -torch.inf
    if params.top_p < 1:
        scores[~top_p_mask(torch.softmax(scores, dim=-1), params.top_p)] = -torch.inf
    return scores


def processed_probs(logits: torch.Tensor, sampling: RowSampling) -> torch.Tensor:
    """The distribution that the next token is drawn from, float64 [vocab_size]: one-hot for a greedy row.

    logits [vocab_size]. Drawing by `draw` from it with the number of purpose "sample" gives what `choose_token` gives.
    """
    scores = process_logits(logits, sampling)
    if sampling.params.is_greedy:
        probs = torch.zeros_like(scores)
        probs[torch.argmax(scores)] = 1.0
        return probs
    return torch.softmax(scores, dim=-1)


def choose_token(logits: torch.Tensor, sampling: RowSampling, position: int) -> int:
    """The next token id. logits [vocab_size]; `position` is the index the token will have in its sequence.

    Greedy takes the lowest id among equal maxima; sampling inverts the cumulative distribution at one uniform number.
    """
    if sampling.is_plain_greedy:
        return int(torch.argmax(logits))
    if sampling.params.is_greedy:
        return int(torch.argmax(process_logits(logits, sampling)))
    number = uniform(sampling.seed, position, sample_index=sampling.sample_index)
    return draw(processed_probs(logits, sampling), number)


def draw(probs: torch.Tensor, number: float) -> int:
    """The id at which the cumulative distribution passes `number`, uniform in [0, 1). probs [vocab_size], any total.

    Never an id of probability 0: the number's place is kept below the total even where their product rounds up to it.
    ValueError when nothing has a probability, as with logits that are not numbers.
    """
    cumulative = torch.cumsum(probs, dim=-1)
    total = cumulative[-1:]
    if not total > 0:
        raise ValueError(f"probabilities that sum to {float(total)} can't be drawn from")
    places = torch.cat(
        [torch.searchsorted(cumulative, total * number, right=True), torch.searchsorted(cumulative, total)]
    )
    return int(places.min())


def top_p_mask(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Which ids are in the smallest set whose probabilities reach top_p, bool [vocab_size]. probs sums to 1.

    Most distributions reach top_p within few tokens, so a part of the vocabulary is ranked first.
    """
    for size in (*TOP_P_SIZES, len(probs)):
        ranked = torch.topk(probs, min(size, len(probs))).values
        cumulative = torch.cumsum(ranked, dim=-1)
        if float(cumulative[-1]) >= top_p:
            break
    count = int((cumulative[:-1] < top_p).sum()) + 1
    edge = ranked[count - 1]
    mask = probs > edge
    equals = torch.nonzero(probs == edge)[:, 0]
    mask[equals[: count - int(mask.sum())]] = True
    return mask
