"""Dense decoders that differ from Llama by a switch or two: each is one row of `stack`.

A switch is True, False, or the name of the config field that decides (its class default is already in the config).
"""

from __future__ import annotations

from collections.abc import Callable

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.base import LayerPart, Tensors, decoder, linear, norm, norms
from ledger.tensors.gated import TWO_NORMS, attention, gated_mlp

Switch = bool | str
Table = Callable[[ModelSpec], Tensors]
FeedForward = Callable[[ModelSpec], LayerPart]


def switched(spec: ModelSpec, switch: Switch) -> bool:
    """What a switch says for this model."""
    return switch if isinstance(switch, bool) else Fields(spec.config).boolean(switch)


def stack(
    feed_forward: FeedForward,
    *extra: LayerPart,
    qkv: Switch = False,
    out: Switch = False,
    qk_norm: str = "",
    around: tuple[str, ...] | LayerPart = TWO_NORMS,
    norm_bias: bool = False,
    head_bias: Switch = False,
) -> Table:
    """A decoder of grouped-query attention and `feed_forward`; `around` are the norms of a layer, by name or part."""

    def table(spec: ModelSpec) -> Tensors:
        layer_norms = norms(*around, bias=norm_bias) if isinstance(around, tuple) else around
        heads = attention(qkv_bias=switched(spec, qkv), output_bias=switched(spec, out), qk_norm=qk_norm)
        yield from decoder(spec, heads, feed_forward(spec), layer_norms, *extra, norm_bias=norm_bias)
        if switched(spec, head_bias):
            yield "lm_head.bias", (spec.vocab_size,)

    return table


def gated(bias: Switch = False) -> FeedForward:
    """gate, up and down."""

    def chosen(spec: ModelSpec) -> LayerPart:
        with_bias = switched(spec, bias)
        return lambda spec, index, at: gated_mlp(f"{at}mlp", spec.intermediate_size, spec.hidden_size, with_bias)

    return chosen


def two_layers(up: str = "up_proj", down: str = "down_proj", bias: Switch = False) -> FeedForward:
    """An MLP without a gate."""

    def chosen(spec: ModelSpec) -> LayerPart:
        with_bias = switched(spec, bias)

        def part(spec: ModelSpec, index: int, at: str) -> Tensors:
            yield from linear(f"{at}mlp.{up}", spec.intermediate_size, spec.hidden_size, with_bias)
            yield from linear(f"{at}mlp.{down}", spec.hidden_size, spec.intermediate_size, with_bias)

        return part

    return chosen


def fused(spec: ModelSpec) -> LayerPart:
    """gate and up in one matrix."""

    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield from linear(f"{at}mlp.gate_up_proj", 2 * spec.intermediate_size, spec.hidden_size)
        yield from linear(f"{at}mlp.down_proj", spec.hidden_size, spec.intermediate_size)

    return part


def sinks(spec: ModelSpec, index: int, at: str) -> Tensors:
    """A learned attention sink for every query head."""
    yield f"{at}self_attn.sinks", (spec.num_heads,)


def _head_norms(*names: str, bias: bool = False) -> LayerPart:
    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        for name in names:
            yield from norm(f"{at}self_attn.{name}", spec.head_dim, bias)

    return part


MAX_NAMED_HEADS = 1_024  # a norm of its own for every head
AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")
AROUND = ("input_layernorm", "post_attention_layernorm")

plain = stack(gated())
with_switches = stack(gated("mlp_bias"), qkv="attention_bias", out="attention_bias")  # Granite, SmolLM3, Exaone ...

query_switch = stack(gated("mlp_bias"), qkv="attention_bias")  # Helium
arcee = stack(two_layers(bias="mlp_bias"), qkv="attention_bias", out="attention_bias")
seed_oss = stack(gated("mlp_bias"), qkv="attention_bias", out="attention_out_bias")
ernie = stack(gated("use_bias"), qkv="use_bias", out="use_bias")
starcoder2 = stack(
    two_layers("c_fc", "c_proj", "use_bias"), qkv="use_bias", out="use_bias", around=AROUND, norm_bias=True
)
nemotron = stack(two_layers(bias="mlp_bias"), qkv="attention_bias", out="attention_bias", around=AROUND, norm_bias=True)
cohere2 = stack(gated(), qkv="attention_bias", out="attention_bias", around=("input_layernorm",))
vaultgemma = stack(
    gated(), qkv="attention_bias", out="attention_bias", around=("input_layernorm", "pre_feedforward_layernorm")
)
exaone4 = stack(gated(), qk_norm="head", around=AFTER)
glm = stack(fused, qkv="attention_bias")
hunyuan = stack(gated(), _head_norms("query_layernorm", "key_layernorm"), qkv="attention_bias", out="attention_bias")
granite_swa = stack(gated("mlp_bias"), sinks, qkv="attention_bias", out="attention_bias")

