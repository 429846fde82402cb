"""Mixtures of experts under grouped-query attention: one `routed` row a family."""

from __future__ import annotations

from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.base import LayerPart, Tensors, decoder, linear, norm, norms
from ledger.tensors.dense import AROUND, FeedForward, Switch, sinks, stack, switched
from ledger.tensors.gated import attention, experts, gated_mlp


def routed(
    *,
    count: str = "num_experts",
    width: str = "moe_intermediate_size",
    block: str = "mlp",
    gate: str = "gate",
    shared: str = "",
    shared_name: str = "shared_experts",
    dense_first: str | int = 0,
    dense_bias: Switch = False,
) -> FeedForward:
    """Routed experts, except in the layers that `mlp_layer_types` or `dense_first` (a count or its field) keep dense.

    `shared` names the field with the number of shared experts, each as wide as a routed one and fused into one MLP.
    """

    def chosen(spec: ModelSpec) -> LayerPart:
        fields = Fields(spec.config)
        hidden, bias = spec.hidden_size, switched(spec, dense_bias)
        listed = fields.strings("mlp_layer_types", spec.num_layers)
        first = dense_first
        if isinstance(first, str):
            first = fields.integer(first, default=0, minimum=0)
        sparse = [kind == "sparse" for kind in listed] if listed else [at >= first for at in range(spec.num_layers)]
        shared_count = fields.optional_integer(shared, default=0, minimum=0) or 0 if shared else 0

        def part(spec: ModelSpec, index: int, at: str) -> Tensors:
            if not sparse[index]:
                yield from gated_mlp(f"{at}mlp", spec.intermediate_size, hidden, bias)
                return
            number, size = fields.integer(count), fields.integer(width)
            yield from linear(f"{at}{block}.{gate}", number, hidden)
            yield from experts(f"{at}{block}", number, size, hidden)
            if shared_count:
                yield from gated_mlp(f"{at}{block}.{shared_name}", shared_count * size, hidden, bias)

        return part

    return chosen


def _norms_of_heads(switch: str) -> LayerPart:
    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        if switched(spec, switch):
            yield from norm(f"{at}self_attn.q_norm", spec.head_dim)
            yield from norm(f"{at}self_attn.k_norm", spec.head_dim)

    return part


_SHARED = {"count": "n_routed_experts", "shared": "n_shared_experts"}

olmoe = stack(routed(width="intermediate_size"), qkv="attention_bias", out="attention_bias", qk_norm="whole")
flex_olmo = stack(
    routed(width="intermediate_size"), qkv="attention_bias", out="attention_bias", qk_norm="whole",
    around=("post_attention_layernorm", "post_feedforward_layernorm"),
)  # fmt: skip
phimoe = stack(
    routed(count="num_local_experts", width="intermediate_size", gate="router"),
    qkv="attention_bias", out="attention_bias", around=AROUND, norm_bias=True, head_bias="lm_head_bias",
)  # fmt: skip
glm4_moe = stack(
    routed(**_SHARED, dense_first="first_k_dense_replace"), _norms_of_heads("use_qk_norm"), qkv="attention_bias"
)
glm4v_moe = stack(routed(**_SHARED, dense_first="first_k_dense_replace"), qkv="attention_bias")
dots1 = stack(
    routed(**_SHARED, dense_first="first_k_dense_replace"), qkv="attention_bias", out="attention_bias", qk_norm="head"
)
deepseek_moe = stack(
    routed(**_SHARED, dense_first="first_k_dense_replace"), qkv="attention_bias", out="attention_bias"
)  # DeepSeek-MoE 16B: before latent attention
solar_open = stack(routed(**_SHARED), qkv="attention_bias")
exaone_moe = stack(routed(shared="num_shared_experts", dense_first="first_k_dense_replace"), qk_norm="head")
hy_v3 = stack(
    routed(shared="num_shared_experts", dense_first=1, dense_bias="mlp_bias"),
    qkv="attention_bias", out="attention_bias", qk_norm="head",
)  # fmt: skip
mellum = stack(routed(), qkv="attention_bias", out="attention_bias", qk_norm="head")


def granite_moe(spec: ModelSpec) -> Tensors:
    """Granite MoE: experts, and one shared MLP with gate and up fused when `shared_intermediate_size` is above 0."""
    width = Fields(spec.config).integer("shared_intermediate_size", default=0, minimum=0)

    def shared(spec: ModelSpec, index: int, at: str) -> Tensors:
        if width:
            yield from linear(f"{at}shared_mlp.input_linear", 2 * width, spec.hidden_size)
            yield from linear(f"{at}shared_mlp.output_linear", spec.hidden_size, width)

    blocks = routed(count="num_local_experts", width="intermediate_size", block="block_sparse_moe", gate="router")
    extra = (shared, sinks) if spec.model_type == "granitemoe_swa" else (shared,)
    return stack(blocks, *extra, qkv="attention_bias", out="attention_bias")(spec)


