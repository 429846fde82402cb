"""Text deltas, stop strings, and the counter-based random stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from core_engine.request import SamplingParams
from core_engine.sampling import choose_token, uniform
from core_engine.text import TextStream
from ledger.errors import InputError


@pytest.mark.parametrize("text", ["plain words", "emoji 👩‍👩‍👧 family", "中文分词测试", "mixed é 你 🙂 end", "🙂"])
def test_joined_deltas_equal_decode_of_all_ids(tiny_loaded: LoadedModel, text: str) -> None:
    tokenizer = tiny_loaded.tokenizer
    ids = tokenizer.encode(text)
    stream = TextStream(tokenizer.decode, ())
    deltas = []
    for place, token in enumerate(ids):
        stream.push(token)
        deltas.append(stream.take(final=place == len(ids) - 1))
    assert "".join(deltas) == tokenizer.decode(ids) == text
    assert not any("�" in delta for delta in deltas)


def test_an_unfinished_character_at_the_end_is_shown_as_decode_shows_it(tiny_loaded: LoadedModel) -> None:
    tokenizer = tiny_loaded.tokenizer
    ids = tokenizer.encode("ab🙂")[:-1]
    stream = TextStream(tokenizer.decode, ())
    for token in ids:
        stream.push(token)
    assert stream.take(final=True) == tokenizer.decode(ids)


def test_a_stop_string_that_spans_tokens_is_never_sent(tiny_loaded: LoadedModel) -> None:
    tokenizer = tiny_loaded.tokenizer
    stream = TextStream(tokenizer.decode, ("STOP",))
    sent = ""
    for token in tokenizer.encode("go STO on STOP after"):
        stream.push(token)
        sent += stream.take(final=stream.stopped)
        if stream.stopped:
            break
    assert sent == stream.text == "go STO on "


def test_the_random_number_depends_on_seed_position_and_purpose_alone() -> None:
    base = uniform(1, 5)
    assert base == uniform(1, 5)
    assert (
        len({base, uniform(2, 5), uniform(1, 6), uniform(1, 5, sample_index=1), uniform(1, 5, purpose="accept")}) == 5
    )


def test_sampling_follows_the_softmax_distribution() -> None:
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0])
    draws = torch.tensor([choose_token(logits, 0.7, seed=3, position=i) for i in range(20_000)])
    counts = torch.bincount(draws, minlength=4).double()
    expected = torch.softmax(logits.double() / 0.7, -1) * len(draws)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 16.27  # 99.9 % point at 3 degrees of freedom; the draws are seeded, so this never flakes


def test_a_seeded_request_gives_the_same_ids_alone_batched_and_chunked(tiny_loaded: LoadedModel) -> None:
    prompt = list(range(3, 60))
    params = SamplingParams(max_tokens=20, temperature=0.9, seed=11, ignore_eos=True)
    results = []
    for settings, mates in [({}, 0), ({}, 5), ({"max_num_batched_tokens": 7}, 3), ({"block_size": 1}, 2)]:
        engine = Engine(EngineConfig.from_settings(settings), tiny_loaded)
        for mate in range(mates):
            engine.add(list(range(5 + mate, 40)), SamplingParams(max_tokens=30, temperature=1.0, ignore_eos=True))
        request_id = engine.add(prompt, params)
        while engine.has_unfinished():
            engine.step()
        results.append(engine.completion(request_id).token_ids)
    assert results.count(results[0]) == len(results)


def test_stop_reasons(tiny: tuple[Path, Any], tiny_loaded: LoadedModel) -> None:
    engine = Engine(EngineConfig.from_settings({}), tiny_loaded)
    free = engine.generate([list(range(3, 20))], SamplingParams(max_tokens=30, ignore_eos=True))[0]
    assert (free.finish_reason, len(free.token_ids)) == ("length", 30)
    stop = tiny_loaded.tokenizer.decode(free.token_ids[4:6])
    stopped = engine.generate([list(range(3, 20))], SamplingParams(max_tokens=30, stop=(stop,), ignore_eos=True))[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == free.text[: free.text.index(stop)]


@pytest.mark.parametrize(
    "wrong", [{"max_tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}, {"seed": -1}, {"stop": ("",)}]
)
def test_wrong_parameters_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        SamplingParams(**wrong)
