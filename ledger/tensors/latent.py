"""Decoders with latent attention: DeepSeek V2 to V4 and their relatives. Prediction layers are not listed."""

from __future__ import annotations

from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.base import LayerPart, Tensors, decoder, linear, norm, norms
from ledger.tensors.gated import TWO_NORMS, experts, gated_mlp, mlp

# Layers before the experts begin, where the class has no field for it.
DENSE_FIRST = {"axk1": 1, "glm4_moe_lite": 1, "kimi_linear": 1}


def deepseek(spec: ModelSpec) -> Tensors:
    """DeepSeek V2, V3, Kimi-K2, GLM-4.7-Flash, Sarvam: dense layers first, then routed and shared experts."""
    return decoder(spec, attention, routed_mlp, TWO_NORMS)


def dense(spec: ModelSpec) -> Tensors:
    """MiniCPM3, Youtu: latent attention with a plain MLP."""
    return decoder(spec, attention, mlp(), TWO_NORMS)


def axk1(spec: ModelSpec) -> Tensors:
    """A.X K1: DeepSeek V3 with a norm behind the experts."""

    def post_norm(spec: ModelSpec, index: int, at: str) -> Tensors:
        if is_sparse(spec, index):
            yield from norm(f"{at}mlp.post_mlp_layernorm", spec.hidden_size)

    return decoder(spec, attention, routed_mlp, post_norm, TWO_NORMS)


def sparse(spec: ModelSpec) -> Tensors:
    """DeepSeek V3.2 and GLM-5: an indexer beside the attention of each layer that keeps index keys."""
    return decoder(spec, attention, _indexer, routed_mlp, TWO_NORMS)


def longcat(spec: ModelSpec) -> Tensors:
    """LongCat-Flash: two attentions and two MLPs a layer, experts beside them; zero experts hold no weights."""
    fields = Fields(spec.config)
    count, width = fields.integer("n_routed_experts"), fields.integer("expert_ffn_hidden_size")
    choices = count + fields.integer("zero_expert_num", default=0, minimum=0)

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        for half in (0, 1):
            yield from attention(spec, index, at, f"self_attn.{half}")
            yield from gated_mlp(f"{at}mlps.{half}", spec.intermediate_size, spec.hidden_size)
        yield from experts(f"{at}mlp", count, width, spec.hidden_size)
        bias = fields.boolean("router_bias")
        yield from linear(f"{at}mlp.router.classifier", choices, spec.hidden_size, bias)

    halves = [f"{name}.{half}" for name in ("input_layernorm", "post_attention_layernorm") for half in (0, 1)]
    return decoder(spec, layer, norms(*halves))


def kimi_linear(spec: ModelSpec) -> Tensors:
    """Kimi-Linear: delta attention with low-rank gates, latent attention between; experts as in DeepSeek V3."""
    linear_config = Fields(spec.config).section("linear_attn_config") or Fields({})
    size = linear_config.integer("head_dim", default=Fields(spec.config).integer("linear_head_dim", default=128))

    def gates(spec: ModelSpec, index: int, at: str) -> Tensors:
        if spec.layers[index].kind != "state":
            return
        heads, hidden, at = spec.layers[index].state_heads, spec.hidden_size, f"{at}self_attn."
        yield f"{at}forget_gate.A_log", (1, 1, heads, 1)
        for name in ("forget_gate.f", "g"):
            yield from linear(f"{at}{name}_a_proj", size, hidden)
            yield from linear(f"{at}{name}_b_proj", heads * size, size)

    return decoder(spec, _delta(size), gates, _latent_layers, routed_mlp, TWO_NORMS)


def ling_hybrid(spec: ModelSpec) -> Tensors:
    """Ling 2.5: Kimi-Linear with full-rank gates, and a gate a head on latent attention."""
    size = Fields(spec.config).integer("head_dim", default=128)

    def gates(spec: ModelSpec, index: int, at: str) -> Tensors:
        heads, hidden, at = spec.num_heads, spec.hidden_size, f"{at}self_attn."
        if spec.layers[index].kind == "mla":
            yield from linear(f"{at}g_proj", heads, hidden)
            return
        yield f"{at}forget_gate.A_log", (heads,)
        yield from linear(f"{at}forget_gate.f_proj", heads * size, hidden)
        yield from linear(f"{at}g_proj", heads * size, hidden)

    return decoder(spec, _delta(size), gates, _latent_layers, routed_mlp, TWO_NORMS)


