"""Decoders with linear attention, gated recurrences or short convolutions between full attention layers."""

from __future__ import annotations

from ledger.fields import Fields
from ledger.layer_rules.state import olmo_delta_sizes
from ledger.model_spec import ModelSpec
from ledger.tensors.base import LayerPart, Tensors, decoder, linear, norm, norms
from ledger.tensors.gated import TWO_NORMS, attention, experts, gated_mlp, mlp, routed


def qwen3_5(spec: ModelSpec) -> Tensors:
    """Qwen3.5 dense: gated delta-rule layers with full attention (gated query) between them."""
    return decoder(spec, _gated_attention(spec), _delta(fused=False), mlp(), TWO_NORMS)


def qwen3_5_moe(spec: ModelSpec) -> Tensors:
    """Qwen3.5 with experts and a gated shared expert in every layer."""
    return decoder(spec, _gated_attention(spec), _delta(fused=False), _shared_expert, TWO_NORMS)


def qwen3_next(spec: ModelSpec) -> Tensors:
    """Qwen3-Next: projections fused; experts except in `mlp_only_layers` and off the `decoder_sparse_step`."""
    fields = Fields(spec.config)
    dense = set(fields.integers("mlp_only_layers") or [])
    step = fields.integer("decoder_sparse_step", default=1)
    flat = mlp()

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        sparse = index not in dense and (index + 1) % step == 0
        return (_shared_expert if sparse else flat)(spec, index, at)

    return decoder(spec, _gated_attention(spec), _delta(fused=True), feed_forward, TWO_NORMS)


def olmo_hybrid(spec: ModelSpec) -> Tensors:
    """OLMo-Hybrid: delta-rule layers normed before each half, OLMo-3 attention layers normed after it."""
    before, after = TWO_NORMS, norms("post_attention_layernorm", "post_feedforward_layernorm")
    bias = Fields(spec.config).boolean("attention_bias")

    def layer_norms(spec: ModelSpec, index: int, at: str) -> Tensors:
        return (before if spec.layers[index].kind == "state" else after)(spec, index, at)

    whole = attention(qkv_bias=bias, output_bias=bias, qk_norm="whole")
    return decoder(spec, whole, _olmo_delta, mlp(), layer_norms)


def minimax(spec: ModelSpec) -> Tensors:
    """MiniMax-01 and M1: lightning attention with an output gate, plain attention between, experts everywhere."""

    def lightning(spec: ModelSpec, index: int, at: str) -> Tensors:
        if spec.layers[index].kind != "state":
            return
        hidden, width, at = spec.hidden_size, spec.num_heads * spec.head_dim, f"{at}self_attn."
        yield from norm(f"{at}norm", width)
        yield from linear(f"{at}qkv_proj", 3 * width, hidden)
        yield from linear(f"{at}out_proj", hidden, width)
        yield from linear(f"{at}output_gate", width, hidden)

    return decoder(spec, attention(), lightning, routed("num_local_experts", "intermediate_size"), TWO_NORMS)


