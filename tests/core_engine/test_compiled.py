"""The compiled step against the torch decoder: same logits and same KV, every family, format, row shape, split."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core_engine.executor.batch import build_batch
from core_engine.kernels.options import StepOptions
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder, assemble
from core_engine.model.spec import DecoderSpec
from core_engine.plan import GREEDY, Row
from ledger.model_spec import ModelSpec
from ledger.weights import parameter_shapes

pytestmark = pytest.mark.usefixtures("compiled_kernels")
BLOCK, NUM_BLOCKS = 4, 80


def config(model_type="llama", **changes):
    return {
        "model_type": model_type, "hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 3,
        "vocab_size": 163,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
        "tie_word_embeddings": True, **changes,
    }  # fmt: skip


CONFIGS = {
    "llama": config(),
    "every head its own keys": config(num_key_value_heads=6),
    "one key head for ten": config(num_attention_heads=10, num_key_value_heads=1),
    "biases, own head": config(attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    "wide heads": config(head_dim=48),
    "mistral window": config("mistral", sliding_window=11),
    "qwen2": config("qwen2", head_dim=12, num_attention_heads=6, hidden_size=96) | {"head_dim": 16},
    "qwen3 half windowed": config("qwen3", use_sliding_window=True, sliding_window=9, max_window_layers=1),
}


def torchs_model(settings, *dtypes):
    """The torch decoder with random weights, rounded to one dtype after the other."""
    torch.manual_seed(0)
    spec = DecoderSpec.from_config(settings)
    named = {}
    for name, shape in parameter_shapes(ModelSpec.from_config(settings)).items():
        named[name] = torch.randn(shape) * 0.2 + name.endswith("norm.weight")
        for dtype in dtypes:
            named[name] = named[name].to(dtype)
    return Decoder(spec, assemble(spec, named))


def models(settings, *dtypes, kernels=None):
    """The same, and the compiled one with its weights."""
    decoder = torchs_model(settings, *dtypes)
    return decoder, CompiledDecoder(decoder.spec, decoder.weights, kernels)


def empty_cache(spec, dtype):
    return torch.zeros(spec.num_layers, 2, NUM_BLOCKS + 1, BLOCK, spec.num_kv_heads, spec.head_dim, dtype=dtype)


def by_torch(decoder, rows, wanted, cache):
    batch = build_batch(rows, BLOCK, torch.device("cpu"), padding_block=NUM_BLOCKS, windows=decoder.spec.windows)
    with torch.inference_mode():
        hidden = decoder.forward(batch.token_ids, batch.positions, cache, batch.attention)
        return decoder.logits(hidden[torch.tensor(wanted)])


def row(place, start, count, room=20):
    """Blocks of a sequence are scattered: place, place + 4, ..."""
    tokens = tuple((7 * place + 3 * (start + i)) % 163 for i in range(count))
    return Row(f"r{place}", start, tokens, tuple(range(place, place + 4 * room, 4)), count > 1, GREEDY)


STEPS = [
    [row(0, 0, 70), row(1, 0, 1), row(2, 0, 5)],  # prompts, one of them longer than a chunk of keys
    [row(0, 70, 1), row(1, 1, 9), row(2, 5, 1)],  # decodes beside a chunk
    [row(0, 71, 1)],  # alone: its keys are split between the threads
    [row(2, 6, 3), row(1, 10, 1), row(0, 72, 7)],
]


OPTIONS = {
    "all on": StepOptions(),
    "operator by operator": StepOptions(one_call=False),
    "nothing fused": StepOptions(fused_ops=False),
    "scores stored": StepOptions(flash=False),
    "one range of keys": StepOptions(kv_splits=1),
    "more ranges than chunks of keys": StepOptions(kv_splits=32),
    "all off": StepOptions(one_call=False, fused_ops=False, flash=False, kv_splits=1),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("how", OPTIONS)
def test_float32_logits_and_cache_are_torchs(name, how):
    decoder, compiled = models(CONFIGS[name], torch.float32)
    ours, theirs = empty_cache(decoder.spec, torch.float32), empty_cache(decoder.spec, torch.float32)
    for rows in STEPS:
        wanted = list(range(sum(row.count for row in rows)))
        expected = by_torch(decoder, rows, wanted, theirs)
        torch.testing.assert_close(compiled.step(rows, wanted, ours, OPTIONS[how]), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_bf16_is_nearer_to_float32_than_torchs_bf16(name):
    """Arithmetic is float32 inside: only weights and KV are rounded."""
    rounded, _ = models(CONFIGS[name], torch.bfloat16, torch.float32)
    decoder, compiled = models(CONFIGS[name], torch.bfloat16)
    caches = [empty_cache(decoder.spec, dtype) for dtype in (torch.float32, torch.bfloat16, torch.bfloat16)]
    rows, wanted = STEPS[0], list(range(76))
    reference = by_torch(rounded, rows, wanted, caches[0])
    theirs, ours = by_torch(decoder, rows, wanted, caches[1]), compiled.step(rows, wanted, caches[2])
    assert (ours - reference).abs().mean() < (theirs - reference).abs().mean()


def test_asking_for_fewer_logits_changes_none_of_them():
    decoder, compiled = models(CONFIGS["llama"], torch.float32)
    rows = STEPS[0]
    every = compiled.step(rows, list(range(76)), empty_cache(decoder.spec, torch.float32))
    some = compiled.step(rows, [69, 70, 75], empty_cache(decoder.spec, torch.float32))
    torch.testing.assert_close(some, every[[69, 70, 75]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "biases, own head"])
def test_the_best_ids_are_the_lowest_of_the_largest_logits(name):
    decoder, compiled = models(CONFIGS[name], torch.float32)
    best = np.full(76, -1, dtype=np.int32)
    logits = compiled.step(
        STEPS[0], list(range(76)), empty_cache(decoder.spec, torch.float32), StepOptions(), best
    ).numpy()
    assert best.tolist() == logits.argmax(axis=-1).tolist()


def test_the_time_of_every_operator_that_ran_is_told_and_of_no_other():
    decoder, compiled = models(CONFIGS["llama"], torch.float32)
    names = compiled.operator_names()
    compiled.operator_ns = np.zeros(len(names), dtype=np.int64)
    compiled.step(STEPS[0], [75], empty_cache(decoder.spec, torch.float32))
    ran = {name for name, ns in zip(names, compiled.operator_ns, strict=True) if ns}
    assert {"embed", "qkv", "attend", "gate_up", "down", "head"} <= ran and not ran & {"query", "gate", "score", "best"}