def deepseek_v4(spec: ModelSpec) -> Tensors:
    """DeepSeek-V4: shared keys and values, compressors, grouped output projection, hyper-connections, experts."""
    yield from decoder(spec, _v4_attention, _v4_compressor, _v4_experts, _v4_connections, TWO_NORMS)
    streams = Fields(spec.config).integer("hc_mult", default=4)
    yield "model.hc_head.hc_fn", (streams, streams * spec.hidden_size)
    yield "model.hc_head.hc_base", (streams,)
    yield "model.hc_head.hc_scale", (1,)


def attention(spec: ModelSpec, index: int, at: str, name: str = "self_attn") -> Tensors:
    """Latent attention: q down and up (or whole when q_lora_rank is null), KV down with the rotary key, KV up, out."""
    fields = Fields(spec.config)
    hidden, heads, at = spec.hidden_size, spec.num_heads, f"{at}{name}."
    rank, rope = fields.integer("kv_lora_rank"), fields.integer("qk_rope_head_dim")
    nope = fields.integer("qk_nope_head_dim")
    value = fields.optional_integer("v_head_dim") or hidden // heads
    bias = fields.boolean("attention_bias")
    query_rank = fields.optional_integer("q_lora_rank", default=1536)
    if query_rank is None:
        yield from linear(f"{at}q_proj", heads * (nope + rope), hidden)
    else:
        yield from linear(f"{at}q_a_proj", query_rank, hidden, bias)
        yield from norm(f"{at}q_a_layernorm", query_rank)
        yield from linear(f"{at}q_b_proj", heads * (nope + rope), query_rank)
    yield from linear(f"{at}kv_a_proj_with_mqa", rank + rope, hidden, bias)
    yield from norm(f"{at}kv_a_layernorm", rank)
    yield from linear(f"{at}kv_b_proj", heads * (nope + value), rank)
    yield from linear(f"{at}o_proj", hidden, heads * value, bias)


def is_sparse(spec: ModelSpec, index: int) -> bool:
    """True when a layer has experts: by `mlp_layer_types`, else after the first dense ones, every moe_layer_freq-th."""
    fields = Fields(spec.config)
    kinds = fields.strings("mlp_layer_types", spec.num_layers)
    if kinds:
        return kinds[index] == "sparse"
    every = fields.integer("moe_layer_freq", default=1)
    first = fields.integer("first_k_dense_replace", default=DENSE_FIRST.get(spec.model_type, 0), minimum=0)
    return index >= first and index % every == 0


def routed_mlp(spec: ModelSpec, index: int, at: str) -> Tensors:
    """A plain MLP, or a router with routed and shared experts."""
    fields = Fields(spec.config)
    if not is_sparse(spec, index):
        yield from gated_mlp(f"{at}mlp", spec.intermediate_size, spec.hidden_size)
        return
    width, count = fields.integer("moe_intermediate_size"), fields.integer("n_routed_experts", "num_local_experts")
    yield from experts(f"{at}mlp", count, width, spec.hidden_size)
    yield from linear(f"{at}mlp.gate", count, spec.hidden_size)
    shared = fields.integer("n_shared_experts", default=0, minimum=0)
    if shared:
        yield from gated_mlp(f"{at}mlp.shared_experts", shared * width, spec.hidden_size)


def _latent_layers(spec: ModelSpec, index: int, at: str) -> Tensors:
    if spec.layers[index].kind == "mla":
        yield from attention(spec, index, at)


