"""How many requests a fixed KV memory holds at once: the real scheduler against the ledger's prediction."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.batch import build_batch
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.kv.format import KVFormat
from core_engine.model.loader import LoadedModel, load_model
from core_engine.plan import GREEDY, Row
from core_engine.request import SamplingParams
from ledger.capacity import Deployment, deployment_ledger
from ledger.errors import CannotRunError, InputError
from ledger.kv_blocks import BlockFormat, admitted
from tests.core_engine.kv.formats import every_format, text_of

FORMATS = [
    {"kv_dtype": "auto"},
    {"kv_dtype": "int8"},
    {"kv_dtype": "int4"},
    {"kv_dtype": "int4", "kv_key_axis": "token"},
    {"kv_dtype": "int2"},
    {"kv_dtype": "int2", "kv_protect": "outliers"},
]


def admitted_at_once(loaded: LoadedModel, prompt: int, settings: dict) -> tuple[int, int]:
    """(measured, predicted) requests of `prompt` tokens that run together before any has been given a block more."""
    config = EngineConfig.from_settings(
        {"prefix_cache": "off", "kv_watermark": 0, "max_num_batched_tokens": 65_536, **settings}
    )
    form = KVFormat.from_config(config, loaded.weights.dtype)
    executor = TorchExecutor(  # as the engine makes it, but for the largest step that it would run to measure
        loaded.decoder,
        block_size=config.block_size,
        kv_memory_bytes=config.kv_memory_mib * 2**20,
        kv_format=form,
        num_slots=config.max_num_seqs,
    )
    engine = Engine(config, loaded, executor=executor)
    for number in range(config.max_num_seqs):
        engine.add([(number + i) % 250 for i in range(prompt)], SamplingParams(max_tokens=2))
    plan = engine.scheduler.plan(0)
    return len(plan.admitted), admitted(
        loaded.spec, form.blocks, config.kv_memory_mib * 2**20, config.block_size, prompt, config.max_num_seqs
    )


@pytest.mark.parametrize("form", every_format(), ids=text_of)
@pytest.mark.parametrize("block_size", [5, 16])
def test_as_many_are_admitted_as_the_ledger_says(tiny_loaded, form, block_size):
    settings = {**form, "block_size": block_size, "kv_memory_mib": 1, "max_num_seqs": 300}
    measured, predicted = admitted_at_once(tiny_loaded, 150, settings)
    assert 0 < measured == predicted


@pytest.mark.parametrize("form", every_format(), ids=text_of)
@pytest.mark.parametrize("block_size", [5, 16])
def test_the_calculator_counts_a_sequence_as_the_engine_holds_it(tiny_loaded, form, block_size):
    settings = {**form, "block_size": block_size, "kv_memory_mib": 1, "max_num_seqs": 3}
    engine = Engine(EngineConfig.from_settings(settings), tiny_loaded)
    axis, protect, length = form["kv_key_axis"], form["kv_protect"], 50
    name = "fp32" if form["kv_dtype"] == "auto" else form["kv_dtype"]
    d = Deployment(
        tiny_loaded.spec, "fp32", name, kv_key_axis=axis, kv_protect=protect, seq_len=length, concurrency=3,
        block_size=block_size, engine="trilemma", device="cpu",
    )  # fmt: skip
    blocks = -(-length // block_size) * 3
    held = engine.executor.kv_pool_bytes() // engine.pool.num_blocks * blocks + engine.executor.kv_tail_bytes()
    account = deployment_ledger(d).account("kv_cache")
    assert account.bytes == held


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: "-".join(form.values()))
def test_as_many_answers_of_the_embedded_model_are_admitted_as_the_ledger_says(embedded_dir: Path, form):
    loaded = load_model(EngineConfig.from_settings({"dtype": "fp32"}))
    settings = {**form, "kv_memory_mib": 16, "max_num_seqs": 128, "max_num_batched_tokens": 4096}
    measured, predicted = admitted_at_once(loaded, 32, settings)
    assert 0 < measured == predicted


def test_fewer_bits_hold_more_and_scales_are_counted(tiny_loaded):
    spec = tiny_loaded.spec
    held = [
        admitted(spec, BlockFormat(name), 2**20, 16, 30, 10**6) for name in ("fp32", "bf16", "int8", "int4", "int2")
    ]
    assert held == sorted(held) and held[4] < 8 * held[1]


@pytest.mark.parametrize("name", ["fp16", "fp8"])
def test_what_a_cpu_lacks_is_refused_with_the_reason(tiny_loaded, name):
    with pytest.raises(CannotRunError, match=f"kv_dtype={name}: "):
        Engine(EngineConfig.from_settings({"kv_dtype": name, "kv_memory_mib": 1}), tiny_loaded)


def test_heads_that_do_not_fill_bytes_are_refused():
    with pytest.raises(InputError, match="a multiple of 4"):
        KVFormat("int2").refuse_what_cannot_run(torch.device("cpu"), 6)


def test_axis_and_protection_without_a_format_for_them_are_refused_with_all_reasons():
    with pytest.raises(InputError) as refused:
        EngineConfig.from_settings({"kv_dtype": "int8", "kv_key_axis": "token", "kv_protect": "sinks"})
    for reason in ("kv_key_axis=token", "kv_protect=sinks", "prefix_cache=off"):
        assert reason in str(refused.value)


def test_fp8_and_fp16_elements_are_cast_when_written_and_read(tiny_loaded):
    """The path of a device that has them, on plain tensors."""
    decoder = tiny_loaded.decoder
    spec = decoder.spec
    rows = [Row("a", 0, tuple(range(11)), (0, 1, 2), True, GREEDY)]
    found = {}
    for dtype in (torch.float32, torch.float16, torch.float8_e4m3fn):
        cache = torch.zeros(spec.num_layers, 2, 4, 4, spec.num_kv_heads, spec.head_dim).to(dtype)
        batch = build_batch(rows, 4, torch.device("cpu"), padding_block=3)
        with torch.inference_mode():
            found[dtype] = decoder.logits(decoder.forward(batch.token_ids, batch.positions, cache, batch.attention))
    far = {dtype: (logits - found[torch.float32]).abs().mean() for dtype, logits in found.items()}
    assert 0 < far[torch.float16] < 0.01 and far[torch.float16] < far[torch.float8_e4m3fn] < 1


def test_the_calculator_refuses_axis_and_protection_where_nothing_has_them(tiny_loaded):
    for changes in ({"engine": "vllm", "kv_dtype": "int4"}, {"engine": "trilemma", "kv_dtype": "int8"}):
        with pytest.raises(InputError, match="--engine trilemma with int4 or int2"):
            Deployment(tiny_loaded.spec, kv_key_axis="token", **changes)
    with pytest.raises(InputError, match="none, sinks, outliers"):
        Deployment(tiny_loaded.spec, kv_protect="all")
