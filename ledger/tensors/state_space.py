"""Decoders with Mamba layers: alone, in turn with attention, or beside it."""

from __future__ import annotations

from ledger.fields import Fields
from ledger.layer_rules.state import Mamba2, nemotron_kinds
from ledger.model_spec import ModelSpec
from ledger.tensors.base import LayerPart, Tensors, decoder, linear, norm, norms
from ledger.tensors.gated import TWO_NORMS, attention, experts, gated_mlp


def jamba(spec: ModelSpec) -> Tensors:
    """Jamba: attention or Mamba-1, then an MLP or experts."""
    parts = attention(), _jamba_mamba, _jamba_mlp, norms("input_layernorm", "pre_ff_layernorm")
    return decoder(spec, *parts, final="model.final_layernorm")


def mamba1(spec: ModelSpec) -> Tensors:
    """Mamba and Falcon-Mamba (whose norms of dt, B and C have no weights)."""

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        return _mamba1(spec, index, f"{at}mixer.", "use_bias", "use_conv_bias")

    return _backbone(spec, layer)


def mamba2(spec: ModelSpec) -> Tensors:
    """Mamba-2."""
    return _backbone(spec, _mamba2("mixer", "use_bias", "use_conv_bias"))


def nemotron_h(spec: ModelSpec) -> Tensors:
    """Nemotron-H: one mixer a layer (Mamba-2, attention, MLP or experts without a gate) under one norm."""
    kinds = nemotron_kinds(Fields(spec.config), spec.num_layers)
    parts = {
        "linear_attention": _mamba2("mixer", "use_bias", "use_conv_bias"),
        "full_attention": _nemotron_attention,
        "mlp": _nemotron_mlp,
        "moe": _nemotron_experts,
    }

    def mixer(spec: ModelSpec, index: int, at: str) -> Tensors:
        return parts[kinds[index]](spec, index, at)

    return decoder(spec, norms("norm"), mixer, embedding="model.embeddings", final="model.norm_f")


def bamba(spec: ModelSpec) -> Tensors:
    """Bamba: Mamba-2 or attention, then a plain MLP."""
    fields = Fields(spec.config)
    parts = _attention_layers(fields.boolean("attention_bias")), _mamba2("mamba"), _feed_forward("mlp_bias")
    return decoder(spec, *parts, norms("input_layernorm", "pre_ff_layernorm"), final="model.final_layernorm")


def falcon_h1(spec: ModelSpec) -> Tensors:
    """Falcon-H1: Mamba-2 and attention side by side; the mixer's norm is optional."""
    fields = Fields(spec.config)
    mixer = _mamba2("mamba", out_bias="projectors_bias", normed=fields.boolean("mamba_rms_norm"))
    parts = _attention_layers(fields.boolean("attention_bias")), mixer, _feed_forward("mlp_bias")
    return decoder(spec, *parts, norms("input_layernorm", "pre_ff_layernorm"), final="model.final_layernorm")


def granite_hybrid(spec: ModelSpec) -> Tensors:
    """Granite 4: Mamba-2 or attention, then a shared MLP and, where there are any, experts."""
    fields = Fields(spec.config)
    count = fields.integer("num_local_experts", default=8, minimum=0)
    shared = fields.integer("shared_intermediate_size", default=1024)

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        hidden = spec.hidden_size
        if count:
            yield from linear(f"{at}block_sparse_moe.router", count, hidden)
            yield from experts(f"{at}block_sparse_moe", count, spec.intermediate_size, hidden)
        yield from linear(f"{at}shared_mlp.input_linear", 2 * shared, hidden)
        yield from linear(f"{at}shared_mlp.output_linear", hidden, shared)

    return decoder(spec, _attention_layers(fields.boolean("attention_bias")), _mamba2("mamba"), feed_forward, TWO_NORMS)


def zamba(spec: ModelSpec) -> Tensors:
    """Zamba: Mamba-1 in heads; hybrid layers share one attention block over hidden state and embedding."""
    first = min(index for index, layer in enumerate(spec.layers) if layer.keeps_kv)

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        hybrid, hidden = spec.layers[index].keeps_kv, spec.hidden_size
        mamba = f"{at}mamba_decoder." if hybrid else at
        yield from _zamba_mixer(spec, index, f"{mamba}mamba.")
        yield from norm(f"{mamba}input_layernorm", hidden)
        if hybrid:
            yield from linear(f"{at}linear", hidden, hidden)
        if index == first:
            at = f"{at}shared_transf."
            yield from _doubled_attention(spec, index, at)
            yield from gated_mlp(f"{at}feed_forward", spec.intermediate_size, hidden)
            yield from norm(f"{at}input_layernorm", 2 * hidden)
            yield from norm(f"{at}pre_ff_layernorm", hidden)

    return decoder(spec, layer, final="model.final_layernorm")


