"""Models of real shapes with random weights, made on the device: no file is read, and their answers mean nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.kernels.choice import choose_kernels
from core_engine.model.decoder import DecoderWeights, assemble
from core_engine.model.loader import LoadedModel, decoder_of
from core_engine.model.spec import DecoderSpec
from core_engine.model.tokenizer import Tokenizer
from core_engine.quant.matrix import QuantizedMatrix
from ledger.model_spec import ModelSpec
from ledger.weights import parameter_shapes

LLAMA3 = {
    "model_type": "llama",
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "num_key_value_heads": 8,
    "num_attention_heads": 32,
    "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500_000.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "factor": 8.0,
    },
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B": {
        **LLAMA3, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "Llama-3.1-8B": {
        **LLAMA3, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "head_dim": 128,
        "tie_word_embeddings": False,
    },
    "Qwen2.5-7B": {
        "model_type": "qwen2", "vocab_size": 152_064, "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6,
        "num_key_value_heads": 4, "num_attention_heads": 28, "hidden_size": 3584, "intermediate_size": 18_944,
        "num_hidden_layers": 28, "rope_theta": 1e6, "tie_word_embeddings": False,
    },
    # embedded-wide: SmolLM2-135M with an MLP six times as wide
    "enlarged target": {
        "model_type": "llama", "vocab_size": 49_152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "num_key_value_heads": 3, "num_attention_heads": 9, "hidden_size": 576, "intermediate_size": 9216,
        "num_hidden_layers": 30, "rope_theta": 1e5, "tie_word_embeddings": True,
    },
}  # fmt: skip
GROUP = 64


def random_weights(config: dict[str, Any], dtype: torch.dtype, device: torch.device, weights: str) -> DecoderWeights:
    """Normal numbers of deviation 0.02; with weights "w4a16-rtn" or "w8a8" the linear layers are random codes."""
    spec = ModelSpec.from_config(config)
    named: dict[str, torch.Tensor | QuantizedMatrix] = {}
    for name, shape in parameter_shapes(spec).items():
        if weights != "none" and name.endswith("_proj.weight"):
            named[name] = _codes(shape, weights, device)
        elif name.endswith("norm.weight"):
            named[name] = torch.ones(shape, dtype=dtype, device=device)
        else:
            named[name] = torch.empty(shape, dtype=dtype, device=device).normal_(0, 0.02)
    return assemble(DecoderSpec.from_config(config), named)


def _codes(shape: tuple[int, ...], weights: str, device: torch.device) -> QuantizedMatrix:
    """What quantizing would give, near enough for speed: 4 bits in groups of 64, or 8 bits a row with int8 inputs."""
    out, depth = shape
    four = weights == "w4a16-rtn"
    bits, group = (4, GROUP) if four else (8, depth)
    codes = torch.randint(0, 2**bits, shape, dtype=torch.uint8, device=device)
    scale = torch.full((out, depth // group), 0.02 / 2 ** (bits - 2), dtype=torch.float16, device=device)
    return QuantizedMatrix(bits, group, codes, scale, activation_group=None if four else 32)


def random_model(
    name: str, settings: dict[str, Any], config: dict[str, Any] | None = None, device: torch.device | None = None
) -> LoadedModel:
    """A model of SHAPES, or of `config`, as the engine loads one; weights and kernels by `settings`."""
    config = config or SHAPES[name]
    engine = EngineConfig.from_settings(settings)
    device = device or torch.device("cuda")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    spec = DecoderSpec.from_config(config)
    kernels = choose_kernels(engine, device, dtype, spec.head_dim)
    decoder = decoder_of(kernels, spec, random_weights(config, dtype, device, engine.weights))
    return LoadedModel(name, decoder, _tokenizer(spec.vocab_size), ModelSpec.from_config(config, name), kernels)


def _tokenizer(vocab_size: int) -> Tokenizer:
    """One token a byte, and behind them tokens that spell their own number."""
    from tokenizers import Tokenizer as Made
    from tokenizers import decoders, models, pre_tokenizers

    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(f"<{number}>" for number in range(256, vocab_size))]
    made = Made(models.BPE(vocab={name: number for number, name in enumerate(names[:vocab_size])}, merges=[]))
    made.decoder = decoders.ByteLevel()
    with tempfile.TemporaryDirectory() as directory:
        made.save(str(Path(directory) / "tokenizer.json"))
        return Tokenizer(Path(directory), ())
