"""Tables of tensors by family: which parameters a checkpoint holds, by Hugging Face name. Knows shapes only.

A table yields (name, shape) and leaves a tied head out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ledger.fields import Fields
from ledger.model_spec import ModelSpec

Tensors = Iterator[tuple[str, tuple[int, ...]]]


def llama(
    spec: ModelSpec, *, qkv_bias: bool = False, output_bias: bool = False, mlp_bias: bool = False, qk_norm: bool = False
) -> Tensors:
    """Pre-norm decoder with separate q, k, v and gate, up, down projections; `qk_norm` is over one head."""
    hidden, inner, head = spec.hidden_size, spec.intermediate_size, spec.head_dim
    q_size, kv_size = spec.num_heads * head, spec.num_kv_heads * head
    yield "model.embed_tokens.weight", (spec.vocab_size, hidden)
    for index in range(spec.num_layers):
        at = f"model.layers.{index}."
        for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
            yield from _linear(f"{at}self_attn.{name}_proj", size, hidden, qkv_bias)
        yield from _linear(f"{at}self_attn.o_proj", hidden, q_size, output_bias)
        if qk_norm:
            yield f"{at}self_attn.q_norm.weight", (head,)
            yield f"{at}self_attn.k_norm.weight", (head,)
        for name in ("gate", "up"):
            yield from _linear(f"{at}mlp.{name}_proj", inner, hidden, mlp_bias)
        yield from _linear(f"{at}mlp.down_proj", hidden, inner, mlp_bias)
        yield f"{at}input_layernorm.weight", (hidden,)
        yield f"{at}post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not spec.tie_embeddings:
        yield "lm_head.weight", (spec.vocab_size, hidden)


def _linear(name: str, rows: int, columns: int, bias: bool) -> Tensors:
    yield f"{name}.weight", (rows, columns)
    if bias:
        yield f"{name}.bias", (rows,)


def _llama(spec: ModelSpec) -> Tensors:
    fields = Fields(spec.config)
    bias = fields.boolean("attention_bias")
    return llama(spec, qkv_bias=bias, output_bias=bias, mlp_bias=fields.boolean("mlp_bias"))


def _qwen3(spec: ModelSpec) -> Tensors:
    bias = Fields(spec.config).boolean("attention_bias")
    return llama(spec, qkv_bias=bias, output_bias=bias, qk_norm=True)


TABLES: dict[str, Callable[[ModelSpec], Tensors]] = {
    "llama": _llama,
    "mistral": lambda spec: llama(spec),
    "qwen2": lambda spec: llama(spec, qkv_bias=True),
    "qwen3": _qwen3,
    "qwen3_vl_text": _qwen3,
}
