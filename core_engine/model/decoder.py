"""The decoder: one file for the Llama family (RMSNorm, rotary positions, grouped-query attention, gated MLP).

Works on a flat batch: the tokens of all rows of a step one after another, with no padding. It knows nothing of
requests or blocks beyond the AttentionBatch it is handed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core_engine.kernels.linear import linear
from core_engine.kernels.reference import AttentionBatch, paged_attention, write_kv
from core_engine.model.spec import DecoderSpec
from ledger.errors import InputError


@dataclass(frozen=True)
class LayerWeights:
    """One layer. qkv [(heads + 2 kv_heads) * head_dim, hidden]; gate_up [2 * intermediate, hidden]."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    output: torch.Tensor
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


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
            found += [layer.input_norm, layer.qkv, layer.output, layer.post_norm, layer.gate_up, layer.down]
        return found

    def num_bytes(self) -> int:
        """Bytes really held."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors())


def assemble(spec: DecoderSpec, named: Mapping[str, torch.Tensor]) -> DecoderWeights:
    """Arrange Hugging Face tensors into DecoderWeights, fusing q/k/v and gate/up.

    InputError when a tensor is missing, has another shape than the config says, or is left unused.
    """
    unused = set(named)

    def take(name: str, *shape: int) -> torch.Tensor:
        if name not in named:
            raise InputError("model", f"no tensor {name}", "weights with every parameter of the config")
        if tuple(named[name].shape) != shape:
            raise InputError("model", f"{name} {list(named[name].shape)}", f"shape {list(shape)}")
        unused.discard(name)
        return named[name]

    hidden, inner = spec.hidden_size, spec.intermediate_size
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim

    def layer(index: int) -> LayerWeights:
        at = f"model.layers.{index}."
        qkv = [
            take(f"{at}self_attn.{n}_proj.weight", size, hidden)
            for n, size in (("q", q_size), ("k", kv_size), ("v", kv_size))
        ]
        gate_up = [take(f"{at}mlp.{n}_proj.weight", inner, hidden) for n in ("gate", "up")]
        return LayerWeights(
            input_norm=take(f"{at}input_layernorm.weight", hidden),
            qkv=torch.cat(qkv),
            output=take(f"{at}self_attn.o_proj.weight", hidden, q_size),
            post_norm=take(f"{at}post_attention_layernorm.weight", hidden),
            gate_up=torch.cat(gate_up),
            down=take(f"{at}mlp.down_proj.weight", hidden, inner),
        )

    embedding = take("model.embed_tokens.weight", spec.vocab_size, hidden)
    layers = tuple(layer(index) for index in range(spec.num_layers))
    final_norm = take("model.norm.weight", hidden)
    if spec.tie_embeddings:
        head = embedding
        stored = named.get("lm_head.weight")
        if stored is not None and torch.equal(
            stored, embedding
        ):  # a second copy of the tied head is not another parameter
            unused.discard("lm_head.weight")
    else:
        head = take("lm_head.weight", spec.vocab_size, hidden)
    unused = {
        name for name in unused if not name.endswith("rotary_emb.inv_freq")
    }  # old checkpoints store this constant
    if unused:
        raise InputError(
            "model", f"tensors without a place: {', '.join(sorted(unused)[:3])}", "weights of the config's family"
        )
    return DecoderWeights(embedding, layers, final_norm, head)


def rope_tables(spec: DecoderSpec, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, each [max_position, head_dim], float32; the two halves repeat (rotate-half convention)."""
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.int64).float() / spec.head_dim
    inv_freq = 1.0 / (spec.rope_theta**exponents)
    angles = torch.outer(torch.arange(spec.max_position).float(), inv_freq)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(device), angles.sin().to(device)


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
        self._cos, self._sin = rope_tables(spec, weights.embedding.device)
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
        cos = self._cos[positions][:, None].to(dtype)
        sin = self._sin[positions][:, None].to(dtype)
        for layer, layer_cache in zip(self.weights.layers, cache, strict=True):
            hidden = hidden + self._attend(self._norm(hidden, layer.input_norm), layer, layer_cache, batch, cos, sin)
            hidden = hidden + self._mlp(self._norm(hidden, layer.post_norm), layer)
        return self._norm(hidden, self.weights.final_norm)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 logits [rows, vocab_size] of hidden [rows, hidden_size]."""
        return linear(hidden, self.weights.head).float()

    @staticmethod
    def _mlp(x: torch.Tensor, layer: LayerWeights) -> torch.Tensor:
        # A function of its own, so that gate and up are freed before the next layer: 29 % of a prefill's peak.
        gate, up = linear(x, layer.gate_up).chunk(2, dim=-1)
        return linear(F.silu(gate) * up, layer.down)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        normed = F.rms_norm(x.float(), (x.shape[-1],), eps=self.spec.rms_norm_eps)
        return weight * normed.to(x.dtype)

    def _attend(
        self,
        x: torch.Tensor,
        layer: LayerWeights,
        layer_cache: torch.Tensor,
        batch: AttentionBatch,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> torch.Tensor:
        spec = self.spec
        heads = linear(x, layer.qkv).view(x.shape[0], -1, spec.head_dim)
        query, key, value = heads.split([spec.num_heads, spec.num_kv_heads, spec.num_kv_heads], dim=1)
        keys, values = layer_cache
        write_kv(keys, _rotate(key, cos, sin), batch.slots)
        write_kv(values, value, batch.slots)
        out = paged_attention(_rotate(query, cos, sin), keys, values, batch, self._scale)
        return linear(out.reshape(x.shape[0], -1), layer.output)