def recurrent_gemma(spec: ModelSpec) -> Tensors:
    """RecurrentGemma: gated linear recurrences and sliding attention; `intermediate_size` is twice the MLP's width."""

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        return gated_mlp(f"{at}mlp_block", spec.intermediate_size // 2, spec.hidden_size, True)

    around = norms("temporal_pre_norm", "channel_pre_norm")
    return decoder(spec, _griffin_block, feed_forward, around, final="model.final_norm")


def lfm2(spec: ModelSpec) -> Tensors:
    """LFM2: short convolutions and attention; the MLP is two thirds of the stated width, rounded up."""
    width = _lfm2_width(Fields(spec.config), spec.intermediate_size)
    return _lfm2(spec, lambda spec, index, at: _lfm2_mlp(at, width, spec.hidden_size))


def lfm2_moe(spec: ModelSpec) -> Tensors:
    """LFM2 with experts after the first `num_dense_layers`."""
    fields = Fields(spec.config)

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        if index < fields.integer("num_dense_layers", default=2, minimum=0):
            yield from _lfm2_mlp(at, spec.intermediate_size, spec.hidden_size)
            return
        count, width = fields.integer("num_experts", default=32), fields.integer("moe_intermediate_size", default=1792)
        yield from experts(f"{at}feed_forward", count, width, spec.hidden_size)
        yield from linear(f"{at}feed_forward.gate", count, spec.hidden_size)

    return _lfm2(spec, feed_forward)


def _lfm2(spec: ModelSpec, feed_forward: LayerPart) -> Tensors:
    return decoder(spec, _lfm2_operator, feed_forward, norms("operator_norm", "ffn_norm"), final="model.embedding_norm")


def _gated_attention(spec: ModelSpec) -> LayerPart:
    bias = Fields(spec.config).boolean("attention_bias")
    return attention(qkv_bias=bias, output_bias=bias, qk_norm="head", gated=True)


def _shared_expert(spec: ModelSpec, index: int, at: str) -> Tensors:
    width = Fields(spec.config).integer("shared_expert_intermediate_size", default=512)
    yield from routed("num_experts", "moe_intermediate_size")(spec, index, at)
    yield from gated_mlp(f"{at}mlp.shared_expert", width, spec.hidden_size)
    yield from linear(f"{at}mlp.shared_expert_gate", 1, spec.hidden_size)


def _delta(*, fused: bool) -> LayerPart:
    """A gated delta-rule layer; `fused` joins the projections of q, k, v, z and of beta and decay."""

    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        if spec.layers[index].kind != "state":
            return
        fields, hidden, at = Fields(spec.config), spec.hidden_size, f"{at}linear_attn."
        heads, size = fields.integer("linear_num_value_heads"), fields.integer("linear_value_head_dim")
        keys = fields.integer("linear_num_key_heads") * fields.integer("linear_key_head_dim")
        values = heads * size
        yield f"{at}dt_bias", (heads,)
        yield f"{at}A_log", (heads,)
        yield f"{at}conv1d.weight", (2 * keys + values, 1, fields.integer("linear_conv_kernel_dim"))
        yield from norm(f"{at}norm", size)
        yield from linear(f"{at}out_proj", hidden, values)
        if fused:
            yield from linear(f"{at}in_proj_qkvz", 2 * keys + 2 * values, hidden)
            yield from linear(f"{at}in_proj_ba", 2 * heads, hidden)
            return
        for name, rows in (("qkv", 2 * keys + values), ("z", values), ("b", heads), ("a", heads)):
            yield from linear(f"{at}in_proj_{name}", rows, hidden)

    return part


def _olmo_delta(spec: ModelSpec, index: int, at: str) -> Tensors:
    if spec.layers[index].kind != "state":
        return
    key_heads, heads, key_dim, size, kernel = olmo_delta_sizes(Fields(spec.config), spec.num_heads)
    keys, values, hidden, at = key_heads * key_dim, heads * size, spec.hidden_size, f"{at}linear_attn."
    yield f"{at}dt_bias", (heads,)
    yield f"{at}A_log", (heads,)
    for name, rows in (("q", keys), ("k", keys), ("v", values), ("a", heads), ("b", heads), ("g", values)):
        yield from linear(f"{at}{name}_proj", rows, hidden)
    yield from linear(f"{at}o_proj", hidden, values)
    yield f"{at}conv1d.weight", (2 * keys + values, 1, kernel)
    yield from norm(f"{at}o_norm", size)


def _griffin_block(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields, layer, hidden, at = Fields(spec.config), spec.layers[index], spec.hidden_size, f"{at}temporal_block."
    if layer.kind == "swa":
        bias, size = fields.boolean("attention_bias"), layer.k_head_dim
        yield from linear(f"{at}q_proj", spec.num_heads * size, hidden, bias)
        yield from linear(f"{at}k_proj", layer.kv_heads * size, hidden, bias)
        yield from linear(f"{at}v_proj", layer.kv_heads * size, hidden, bias)
        yield from linear(f"{at}o_proj", hidden, spec.num_heads * size, True)
        return
    width, heads = layer.state_elements, spec.num_heads
    yield from linear(f"{at}linear_y", width, hidden, True)
    yield from linear(f"{at}linear_x", width, hidden, True)
    yield from linear(f"{at}linear_out", hidden, width, True)
    yield f"{at}conv_1d.weight", (width, 1, layer.conv_elements // width + 1)
    yield f"{at}conv_1d.bias", (width,)
    yield f"{at}rg_lru.recurrent_param", (width,)
    for gate in ("input_gate", "recurrent_gate"):
        yield f"{at}rg_lru.{gate}_weight", (heads, width // heads, width // heads)
        yield f"{at}rg_lru.{gate}_bias", (heads, width // heads)


def _lfm2_operator(spec: ModelSpec, index: int, at: str) -> Tensors:
    layer, hidden = spec.layers[index], spec.hidden_size
    if layer.kind == "state":
        bias = Fields(spec.config).boolean("conv_bias")
        yield f"{at}conv.conv.weight", (hidden, 1, layer.conv_elements // hidden + 1)
        if bias:
            yield f"{at}conv.conv.bias", (hidden,)
        yield from linear(f"{at}conv.in_proj", 3 * hidden, hidden, bias)
        yield from linear(f"{at}conv.out_proj", hidden, hidden, bias)
        return
    query, kv, at = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim, f"{at}self_attn."
    for name, rows, columns in (("q_proj", query, hidden), ("k_proj", kv, hidden), ("v_proj", kv, hidden)):
        yield from linear(at + name, rows, columns)
    yield from linear(f"{at}out_proj", hidden, query)
    yield from norm(f"{at}q_layernorm", spec.head_dim)
    yield from norm(f"{at}k_layernorm", spec.head_dim)


def _lfm2_mlp(at: str, width: int, hidden: int) -> Tensors:
    yield from linear(f"{at}feed_forward.w1", width, hidden)
    yield from linear(f"{at}feed_forward.w3", width, hidden)
    yield from linear(f"{at}feed_forward.w2", hidden, width)


def _lfm2_width(fields: Fields, stated: int) -> int:
    if not fields.boolean("block_auto_adjust_ff_dim", True):
        return stated
    width = int(2 * stated / 3)
    factor = fields.values.get("block_ffn_dim_multiplier", 1.0)
    if not isinstance(factor, (int, float)):
        return width
    step = fields.integer("block_multiple_of", default=256)
    return -(-int(factor * width) // step) * step
