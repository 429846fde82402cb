"""Decoders with a gated MLP: the Llama family, its relatives, and their mixtures of experts."""

from __future__ import annotations

from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.base import LayerPart, Tensors, decoder, linear, norm, norms

TWO_NORMS = norms("input_layernorm", "post_attention_layernorm")
FOUR_NORMS = norms(
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)


def attention(
    *, qkv_bias: bool = False, output_bias: bool = False, qk_norm: str = "", gated: bool = False
) -> LayerPart:
    """Grouped-query attention; qk_norm "head" normalises one head, "whole" all heads; `gated` doubles the query."""

    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        layer = spec.layers[index]
        if layer.kind == "state":
            return
        hidden, query = spec.hidden_size, spec.num_heads * spec.head_dim
        kv = spec.num_kv_heads * spec.head_dim
        yield from linear(f"{at}self_attn.q_proj", query * (2 if gated else 1), hidden, qkv_bias)
        yield from linear(f"{at}self_attn.k_proj", kv, hidden, qkv_bias)
        yield from linear(f"{at}self_attn.v_proj", kv, hidden, qkv_bias)
        yield from linear(f"{at}self_attn.o_proj", hidden, query, output_bias)
        if qk_norm:
            whole = qk_norm == "whole"
            yield from norm(f"{at}self_attn.q_norm", query if whole else spec.head_dim)
            yield from norm(f"{at}self_attn.k_norm", kv if whole else spec.head_dim)

    return part


def gated_mlp(name: str, width: int, hidden: int, bias: bool = False) -> Tensors:
    """gate, up [width, hidden] and down [hidden, width]."""
    yield from linear(f"{name}.gate_proj", width, hidden, bias)
    yield from linear(f"{name}.up_proj", width, hidden, bias)
    yield from linear(f"{name}.down_proj", hidden, width, bias)


def mlp(bias: bool = False) -> LayerPart:
    """A gated MLP in every layer."""
    return lambda spec, index, at: gated_mlp(f"{at}mlp", spec.intermediate_size, spec.hidden_size, bias)


def experts(name: str, count: int, width: int, hidden: int) -> Tensors:
    """Stacked gated experts: gate and up fused [count, 2 width, hidden], down [count, hidden, width]."""
    yield f"{name}.experts.gate_up_proj", (count, 2 * width, hidden)
    yield f"{name}.experts.down_proj", (count, hidden, width)


def llama(spec: ModelSpec) -> Tensors:
    """Llama: `attention_bias` is on all four projections."""
    fields = Fields(spec.config)
    bias = fields.boolean("attention_bias")
    parts = attention(qkv_bias=bias, output_bias=bias), mlp(fields.boolean("mlp_bias"))
    return decoder(spec, *parts, TWO_NORMS)


def plain(spec: ModelSpec) -> Tensors:
    """Mistral, Baichuan, InternLM2: no biases."""
    return decoder(spec, attention(), mlp(), TWO_NORMS)


def qwen2(spec: ModelSpec) -> Tensors:
    """Qwen2: biases on q, k and v always."""
    return decoder(spec, attention(qkv_bias=True), mlp(), TWO_NORMS)


def mimo(spec: ModelSpec) -> Tensors:
    """MiMo: Qwen2's layout; the multi-token-prediction layers are not part of the text model."""
    return decoder(spec, attention(qkv_bias=Fields(spec.config).boolean("attention_bias")), mlp(), TWO_NORMS)


def qwen3(spec: ModelSpec) -> Tensors:
    """Qwen3: q and k normalised head by head."""
    bias = Fields(spec.config).boolean("attention_bias")
    return decoder(spec, attention(qkv_bias=bias, output_bias=bias, qk_norm="head"), mlp(), TWO_NORMS)


def phi3(spec: ModelSpec) -> Tensors:
    """Phi-3 and Phi-4: q, k, v fused, gate and up fused."""

    def fused(spec: ModelSpec, index: int, at: str) -> Tensors:
        hidden, query = spec.hidden_size, spec.num_heads * spec.head_dim
        yield from linear(f"{at}self_attn.qkv_proj", query + 2 * spec.num_kv_heads * spec.head_dim, hidden)
        yield from linear(f"{at}self_attn.o_proj", hidden, query)

    return decoder(spec, fused, _fused_mlp, TWO_NORMS)


