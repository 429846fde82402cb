"""The decoder: one file for Llama, Mistral, Qwen2 and Qwen3 (RMSNorm, rotary positions, grouped-query attention,
gated MLP), with flags for biases, query and key norms and sliding windows.

Works on a flat batch: the tokens of all rows of a step one after another, with no padding between rows. It knows
nothing of requests or blocks beyond the AttentionBatch it is handed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core_engine.kernels.linear import linear
from core_engine.kernels.reference import AttentionBatch, AttentionView, paged_attention, write_kv
from core_engine.model.rope import cos_and_sin, inverse_frequencies
from core_engine.model.spec import DecoderSpec
from ledger.errors import InputError


@dataclass(frozen=True)
class LayerWeights:
    """One layer. qkv [(heads + 2 kv_heads) * head_dim, hidden]; gate_up [2 * intermediate, hidden].

    Biases and the norms of query and key heads [head_dim] are None where the family has none.
    """

    input_norm: torch.Tensor
    qkv: torch.Tensor
    output: torch.Tensor
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    qkv_bias: torch.Tensor | None = None
    output_bias: torch.Tensor | None = None
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None


@dataclass(frozen=True)
class DecoderWeights:
    """All tensors the decoder holds. head is the embedding itself when the two are tied."""

    embedding: torch.Tensor  # [vocab_size, hidden]
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    head: torch.Tensor  # [vocab_size, hidden]

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor once, a tied head not twice."""
        found = [self.embedding, self.final_norm]
        if self.head is not self.embedding:
            found.append(self.head)
        for layer in self.layers:
            found += [tensor for tensor in vars(layer).values() if tensor is not None]
        return found

    def num_bytes(self) -> int:
        """Bytes really held."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors())


class _Named:
    """Tensors by Hugging Face name, each handed out once with its shape checked."""

    def __init__(self, named: Mapping[str, torch.Tensor]) -> None:
        self.left = dict(named)

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """InputError when the tensor is missing or has another shape than the config says."""
        if name not in self.left:
            raise InputError("model", f"no tensor {name}", "weights with every parameter of the config")
        if tuple(self.left[name].shape) != shape:
            raise InputError("model", f"{name} {list(self.left[name].shape)}", f"shape {list(shape)}")
        return self.left.pop(name)

    def joined(self, at: str, names: str, suffix: str, sizes: tuple[int, ...], *rest: int) -> torch.Tensor:
        """The projections named by the letters or words of `names`, one below the other."""
        parts = zip(names.split(), sizes, strict=True)
        return torch.cat([self.take(f"{at}{name}_proj.{suffix}", size, *rest) for name, size in parts])


def assemble(spec: DecoderSpec, named: Mapping[str, torch.Tensor]) -> DecoderWeights:
    """Arrange Hugging Face tensors into DecoderWeights, fusing q/k/v and gate/up.

    InputError when a tensor is missing, has another shape than the config says, or is left unused.
    """
    tensors = _Named(named)
    del named  # the fused parts are freed as they are joined, unless the caller holds them
    embedding = tensors.take("model.embed_tokens.weight", spec.vocab_size, spec.hidden_size)
    layers = tuple(_layer(spec, tensors, f"model.layers.{index}.") for index in range(spec.num_layers))
    final_norm = tensors.take("model.norm.weight", spec.hidden_size)
    head = embedding
    if not spec.tie_embeddings:
        head = tensors.take("lm_head.weight", spec.vocab_size, spec.hidden_size)
    elif "lm_head.weight" in tensors.left and not torch.equal(tensors.left.pop("lm_head.weight"), embedding):
        raise InputError(
            "model (tie_word_embeddings in config.json)",
            True,
            "false, since lm_head.weight differs from model.embed_tokens.weight; or weights where they are equal",
        )
    # Old checkpoints store this constant.
    unused = sorted(name for name in tensors.left if not name.endswith("rotary_emb.inv_freq"))
    if unused:
        raise InputError("model", f"tensors without a place: {', '.join(unused[:3])}", "weights of the config's family")
    return DecoderWeights(embedding, layers, final_norm, head)


def _layer(spec: DecoderSpec, tensors: _Named, at: str) -> LayerWeights:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    qkv, gate_up = (q_size, kv_size, kv_size), (inner, inner)
    attention, mlp = f"{at}self_attn.", f"{at}mlp."
    return LayerWeights(
        input_norm=tensors.take(f"{at}input_layernorm.weight", hidden),
        qkv=tensors.joined(attention, "q k v", "weight", qkv, hidden),
        output=tensors.take(f"{attention}o_proj.weight", hidden, q_size),
        post_norm=tensors.take(f"{at}post_attention_layernorm.weight", hidden),
        gate_up=tensors.joined(mlp, "gate up", "weight", gate_up, hidden),
        down=tensors.take(f"{mlp}down_proj.weight", hidden, inner),
        qkv_bias=tensors.joined(attention, "q k v", "bias", qkv) if spec.qkv_bias else None,
        output_bias=tensors.take(f"{attention}o_proj.bias", hidden) if spec.output_bias else None,
        gate_up_bias=tensors.joined(mlp, "gate up", "bias", gate_up) if spec.mlp_bias else None,
        down_bias=tensors.take(f"{mlp}down_proj.bias", hidden) if spec.mlp_bias else None,
        query_norm=tensors.take(f"{attention}q_norm.weight", spec.head_dim) if spec.qk_norm else None,
        key_norm=tensors.take(f"{attention}k_norm.weight", spec.head_dim) if spec.qk_norm else None,
    )


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding. x [num_tokens, heads, head_dim]; cos, sin [num_tokens, 1, head_dim]."""
    half = x.shape[-1] // 2
    rotated = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + rotated * sin


