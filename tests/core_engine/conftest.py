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


def make_llama(directory: Path, **changes: Any) -> Any:
    """Save a tiny random Llama with tokenizer into `directory` and return the transformers model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: dict[str, Any] = {
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
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).eval()
    model.save_pretrained(directory)
    write_tokenizer(directory)
    return model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Directory and transformers model of a tiny tied Llama."""
    directory = tmp_path_factory.mktemp("tiny")
    return directory, make_llama(directory)


@pytest.fixture(scope="session")
def tiny_loaded(tiny: tuple[Path, Any]) -> LoadedModel:
    """The same model, loaded by the engine in fp32."""
    return load_model(EngineConfig.from_settings({"model": str(tiny[0]), "dtype": "fp32"}))


@pytest.fixture(scope="session")
def embedded_dir() -> Path:
    """The converted embedded model; skips when the wheel is not installed."""
    try:
        find_gguf()
    except CannotRunError as error:
        pytest.skip(str(error))
    return ensure_embedded()
