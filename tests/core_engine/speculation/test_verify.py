"""What comes out of verify is distributed as without drafts, for every filter and both kinds of draft."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from core_engine.executor.sampler import sample_step
from core_engine.plan import Row, RowSampling
from core_engine.random_stream import uniform
from core_engine.sampling import draw, processed_probs
from core_engine.sampling_params import SamplingParams
from core_engine.speculation import verify as verify_module
from core_engine.speculation.verify import residual, verify
from tests.grids import representative

VOCAB = 4
PROMPT = (2, 1)
# The target's logits after each token, and what drafts are drawn from after each: near the target and far from it.
LOGITS = torch.tensor([[1.0, 0.2, -0.5, 0.4], [0.1, 0.9, 0.3, -1.0], [-0.2, 0.6, 1.1, 0.0], [0.8, -0.4, 0.2, 0.5]])
PROPOSED = torch.tensor(
    [[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.6, 0.1], [0.25, 0.25, 0.25, 0.25], [0.05, 0.05, 0.1, 0.8]], dtype=torch.float64
)
FILTERS = {
    "temperature": {"temperature": 0.7},
    "top-k": {"temperature": 1.0, "top_k": 2},
    "top-p": {"temperature": 1.0, "top_p": 0.7},
    "min-p": {"temperature": 1.3, "min_p": 0.45},
    "repetition penalty": {"temperature": 1.0, "repetition_penalty": 1.8},
}
Verify = Callable[..., tuple[int, int]]


def sampling_for(filters: str, seed: int) -> RowSampling:
    params = SamplingParams(**FILTERS[filters])  # type: ignore[arg-type]
    history = PROMPT if params.needs_history else ()
    return RowSampling(params, seed, num_prompt_tokens=len(PROMPT), history=history)


@cache
def target(filters: str, after: tuple[int, ...]) -> torch.Tensor:
    """What the target draws from after the prompt and these tokens."""
    last = (*PROMPT, *after)[-1]
    return processed_probs(LOGITS[last], sampling_for(filters, 0).after(after))


def drafts_of(kind: str, seed: int) -> tuple[tuple[int, ...], torch.Tensor | None]:
    """Two drafts: fixed ones, or drawn, with what they were drawn from."""
    if kind == "one-hot":
        return (2, 1), None
    last, tokens, probs = PROMPT[-1], [], []
    for place in range(2):
        probs.append(PROPOSED[last])
        last = draw(probs[-1], uniform(seed, len(PROMPT) + place, purpose="draft"))
        tokens.append(last)
    return tuple(tokens), torch.stack(probs)


def chosen_at(filters: str, seed: int, after: tuple[int, ...]) -> int:
    return draw(target(filters, after), uniform(seed, len(PROMPT) + len(after)))


def two_tokens(filters: str, kind: str, seed: int, rule: Verify) -> tuple[int, int]:
    """The first two tokens of an answer, the second from a step of its own if the first draft was rejected."""
    drafts, probs = drafts_of(kind, seed)
    accepted, token = rule(
        drafts,
        probs,
        lambda i: chosen_at(filters, seed, drafts[:i]),
        lambda i: target(filters, drafts[:i]),
        sampling_for(filters, seed),
        len(PROMPT),
    )
    found = (*drafts[:accepted], token)[:2]
    return found if len(found) == 2 else (*found, chosen_at(filters, seed, found))  # type: ignore[return-value]


def p_value(filters: str, counts: np.ndarray) -> float:
    """Chi-square of [first, second] counts against the exact joint distribution; cells of no probability stay empty."""
    expected = torch.stack([target(filters, (i,)) for i in range(VOCAB)])
    joint = (target(filters, ())[:, None] * expected).numpy()
    assert counts[joint == 0].sum() == 0
    return float(chisquare(counts[joint > 0], joint[joint > 0] / joint.sum() * counts.sum()).pvalue)


def counts_of(filters: str, kind: str, draws: int, rule: Verify = verify) -> np.ndarray:
    counts = np.zeros((VOCAB, VOCAB))
    for seed in range(draws):
        counts[two_tokens(filters, kind, seed, rule)] += 1
    return counts


def takes_all_of_p(*arguments: object) -> tuple[int, int]:
    """A verify that is wrong: after a rejection it draws from p instead of from what is left of it."""
    real, verify_module.residual = verify_module.residual, lambda target, proposed: target
    try:
        return verify(*arguments)  # type: ignore[arg-type]
    finally:
        verify_module.residual = real


def takes_another_q(drafts: tuple[int, ...], probs: torch.Tensor, *rest: object) -> tuple[int, int]:
    """A verify that is wrong: its q is not what the drafts were drawn from (fault 20)."""
    return verify(drafts, torch.full_like(probs, 1 / VOCAB), *rest)  # type: ignore[arg-type]


def draws_anew(
    drafts: tuple[int, ...], probs: torch.Tensor | None, chosen: Callable[[int], int], *rest: object
) -> tuple[int, int]:
    """A verify that is wrong for one-hot drafts: after a rejection it draws again, independently, from all of p."""
    accepted, token = verify(drafts, probs, chosen, *rest)  # type: ignore[arg-type]
    if accepted < len(drafts):
        probs_at, sampling, position = rest
        number = uniform(sampling.seed, position + accepted, purpose="residual")  # type: ignore[attr-defined, operator]
        token = draw(probs_at(accepted), number)  # type: ignore[operator]
    return accepted, token


@pytest.mark.parametrize(("filters", "kind"), representative(FILTERS, ["one-hot", "drawn"]))
def test_a_short_run_of_draws_is_distributed_as_the_target(filters: str, kind: str) -> None:
    assert p_value(filters, counts_of(filters, kind, 4_000)) > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one-hot", "drawn"])
@pytest.mark.parametrize("filters", FILTERS)
def test_200_000_draws_are_distributed_as_the_target(filters: str, kind: str) -> None:
    assert p_value(filters, counts_of(filters, kind, 200_000)) > 0.001


@pytest.mark.parametrize(
    ("kind", "broken"), [("drawn", takes_all_of_p), ("drawn", takes_another_q), ("one-hot", draws_anew)]
)
def test_a_broken_verify_fails_the_same_test(kind: str, broken: Verify) -> None:
    assert p_value("temperature", counts_of("temperature", kind, 4_000, broken)) < 1e-6


@pytest.mark.parametrize("kind", ["one-hot", "drawn"])
@pytest.mark.parametrize("filters", FILTERS)
def test_a_step_verifies_as_the_definition_does(filters: str, kind: str) -> None:
    """The rows of a step, with the history, filters and numbers of every draft's place (fault 21)."""
    rows, logits, expected = [], [], []
    for seed in range(60):
        drafts, probs = drafts_of(kind, seed)
        row = Row(
            f"{seed}", 1, (PROMPT[-1], *drafts), (0,), False, sampling_for(filters, seed),
            num_drafts=2, draft_probs=probs,
        )  # fmt: skip
        rows.append(row)
        logits += [LOGITS[token] for token in row.tokens]
        expected.append(
            verify(
                drafts, probs, lambda i, s=seed, d=drafts: chosen_at(filters, s, d[:i]),
                lambda i, d=drafts: target(filters, d[:i]), row.sampling, len(PROMPT),
            )
        )  # fmt: skip
    result = sample_step(rows, torch.stack(logits), [3 * i for i in range(60)])
    assert list(zip(result.accepted, result.tokens, strict=True)) == expected
    assert len(set(result.accepted)) > 1


