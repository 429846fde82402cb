"""An answer in a quantized format is the same however its tokens came into steps, and as the oracle says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.kv.format import KVFormat
from core_engine.model.loader import LoadedModel
from core_engine.request import SamplingParams
from tests.core_engine.conftest import load_fp32
from tests.core_engine.kv.formats import every_format, text_of

ANSWER = SamplingParams(max_tokens=12, ignore_eos=True)
PROMPT = [(7 * i * i + 3 * i) % 250 for i in range(45)]
FORMATS: list[dict[str, str]] = [
    {"kv_dtype": "bf16"},
    {"kv_dtype": "int8"},
    {"kv_dtype": "int4"},
    {"kv_dtype": "int4", "kv_key_axis": "token"},
    {"kv_dtype": "int4", "kv_protect": "outliers"},
    {"kv_dtype": "int4", "kv_protect": "sinks", "prefix_cache": "off"},
    {"kv_dtype": "int2"},
    {"kv_dtype": "int2", "kv_key_axis": "token", "kv_protect": "outliers"},
    {"kv_dtype": "int2", "kv_protect": "sinks", "prefix_cache": "off"},
]


def engine_of(loaded: LoadedModel, settings: dict[str, Any], blocks: int | None = None) -> Engine:
    config = EngineConfig.from_settings({"block_size": 5, "kv_memory_mib": 4, "max_num_seqs": 3, **settings})
    if blocks is None:
        return Engine(config, loaded)
    form, spec = KVFormat.from_config(config, loaded.weights.dtype), loaded.spec
    executor = TorchExecutor(
        loaded.decoder,
        block_size=config.block_size,
        kv_memory_bytes=blocks * form.blocks.block_bytes(spec, config.block_size),
        kv_format=form,
        num_slots=config.max_num_seqs,
    )
    return Engine(config, loaded, executor=executor)


def answers(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    return [completion.token_ids for completion in engine.generate(prompts, ANSWER)]


@pytest.fixture(scope="module", params=["torch", "auto"])
def loaded(tiny: tuple[Path, Any], request: pytest.FixtureRequest) -> LoadedModel:
    """The tiny model with torch's operators, and with compiled kernels where they can be had."""
    return load_fp32(tiny[0], kernels=request.param, threads=1)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: "-".join(form.values()))
def test_an_answer_does_not_depend_on_chunks_batches_prefix_hits_or_preemption(
    loaded: LoadedModel, form: dict[str, str]
) -> None:
    prompts = [PROMPT, PROMPT[:40], [*PROMPT[:31], 9, 9]]
    whole = [answers(engine_of(loaded, form), [prompt])[0] for prompt in prompts]
    for chunk in (1, 4, 7) if loaded.kernels.kernels == "compiled" else (7,):
        assert answers(engine_of(loaded, {**form, "max_num_batched_tokens": chunk}), prompts) == whole
    again = engine_of(loaded, form)
    assert answers(again, prompts) == whole
    assert answers(again, prompts) == whole  # with prefix hits where they are on
    if form.get("prefix_cache") != "off":
        assert again.record()["requests"][3]["prefix_hit_tokens"] == 40
    narrow = engine_of(loaded, form, blocks=19)
    assert answers(narrow, prompts) == whole
    assert narrow.scheduler.num_preemptions
    contiguous = engine_of(loaded, {**form, "kv_layout": "contiguous", "prefix_cache": "off", "batching": "static"})
    assert answers(contiguous, prompts) == whole
    samples = engine_of(loaded, form).generate(
        [PROMPT], SamplingParams(max_tokens=12, ignore_eos=True, n=3, temperature=1.0, top_k=1)
    )
    assert [sample.token_ids for sample in samples] == [whole[0]] * 3


@pytest.mark.parametrize("form", every_format(), ids=text_of)
def test_bytes_reported_are_bytes_allocated_and_what_the_ledger_says(
    tiny_loaded: LoadedModel, form: dict[str, str]
) -> None:
    engine = engine_of(tiny_loaded, form)
    executor, predicted = engine.executor, engine.predicted
    assert isinstance(executor, TorchExecutor)
    held = sum(tensor.untyped_storage().nbytes() for tensor in executor.cache_tensors())
    assert held == executor.kv_pool_bytes() + executor.padding_bytes() + executor.kv_tail_bytes()
    assert predicted.account("kv_pool").bytes == executor.kv_pool_bytes()
    assert predicted.account("padding_block").bytes == executor.padding_bytes()
    tails = [account.bytes for account in predicted.accounts if account.name == "kv_tail"]
    assert sum(tails) == executor.kv_tail_bytes()


def test_an_answer_in_the_models_own_format_is_what_it_was(tiny_loaded: LoadedModel) -> None:
    plain = answers(engine_of(tiny_loaded, {}), [PROMPT])
    assert answers(engine_of(tiny_loaded, {"kv_dtype": "fp32"}), [PROMPT]) == plain
