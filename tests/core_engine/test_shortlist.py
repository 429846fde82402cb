"""The quick choices of a token, by numpy and compiled, against float64 over the whole vocabulary: the same, or none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core_engine.executor.sampler import sample_step
from core_engine.kernels.cpu.sampling import choose_rows, uniforms
from core_engine.plan import Row, RowSampling
from core_engine.random_stream import uniform
from core_engine.sampling import choose_token, draw, processed_probs
from core_engine.sampling_params import SamplingParams
from core_engine.shortlist import HEAD, shortlist_token

VOCAB = 5003
compiled = pytest.mark.usefixtures("compiled_kernels")
FILTERS: list[dict[str, Any]] = [
    {},
    {"top_p": 0.9},
    {"top_k": 40},
    {"min_p": 0.05},
    {"top_k": 300, "top_p": 0.95, "min_p": 0.001},
    {"min_p": 0.02, "top_p": 0.5},
]


def random_logits(seed: int, spread: float, size: int = VOCAB) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread


def by_float64(logits: torch.Tensor, params: SamplingParams, number: float) -> int:
    return draw(processed_probs(logits, RowSampling(params, 0)), number)


def by_numpy(logits: torch.Tensor, params: SamplingParams, number: float) -> int | None:
    return shortlist_token(logits.numpy(), params, number)


def by_compiled(logits: torch.Tensor, params: SamplingParams, number: float) -> int | None:
    return choose_rows(logits[None], [0], [RowSampling(params, 0)], np.array([number]))[0]


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def way(request: pytest.FixtureRequest) -> Any:
    if request.param == "compiled":
        request.getfixturevalue("compiled_kernels")
    return by_numpy if request.param == "numpy" else by_compiled


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0, 30.0])
def test_it_gives_the_token_of_float64_and_nearly_always_one(
    spread: float, filters: dict[str, Any], temperature: float, way: Any
) -> None:
    params = SamplingParams(temperature=temperature, **filters)
    unknown = 0
    for seed in range(30):
        logits, number = random_logits(seed, spread), uniform(seed, 3)
        token = way(logits, params, number)
        unknown += token is None
        assert token in (None, by_float64(logits, params, number))
    assert unknown <= 3


@settings(max_examples=150, deadline=None)
@given(
    levels=st.lists(st.one_of(st.integers(-60, 60), st.just(-math.inf)), min_size=1, max_size=40).filter(
        lambda levels: max(levels) > -math.inf
    ),
    scale=st.sampled_from([1e-30, 1e-3, 0.25, 1.0, 30.0]),
    temperature=st.sampled_from([1e-5, 1e-4, 0.7, 1.0, 100.0]),
    top_k=st.integers(0, 45),
    top_p=st.sampled_from([1e-9, 0.1, 0.5, 0.75, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 1e-7, 0.01, 0.5, 1.0]),
    number=st.one_of(st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 0.5, 0.25, 0.75, 2**-53, 1 - 2**-53])),
)
def test_it_never_gives_another_token_even_with_ties_and_draws_on_an_edge(
    way: Any,
    levels: list[float],
    scale: float,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    number: float,
) -> None:
    logits = torch.tensor(levels, dtype=torch.float32) * scale
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assert way(logits, params, number) in (None, by_float64(logits, params, number))


def test_a_draw_on_the_edge_between_two_tokens_is_left_to_float64(way: Any) -> None:
    logits = torch.zeros(4)
    assert way(logits, SamplingParams(temperature=1.0), 0.5) is None
    assert way(logits, SamplingParams(temperature=1.0), 0.5 + 1e-6) == 2


def test_equal_tokens_on_the_edge_of_top_p_are_left_to_float64(way: Any) -> None:
    logits = torch.tensor([1.0, 2.0, 2.0, 0.0])
    assert way(logits, SamplingParams(temperature=1.0, top_p=0.3), 0.4) is None
    assert way(logits, SamplingParams(temperature=1.0, top_p=0.6), 0.4) == 1


@pytest.mark.parametrize(("number", "token"), [(0.05, None), (0.3, 123_456), (0.5, 123_456), (0.9, None)])
def test_a_heavy_tail_is_counted(number: float, token: int | None, way: Any) -> None:
    """Half of all weight in tokens of which each weighs less than the head's least, and less than the sum's error."""
    logits = torch.full((400_001,), HEAD - 0.9)
    logits[123_456] = 0.0
    params = SamplingParams(temperature=1.0)
    expected = by_float64(logits, params, number)
    # Compiled code takes more ids into the head when it can't tell.
    assert way(logits, params, number) == (token if way is by_numpy else expected)
    assert token in (None, expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("places", [[4], list(range(70)), [69]])
def test_logits_that_are_not_numbers_are_left_to_the_rule_that_refuses_them(
    value: float, places: list[int], way: Any
) -> None:
    logits, params = torch.zeros(70), SamplingParams(temperature=1.0)
    logits[places] = value
    if value == -float("inf") and len(places) == 1:
        assert way(logits, params, 0.3) == by_float64(logits, params, 0.3)
    else:
        assert way(logits, params, 0.3) is None


ADJUSTED: list[dict[str, Any]] = [
    {"repetition_penalty": 1.3},
    {"logit_bias": {5: 3.0}},
    {"frequency_penalty": 1.0},
    {"repetition_penalty": 0.8, "frequency_penalty": 0.7, "presence_penalty": -2, "logit_bias": {5: 90.0, 7: -100.0}},
]


def adjusted_rows(asked: SamplingParams, logits: torch.Tensor) -> list[Row]:
    """Rows whose likeliest id is banned."""
    best = logits.argmax(-1).tolist()
    samplings = [RowSampling(asked, seed, 0, 2, (3, 4, 5, 5, 4999), banned=(best[seed],)) for seed in range(len(best))]
    return [Row(str(seed), 9, (1,), (0,), False, sampling) for seed, sampling in enumerate(samplings)]


def chosen(rows: list[Row], logits: torch.Tensor) -> list[int]:
    return [choose_token(logits[index], row.sampling, row.end) for index, row in enumerate(rows) if row.sampling]


@pytest.mark.parametrize("params", ADJUSTED)
@pytest.mark.parametrize("temperature", [0.0, 1e-4, 0.9])
@pytest.mark.parametrize("filters", FILTERS)
def test_a_step_chooses_what_choose_token_chooses_after_bias_and_penalties(
    params: dict[str, Any], temperature: float, filters: dict[str, Any], way: Any
) -> None:
    logits = torch.stack([random_logits(seed, 3.0) for seed in range(12)])
    before = logits.clone()
    rows = adjusted_rows(SamplingParams(temperature=temperature, **filters, **params), logits)
    best = logits.numpy().argmax(-1).astype(np.int32) if way is by_compiled else None
    assert list(sample_step(rows, logits, list(range(12)), best).tokens) == chosen(rows, logits)
    assert torch.equal(logits, before)


@compiled
@settings(max_examples=100, deadline=None)
@given(
    levels=st.lists(st.integers(-3, 3), min_size=8, max_size=40),
    bias=st.dictionaries(st.integers(0, 7), st.sampled_from([-100.0, -1.0, 1e-9, 1.0, 2.0, 100.0]), max_size=8),
    banned=st.sets(st.integers(0, 7)),
    scale=st.sampled_from([1e-8, 0.7, 1.0, 1e6]),
    temperature=st.sampled_from([0.0, 1e-5, 1.0, 100.0]),
    filters=st.sampled_from(FILTERS),
)
def test_compiled_choices_keep_changed_scores_exact(
    levels: list[int],
    bias: dict[int, float],
    banned: set[int],
    scale: float,
    temperature: float,
    filters: dict[str, Any],
) -> None:
    """Scores that float32 could not tell apart, or that are rounded to it far from 0."""
    logits = torch.tensor([levels], dtype=torch.float32) * scale
    params = SamplingParams(temperature=temperature, logit_bias=bias, **filters)
    sampling, numbers = RowSampling(params, 0, banned=tuple(banned)), np.linspace(0.01, 0.99, 8)
    found = choose_rows(logits.repeat(8, 1), range(8), [sampling] * 8, numbers)
    for number, token in zip(numbers, found, strict=True):
        if len(levels) > len(banned):
            assert token in (None, draw(processed_probs(logits[0], sampling), float(number)))


@compiled
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_compiled_numbers_are_those_of_the_stream(seed: int, sample_index: int, position: int) -> None:
    sampling = RowSampling(SamplingParams(), seed, sample_index)
    found = uniforms([sampling, RowSampling(SamplingParams(), 1)], [position, 7]).tolist()
    assert found == [uniform(seed, position, sample_index=sample_index), uniform(1, 7)]


@compiled
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_step_of_compiled_logits_that_are_not_numbers_fails_as_choose_token_does(value: float) -> None:
    logits = torch.full((2, 70), value)
    rows = [Row(name, 9, (1,), (0,), False, RowSampling(SamplingParams(temperature=1.0), 1)) for name in "ab"]
    with pytest.raises(ValueError, match="can't be drawn from"):
        sample_step(rows, logits, [0, 1], np.zeros(2, dtype=np.int32))


@compiled
def test_compiled_choices_do_not_depend_on_the_other_rows() -> None:
    logits = torch.stack([random_logits(seed, 3.0) for seed in range(12)])
    rows = adjusted_rows(SamplingParams(temperature=0.9, top_p=0.9, repetition_penalty=1.2), logits)
    samplings = [row.sampling for row in rows if row.sampling]
    numbers = uniforms(samplings, range(12))
    together = choose_rows(logits, range(12), samplings, numbers)
    assert (
        together
        == [choose_rows(logits, [i], samplings[i : i + 1], numbers[i : i + 1])[0] for i in reversed(range(12))][::-1]
    )