def test_greedy_accepts_the_argmax_alone_whatever_it_was_drawn_from() -> None:
    sampling = RowSampling(SamplingParams(), seed=0)
    logits = torch.tensor([[0.0, 2.0, 1.0, 0.0], [3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    for probs in (None, torch.full((2, VOCAB), 0.25)):
        for drafts, wanted in (((1, 0), (2, 3)), ((1, 2), (1, 0)), ((2, 0), (0, 1))):
            row = Row("a", 0, (3, *drafts), (0,), False, sampling, num_drafts=2, draft_probs=probs)
            result = sample_step([row], logits, [0])
            assert (result.accepted[0], result.tokens[0]) == wanted


def test_logprobs_come_for_every_emitted_token_and_no_other() -> None:
    sampling = RowSampling(SamplingParams(logprobs=2), seed=0)
    logits = torch.tensor([[0.0, 2.0, 1.0, 0.0], [3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    row = Row("a", 0, (3, 1, 2), (0,), False, sampling, num_drafts=2)
    result = sample_step([row], logits, [0])
    exact = torch.log_softmax(logits.double(), -1)
    assert result.accepted == (1,) and result.tokens == (0,)
    assert [entry.chosen for entry in result.logprobs[0]] == pytest.approx([float(exact[0, 1]), float(exact[1, 0])])


def test_an_end_token_is_banned_at_the_drafts_places_as_long_as_min_tokens_asks() -> None:
    logits = torch.zeros(4, VOCAB)
    logits[:, 3] = 5.0  # the end token is the likeliest everywhere, 1 the next
    logits[:, 1] = 4.0
    sampling = RowSampling(SamplingParams(min_tokens=2), seed=0, banned=(3,), bans_left=2)
    row = Row("a", 0, (2, 1, 1, 1), (0,), False, sampling, num_drafts=3)
    result = sample_step([row], logits, [0])
    assert (result.accepted, result.tokens) == ((2,), (3,))


def test_a_proposal_equal_to_the_target_is_always_accepted() -> None:
    probs = torch.softmax(LOGITS[0].double(), 0)
    sampling = RowSampling(SamplingParams(temperature=1.0), seed=5)
    for seed in range(50):
        token = draw(probs, uniform(seed, 2, purpose="draft"))
        assert verify((token,), probs[None], lambda _: 0, lambda _: probs, sampling, seed)[0] == 1
    assert math.isclose(float(residual(probs, probs).sum()), 1.0)
