"""Decoders whose attention layers differ in shape: Gemma 4 and MiMo-V2."""

from __future__ import annotations

from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.base import Tensors, decoder, linear, norm
from ledger.tensors.gated import FOUR_NORMS, TWO_NORMS, experts, gated_mlp


def mimo_v2(spec: ModelSpec) -> Tensors:
    """MiMo-V2: keys wider than values; more KV heads and a sink a head in sliding layers; experts in most layers."""
    return decoder(spec, _mimo_attention, _mimo_mlp, TWO_NORMS)


def _mimo_attention(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields, layer, hidden = Fields(spec.config), spec.layers[index], spec.hidden_size
    slides, at = layer.kind == "swa", f"{at}self_attn."
    heads = fields.integer("swa_num_attention_heads", default=spec.num_heads) if slides else spec.num_heads
    bias = fields.boolean("attention_bias")
    if fields.boolean("add_swa_attention_sink_bias" if slides else "add_full_attention_sink_bias", slides):
        yield f"{at}sinks", (heads,)
    yield from linear(f"{at}q_proj", heads * layer.k_head_dim, hidden, bias)
    yield from linear(f"{at}k_proj", layer.kv_heads * layer.k_head_dim, hidden, bias)
    yield from linear(f"{at}v_proj", layer.kv_heads * layer.v_head_dim, hidden, bias)
    yield from linear(f"{at}o_proj", hidden, heads * layer.v_head_dim)


def _mimo_mlp(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields = Fields(spec.config)
    kinds = fields.strings("mlp_layer_types", spec.num_layers)
    marks = fields.integers("moe_layer_freq", spec.num_layers) or [int(index > 0) for index in range(spec.num_layers)]
    if kinds[index] == "dense" if kinds else not marks[index]:
        yield from gated_mlp(f"{at}mlp", spec.intermediate_size, spec.hidden_size)
        return
    count = fields.integer("n_routed_experts", default=256)
    yield from linear(f"{at}mlp.gate", count, spec.hidden_size)
    yield from experts(f"{at}mlp", count, fields.integer("moe_intermediate_size", default=2048), spec.hidden_size)


def gemma4(spec: ModelSpec) -> Tensors:
    """Gemma 4 text: two attention geometries, layers that share KV, per-layer embeddings, experts beside the MLP."""
    fields = Fields(spec.config)
    narrow = fields.integer("hidden_size_per_layer_input", default=256, minimum=0)
    yield from decoder(spec, _gemma4_attention, _gemma4_mlp, FOUR_NORMS, _gemma4_experts, _gemma4_per_layer)
    if narrow:
        rows = fields.integer("vocab_size_per_layer_input", default=spec.vocab_size)
        width = spec.num_layers * narrow
        yield "model.embed_tokens_per_layer.weight", (rows, width)
        yield from linear("model.per_layer_model_projection", width, spec.hidden_size)
        yield from norm("model.per_layer_projection_norm", narrow)


def _gemma4_attention(spec: ModelSpec, index: int, at: str) -> Tensors:
    layer, hidden, bias = spec.layers[index], spec.hidden_size, Fields(spec.config).boolean("attention_bias")
    head, kv = layer.k_head_dim, layer.kv_heads * layer.k_head_dim
    query = spec.num_heads * head
    at = f"{at}self_attn."
    yield from linear(f"{at}q_proj", query, hidden, bias)
    yield from norm(f"{at}q_norm", head)
    yield from linear(f"{at}o_proj", hidden, query, bias)
    if layer.kind == "shared":
        return
    yield from norm(f"{at}k_norm", head)
    yield from linear(f"{at}k_proj", kv, hidden, bias)
    if layer.kind == "swa" or not Fields(spec.config).boolean("attention_k_eq_v"):
        yield from linear(f"{at}v_proj", kv, hidden, bias)


def _gemma4_mlp(spec: ModelSpec, index: int, at: str) -> Tensors:
    wide = Fields(spec.config).boolean("use_double_wide_mlp") and spec.layers[index].kind == "shared"
    return gated_mlp(f"{at}mlp", spec.intermediate_size * (2 if wide else 1), spec.hidden_size)


def _gemma4_experts(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields = Fields(spec.config)
    if not fields.boolean("enable_moe_block"):
        return
    count, hidden = fields.integer("num_experts"), spec.hidden_size
    yield f"{at}router.scale", (hidden,)
    yield f"{at}router.per_expert_scale", (count,)
    yield from linear(f"{at}router.proj", count, hidden)
    yield f"{at}experts.gate_up_proj", (count, 2 * fields.integer("moe_intermediate_size"), hidden)
    yield f"{at}experts.down_proj", (count, hidden, fields.integer("moe_intermediate_size"))
    for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
        yield from norm(at + name, hidden)


def _gemma4_per_layer(spec: ModelSpec, index: int, at: str) -> Tensors:
    narrow = Fields(spec.config).integer("hidden_size_per_layer_input", default=256, minimum=0)
    if narrow:
        yield from linear(f"{at}per_layer_input_gate", narrow, spec.hidden_size)
        yield from linear(f"{at}per_layer_projection", spec.hidden_size, narrow)
        yield from norm(f"{at}post_per_layer_input_norm", spec.hidden_size)