def zamba2(spec: ModelSpec) -> Tensors:
    """Zamba2: Mamba-2; `num_mem_blocks` shared attention blocks take turns, with low-rank adapters for each use."""
    fields = Fields(spec.config)
    hybrids = [index for index, layer in enumerate(spec.layers) if layer.keeps_kv]
    blocks = fields.integer("num_mem_blocks", default=1)
    mixer = _mamba2("mamba", "add_bias_linear", "", out_bias="add_bias_linear")

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        use = hybrids.index(index) if index in hybrids else None
        mamba = at if use is None else f"{at}mamba_decoder."
        yield from mixer(spec, index, mamba)
        yield from norm(f"{mamba}input_layernorm", spec.hidden_size)
        if use is not None:
            yield from linear(f"{at}linear", spec.hidden_size, spec.hidden_size)
            if use < blocks:
                uses = range(use, len(hybrids), blocks)
                yield from _zamba2_shared(spec, index, f"{at}shared_transformer.", uses)

    return decoder(spec, layer, final="model.final_layernorm")


def _backbone(spec: ModelSpec, layer: LayerPart) -> Tensors:
    return decoder(
        spec, norms("norm"), layer, embedding="backbone.embeddings", layers="backbone.layers.", final="backbone.norm_f"
    )


def _attention_layers(bias: bool) -> LayerPart:
    """Plain attention in the layers that keep keys and values, whatever else they hold."""
    plain = attention(qkv_bias=bias, output_bias=bias)

    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        if spec.layers[index].keeps_kv:
            yield from plain(spec, index, at)

    return part


def _feed_forward(bias_field: str) -> LayerPart:
    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        bias = Fields(spec.config).boolean(bias_field)
        return gated_mlp(f"{at}feed_forward", spec.intermediate_size, spec.hidden_size, bias)

    return part


def _jamba_mamba(spec: ModelSpec, index: int, at: str) -> Tensors:
    if spec.layers[index].kind == "state":
        at = f"{at}mamba."
        yield from _mamba1(spec, index, at, "mamba_proj_bias", "mamba_conv_bias")
        state = Fields(spec.config).integer("mamba_d_state", default=16)
        for name, size in (("dt", _dt_rank(spec)), ("b", state), ("c", state)):
            yield from norm(f"{at}{name}_layernorm", size)


