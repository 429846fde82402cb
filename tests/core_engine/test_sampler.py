"""A step's logits to its result: who is sampled from where, log-probabilities, and independence from batch mates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.sampler import SCORE_ROWS, logit_places, nothing_sampled, sample_step
from core_engine.model.loader import LoadedModel
from core_engine.plan import GREEDY, Row, RowSampling
from core_engine.sampling import choose_token
from core_engine.sampling_params import SamplingParams

VOCAB = 64


def row_of(name: str, start: int, count: int, sampling: RowSampling | None, targets: tuple[int, ...] = ()) -> Row:
    return Row(name, start, (1,) * count, (0,), is_prefill=count > 1, sampling=sampling, targets=targets)


def sampling_of(seed: int, **params: Any) -> RowSampling:
    return RowSampling(SamplingParams(**params), seed, 0, 2, (3, 4, 5, 5))


def test_places_follow_the_rows_and_skip_what_is_not_asked() -> None:
    rows = [row_of("a", 0, 3, None), row_of("b", 5, 1, GREEDY), row_of("c", 0, 4, GREEDY, (-1, 7, 8, -1))]
    assert logit_places(rows) == ([3, 5, 6, 7], [0, 0, 1])


def test_a_row_with_targets_and_a_sample_uses_its_last_logits() -> None:
    rows = [row_of("a", 0, 3, GREEDY, (4, 5, -1)), row_of("b", 0, 1, GREEDY)]
    wanted, places = logit_places(rows)
    logits = torch.randn(len(wanted), VOCAB, generator=torch.Generator().manual_seed(0))
    result = sample_step(rows, logits, places)
    assert result.tokens == (int(logits[2].argmax()), int(logits[3].argmax()))
    log_probs = torch.log_softmax(logits.double(), -1)
    assert result.scores == ((float(log_probs[0, 4]), float(log_probs[1, 5])), ())
    assert result.logprobs == ()


def test_a_step_of_prompt_parts_samples_nothing() -> None:
    rows = [row_of("a", 0, 3, None), row_of("b", 0, 2, None)]
    assert logit_places(rows)[0] == []
    assert nothing_sampled(rows).tokens == (None, None) and nothing_sampled(rows).scores == ((), ())


def test_greedy_takes_the_lowest_id_among_equals_in_a_batch() -> None:
    logits = torch.zeros(3, VOCAB)
    logits[0, [9, 20]] = 1
    logits[2, [63, 5]] = 2
    rows = [row_of(str(i), 4, 1, GREEDY) for i in range(3)]
    assert sample_step(rows, logits, [0, 1, 2]).tokens == (9, 0, 5)


SAMPLINGS = [
    GREEDY,
    sampling_of(1, temperature=1.0),
    sampling_of(2, temperature=0.7, top_p=0.9, logprobs=3),
    sampling_of(3, repetition_penalty=1.3, logprobs=0),
    sampling_of(4, temperature=1.4, top_k=10, min_p=0.01, frequency_penalty=0.5),
    GREEDY,
    None,
]


@pytest.mark.parametrize("seed", range(4))
def test_a_rows_result_does_not_depend_on_its_batch_mates(seed: int) -> None:
    logits = torch.randn(len(SAMPLINGS), 5000, generator=torch.Generator().manual_seed(seed))
    rows = [row_of(str(i), 10 + i, 1, sampling) for i, sampling in enumerate(SAMPLINGS)]
    alone = [sample_step([row], logits[i : i + 1] if row.sample else logits[:0], [0]) for i, row in enumerate(rows)]
    for order in (range(7), range(6, -1, -1), (3, 1, 6, 2), (5, 6, 4)):
        mates = [rows[i] for i in order]
        wanted = [i for i in order if rows[i].sample]
        places = logit_places(mates)[1]
        together = sample_step(mates, logits[torch.tensor(wanted)], places)
        assert together.tokens == tuple(alone[i].tokens[0] for i in order)
        if together.logprobs:
            assert together.logprobs == tuple(alone[i].logprobs[0] if alone[i].logprobs else () for i in order)


def test_the_position_is_the_index_of_the_token_in_its_sequence() -> None:
    logits = torch.zeros(1, VOCAB)
    sampling = sampling_of(9, temperature=1.0)
    for start, count in ((4, 1), (0, 5)):  # decode, and the same place as the end of a prompt
        assert sample_step([row_of("a", start, count, sampling)], logits, [0]).tokens[0] == choose_token(
            logits[0], sampling, 5
        )


@pytest.mark.parametrize(("params", "count"), [({"logprobs": 0}, 0), ({"logprobs": 5}, 5), ({"logprobs": 20}, 12)])
def test_logprobs_are_of_the_models_own_distribution(params: dict[str, Any], count: int) -> None:
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(1))
    sampling = RowSampling(
        SamplingParams(temperature=0.3, top_k=2, logit_bias=((7, 50.0),), repetition_penalty=2.0, **params),
        0,
        0,
        1,
        (7,),
    )
    result = sample_step([row_of("a", 3, 1, sampling)], logits, [0])
    expected = torch.log_softmax(logits[0].double(), -1)
    assert result.tokens == (7,)
    assert len(result.logprobs[0]) == 1
    assert result.logprobs[0][0].chosen == pytest.approx(float(expected[7]), abs=1e-12)
    order = expected.argsort(descending=True)[:count].tolist()
    assert [token for token, _ in result.logprobs[0][0].top] == order
    assert [value for _, value in result.logprobs[0][0].top] == pytest.approx(expected[order].tolist(), abs=1e-12)


def test_equal_logprobs_are_listed_by_lowest_id() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 50] = 1
    result = sample_step([row_of("a", 3, 1, sampling_of(0, logprobs=3))], logits, [0])
    assert len(result.logprobs[0]) == 1
    assert [token for token, _ in result.logprobs[0][0].top] == [50, 0, 1]


def test_scores_of_a_long_text_equal_those_in_one_piece() -> None:
    count = 2 * SCORE_ROWS + 3
    targets = tuple(i % VOCAB for i in range(count))
    logits = torch.randn(count, VOCAB, generator=torch.Generator().manual_seed(5))
    result = sample_step([row_of("a", 0, count, None, targets)], logits, [0])
    expected = torch.log_softmax(logits.double(), -1)[torch.arange(count), torch.tensor(targets)]
    assert result.scores[0] == tuple(expected.tolist())
    assert result.tokens == (None,)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.9},
        {"temperature": 1.1, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
        {"temperature": 0.0, "logit_bias": ((9, 3.0),)},
    ],
)
def test_a_seeded_request_gives_the_same_ids_alone_batched_and_chunked(
    tiny_loaded: LoadedModel, params: dict[str, Any]
) -> None:
    prompt = list(range(3, 60))
    asked = SamplingParams(max_tokens=20, seed=11, ignore_eos=True, **params)
    results = []
    for settings, mates in [({}, 0), ({}, 5), ({"max_num_batched_tokens": 7}, 3), ({"block_size": 1}, 2)]:
        engine = Engine(EngineConfig.from_settings(settings), tiny_loaded)
        for mate in range(mates):
            engine.add(list(range(5 + mate, 40)), SamplingParams(max_tokens=30, temperature=1.0, ignore_eos=True))
        request_id = engine.add(prompt, asked)
        while engine.has_unfinished():
            engine.step()
        results.append(engine.completion(request_id).token_ids)
    assert results.count(results[0]) == len(results)


@pytest.mark.parametrize(
    "params",
    [
        {"repetition_penalty": 1.4},
        {"frequency_penalty": 1.5, "presence_penalty": 1.0},
        {"repetition_penalty": 0.7, "frequency_penalty": -0.5, "presence_penalty": 2.0, "min_tokens": 9},
    ],
)
@pytest.mark.parametrize("settings", [{}, {"max_num_batched_tokens": 5}])
def test_penalised_greedy_answers_equal_a_plain_loop_over_transformers(
    tiny: tuple[Path, Any], tiny_loaded: LoadedModel, params: dict[str, Any], settings: dict[str, Any]
) -> None:
    prompt = [5, 9, 9, 20, 31, 77]
    tokens = list(prompt)
    for _ in range(24):
        with torch.no_grad():
            logits = tiny[1](torch.tensor([tokens])).logits[0, -1].double()
        for token in set(tokens):
            by = params.get("repetition_penalty", 1.0)
            logits[token] = logits[token] / by if logits[token] > 0 else logits[token] * by
        for token in set(tokens[len(prompt) :]):
            count = tokens[len(prompt) :].count(token)
            logits[token] -= params.get("frequency_penalty", 0) * count + params.get("presence_penalty", 0)
        if len(tokens) - len(prompt) < params.get("min_tokens", 0):
            logits[0] = -torch.inf  # the model's end token
        tokens.append(int(logits.argmax()))
        if tokens[-1] == 0:
            break
    engine = Engine(EngineConfig.from_settings(settings), tiny_loaded)
    assert engine.generate([prompt], SamplingParams(max_tokens=24, **params))[0].token_ids == tokens[len(prompt) :]


def test_top_k_one_is_greedy(tiny_loaded: LoadedModel) -> None:
    prompt = list(range(3, 20))
    answers = [
        Engine(EngineConfig.from_settings({}), tiny_loaded).generate([prompt], params)[0].token_ids
        for params in (
            SamplingParams(max_tokens=12, ignore_eos=True),
            SamplingParams(max_tokens=12, ignore_eos=True, temperature=1.0, top_k=1),
            SamplingParams(max_tokens=12, ignore_eos=True, temperature=1.0, top_p=1e-6),
        )
    ]
    assert answers[0] == answers[1] == answers[2]
