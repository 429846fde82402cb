"""Predicted against what the engine's executor really holds and allocates, on small random models."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from core_engine.executor.torch_executor import TorchExecutor  # noqa: E402
from core_engine.model.decoder import Decoder, assemble  # noqa: E402
from core_engine.model.spec import DecoderSpec  # noqa: E402
from ledger.memory import predict_ledger  # noqa: E402
from ledger.model_spec import ModelSpec  # noqa: E402
from ledger.weights import parameter_shapes  # noqa: E402

MIB = 2**20


def config(**changes):
    return {
        "model_type": "llama", "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 3, "vocab_size": 1000,
        "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 2048,
        "tie_word_embeddings": True, **changes,
    }  # fmt: skip


SHAPES = [
    (config(), 4, 512, 4),
    (config(vocab_size=50_000, tie_word_embeddings=False), 1, 16, 16),
    (config(hidden_size=256, intermediate_size=128, num_attention_heads=16), 2, 256, 4),
    (config(), 32, 16, 8),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("settings", "pool_mib", "max_tokens", "max_seqs"), SHAPES)
def test_weights_and_pool_to_the_byte_and_peak_within_a_tenth(settings, pool_mib, max_tokens, max_seqs, dtype):
    spec = ModelSpec.from_config(settings)
    decoder_spec = DecoderSpec.from_config(settings)
    tensors = {name: torch.randn(shape).to(dtype) * 0.02 for name, shape in parameter_shapes(spec).items()}
    weights = assemble(decoder_spec, tensors)
    executor = TorchExecutor(Decoder(decoder_spec, weights), block_size=16, kv_memory_bytes=pool_mib * MIB)
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
