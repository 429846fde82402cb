"""Processed logits against transformers' own processors and written formulas, and draws against the distribution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from transformers.generation import logits_process as reference

from core_engine.plan import RowSampling
from core_engine.random_stream import uniform
from core_engine.sampling import choose_token, draw, process_logits, processed_probs, top_p_mask
from core_engine.sampling_params import SamplingParams
from ledger.errors import InputError

VOCAB = 300
HISTORY = (3, 7, 7, 250, 3, 9, 9, 9)
NUM_PROMPT = 4


def random_logits(seed: int, size: int = VOCAB) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3


def sampling_of(*, banned: tuple[int, ...] = (), seed: int = 1, **params: Any) -> RowSampling:
    return RowSampling(SamplingParams(**params), seed, 0, NUM_PROMPT, HISTORY, banned)


def by_transformers(logits: torch.Tensor, *processors: Any) -> torch.Tensor:
    scores = logits.double()[None]
    for processor in processors:
        scores = processor(torch.tensor([HISTORY]), scores)
    return scores[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("params", "processors"),
    [
        ({"temperature": 0.7}, [reference.TemperatureLogitsWarper(0.7)]),
        ({"temperature": 1, "top_k": 1}, [reference.TopKLogitsWarper(1)]),
        ({"temperature": 1, "top_k": 40}, [reference.TopKLogitsWarper(40)]),
        ({"temperature": 1, "top_k": 10_000}, [reference.TopKLogitsWarper(10_000)]),
        ({"temperature": 1, "top_p": 0.01}, [reference.TopPLogitsWarper(0.01)]),
        ({"temperature": 1, "top_p": 0.9}, [reference.TopPLogitsWarper(0.9)]),
        (
            {"temperature": 20, "top_p": 0.99},
            [reference.TemperatureLogitsWarper(20.0), reference.TopPLogitsWarper(0.99)],
        ),
        ({"temperature": 1, "min_p": 0.05}, [reference.MinPLogitsWarper(0.05)]),
        ({"temperature": 1, "min_p": 1.0}, [reference.MinPLogitsWarper(1.0)]),
        ({"temperature": 1, "repetition_penalty": 1.3}, [reference.RepetitionPenaltyLogitsProcessor(1.3)]),
        ({"temperature": 0, "repetition_penalty": 0.8}, [reference.RepetitionPenaltyLogitsProcessor(0.8)]),
        (
            {"temperature": 1, "logit_bias": {5: 2.5, 7: -100}},
            [reference.SequenceBiasLogitsProcessor([[[5], 2.5], [[7], -100.0]])],
        ),
        (
            {"temperature": 0.6, "repetition_penalty": 1.2, "top_k": 50, "top_p": 0.8},
            [
                reference.RepetitionPenaltyLogitsProcessor(1.2),
                reference.TemperatureLogitsWarper(0.6),
                reference.TopKLogitsWarper(50),
                reference.TopPLogitsWarper(0.8),
            ],
        ),
        (  # the order in which vLLM differs from transformers: min_p before top_k and top_p
            {"temperature": 1.5, "min_p": 0.1, "top_k": 30, "top_p": 0.9},
            [
                reference.TemperatureLogitsWarper(1.5),
                reference.MinPLogitsWarper(0.1),
                reference.TopKLogitsWarper(30),
                reference.TopPLogitsWarper(0.9),
            ],
        ),
    ],
)
def test_processed_logits_equal_transformers(seed: int, params: dict[str, Any], processors: list[Any]) -> None:
    logits = random_logits(seed)
    before = logits.clone()
    torch.testing.assert_close(
        process_logits(logits, sampling_of(**params)), by_transformers(logits, *processors), rtol=1e-12, atol=0
    )
    assert torch.equal(logits, before)


def test_the_order_of_min_p_and_top_p_matters_and_is_vllms() -> None:
    probs = torch.tensor([0.5, 0.3, 0.12, 0.08])
    kept = torch.isfinite(process_logits(probs.log(), sampling_of_plain(temperature=1, min_p=0.2, top_p=0.85)))
    # After min_p 0.5, 0.3 and 0.12 are left, of which the first two are 0.87; before it they would be 0.8.
    assert kept.tolist() == [True, True, False, False]


def sampling_of_plain(**params: Any) -> RowSampling:
    return RowSampling(SamplingParams(**params), seed=1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_frequency_and_presence_follow_the_formula_on_the_output_alone(temperature: float) -> None:
    logits = random_logits(0)
    params = {"temperature": temperature, "frequency_penalty": 0.3, "presence_penalty": -0.7}
    expected = logits.double()
    for token in range(VOCAB):
        count = HISTORY[NUM_PROMPT:].count(token)
        expected[token] -= 0.3 * count + -0.7 * (count > 0)
    torch.testing.assert_close(process_logits(logits, sampling_of(**params)), expected)
    assert expected[7] == logits[7] and expected[9] != logits[9]  # 7 is in the prompt only


def test_repetition_acts_before_frequency_and_bias_before_both() -> None:
    logits = torch.zeros(VOCAB)
    params = {"logit_bias": {9: 2.0}, "repetition_penalty": 2.0, "frequency_penalty": 0.5}
    assert process_logits(logits, sampling_of(**params))[9] == 2.0 / 2.0 - 3 * 0.5


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 1}, {"logit_bias": {4: 100}}]
)
def test_a_banned_id_is_never_chosen(params: dict[str, Any]) -> None:
    logits = torch.zeros(VOCAB)
    logits[4] = 50
    banned = RowSampling(SamplingParams(**params), seed=1, banned=(4,))
    assert process_logits(logits, banned)[4] == -torch.inf
    assert all(choose_token(logits, banned, position) != 4 for position in range(200))


def test_greedy_takes_the_lowest_id_among_equals_after_bias_penalties_and_bans() -> None:
    logits = torch.tensor([1.0, 5.0, 5.0, 4.0, 5.0])
    assert choose_token(logits, sampling_of_plain(), 0) == 1
    assert choose_token(logits, RowSampling(SamplingParams(), 0, banned=(1,)), 0) == 2
    assert choose_token(logits, sampling_of_plain(logit_bias={3: 2}), 0) == 3
    repeated = RowSampling(SamplingParams(repetition_penalty=1.5), 0, num_prompt_tokens=1, history=(1, 2))
    assert choose_token(logits, repeated, 0) == 4


def test_filters_do_not_change_a_greedy_choice() -> None:
    logits = random_logits(2)
    assert choose_token(logits, sampling_of_plain(top_k=3, top_p=0.1, min_p=0.5), 0) == int(logits.argmax())
    assert processed_probs(logits, sampling_of_plain(top_p=0.1)).tolist().count(1.0) == 1


def test_ties_with_the_last_of_top_k_stay_and_the_edge_of_top_p_goes_to_the_lowest_ids() -> None:
    logits = torch.tensor([1.0, 2.0, 1.0, 1.0, 0.0])
    top_k = torch.isfinite(process_logits(logits, sampling_of_plain(temperature=1, top_k=2)))
    assert top_k.tolist() == [True, True, True, True, False]
    assert top_p_mask(torch.tensor([0.2, 0.4, 0.2, 0.2]).double(), 0.75).tolist() == [True, True, True, False]
    assert top_p_mask(torch.full((10_000,), 1e-4).double(), 1e-9).nonzero().tolist() == [[0]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([5, 300, 6000]), st.floats(0.001, 0.9999), st.floats(0.1, 30))
def test_top_p_keeps_the_smallest_set_that_reaches_p(seed: int, size: int, top_p: float, spread: float) -> None:
    probs = torch.softmax(random_logits(seed, size).double() / spread, -1)
    kept = probs[top_p_mask(probs, top_p)]
    assert len(kept) >= 1
    assert float(kept.sum()) >= top_p - 1e-12
    assert float(kept.sum() - kept.min()) < top_p + 1e-12
    assert len(kept) == len(probs) or kept.min() >= probs[~top_p_mask(probs, top_p)].max()


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.7},
        {"temperature": 1.2, "top_k": 12},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 1.3, "min_p": 0.05},
        {"temperature": 0.9, "repetition_penalty": 1.4, "frequency_penalty": 0.4, "presence_penalty": 0.3},
        {"temperature": 1.0, "logit_bias": {0: 3, 1: -2}, "min_p": 0.02, "top_k": 20, "top_p": 0.95},
    ],
)
def test_draws_follow_the_processed_distribution(params: dict[str, Any]) -> None:
    logits = random_logits(3, 32) / 2
    sampling = RowSampling(SamplingParams(**params), 3, 0, 2, (1, 2, 5, 5, 6))
    draws = torch.tensor([choose_token(logits, sampling, position) for position in range(8_000)])
    counts = torch.bincount(draws, minlength=32).double()
    probs = processed_probs(logits, sampling)
    assert counts[probs == 0].sum() == 0
    expected = (probs * len(draws))[probs > 0]
    common = expected >= 5  # the usual condition of the test; the rest is pooled
    pooled_counts = torch.cat([counts[probs > 0][common], counts[probs > 0][~common].sum()[None]])
    pooled = torch.cat([expected[common], expected[~common].sum()[None] + 1e-9])
    chi_square = float(((pooled_counts - pooled) ** 2 / pooled).sum())
    assert chi_square < stats.chi2.ppf(0.999, len(pooled) - 1)  # seeded draws: it never flakes


def test_the_random_number_depends_on_seed_position_sample_and_purpose_alone() -> None:
    base = uniform(1, 5)
    assert base == uniform(1, 5)
    others = [uniform(2, 5), uniform(1, 6), uniform(1, 5, sample_index=1), uniform(1, 5, purpose="accept")]
    assert len({base, *others}) == 5


def test_two_samples_of_a_prompt_draw_apart() -> None:
    logits = torch.zeros(1000)
    first, second = (RowSampling(SamplingParams(temperature=1.0, n=2), 5, index) for index in (0, 1))
    assert [choose_token(logits, first, i) for i in range(5)] != [choose_token(logits, second, i) for i in range(5)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1e-300, 1e-17, 0.1, 0.3, 1.0]), min_size=1, max_size=12), st.floats(0, 1))
def test_what_has_no_probability_is_never_drawn(probs: list[float], number: float) -> None:
    if sum(probs) == 0:
        with pytest.raises(ValueError, match="sum to 0"):
            draw(torch.tensor(probs, dtype=torch.float64), number)
        return
    assert probs[draw(torch.tensor(probs, dtype=torch.float64), min(number, 1 - 2**-53))] > 0


def test_logits_that_are_not_numbers_are_told_not_drawn_from() -> None:
    with pytest.raises(ValueError, match="nan"):
        choose_token(torch.tensor([1.0, float("nan")]), sampling_of_plain(temperature=1), 0)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("max_tokens", [0, -1, True, "3", 2.0, None]),
        ("min_tokens", [-1, 129, False, 1.0]),
        ("temperature", [-1.0, 100.5, float("nan"), float("inf"), True, "1", None]),
        ("seed", [-1, 2**63, 1.5, True]),
        ("ignore_eos", [0, "yes", None]),
        ("top_k", [-1, 1.0, True]),
        ("top_p", [0.0, 1.01, float("nan"), True, "0.5"]),
        ("min_p", [-0.1, 1.1, float("nan"), True]),
        ("repetition_penalty", [0, -1, 101, float("nan"), True]),
        ("presence_penalty", [-2.1, 2.1, float("nan"), True]),
        ("frequency_penalty", [-2.1, 2.1, float("inf"), "0"]),
        ("stop", [[""], [1], [None], None, 7, {"a"}]),
        ("stop_token_ids", [[-1], [1.0], [True], "12", None]),
        (
            "logit_bias",
            [{1: float("nan")}, {-1: 1}, {"1": 1}, {1: True}, {1: 101}, [(1, 2), (1, 3)], [1], "ab", None, [(1, 2, 3)]],
        ),
        ("logprobs", [-1, 21, True, 1.0]),
        ("n", [0, 129, True, 2]),
        ("answer_tokens", [0, True, 1.5]),
    ],
)
def test_wrong_parameters_are_refused_in_one_line_by_name(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InputError) as refused:
            SamplingParams(**{field: value})
        assert str(refused.value).startswith(field) and "\n" not in str(refused.value)


def test_greedy_with_several_answers_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="all answers would be the same"):
        SamplingParams(n=3)
    assert SamplingParams(n=3, temperature=0.5).n == 3


def test_lists_and_dicts_become_tuples_so_that_parameters_stay_hashable() -> None:
    params = SamplingParams(stop=["a", "b"], logit_bias={7: 1}, stop_token_ids=[3], temperature=1)  # type: ignore[arg-type]
    assert (params.stop, params.logit_bias, params.stop_token_ids) == (("a", "b"), ((7, 1.0),), (3,))
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]
    assert hash(params) == hash(
        SamplingParams(stop=("a", "b"), logit_bias=((7, 1.0),), stop_token_ids=(3,), temperature=1)
    )


def test_ids_outside_the_vocabulary_are_refused() -> None:
    SamplingParams(logit_bias={9: 1}, stop_token_ids=[9]).check_vocabulary(10)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"logit_bias.*10.*0 to 9"):
        SamplingParams(logit_bias={10: 1}).check_vocabulary(10)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="stop_token_ids"):
        SamplingParams(stop_token_ids=(4, 12)).check_vocabulary(10)