def _mamba1(spec: ModelSpec, index: int, at: str, bias_field: str, conv_bias_field: str) -> Tensors:
    fields, hidden, inner = Fields(spec.config), spec.hidden_size, spec.layers[index].state_heads
    state, rank = spec.layers[index].state_elements // inner, _dt_rank(spec)
    bias = fields.boolean(bias_field)
    yield f"{at}A_log", (inner, state)
    yield f"{at}D", (inner,)
    yield f"{at}conv1d.weight", (inner, 1, spec.layers[index].conv_elements // inner + 1)
    if fields.boolean(conv_bias_field, True):
        yield f"{at}conv1d.bias", (inner,)
    yield from linear(f"{at}in_proj", 2 * inner, hidden, bias)
    yield from linear(f"{at}x_proj", rank + 2 * state, inner)
    yield from linear(f"{at}dt_proj", inner, rank, True)
    yield from linear(f"{at}out_proj", hidden, inner, bias)


def _dt_rank(spec: ModelSpec) -> int:
    """Rank of the time step's projection; "auto" (the default) is a sixteenth of the hidden size, rounded up."""
    for name in ("mamba_dt_rank", "time_step_rank"):
        if spec.config.get(name) not in (None, "auto"):
            return Fields(spec.config).integer(name)
    return -(-spec.hidden_size // 16)


def _mamba2(
    name: str,
    in_bias: str = "mamba_proj_bias",
    conv_bias: str = "mamba_conv_bias",
    out_bias: str = "",
    normed: bool = True,
) -> LayerPart:
    """A Mamba-2 mixer in layers with a state. The arguments name the switches of its biases ("": always there)."""

    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        if not spec.layers[index].state_elements:
            return
        fields, hidden, at = Fields(spec.config), spec.hidden_size, f"{at}{name}."
        shape = Mamba2.of(fields)
        for vector in ("dt_bias", "A_log", "D"):
            yield at + vector, (shape.heads,)
        yield f"{at}conv1d.weight", (shape.channels, 1, shape.kernel)
        if not conv_bias or fields.boolean(conv_bias, True):
            yield f"{at}conv1d.bias", (shape.channels,)
        yield from linear(f"{at}in_proj", shape.inner + shape.channels + shape.heads, hidden, fields.boolean(in_bias))
        if normed:
            yield from norm(f"{at}norm", shape.inner)
        yield from linear(f"{at}out_proj", hidden, shape.inner, fields.boolean(out_bias or in_bias))

    return part


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


def _nemotron_attention(spec: ModelSpec, index: int, at: str) -> Tensors:
    hidden, query, kv = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    for name, rows, columns in (("q", query, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, query)):
        yield from linear(
            f"{at}mixer.{name}_proj", rows, columns
        )  # the class has no bias, whatever attention_bias says


def _nemotron_mlp(spec: ModelSpec, index: int, at: str) -> Tensors:
    return _square_mlp(f"{at}mixer", spec.intermediate_size, spec.hidden_size, spec)


def _square_mlp(name: str, width: int, hidden: int, spec: ModelSpec) -> Tensors:
    bias = Fields(spec.config).boolean("mlp_bias")
    yield from linear(f"{name}.up_proj", width, hidden, bias)
    yield from linear(f"{name}.down_proj", hidden, width, bias)


def _nemotron_experts(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields, hidden, at = Fields(spec.config), spec.hidden_size, f"{at}mixer."
    count, width = fields.integer("n_routed_experts"), fields.integer("moe_intermediate_size")
    narrow = fields.optional_integer("moe_latent_size")
    inside = narrow or hidden
    yield f"{at}experts.up_proj", (count, width, inside)
    yield f"{at}experts.down_proj", (count, inside, width)
    yield from linear(f"{at}gate", count, hidden)
    yield from _square_mlp(f"{at}shared_experts", fields.integer("moe_shared_expert_intermediate_size"), hidden, spec)
    if narrow:
        bias = fields.boolean("mlp_bias")
        yield from linear(f"{at}fc1_latent_proj", narrow, hidden, bias)
        yield from linear(f"{at}fc2_latent_proj", hidden, narrow, bias)


def _zamba_mixer(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields, layer, rank = Fields(spec.config), spec.layers[index], _dt_rank(spec)
    heads, inner = fields.integer("n_mamba_heads", default=2), layer.state_heads
    size, state, bias = inner // heads, layer.state_elements // inner, fields.boolean("mamba_proj_bias")
    yield f"{at}x_proj_weight", (heads, rank + 2 * state, size)
    yield f"{at}dt_proj_weight", (heads, size, rank)
    yield f"{at}dt_proj_bias", (heads, size)
    yield f"{at}A_log", (heads, size, state)
    yield f"{at}D", (heads, size)
    yield f"{at}conv1d.weight", (inner, 1, layer.conv_elements // inner + 1)
    if fields.boolean("mamba_conv_bias", True):
        yield f"{at}conv1d.bias", (inner,)
    yield from linear(f"{at}in_proj", 2 * inner, spec.hidden_size, bias)
    yield from linear(f"{at}out_proj", spec.hidden_size, inner, bias)


def _doubled_attention(spec: ModelSpec, index: int, at: str) -> Tensors:
    layer, wide = spec.layers[index], 2 * spec.hidden_size
    query, kv = spec.num_heads * layer.k_head_dim, layer.kv_heads * layer.k_head_dim
    yield from linear(f"{at}self_attn.q_proj", query, wide)
    yield from linear(f"{at}self_attn.k_proj", kv, wide)
    yield from linear(f"{at}self_attn.v_proj", kv, wide)
    yield from linear(f"{at}self_attn.o_proj", spec.hidden_size, query)


def _zamba2_shared(spec: ModelSpec, index: int, at: str, uses: range) -> Tensors:
    fields, hidden, inner = Fields(spec.config), spec.hidden_size, spec.intermediate_size
    rank, bias = fields.integer("adapter_rank", default=128), fields.boolean("add_bias_linear")
    adapted = [("feed_forward.gate_up_proj", hidden, 2 * inner)]
    if fields.boolean("use_shared_attention_adapter"):
        adapted += [(f"self_attn.linear_{name}", 2 * hidden, 2 * hidden) for name in "qkv"]
    yield from _doubled_attention(spec, index, at)
    yield from linear(f"{at}feed_forward.gate_up_proj", 2 * inner, hidden, bias)
    yield from linear(f"{at}feed_forward.down_proj", hidden, inner, bias)
    for name, columns, rows in adapted:
        for use in uses:
            yield from linear(f"{at}{name}_adapter_list.{use}.0", rank, columns)
            yield from linear(f"{at}{name}_adapter_list.{use}.1", rows, rank)
    yield from norm(f"{at}input_layernorm", 2 * hidden)
    yield from norm(f"{at}pre_ff_layernorm", hidden)