internlm = stack(gated(), qkv="bias", out="bias")
glm4v = stack(fused, qkv=True, around=(*AROUND, "post_self_attn_layernorm", "post_mlp_layernorm"))
cwm = stack(gated("mlp_bias"))
minicpm = stack(gated("mlp_bias"), qkv="attention_bias", out="attention_bias")


def olmo(spec: ModelSpec) -> Tensors:
    """OLMo 1: norms without parameters."""
    bias = switched(spec, "attention_bias")
    yield "model.embed_tokens.weight", (spec.vocab_size, spec.hidden_size)
    for index in range(spec.num_layers):
        at = f"model.layers.{index}."
        yield from attention(qkv_bias=bias, output_bias=bias)(spec, index, at)
        yield from gated_mlp(f"{at}mlp", spec.intermediate_size, spec.hidden_size)
    if not spec.tie_embeddings:
        yield "lm_head.weight", (spec.vocab_size, spec.hidden_size)


def hyperclovax(spec: ModelSpec) -> Tensors:
    """HyperCLOVA X: Granite's layout, with norms after both halves when `use_post_norm`."""
    names = AROUND + (("post_norm1", "post_norm2") if switched(spec, "use_post_norm") else ())
    return stack(gated("mlp_bias"), qkv="attention_bias", out="attention_bias", around=names)(spec)


def apertus(spec: ModelSpec) -> Tensors:
    """Apertus: xIELU with two learned scalars a layer, q and k normalised head by head."""

    def activation(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield f"{at}mlp.act_fn.alpha_p", (1,)
        yield f"{at}mlp.act_fn.alpha_n", (1,)

    around = ("attention_layernorm", "feedforward_layernorm")
    return stack(two_layers(), activation, qkv="attention_bias", out="attention_bias", qk_norm="head", around=around)(
        spec
    )


def bitnet(spec: ModelSpec) -> Tensors:
    """BitNet b1.58: a norm inside attention and inside the MLP."""

    def inside(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield from norm(f"{at}self_attn.attn_sub_norm", spec.hidden_size)
        yield from norm(f"{at}mlp.ffn_sub_norm", spec.intermediate_size)

    return stack(gated(), inside, qkv="attention_bias", out="attention_bias")(spec)


def diffllama(spec: ModelSpec) -> Tensors:
    """DiffLlama: four lambda vectors a layer; its norm over two heads has no parameters."""

    def lambdas(spec: ModelSpec, index: int, at: str) -> Tensors:
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            yield f"{at}self_attn.{name}", (spec.head_dim,)

    return stack(gated(), lambdas, qkv="attention_bias", out="attention_bias")(spec)


def stablelm(spec: ModelSpec) -> Tensors:
    """StableLM: LayerNorms with a shift; one norm a layer when the halves are parallel; optional norms a head."""
    names = AROUND[:1] if switched(spec, "use_parallel_residual") else AROUND

    def head_norms(spec: ModelSpec, index: int, at: str) -> Tensors:
        if not switched(spec, "qk_layernorm"):
            return
        for name, count in (("q_layernorm", spec.num_heads), ("k_layernorm", spec.num_kv_heads)):
            if count > MAX_NAMED_HEADS:
                raise InputError("num_attention_heads", count, f"at most {MAX_NAMED_HEADS} with qk_layernorm")
            for head in range(count):
                yield from norm(f"{at}self_attn.{name}.norms.{head}", spec.head_dim)

    return stack(gated(), head_norms, qkv="use_qkv_bias", around=names, norm_bias=True)(spec)


def qwen1(spec: ModelSpec) -> Tensors:
    """Qwen 1: q, k and v always with a bias, and the MLP half as wide as `intermediate_size` says."""
    bias = not Fields(spec.config).boolean("no_bias", True)

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        return gated_mlp(f"{at}mlp", spec.intermediate_size // 2, spec.hidden_size, bias)

    return stack(lambda spec: feed_forward, qkv=True, out=bias)(spec)


def chatglm(spec: ModelSpec) -> Tensors:
    """ChatGLM2, ChatGLM3 and GLM-4-9B: `add_qkv_bias` on q, k and v, `add_bias_linear` on every linear layer."""
    fields = Fields(spec.config)
    bias = fields.boolean("add_bias_linear")
    return stack(gated("add_bias_linear"), qkv=bias or fields.boolean("add_qkv_bias"), out=bias)(spec)
