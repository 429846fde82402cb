"""The shard of a model that one rank holds: a pass over the weights by name, and a decoder that sums over ranks.

q, k, v, gate and up are split by rows (outputs), the output and down projections by columns (inputs), so that a layer
needs two sums; embedding and head by ids of the vocabulary. Norms are whole. What another rank has is an empty tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from core_engine.kernels.options import StepOptions
from core_engine.kernels.reference import AttentionBatch
from core_engine.kv.cache import QuantizedCache, QuantizedLayer
from core_engine.model.decoder import (
    Decoder,
    DecoderWeights,
    LayerWeights,
    NamedTensors,
    layer_weights,
    refuse_other_head,
    refuse_unused,
)
from core_engine.model.sources import Source
from core_engine.model.spec import DecoderSpec
from core_engine.parallel.comm import Communicator
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.quantize import EMBEDDING, HEAD
from ledger.parallel import RankPart
from ledger.weights import LAYER

FINAL_NORM = "model.norm.weight"
ROWS_OF_QUERY, ROWS_OF_KV, ROWS_OF_INNER = ("q_proj",), ("k_proj", "v_proj"), ("gate_proj", "up_proj")


def shard_spec(spec: DecoderSpec, part: RankPart) -> DecoderSpec:
    """What a rank's decoder computes with: its layers, heads and columns as if they were all there are."""
    return replace(
        spec,
        num_layers=len(part.layers),
        windows=spec.windows[part.layers.start : part.layers.stop],
        num_heads=len(part.heads.query),
        num_kv_heads=len(part.heads.kv),
        intermediate_size=len(part.inner),
    )


def cut(name: str, tensor: torch.Tensor, part: RankPart, head_dim: int) -> torch.Tensor:
    """What a rank holds of a tensor of a layer: rows, columns, or all of it."""
    module, kind = name.split(".")[-2:]
    query, kv = (slice(heads.start * head_dim, heads.stop * head_dim) for heads in (part.heads.query, part.heads.kv))
    inner = slice(part.inner.start, part.inner.stop)
    if module in ROWS_OF_QUERY:
        return tensor[query]
    if module in ROWS_OF_KV:
        return tensor[kv]
    if module in ROWS_OF_INNER:
        return tensor[inner]
    if module in ("o_proj", "down_proj") and kind == "weight":
        return tensor[:, query if module == "o_proj" else inner]
    return tensor


def load_shard(
    spec: DecoderSpec,
    part: RankPart,
    source: Source,
    held: Callable[[torch.Tensor], torch.Tensor],
    alive: Callable[[], None],
) -> DecoderWeights:
    """Read the rank's part of every tensor and nothing else of the weights. held copies into memory of the rank's own;
    alive is called after each tensor. InputError as `assemble` raises it."""
    outside = {EMBEDDING, FINAL_NORM, HEAD}
    refuse_unused(name for name in source.names() if name not in outside and not _known(name, spec))
    local = shard_spec(spec, part)
    ids = slice(part.vocabulary.start, part.vocabulary.stop)

    def read(name: str) -> torch.Tensor:
        weight = source.stored(name)
        return weight.dequantized() if isinstance(weight, QuantizedMatrix) else weight

    def whole(name: str, *shape: int) -> torch.Tensor:
        alive()
        return NamedTensors({name: read(name)} if name in source.names() else {}).take(name, *shape)

    def layer(index: int) -> LayerWeights:
        at, named = f"model.layers.{index}.", {}
        for name in source.names():
            if name.startswith(at) and not name.endswith("inv_freq"):
                named[name] = held(cut(name, read(name), part, spec.head_dim))
                alive()
        tensors = NamedTensors(named)
        found = layer_weights(local, tensors, at)
        refuse_unused(tensors.left)
        # What is added to a sum over ranks is added by one of them.
        return found if part.tp_rank == 0 else replace(found, output_bias=None, down_bias=None)

    layers = tuple(layer(index) for index in part.layers)
    size = (spec.vocab_size, spec.hidden_size)
    none = held(torch.empty(0, spec.hidden_size))
    embedding = held(whole(EMBEDDING, *size)[ids]) if part.is_first else none
    head, final_norm = none, held(torch.empty(0))
    if part.is_last:
        final_norm = held(whole(FINAL_NORM, spec.hidden_size))
        if spec.tie_embeddings:
            head = embedding if part.is_first else held(whole(EMBEDDING, *size)[ids])
            if HEAD in source.names():
                refuse_other_head(held(whole(HEAD, *size)[ids]), head)
        else:
            head = held(whole(HEAD, *size)[ids])
    return DecoderWeights(embedding, layers, final_norm, head)


def _known(name: str, spec: DecoderSpec) -> bool:
    """Whether a layer of the model may have it; each layer's rank looks closer."""
    found = LAYER.search(name)
    return found is not None and int(found[1]) < spec.num_layers


class ShardDecoder(Decoder):
    """The forward pass of one rank, by torch's operators. What it computes of a layer is summed over the stage."""

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, comm: Communicator) -> None:
        """spec: as shard_spec has it."""
        super().__init__(spec, weights)
        self._comm = comm
        self._ids = comm.part.vocabulary

    def begin(self, token_ids: torch.Tensor) -> torch.Tensor:
        """What the first layer reads, [num_tokens, hidden_size]: each row from the rank that has its id."""
        if self._comm.part.tp == 1:
            return self._embed(token_ids)
        mine = (token_ids >= self._ids.start) & (token_ids < self._ids.stop)
        rows = self._embed(torch.where(mine, token_ids - self._ids.start, 0))
        return self._comm.all_reduce(rows.masked_fill_(~mine[:, None], 0))

    def through(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        cache: torch.Tensor | QuantizedCache,
        batch: AttentionBatch,
        options: StepOptions,
    ) -> torch.Tensor:
        """Hidden states behind the rank's last layer [num_tokens, hidden_size], the same on all ranks of the stage."""
        return self._through_layers(hidden, positions, cache, batch, options)

    def end(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 logits [rows, ids of the rank] of hidden [rows, hidden_size] behind the last layer."""
        return self.logits(self._norm(hidden, self.weights.final_norm))

    def _attend(
        self,
        x: torch.Tensor,
        layer: LayerWeights,
        layer_cache: torch.Tensor | QuantizedLayer,
        batch: AttentionBatch,
        window: int | None,
        cos: torch.Tensor,
        sin: torch.Tensor,
        options: StepOptions,
    ) -> torch.Tensor:
        return self._comm.all_reduce(super()._attend(x, layer, layer_cache, batch, window, cos, sin, options))

    def _mlp(self, x: torch.Tensor, layer: LayerWeights, fused: bool) -> torch.Tensor:
        return self._comm.all_reduce(super()._mlp(x, layer, fused))
