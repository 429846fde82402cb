"""Decoders whose layers differ: Jamba, Nemotron-H, Qwen3.5 and Gemma 4."""

from __future__ import annotations

from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.base import Tensors, decoder, linear, norm, norms
from ledger.tensors.gated import FOUR_NORMS, TWO_NORMS, attention, experts, gated_mlp, mlp


def jamba(spec: ModelSpec) -> Tensors:
    """Jamba: attention or Mamba-1, then an MLP or experts."""
    parts = attention(), _mamba1, _jamba_mlp, norms("input_layernorm", "pre_ff_layernorm")
    return decoder(spec, *parts, final="model.final_layernorm")


def _mamba1(spec: ModelSpec, index: int, at: str) -> Tensors:
    if spec.layers[index].kind != "state":
        return
    fields = Fields(spec.config)
    hidden, state = spec.hidden_size, fields.integer("mamba_d_state", default=16)
    inner, kernel = spec.layers[index].state_heads, fields.integer("mamba_d_conv", default=4)
    rank, bias = fields.integer("mamba_dt_rank"), fields.boolean("mamba_proj_bias")
    yield f"{at}mamba.A_log", (inner, state)
    yield f"{at}mamba.D", (inner,)
    yield f"{at}mamba.conv1d.weight", (inner, 1, kernel)
    if fields.boolean("mamba_conv_bias", True):
        yield f"{at}mamba.conv1d.bias", (inner,)
    yield from linear(f"{at}mamba.in_proj", 2 * inner, hidden, bias)
    yield from linear(f"{at}mamba.x_proj", rank + 2 * state, inner)
    yield from linear(f"{at}mamba.dt_proj", inner, rank, True)
    yield from linear(f"{at}mamba.out_proj", hidden, inner, bias)
    for name, size in (("dt", rank), ("b", state), ("c", state)):
        yield from norm(f"{at}mamba.{name}_layernorm", size)


def _jamba_mlp(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields = Fields(spec.config)
    offset = fields.integer("expert_layer_offset", default=1, minimum=0)
    count = fields.integer("num_experts", default=16)
    name = f"{at}feed_forward"
    if count == 1 or index % fields.integer("expert_layer_period", default=2) != offset:
        yield from gated_mlp(name, spec.intermediate_size, spec.hidden_size)
        return
    yield from linear(f"{name}.router", count, spec.hidden_size)
    yield from experts(name, count, spec.intermediate_size, spec.hidden_size)


def nemotron_h(spec: ModelSpec) -> Tensors:
    """Nemotron-H: one mixer a layer (Mamba-2, attention, MLP or experts without a gate) under one norm."""
    return decoder(spec, norms("norm"), _nemotron_mixer, embedding="model.embeddings", final="model.norm_f")


def _nemotron_mixer(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields = Fields(spec.config)
    at = f"{at}mixer."
    letter = fields.text("hybrid_override_pattern")[index]
    hidden, query, kv = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    if letter == "M":
        yield from _mamba2(fields, hidden, at)
    elif letter == "*":
        bias = fields.boolean("attention_bias")
        for name, rows, columns in (("q", query, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, query)):
            yield from linear(f"{at}{name}_proj", rows, columns, bias)
    elif letter == "-":
        bias = fields.boolean("mlp_bias")
        yield from linear(f"{at}up_proj", spec.intermediate_size, hidden, bias)
        yield from linear(f"{at}down_proj", hidden, spec.intermediate_size, bias)
    else:
        count, width = fields.integer("n_routed_experts"), fields.integer("moe_intermediate_size")
        shared = fields.integer("moe_shared_expert_intermediate_size")
        yield f"{at}experts.up_proj", (count, width, hidden)
        yield f"{at}experts.down_proj", (count, hidden, width)
        yield from linear(f"{at}gate", count, hidden)
        yield from linear(f"{at}shared_experts.up_proj", shared, hidden)
        yield from linear(f"{at}shared_experts.down_proj", hidden, shared)


def _mamba2(fields: Fields, hidden: int, at: str) -> Tensors:
    heads = fields.integer("mamba_num_heads")
    inner = heads * fields.integer("mamba_head_dim")
    channels = inner + 2 * fields.integer("n_groups") * fields.integer("ssm_state_size")
    bias = fields.boolean("use_bias")
    for name in ("dt_bias", "A_log", "D"):
        yield at + name, (heads,)
    yield f"{at}conv1d.weight", (channels, 1, fields.integer("conv_kernel"))
    if fields.boolean("use_conv_bias", True):
        yield f"{at}conv1d.bias", (channels,)
    yield from linear(f"{at}in_proj", inner + channels + heads, hidden, bias)
    yield from norm(f"{at}norm", inner)
    yield from linear(f"{at}out_proj", hidden, inner, bias)


def qwen3_5(spec: ModelSpec) -> Tensors:
    """Qwen3.5 dense: gated delta-rule layers with full attention (gated query) between them."""
    return decoder(spec, attention(qk_norm="head", gated=True), _delta, mlp(), TWO_NORMS)


def _delta(spec: ModelSpec, index: int, at: str) -> Tensors:
    if spec.layers[index].kind != "state":
        return
    fields = Fields(spec.config)
    hidden, value_dim = spec.hidden_size, fields.integer("linear_value_head_dim")
    heads = fields.integer("linear_num_value_heads")
    keys = fields.integer("linear_num_key_heads") * fields.integer("linear_key_head_dim")
    values = heads * value_dim
    at = f"{at}linear_attn."
    yield f"{at}dt_bias", (heads,)
    yield f"{at}A_log", (heads,)
    yield f"{at}conv1d.weight", (2 * keys + values, 1, fields.integer("linear_conv_kernel_dim"))
    yield from norm(f"{at}norm", value_dim)
    yield from linear(f"{at}out_proj", hidden, values)
    yield from linear(f"{at}in_proj_qkv", 2 * keys + values, hidden)
    yield from linear(f"{at}in_proj_z", values, hidden)
    yield from linear(f"{at}in_proj_b", heads, hidden)
    yield from linear(f"{at}in_proj_a", heads, hidden)


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