class Decoder:
    """The forward pass over given weights."""

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights) -> None:
        self.spec = spec
        self.weights = weights
        self._inv_freq = inverse_frequencies(spec.rope, spec.head_dim).to(weights.embedding.device)
        self._scale = spec.head_dim**-0.5

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, cache: torch.Tensor, batch: AttentionBatch
    ) -> torch.Tensor:
        """Hidden states after the final norm, [num_tokens, hidden_size].

        token_ids and positions [num_tokens]; cache [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim],
        written at batch.slots.
        """
        hidden = F.embedding(token_ids, self.weights.embedding)
        dtype = hidden.dtype
        # Computed at each step: a table of all positions would hold 128 MiB at 131,072 positions of heads of 128.
        cos, sin = (
            part[:, None].to(dtype) for part in cos_and_sin(positions, self._inv_freq, self.spec.rope.attention_factor)
        )
        for layer, layer_cache, window in zip(self.weights.layers, cache, self.spec.windows, strict=True):
            view = batch.views[window]
            hidden = hidden + self._attend(
                self._norm(hidden, layer.input_norm), layer, layer_cache, batch.slots, view, cos, sin
            )
            hidden = hidden + self._mlp(self._norm(hidden, layer.post_norm), layer)
        return self._norm(hidden, self.weights.final_norm)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 logits [rows, vocab_size] of hidden [rows, hidden_size]."""
        return linear(hidden, self.weights.head).float()

    @staticmethod
    def _mlp(x: torch.Tensor, layer: LayerWeights) -> torch.Tensor:
        # A function of its own, so that gate and up are freed before the next layer: 29 % of a prefill's peak.
        gate, up = linear(x, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return linear(F.silu(gate) * up, layer.down, layer.down_bias)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        normed = F.rms_norm(x.float(), (x.shape[-1],), eps=self.spec.rms_norm_eps)
        return weight * normed.to(x.dtype)

    def _attend(
        self,
        x: torch.Tensor,
        layer: LayerWeights,
        layer_cache: torch.Tensor,
        slots: torch.Tensor,
        view: AttentionView,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> torch.Tensor:
        spec = self.spec
        heads = linear(x, layer.qkv, layer.qkv_bias).view(x.shape[0], -1, spec.head_dim)
        query, key, value = heads.split([spec.num_heads, spec.num_kv_heads, spec.num_kv_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = self._norm(query, layer.query_norm), self._norm(key, layer.key_norm)
        keys, values = layer_cache
        write_kv(keys, _rotate(key, cos, sin), slots)
        write_kv(values, value, slots)
        out = paged_attention(_rotate(query, cos, sin), keys, values, view, self._scale)
        return linear(out.reshape(x.shape[0], -1), layer.output, layer.output_bias)
