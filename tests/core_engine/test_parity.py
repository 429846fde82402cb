"""Greedy token ids in fp32 equal transformers', alone and in a mixed batch, whatever the blocks and chunks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.model.loader import LoadedModel, load_model
from core_engine.request import SamplingParams
from tests.core_engine.conftest import make_llama


def reference_ids(model: Any, prompt: list[int], new_tokens: int) -> list[int]:
    """transformers' greedy continuation; without end tokens, so that it neither stops at one nor suppresses it."""
    model.generation_config.eos_token_id = None
    out = model.generate(torch.tensor([prompt]), max_new_tokens=new_tokens, do_sample=False, pad_token_id=0)
    return out[0, len(prompt) :].tolist()


def full_pass_reference(model: Any, prompt: list[int], new_tokens: int) -> list[int]:
    """Greedy by one full forward pass a token: no cache and no logit processor of the reference takes part."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(new_tokens):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def random_prompts(count: int, vocab: int, longest: int) -> list[list[int]]:
    """Prompts of 1 to `longest` tokens, both ends included."""
    rng = random.Random(7)
    lengths = [1, longest, *(rng.randint(1, longest) for _ in range(count - 2))]
    return [[rng.randrange(3, vocab) for _ in range(length)] for length in lengths]


def engine_ids(loaded: LoadedModel, prompts: list[list[int]], new_tokens: int, **settings: Any) -> list[list[int]]:
    """Greedy ids of our engine, all prompts in one batch."""
    engine = Engine(EngineConfig.from_settings(settings), loaded)
    answers = engine.generate(prompts, SamplingParams(max_tokens=new_tokens, ignore_eos=True))
    assert engine.pool.num_used == 0
    return [answer.token_ids for answer in answers]


@pytest.fixture(scope="module")
def cases(tiny: tuple[Path, Any]) -> tuple[list[list[int]], list[list[int]]]:
    prompts = random_prompts(20, 256, 300)
    return prompts, [full_pass_reference(tiny[1], prompt, 12) for prompt in prompts]


@pytest.mark.parametrize("block_size", [1, 16, 64])
@pytest.mark.parametrize("batching", ["continuous", "static", "dynamic"])
def test_a_mixed_batch_gives_the_reference_ids(
    tiny_loaded: LoadedModel, cases: tuple[list[list[int]], list[list[int]]], block_size: int, batching: str
) -> None:
    prompts, expected = cases
    assert engine_ids(tiny_loaded, prompts, 12, block_size=block_size, batching=batching, max_num_seqs=7) == expected


@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_a_lone_request_gives_the_reference_ids(
    tiny_loaded: LoadedModel, cases: tuple[list[list[int]], list[list[int]]], block_size: int
) -> None:
    for prompt, expected in zip(*cases, strict=True):
        assert engine_ids(tiny_loaded, [prompt], 12, block_size=block_size) == [expected]


@pytest.mark.parametrize("budget", [1, 7, 15, 16, 17])
def test_prefill_chunks_of_any_size_give_the_reference_ids(
    tiny_loaded: LoadedModel, cases: tuple[list[list[int]], list[list[int]]], budget: int
) -> None:
    prompts, expected = cases
    assert engine_ids(tiny_loaded, prompts[2:6], 12, max_num_batched_tokens=budget) == expected[2:6]


def test_preemption_under_a_tiny_pool_changes_no_ids(tiny: tuple[Path, Any], tiny_loaded: LoadedModel) -> None:
    prompts = random_prompts(6, 256, 40)
    spec = tiny_loaded.decoder.spec
    block_bytes = 2 * spec.num_layers * 16 * spec.num_kv_heads * spec.head_dim * 4
    executor = TorchExecutor(tiny_loaded.decoder, block_size=16, kv_memory_bytes=block_bytes * 6)
    engine = Engine(EngineConfig.from_settings({}), tiny_loaded, executor=executor)
    answers = engine.generate(prompts, SamplingParams(max_tokens=40, ignore_eos=True))
    assert engine.scheduler.num_preemptions > 0
    assert [answer.token_ids for answer in answers] == [full_pass_reference(tiny[1], prompt, 40) for prompt in prompts]


def test_an_untied_head_and_own_head_size_give_the_reference_ids(tmp_path: Path) -> None:
    model = make_llama(tmp_path, tie_word_embeddings=False, head_dim=16)
    loaded = load_model(EngineConfig.from_settings({"model": str(tmp_path), "dtype": "fp32"}))
    prompts = random_prompts(4, 256, 60)
    assert engine_ids(loaded, prompts, 10) == [full_pass_reference(model, prompt, 10) for prompt in prompts]


def test_scores_equal_the_reference_log_probabilities(tiny: tuple[Path, Any], tiny_loaded: LoadedModel) -> None:
    ids = random_prompts(3, 256, 90)[1]
    for budget in (256, 7):
        engine = Engine(EngineConfig.from_settings({"max_num_batched_tokens": budget}), tiny_loaded)
        with torch.inference_mode():
            logits = tiny[1](torch.tensor([ids])).logits[0].double().log_softmax(-1)
        expected = [float(logits[i - 1, ids[i]]) for i in range(40, len(ids))]
        assert engine.score(ids, 40) == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_the_embedded_model_gives_the_reference_ids_for_every_block_size(embedded_dir: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(embedded_dir, dtype=torch.float32).eval()
    loaded = load_model(EngineConfig.from_settings({"dtype": "fp32"}))
    template = (embedded_dir / "tokenizer_config.json").read_text("utf-8")
    ids = loaded.tokenizer.encode(template + " The history of the city begins with a river. " * 40)
    lengths = [1, 2, 3, 5, 8, 13, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 128, 200, 257, 300]
    prompts = [ids[5 * i : 5 * i + length] for i, length in enumerate(lengths)]
    expected = [reference_ids(model, prompt, 16) for prompt in prompts]
    for block_size in (1, 16, 64):
        assert engine_ids(loaded, prompts, 16, block_size=block_size) == expected
        assert [engine_ids(loaded, [prompt], 16, block_size=block_size)[0] for prompt in prompts] == expected