def _indexer(spec: ModelSpec, index: int, at: str) -> Tensors:
    size, fields = spec.layers[index].index_dim, Fields(spec.config)
    if not size:
        return
    heads, at = fields.integer("index_n_heads"), f"{at}self_attn.indexer."
    yield from linear(f"{at}wq_b", heads * size, fields.integer("q_lora_rank"))
    yield from linear(f"{at}wk", size, spec.hidden_size)
    yield from norm(f"{at}k_norm", size, bias=True)
    yield from linear(f"{at}weights_proj", heads, spec.hidden_size)


def _delta(size: int) -> LayerPart:
    """What both delta attentions have: q, k, v and their convolution, the step's bias and rate, norm and output."""

    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        layer, hidden, at = spec.layers[index], spec.hidden_size, f"{at}self_attn."
        if layer.kind != "state":
            return
        heads = layer.state_heads
        width = heads * size
        for name in ("q_proj", "k_proj", "v_proj"):
            yield from linear(at + name, width, hidden)
        yield f"{at}conv1d.weight", (3 * width, 1, layer.conv_elements // (3 * width) + 1)
        yield f"{at}forget_gate.dt_bias", (width,)
        yield from linear(f"{at}b_proj", heads, hidden)
        yield from norm(f"{at}o_norm", size)
        yield from linear(f"{at}o_proj", hidden, width)

    return part


def _v4_attention(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields = Fields(spec.config)
    hidden, heads, size, at = spec.hidden_size, spec.num_heads, spec.head_dim, f"{at}self_attn."
    rank = fields.integer("q_lora_rank", default=1024)
    groups, low = fields.integer("o_groups", default=8), fields.integer("o_lora_rank", default=1024)
    yield f"{at}sinks", (heads,)
    yield from linear(f"{at}q_a_proj", rank, hidden)
    yield from norm(f"{at}q_a_norm", rank)
    yield from linear(f"{at}q_b_proj", heads * size, rank)
    yield from linear(f"{at}kv_proj", size, hidden)
    yield from norm(f"{at}kv_norm", size)
    yield from linear(f"{at}o_a_proj", groups * low, heads * size // groups)
    yield from linear(f"{at}o_b_proj", hidden, groups * low)


def _v4_compressor(spec: ModelSpec, index: int, at: str) -> Tensors:
    layer, fields, at = spec.layers[index], Fields(spec.config), f"{at}self_attn.compressor."
    if not layer.compressed_dim:
        return
    indexed = bool(layer.index_dim)  # those layers mix two neighbouring windows: twice the projections
    yield from _v4_pooling(at, layer.compressed_dim, layer.compress_ratio, spec.hidden_size, 2 if indexed else 1)
    if indexed:
        heads, at = fields.integer("index_n_heads", default=64), f"{at}indexer."
        yield from _v4_pooling(at, layer.index_dim, layer.compress_ratio, spec.hidden_size, 2)
        yield from linear(f"{at}q_b_proj", heads * layer.index_dim, fields.integer("q_lora_rank", default=1024))
        yield from linear(f"{at}scorer.weights_proj", heads, spec.hidden_size)


def _v4_pooling(at: str, size: int, ratio: int, hidden: int, windows: int) -> Tensors:
    yield f"{at}position_bias", (ratio, windows * size)
    yield from linear(f"{at}kv_proj", windows * size, hidden)
    yield from linear(f"{at}gate_proj", windows * size, hidden)
    yield from norm(f"{at}kv_norm", size)


def _v4_experts(spec: ModelSpec, index: int, at: str) -> Tensors:
    fields, width = Fields(spec.config), spec.intermediate_size
    count = fields.integer("n_routed_experts", default=256)
    yield from linear(f"{at}mlp.gate", count, spec.hidden_size)
    yield from experts(f"{at}mlp", count, width, spec.hidden_size)
    yield from gated_mlp(f"{at}mlp.shared_experts", width, spec.hidden_size)


def _v4_connections(spec: ModelSpec, index: int, at: str) -> Tensors:
    streams = Fields(spec.config).integer("hc_mult", default=4)
    mixes = (2 + streams) * streams
    for name in ("attn_hc", "ffn_hc"):
        yield f"{at}{name}.fn", (mixes, streams * spec.hidden_size)
        yield f"{at}{name}.base", (mixes,)
        yield f"{at}{name}.scale", (3,)
