"""The ledger of a GPU's fused step against what its tensors take, on interpreted kernels."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F

from core_engine.executor.torch_executor import TorchExecutor
from core_engine.kernels.options import StepOptions
from core_engine.kv.format import KVFormat
from core_engine.model.decoder import Decoder
from ledger.memory import predict_ledger
from ledger.model_spec import ModelSpec
from ledger.step_kernels import StepKernels
from tests.ledger.test_against_engine import config, decoder_of

pytest.importorskip("triton", reason="triton is not installed")

MIB = 1024**2
LARGE_MLP = config(num_attention_heads=4, head_dim=16, hidden_size=64, intermediate_size=400, vocab_size=300)
LARGE_HEADS = config(num_attention_heads=8, head_dim=32, hidden_size=64, intermediate_size=80, vocab_size=300)
LARGE_HEAD = config(num_attention_heads=4, head_dim=16, hidden_size=64, intermediate_size=80, vocab_size=20_000)


@pytest.mark.parametrize(
    ("settings", "kv"),
    [
        pytest.param(LARGE_MLP, "fp32", marks=pytest.mark.slow),
        pytest.param(LARGE_HEADS, "fp32", marks=pytest.mark.slow),
        pytest.param(LARGE_HEADS, "int8", marks=pytest.mark.slow),
        (LARGE_HEAD, "fp32"),
    ],
    ids=["mlp", "heads", "heads, int8 KV", "head"],
)
def test_the_busiest_moment_is_predicted(monkeypatch: pytest.MonkeyPatch, settings: dict, kv: str) -> None:
    from core_engine.model import triton_decoder

    def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        gc.collect()  # the interpreter leaves what it was handed in cycles
        return F.linear(x, weight, bias)

    # On a CPU a product is held twice for a moment (kernels/linear.py); on a device it is not.
    monkeypatch.setattr(triton_decoder, "linear", product)
    monkeypatch.setattr("core_engine.model.decoder.linear", product)
    plain: Decoder = decoder_of(settings, torch.float32)
    decoder = triton_decoder.TritonDecoder(plain.spec, plain.weights)
    options = StepOptions(kv_splits=1)
    executor = TorchExecutor(
        decoder, block_size=16, kv_memory_bytes=MIB, options=options, kv_format=KVFormat(kv), num_slots=3
    )
    predicted = predict_ledger(
        ModelSpec.from_config(settings),
        dtype_bytes=4,
        kv_pool_bytes=MIB,
        kv=KVFormat(kv).blocks,
        max_num_batched_tokens=24,
        max_num_seqs=3,
        kernels=StepKernels(launched=True),
    )
    measured = executor.measure_activations(3, 24)
    assert measured == pytest.approx(predicted.account("activation_peak").bytes, rel=0.1)