def glm4(spec: ModelSpec) -> Tensors:
    """GLM-4-0414: gate and up fused, norms around both halves."""
    bias = Fields(spec.config).boolean("attention_bias", True)
    around = norms("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
    return decoder(spec, attention(qkv_bias=bias), _fused_mlp, around)


def olmo(spec: ModelSpec) -> Tensors:
    """OLMo-2 and 3: norms after each half, q and k normalised over all heads."""
    bias = Fields(spec.config).boolean("attention_bias")
    after = norms("post_attention_layernorm", "post_feedforward_layernorm")
    return decoder(spec, attention(qkv_bias=bias, output_bias=bias, qk_norm="whole"), mlp(), after)


def cohere(spec: ModelSpec) -> Tensors:
    """Command-R and Aya: one norm, both halves in parallel; with `use_qk_norm` a scale for every head."""
    fields = Fields(spec.config)
    bias = fields.boolean("attention_bias")

    def head_norms(spec: ModelSpec, index: int, at: str) -> Tensors:
        if fields.boolean("use_qk_norm"):
            yield f"{at}self_attn.q_norm.weight", (spec.num_heads, spec.head_dim)
            yield f"{at}self_attn.k_norm.weight", (spec.num_kv_heads, spec.head_dim)

    parts = attention(qkv_bias=bias, output_bias=bias), head_norms, mlp()
    return decoder(spec, *parts, norms("input_layernorm"))


def gemma(spec: ModelSpec) -> Tensors:
    """Gemma 1: Llama's layout."""
    bias = Fields(spec.config).boolean("attention_bias")
    return decoder(spec, attention(qkv_bias=bias, output_bias=bias), mlp(), TWO_NORMS)


def gemma2(spec: ModelSpec) -> Tensors:
    """Gemma 2: norms before and after both halves."""
    bias = Fields(spec.config).boolean("attention_bias")
    return decoder(spec, attention(qkv_bias=bias, output_bias=bias), mlp(), FOUR_NORMS)


def gemma3(spec: ModelSpec) -> Tensors:
    """Gemma 3: Gemma 2 with q and k normalised head by head."""
    bias = Fields(spec.config).boolean("attention_bias")
    return decoder(spec, attention(qkv_bias=bias, output_bias=bias, qk_norm="head"), mlp(), FOUR_NORMS)


def mixtral(spec: ModelSpec) -> Tensors:
    """Mixtral: experts in every layer."""
    return decoder(spec, attention(), routed("num_local_experts", "intermediate_size"), TWO_NORMS)


def minimax(spec: ModelSpec) -> Tensors:
    """MiniMax-M2: experts in every layer, q and k normalised over all heads."""
    sparse = routed("num_local_experts", "intermediate_size")
    return decoder(spec, attention(qk_norm="whole"), sparse, TWO_NORMS)


def qwen3_moe(spec: ModelSpec) -> Tensors:
    """Qwen3-MoE: experts except in `mlp_only_layers` and off the `decoder_sparse_step`."""
    fields = Fields(spec.config)
    dense = set(fields.integers("mlp_only_layers") or [])
    step = fields.integer("decoder_sparse_step", default=1)
    sparse_mlp, flat = routed("num_experts", "moe_intermediate_size"), mlp()

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        sparse = index not in dense and (index + 1) % step == 0
        return (sparse_mlp if sparse else flat)(spec, index, at)

    bias = fields.boolean("attention_bias")
    return decoder(spec, attention(qkv_bias=bias, output_bias=bias, qk_norm="head"), feed_forward, TWO_NORMS)


def gpt_oss(spec: ModelSpec) -> Tensors:
    """gpt-oss: biases everywhere, a learned sink a head, experts stored transposed with biases."""

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        count = Fields(spec.config).integer("num_local_experts")
        hidden, width = spec.hidden_size, spec.intermediate_size
        yield f"{at}self_attn.sinks", (spec.num_heads,)
        yield from linear(f"{at}mlp.router", count, hidden, True)
        yield f"{at}mlp.experts.gate_up_proj", (count, hidden, 2 * width)
        yield f"{at}mlp.experts.gate_up_proj_bias", (count, 2 * width)
        yield f"{at}mlp.experts.down_proj", (count, width, hidden)
        yield f"{at}mlp.experts.down_proj_bias", (count, hidden)

    bias = Fields(spec.config).boolean("attention_bias", True)
    return decoder(spec, attention(qkv_bias=bias, output_bias=bias), feed_forward, TWO_NORMS)


def llama4(spec: ModelSpec) -> Tensors:
    """Llama 4 text: every `interleave_moe_layer_step`-th layer has experts and a shared one, the others a wider MLP."""
    fields = Fields(spec.config)
    step = fields.integer("interleave_moe_layer_step", default=1)
    chosen = fields.integers("moe_layers") or list(range(step - 1, spec.num_layers, step))

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        hidden, width = spec.hidden_size, spec.intermediate_size
        name = f"{at}feed_forward"
        if index not in chosen:
            yield from gated_mlp(name, fields.integer("intermediate_size_mlp", default=16384), hidden)
            return
        count = fields.integer("num_local_experts")
        yield f"{name}.experts.gate_up_proj", (count, hidden, 2 * width)
        yield f"{name}.experts.down_proj", (count, width, hidden)
        yield from linear(f"{name}.router", count, hidden)
        yield from gated_mlp(f"{name}.shared_expert", width, hidden)

    bias = fields.boolean("attention_bias")
    return decoder(spec, attention(qkv_bias=bias, output_bias=bias), feed_forward, TWO_NORMS)


def routed(count_field: str, width_field: str) -> LayerPart:
    """A router and routed experts in every layer; the arguments name the config's fields for their number and width."""

    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        fields = Fields(spec.config)
        count = fields.integer(count_field)
        yield from linear(f"{at}mlp.gate", count, spec.hidden_size)
        yield from experts(f"{at}mlp", count, fields.integer(width_field), spec.hidden_size)

    return part


def _fused_mlp(spec: ModelSpec, index: int, at: str) -> Tensors:
    yield from linear(f"{at}mlp.gate_up_proj", 2 * spec.intermediate_size, spec.hidden_size)
    yield from linear(f"{at}mlp.down_proj", spec.hidden_size, spec.intermediate_size)
