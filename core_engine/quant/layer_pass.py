"""One layer over all calibration tokens, product by product, in float32 and without a KV cache.

Before each product a visitor sees its inputs and may change the weights that are still to be applied: so GPTQ rounds
each product on what the rounded ones before it really give. Weights go by Hugging Face's names within a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping

import torch
import torch.nn.functional as F

from core_engine.model.rope import cos_and_sin, inverse_frequencies
from core_engine.model.spec import DecoderSpec

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
OUTPUT = ("self_attn.o_proj",)
GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
DOWN = ("mlp.down_proj",)
# Products of one input each, in the order in which a layer computes them.
PRODUCTS: tuple[tuple[str, ...], ...] = (QKV, OUTPUT, GATE_UP, DOWN)
LINEAR = tuple(name for products in PRODUCTS for name in products)
NORM_BEFORE = {QKV: "input_layernorm.weight", GATE_UP: "post_attention_layernorm.weight"}

Layer = MutableMapping[str, torch.Tensor]
Visit = Callable[[tuple[str, ...], torch.Tensor], None]
"""Called with the names of PRODUCTS and their input [num_tokens, depth], before they are computed."""


class LayerPass:
    """Layers of one model over sequences of one length, each from position 0."""

    def __init__(self, spec: DecoderSpec, length: int) -> None:
        self._spec = spec
        frequencies = inverse_frequencies(spec.rope, spec.head_dim)
        self._cos, self._sin = cos_and_sin(torch.arange(length), frequencies, spec.rope.attention_factor)
        self._length = length

    def run(self, layer: Layer, window: int | None, states: torch.Tensor, visit: Visit) -> torch.Tensor:
        """Residual states after the layer; states [sequences, length, hidden] before it."""
        x = self._norm(states, layer[NORM_BEFORE[QKV]])
        visit(QKV, x.flatten(0, 1))
        mixed = self._attention(layer, x, window)
        visit(OUTPUT, mixed.flatten(0, 1))
        states = states + _product(layer, "self_attn.o_proj", mixed)
        x = self._norm(states, layer[NORM_BEFORE[GATE_UP]])
        visit(GATE_UP, x.flatten(0, 1))
        inner = F.silu(_product(layer, "mlp.gate_proj", x)) * _product(layer, "mlp.up_proj", x)
        visit(DOWN, inner.flatten(0, 1))
        return states + _product(layer, "mlp.down_proj", inner)

    def _attention(self, layer: Layer, x: torch.Tensor, window: int | None) -> torch.Tensor:
        """What the output projection takes in [sequences, length, heads * head_dim]."""
        query, key, value = (self._heads(_product(layer, name, x)) for name in QKV)
        if self._spec.qk_norm:
            query = self._norm(query, layer["self_attn.q_norm.weight"])
            key = self._norm(key, layer["self_attn.k_norm.weight"])
        mixed = F.scaled_dot_product_attention(
            self._rotated(query), self._rotated(key), value, attn_mask=self._mask(window), is_causal=window is None,
            scale=self._spec.head_dim**-0.5, enable_gqa=True,
        )  # fmt: skip
        return mixed.transpose(1, 2).flatten(2)

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """[sequences, heads, length, head_dim]."""
        return x.unflatten(-1, (-1, self._spec.head_dim)).transpose(1, 2)

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        half = self._spec.head_dim // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
        return x * self._cos + turned * self._sin

    def _mask(self, window: int | None) -> torch.Tensor | None:
        if window is None:
            return None
        behind = torch.arange(self._length)[:, None] - torch.arange(self._length)
        return (behind >= 0) & (behind < window)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return weight * F.rms_norm(x, (x.shape[-1],), eps=self._spec.rms_norm_eps)


def _product(layer: Mapping[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, layer[f"{name}.weight"], layer.get(f"{name}.bias"))
