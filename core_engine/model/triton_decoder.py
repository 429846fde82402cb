"""The decoder's step on a CUDA device in kernels of our own (kernels/triton). Same weights and results as decoder.py.

Plain products are the device library's, quantized ones ours. With fused_ops a layer is four products, attention, and
one kernel between any two of them; without, every operator but attention is one of torch's.
"""

from __future__ import annotations

import torch

from core_engine.executor.device_batch import DeviceBatch
from core_engine.kernels.linear import linear
from core_engine.kernels.options import AUTO_SPLITS, StepOptions
from core_engine.kernels.reference import write_kv
from core_engine.kernels.triton.attention import attend, choose_splits
from core_engine.kernels.triton.kv_write import quantize_blocks, rotate_and_store
from core_engine.kernels.triton.pointwise import rms_norm, silu_mul
from core_engine.kv.cache import QuantizedCache, QuantizedLayer
from core_engine.model.decoder import Decoder, DecoderWeights, LayerWeights
from core_engine.model.device_weights import on_device
from core_engine.model.spec import DecoderSpec

LayerCache = torch.Tensor | QuantizedLayer
INTERPRETED_PROCESSORS = 4  # of no device: so that small tests split keys too


class TritonDecoder(Decoder):
    """Steps are launched and not waited for. `forward` is still that of torch's operators, over the same weights."""

    launches = True

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights) -> None:
        super().__init__(spec, weights, on_device)
        device = self.weights.device
        self._processors = INTERPRETED_PROCESSORS
        if device.type == "cuda":
            self._processors = torch.cuda.get_device_properties(device).multi_processor_count

    def step(
        self, batch: DeviceBatch, cache: torch.Tensor | QuantizedCache, options: StepOptions = StepOptions()
    ) -> torch.Tensor:
        """Hidden states after the final norm [num_tokens, hidden_size]; the KV of all rows is written.

        cache as Decoder.forward's. Of the options fused_ops and kv_splits act here. Nothing is read back to the host
        and no size depends on what is in the tensors, so that a captured step can be replayed with other rows.
        """
        hidden = self._embed(batch.token_ids)
        cos, sin = self._cos_and_sin(batch.positions, torch.float32 if options.fused_ops else hidden.dtype)
        layers = zip(self.weights.layers, cache, self.spec.windows, strict=True)
        if not options.fused_ops:
            for layer, layer_cache, window in layers:
                x = self._norm(hidden, layer.input_norm)
                hidden = hidden + self._self_attention(x, layer, layer_cache, batch, window, (cos, sin), options)
                hidden = hidden + self._mlp(self._norm(hidden, layer.post_norm), layer, fused=False)
            return self._norm(hidden, self.weights.final_norm)
        residual, x = torch.zeros_like(hidden), hidden
        for layer, layer_cache, window in layers:
            x = self._add_and_norm(x, residual, layer.input_norm)
            x = self._self_attention(x, layer, layer_cache, batch, window, (cos, sin), options)
            x = self._add_and_norm(x, residual, layer.post_norm)
            x = linear(self._activated(x, layer), layer.down, layer.down_bias)
        return self._add_and_norm(x, residual, self.weights.final_norm)

    def _add_and_norm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """residual becomes residual + x; that, normed."""
        out = torch.empty_like(x)
        rms_norm(x, weight, self.spec.rms_norm_eps, out, residual)
        return out

    def _activated(self, x: torch.Tensor, layer: LayerWeights) -> torch.Tensor:
        gate_up = linear(x, layer.gate_up, layer.gate_up_bias)
        out = gate_up.new_empty(len(x), self.spec.intermediate_size)
        silu_mul(gate_up, out)
        return out

    def _self_attention(
        self,
        x: torch.Tensor,
        layer: LayerWeights,
        layer_cache: LayerCache,
        batch: DeviceBatch,
        window: int | None,
        rope: tuple[torch.Tensor, torch.Tensor],
        options: StepOptions,
    ) -> torch.Tensor:
        """Queries, keys and values of normed x, attention over the cache that now holds them, the output product."""
        stored = self._fused if options.fused_ops else self._unfused
        query, new = stored(x, layer, layer_cache, batch, *rope)
        return self._attended(query, new, layer, layer_cache, batch, window, options)

    def _fused(
        self, x: torch.Tensor, layer: LayerWeights, cache: LayerCache, batch: DeviceBatch, cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:  # fmt: skip
        """q, k and v in one product, and one kernel that norms, rotates and stores them."""
        spec, qkv = self.spec, linear(x, layer.qkv, layer.qkv_bias)
        query = qkv.new_empty(len(x), spec.num_heads, spec.head_dim)
        slots = None if isinstance(cache, QuantizedLayer) else batch.slots
        sides = cache
        if isinstance(sides, QuantizedLayer):
            sides = qkv.new_empty(2, len(x), spec.num_kv_heads, spec.head_dim)
        keys, values = sides.unbind()
        rotate_and_store(
            qkv, cos[:, 0], sin[:, 0], query, keys, values, slots=slots,
            query_norm=layer.query_norm, key_norm=layer.key_norm, eps=spec.rms_norm_eps,
        )  # fmt: skip
        return query, (keys, values)

    def _unfused(
        self, x: torch.Tensor, layer: LayerWeights, cache: LayerCache, batch: DeviceBatch, cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:  # fmt: skip
        """The same with a product each, and norms, rotation and the writing of keys and values as torch's operators."""
        query, key, value = self._heads(x, layer, cos, sin, fused=False)
        if not isinstance(cache, QuantizedLayer):
            for side, new in zip(cache, (key, value), strict=True):
                write_kv(side, new, batch.slots.long())
        return query.contiguous(), (key, value.contiguous())

    def _attended(
        self,
        query: torch.Tensor,
        new: tuple[torch.Tensor, torch.Tensor],
        layer: LayerWeights,
        layer_cache: LayerCache,
        batch: DeviceBatch,
        window: int | None,
        options: StepOptions,
    ) -> torch.Tensor:
        """new: the step's keys and values, which a quantized cache's own blocks are read from; a plain cache holds them
        already."""
        out = torch.empty_like(query)
        sides: tuple[torch.Tensor, torch.Tensor] | QuantizedLayer
        if isinstance(layer_cache, QuantizedLayer):
            quantize_blocks(*new, layer_cache, batch.rows, batch.most_new)
            sides = layer_cache
        else:
            sides = layer_cache[0], layer_cache[1]
        for tiles in batch.tiles:
            attend(
                query, out, sides, batch.rows, tiles, scale=self._scale, window=window, new=new,
                splits=self._splits(len(tiles.rows), batch, options),
            )  # fmt: skip
        return linear(out.view(len(query), -1), layer.output, layer.output_bias)

    def _splits(self, tiles: int, batch: DeviceBatch, options: StepOptions) -> int:
        if options.kv_splits != AUTO_SPLITS:
            return options.kv_splits
        return choose_splits(tiles, self.spec.num_kv_heads, batch.longest, self._processors, batch.block_size)