def qwen2_moe(spec: ModelSpec) -> Tensors:
    """Qwen2-MoE: Qwen3's rule for sparse layers, and a shared expert of its own width behind a gate."""
    fields = Fields(spec.config)
    dense, step = set(fields.integers("mlp_only_layers") or []), fields.integer("decoder_sparse_step", default=1)
    blocks = routed()(spec)

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        if index in dense or (index + 1) % step:
            yield from gated_mlp(f"{at}mlp", spec.intermediate_size, spec.hidden_size)
            return
        yield from blocks(spec, index, at)
        yield from gated_mlp(
            f"{at}mlp.shared_expert", fields.integer("shared_expert_intermediate_size"), spec.hidden_size
        )
        yield from linear(f"{at}mlp.shared_expert_gate", 1, spec.hidden_size)

    return stack(lambda spec: feed_forward, qkv="qkv_bias")(spec)


def ernie_moe(spec: ModelSpec) -> Tensors:
    """ERNIE 4.5 MoE: experts from one layer to another at an interval, with a learned correction of the router."""
    fields = Fields(spec.config)
    first = fields.integer("moe_layer_start_index", minimum=0)
    last = fields.integer("moe_layer_end_index", minimum=-1)
    last = spec.num_layers - 1 if last == -1 else last
    every, bias = fields.integer("moe_layer_interval"), fields.boolean("use_bias")
    blocks = routed(shared="moe_num_shared_experts", dense_bias="use_bias")(spec)

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        if (index + 1) % every or not first <= index <= last:
            yield from gated_mlp(f"{at}mlp", spec.intermediate_size, spec.hidden_size, bias)
            return
        yield from blocks(spec, index, at)
        yield f"{at}mlp.gate.moe_statics.e_score_correction_bias", (1, fields.integer("num_experts"))

    return stack(lambda spec: feed_forward, qkv="use_bias", out="use_bias", head_bias="use_bias")(spec)


def hunyuan_moe(spec: ModelSpec) -> Tensors:
    """Hunyuan A13B: one shared MLP beside the experts, the router under `gate.wg`, q and k normalised by head."""
    blocks = routed(width="intermediate_size", gate="gate.wg")(spec)

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield from blocks(spec, index, at)
        yield from gated_mlp(f"{at}mlp.shared_mlp", spec.intermediate_size, spec.hidden_size)

    def head_norms(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield from norm(f"{at}self_attn.query_layernorm", spec.head_dim)
        yield from norm(f"{at}self_attn.key_layernorm", spec.head_dim)

    return stack(lambda spec: feed_forward, head_norms, qkv="attention_bias", out="attention_bias")(spec)


def cohere2_moe(spec: ModelSpec) -> Tensors:
    """Cohere 2 MoE: one norm a layer; leading layers may have a plain MLP of `prefix_dense_intermediate_size`."""
    fields = Fields(spec.config)
    listed = fields.strings("mlp_layer_types", spec.num_layers)
    first = fields.integer("first_k_dense_replace", default=0, minimum=0)
    blocks = routed(width="intermediate_size", shared="num_shared_experts")(spec)

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        if listed[index] == "dense" if listed else index < first:
            width = fields.integer("prefix_dense_intermediate_size", default=spec.intermediate_size)
            return gated_mlp(f"{at}mlp", width, spec.hidden_size)
        return blocks(spec, index, at)

    return stack(lambda spec: feed_forward, qkv="attention_bias", out="attention_bias", around=("input_layernorm",))(
        spec
    )


def afmoe(spec: ModelSpec) -> Tensors:
    """AFMoE (Trinity): gated attention output, four norms, a learned bias of the experts, dense layers first."""
    fields = Fields(spec.config)
    bias = fields.boolean("attention_bias")
    blocks = routed(gate="router.gate", shared="num_shared_experts", dense_first="num_dense_layers")(spec)
    first = fields.integer("num_dense_layers", default=0, minimum=0)

    def around_mlp(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield from linear(f"{at}self_attn.gate_proj", spec.num_heads * spec.head_dim, spec.hidden_size)
        if index >= first:
            yield f"{at}mlp.expert_bias", (fields.integer("num_experts"),)

    names = (*AROUND, "pre_mlp_layernorm", "post_mlp_layernorm")
    heads = attention(qkv_bias=bias, output_bias=bias, qk_norm="head")
    return decoder(spec, heads, blocks, around_mlp, norms(*names))


def jetmoe(spec: ModelSpec) -> Tensors:
    """JetMoE: experts of the query and output projections too; keys and values shared by them."""
    fields = Fields(spec.config)
    count, kv = fields.integer("num_local_experts"), spec.num_kv_heads * spec.head_dim

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        hidden, width = spec.hidden_size, spec.intermediate_size
        for name, rows, columns in (
            ("mlp", 2 * width, width),
            ("self_attention.experts", kv, kv),
        ):
            yield f"{at}{name}.bias", (hidden,)
            yield f"{at}{name}.input_linear.weight", (count, rows, hidden)
            yield f"{at}{name}.output_linear.weight", (count, hidden, columns)
            yield from linear(f"{at}{name}.router.layer", count, hidden)
        yield from linear(f"{at}self_attention.kv_proj", 2 * kv, hidden)

    return decoder(spec, layer, norms(*AROUND))
