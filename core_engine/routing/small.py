"""The configuration of the model that answers first, and whether it reads the same token ids."""

from __future__ import annotations

from typing import Any

from core_engine.config import EngineConfig
from ledger.errors import InputError

QUANTIZED = "quantized"
SMALL_WEIGHTS = "w4a16-rtn"
SAMPLE = "The 3rd question: what is 17.5 % of 1,200? 第三个问题：为什么？"


def small_config(config: EngineConfig) -> EngineConfig:
    """Of the small model beside `config`, whose other settings are its own too; it drafts nothing.

    InputError where the two would be the same, or don't go with the rest.
    """
    alone = {**config.settings(), "router": "off", "speculation": "off"}
    if config.router_small == QUANTIZED:
        if config.weights == SMALL_WEIGHTS:
            accepted = f"a model of its own beside weights={SMALL_WEIGHTS}, which is what it stands for"
            raise InputError("router_small", QUANTIZED, accepted)
        return EngineConfig.from_settings({**alone, "weights": SMALL_WEIGHTS})
    if config.router_small == config.model:
        raise InputError("router_small", config.router_small, "another model than the one that is asked when unsure")
    return EngineConfig.from_settings({**alone, "model": config.router_small, "weights": "none"})


def same_tokenizer(small: Any, large: Any, name: str) -> None:
    """InputError when two models don't read the same ids."""
    sizes = {getattr(tokenizer, "vocab_size", None) for tokenizer in (small, large)}
    if len(sizes) > 1 or small.encode(SAMPLE) != large.encode(SAMPLE):
        raise InputError("router_small", name, "a model with the tokenizer of the large one: both get the same ids")
