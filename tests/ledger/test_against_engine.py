"""Predicted against what the engine's executor really holds and allocates, on small random models."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from core_engine.executor.torch_executor import TorchExecutor  # noqa: E402
from core_engine.model.decoder import Decoder, assemble  # noqa: E402
from core_engine.model.spec import DecoderSpec  # noqa: E402
from ledger.kv_cache import kv_bytes_per_token_all_layers  # noqa: E402
from ledger.memory import predict_ledger  # noqa: E402
from ledger.model_spec import ModelSpec  # noqa: E402
from ledger.weights import parameter_shapes, weight_bytes  # noqa: E402

MIB = 2**20


def config(**changes):
    return {
        "model_type": "llama", "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 3, "vocab_size": 1000,
        "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 2048,
        "tie_word_embeddings": True, **changes,
    }  # fmt: skip


def qwen(model_type, **changes):
    return config(model_type=model_type, head_dim=32, max_window_layers=1, sliding_window=64, **changes)


# One a family and switch that changes what is held. Windows change what is read, not what the paged pool holds.
FAMILIES = {
    "llama": config(),
    "llama-biases": config(attention_bias=True, mlp_bias=True),
    "llama-own-head": config(tie_word_embeddings=False, head_dim=48),
    "mistral": config(model_type="mistral", sliding_window=100, tie_word_embeddings=False),
    "qwen2": qwen("qwen2"),
    "qwen2-window": qwen("qwen2", use_sliding_window=True),
    "qwen3": qwen("qwen3"),
    "qwen3-biases": qwen("qwen3", attention_bias=True, tie_word_embeddings=False),
}

SHAPES = [
    (config(), 4, 512, 4),
    (config(vocab_size=50_000, tie_word_embeddings=False), 1, 16, 16),
    (config(hidden_size=256, intermediate_size=128, num_attention_heads=16), 2, 256, 4),
    (config(), 32, 16, 8),
    (FAMILIES["qwen3-biases"], 4, 512, 4),
    (FAMILIES["mistral"], 4, 256, 4),
]


def decoder_of(settings, dtype):
    """A random decoder of a config: it loads only if the ledger's table lists exactly the tensors the engine takes."""
    shapes = parameter_shapes(ModelSpec.from_config(settings))
    spec = DecoderSpec.from_config(settings)
    return Decoder(spec, assemble(spec, {name: torch.randn(shape).to(dtype) * 0.02 for name, shape in shapes.items()}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_holds_the_ledgers_bytes(family, dtype):
    settings = FAMILIES[family]
    spec, decoder = ModelSpec.from_config(settings), decoder_of(settings, dtype)
    held = sum(tensor.nelement() * tensor.element_size() for tensor in decoder.weights.tensors())
    assert weight_bytes(spec, dtype.itemsize) == decoder.weights.num_bytes() == held
    executor = TorchExecutor(decoder, block_size=16, kv_memory_bytes=MIB)
    per_token = kv_bytes_per_token_all_layers(spec, dtype.itemsize)
    assert executor.kv_pool_bytes() == per_token * executor.num_blocks * 16
    assert executor.padding_bytes() == per_token * 16
    assert [layer.window for layer in spec.layers] == list(decoder.spec.windows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("settings", "pool_mib", "max_tokens", "max_seqs"), SHAPES)
def test_weights_and_pool_to_the_byte_and_peak_within_a_tenth(settings, pool_mib, max_tokens, max_seqs, dtype):
    spec = ModelSpec.from_config(settings)
    decoder = decoder_of(settings, dtype)
    weights = decoder.weights
    executor = TorchExecutor(decoder, block_size=16, kv_memory_bytes=pool_mib * MIB)
    predicted = predict_ledger(
        spec,
        dtype_bytes=dtype.itemsize,
        kv_pool_bytes=pool_mib * MIB,
        max_num_batched_tokens=max_tokens,
        max_num_seqs=max_seqs,
    )
    assert predicted.account("weights").bytes == weights.num_bytes()
    assert predicted.account("kv_pool").bytes == executor.kv_pool_bytes()
    measured = executor.measure_activations(max_seqs, max_tokens)
    assert measured == pytest.approx(predicted.account("activation_peak").bytes, rel=0.1)
