"""What a draft takes of its target: the tables of tokens, and for early exit the first layers.

Read from the model's own files in full precision, whatever format the engine holds them in.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from core_engine.model.loader import OpenedModel
from core_engine.model.spec import DecoderSpec
from core_engine.quant.quantize import EMBEDDING, HEAD

Tables = tuple[torch.Tensor, torch.Tensor]


def tables_of(opened: OpenedModel) -> Tables:
    """The model's embedding and head, [vocab_size, hidden_size] each."""
    embedding = opened.source.plain(EMBEDDING)
    return embedding, embedding if opened.spec.tie_embeddings else opened.source.plain(HEAD)


def first_layers(opened: OpenedModel, count: int) -> tuple[DecoderSpec, dict[str, torch.Tensor]]:
    """The sizes of a model that ends after `count` layers, and those layers by Hugging Face's names in float32."""
    starts = tuple(f"model.layers.{index}." for index in range(count))
    named = {name: opened.source.plain(name) for name in opened.source.names() if name.startswith(starts)}
    return replace(opened.spec, num_layers=count, windows=opened.spec.windows[:count]), named
