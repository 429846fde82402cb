"""Tiny random models made with transformers (the oracle), and the embedded model when its wheel is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.model.embedded import ensure_embedded, find_gguf
from core_engine.model.loader import LoadedModel, load_model
from ledger.errors import CannotRunError


def write_tokenizer(directory: Path) -> None:
    """A byte-level tokenizer of 256 tokens: every text round-trips and multi-byte characters span tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))


TINY: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
    "bos_token_id": 1,
    "initializer_range": 0.3,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 10000.0,
}
# Name -> class prefix in transformers, and what differs from TINY. Windows are shorter than the tests' longest prompts;
# seeds are such that the reference's greedy choices are clear (oracle.greedy_reference asserts it).
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": False, "seed": 1}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "seed": 1}),
    "smollm2": (
        "Llama",
        {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72, "rope_theta": 1e5, "seed": 1},
    ),
    "mistral": ("Mistral", {"sliding_window": 21, "tie_word_embeddings": False, "head_dim": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3-layer-types": (
        "Qwen3",
        {
            "head_dim": 8,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 17,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
}


def make_tiny(family: str, directory: Path, **changes: Any) -> Any:
    """Save a tiny random model of a family of FAMILIES with tokenizer into `directory`; returns transformers' model.

    Biases and norms are random too: left at zero and one, as initialised, they would hide a mistake.
    """
    import transformers

    name, own = FAMILIES[family]
    settings = {**TINY, **own, **changes}
    seed = settings.pop("seed", 0)
    if "rope_parameters" in settings:
        del settings["rope_theta"]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**settings)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias"):
                parameter.normal_(0, 0.3)
            elif "norm" in parameter_name and family != "llama":
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(directory)
    write_tokenizer(directory)
    return model


def make_llama(directory: Path, **changes: Any) -> Any:
    """Save a tiny random Llama with tokenizer into `directory` and return the transformers model."""
    return make_tiny("llama", directory, **changes)


def load_fp32(path: Path, **settings: Any) -> LoadedModel:
    """A model directory or GGUF file as the engine loads it, in fp32 and with torch operators unless told otherwise."""
    return load_model(EngineConfig.from_settings({"model": str(path), "dtype": "fp32", "kernels": "torch", **settings}))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Directory and transformers model of a tiny tied Llama."""
    directory = tmp_path_factory.mktemp("tiny")
    return directory, make_llama(directory)


@pytest.fixture(scope="session")
def tiny_loaded(tiny: tuple[Path, Any]) -> LoadedModel:
    """The same model, loaded by the engine in fp32."""
    return load_fp32(tiny[0])


@pytest.fixture(scope="session")
def embedded_dir() -> Path:
    """The converted embedded model; skips when the wheel is not installed."""
    try:
        find_gguf()
    except CannotRunError as error:
        pytest.skip(str(error))
    return ensure_embedded()
