"""Sampling on the device, in the interpreter, against core_engine/sampling.py in float64.

Blocks are made small, so that a vocabulary of hundreds has several of them and more candidates than there is room for.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from core_engine.kernels.triton import sampling
from core_engine.plan import RowSampling
from core_engine.sampling import draw, processed_probs
from core_engine.sampling_params import SamplingParams

VOCAB = 200


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(sampling, "BLOCK", 64)
    monkeypatch.setattr(sampling, "ROOM", 64)
    monkeypatch.setattr(sampling, "HEAD", 32)


def normal(rows, vocab=VOCAB, spread=2.0, seed=0):
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


def uniforms(rows, seed=0):
    return torch.rand(rows, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def chosen(logits, params, numbers):
    """Tokens of the kernel; params: of each row."""

    def of(name, dtype):
        return torch.tensor([getattr(p, name) for p in params], dtype=dtype)

    tokens = torch.full((len(logits),), -7, dtype=torch.int32)
    reals = [of(name, torch.float64) for name in ("temperature", "top_p", "min_p")]
    sampling.sample(logits, reals[0], of("top_k", torch.int32), *reals[1:], numbers, tokens)
    return tokens.tolist()


def defined(logits, params, number):
    return draw(processed_probs(logits, RowSampling(params, seed=0)), float(number))


def assert_defined(logits, params, numbers):
    """Every token is the definition's, or that of a number as near as the kernel's error."""
    for row, found in enumerate(chosen(logits, params, numbers)):
        near = {
            defined(logits[row], params[row], min(max(numbers[row] + by, 0.0), 1 - 2**-53))
            for by in (-sampling.ERROR, 0.0, sampling.ERROR)
        }
        assert found in near, (row, params[row])


def every(**values):
    """All combinations as SamplingParams."""
    return [SamplingParams(**dict(zip(values, row, strict=True))) for row in itertools.product(*values.values())]


COMBINED = every(temperature=(0.7, 1.3), top_k=(0, 1, 30, 150), top_p=(1.0, 0.9, 0.05), min_p=(0.0, 0.02))


@pytest.mark.parametrize(
    ("spread", "first", "step"), [(6.0, 0, 5), (1.0, 1, 5), (0.01, 2, 12)], ids=["peaked", "plain", "flat"]
)
def test_all_filters_together_choose_as_defined(spread, first, step):
    params = COMBINED[first::step]
    assert_defined(normal(len(params), spread=spread), params, uniforms(len(params)))


@pytest.mark.slow
@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 1000])
@pytest.mark.parametrize("spread", [8.0, 2.0, 0.5, 0.01])
def test_all_filters_choose_as_defined_in_every_vocabulary(vocab, spread):
    for seed in range(3):
        logits = normal(len(COMBINED), vocab, spread, seed)
        assert_defined(logits, COMBINED, uniforms(len(COMBINED), seed))


@pytest.mark.slow
def test_a_vocabulary_of_today_with_the_blocks_that_run(monkeypatch):
    monkeypatch.undo()
    params = COMBINED[::2]
    for spread in (3.0, 0.05):
        assert_defined(normal(len(params), 151_936, spread), params, uniforms(len(params)))


def test_draws_go_through_the_whole_distribution():
    numbers = (torch.arange(20, dtype=torch.float64) + 0.5) / 20
    logits = normal(1, 100, spread=0.7).expand(20, -1)
    tokens = chosen(logits, [SamplingParams(temperature=1.0)] * 20, numbers)
    assert tokens == [defined(logits[0], SamplingParams(temperature=1.0), number) for number in numbers]
    assert tokens == sorted(tokens) and len(set(tokens)) > 12


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("top_k", [0, 3])
def test_the_ends_of_the_unit_interval_choose_an_id_with_a_probability(number, top_k):
    logits = normal(1)
    logits[0, :70] = logits[0, -60:] = -torch.inf
    params = SamplingParams(temperature=1.0, top_k=top_k)
    [token] = chosen(logits, [params], torch.tensor([number], dtype=torch.float64))
    assert token == defined(logits[0], params, number)


def test_greedy_takes_the_lowest_id_of_equal_maxima():
    logits = normal(4)
    logits[0, [190, 70, 130]] = 50.0
    logits[1, [64, 63]] = 50.0
    logits[2, [199]] = 50.0
    logits[3] = -1e30
    params = [SamplingParams(top_k=5, top_p=0.5), *[SamplingParams()] * 2, SamplingParams(temperature=1e-6)]
    assert chosen(logits, params, uniforms(4)) == [70, 63, 199, 0]


def test_zero_and_minus_zero_are_equal():
    logits = torch.full((4, 100), -5.0)
    logits[:2, 80], logits[:2, 90] = -0.0, 0.0
    logits[2:, 80], logits[2:, 90] = 0.0, -0.0
    params = [SamplingParams(temperature=1.0, top_k=1)] * 4
    numbers = torch.tensor([0.25, 0.75] * 2, dtype=torch.float64)
    assert chosen(logits, params, numbers) == [80, 90, 80, 90]


@pytest.mark.parametrize("equals", [10, 120], ids=["candidates", "more than fit"])
def test_top_k_keeps_all_that_tie_with_the_last(equals):
    logits = torch.full((2, VOCAB), -3.0)
    logits[:, 20 : 20 + equals] = 1.0
    logits[:, 5] = 2.0
    numbers = torch.tensor([0.5, 0.999], dtype=torch.float64)
    params = [SamplingParams(temperature=1.0, top_k=3)] * 2
    tokens = chosen(logits, params, numbers)
    assert tokens == [defined(logits[0], params[0], number) for number in numbers]
    assert max(tokens) == 20 + equals - 1


@pytest.mark.parametrize("equals", [8, 90], ids=["candidates", "more than fit"])
def test_of_equals_on_the_edge_of_top_p_the_lowest_ids_stay(equals):
    logits = torch.full((2, VOCAB), -torch.inf)
    logits[:, 100 : 100 + equals] = 1.0
    params = [SamplingParams(temperature=1.0, top_p=top_p) for top_p in (0.5, 1e-9)]
    numbers = torch.full((2,), 1 - 2**-53, dtype=torch.float64)
    assert chosen(logits, params, numbers) == [100 + equals // 2 - 1, 100]


def test_top_p_counts_what_min_p_and_top_k_left():
    probabilities = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log().expand(3, -1)
    last = torch.full((3,), 1 - 2**-53, dtype=torch.float64)
    params = [
        SamplingParams(temperature=1.0, top_p=0.55),  # 0.4 + 0.3
        SamplingParams(temperature=1.0, top_p=0.55, top_k=2),  # 4/7 alone
        SamplingParams(temperature=1.0, top_p=0.75, min_p=0.5),  # 4/9 + 3/9
    ]
    assert chosen(probabilities, params, last) == [1, 0, 1]


def test_min_p_one_keeps_the_likeliest_and_its_equals():
    logits = normal(2)
    logits[:, [40, 150]] = 30.0
    params = [SamplingParams(temperature=0.5, min_p=1.0)] * 2
    assert chosen(logits, params, torch.tensor([0.49, 0.51], dtype=torch.float64)) == [40, 150]


def test_top_k_beyond_the_candidates_reads_the_row_again():
    logits = normal(1, spread=5.0)
    params = [SamplingParams(temperature=2.0, top_k=100)]
    assert_defined(logits, params, uniforms(1, seed=3))


def test_rows_that_nothing_can_be_drawn_from_say_so_and_harm_no_other():
    logits = normal(6)
    logits[0] = -torch.inf
    logits[1, 130] = torch.nan
    logits[2, 199] = torch.inf
    logits[3, 0] = torch.nan
    params = [*[SamplingParams(temperature=1.0, top_k=5)] * 2, SamplingParams(temperature=1.0), SamplingParams()]
    params += [SamplingParams(temperature=1.0), SamplingParams()]
    tokens = chosen(logits, params, uniforms(6))
    assert tokens[:4] == [sampling.NOTHING] * 4
    assert tokens[4] == defined(logits[4], params[4], uniforms(6)[4]) and tokens[5] == int(logits[5].argmax())


def test_logits_far_apart_and_temperatures_at_their_ends():
    logits = normal(4, spread=1e4)
    logits[0, 17], logits[1, 18] = 3e38, -3e38
    params = [SamplingParams(temperature=t, top_p=p) for t, p in ((1.0, 1.0), (100.0, 0.9), (1e-5, 1.0), (1e-5, 0.5))]
    assert_defined(logits, params, uniforms(4))


def test_rows_of_a_wider_tensor_and_a_workspace_of_the_callers():
    wide = normal(4, 2 * VOCAB)
    logits = wide[:, :VOCAB]
    params = every(temperature=(1.0,), top_k=(0, 7), top_p=(1.0, 0.8))
    tokens = torch.empty(4, dtype=torch.int32)
    workspace = torch.full((sampling.workspace_numbers(4),), 12345, dtype=torch.int32)
    before = wide.clone()
    sampling.sample(
        logits, torch.ones(4, dtype=torch.float64), torch.tensor([0, 0, 7, 7], dtype=torch.int32),
        torch.tensor([1, 0.8, 1, 0.8], dtype=torch.float64), torch.zeros(4), uniforms(4), tokens, workspace,
    )  # fmt: skip
    assert torch.equal(wide, before)
    assert tokens.tolist() == [defined(logits[i], params[i], uniforms(4)[i]) for i in range(4)]


def test_no_rows():
    nothing = torch.empty(0)
    sampling.sample(torch.empty(0, 5), *[nothing] * 5, torch.empty(0, dtype=torch.int32))
