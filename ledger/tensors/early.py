"""Decoders with LayerNorm and an MLP without a gate beside those of classic.py: BLOOM, MPT, StarCoder, Phi and more."""

from __future__ import annotations

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.base import LayerPart, Tensors, decoder, linear, norm, norms


def bloom(spec: ModelSpec) -> Tensors:
    """BLOOM: fused q, k, v, a norm after the embedding, ALiBi."""
    yield from norm("transformer.word_embeddings_layernorm", spec.hidden_size, True)
    yield from decoder(
        spec, _fused("self_attention.query_key_value", "self_attention.dense"), _four_times(),
        norms("input_layernorm", "post_attention_layernorm", bias=True),
        embedding="transformer.word_embeddings", layers="transformer.h.", final="transformer.ln_f", norm_bias=True,
    )  # fmt: skip


def gpt_bigcode(spec: ModelSpec) -> Tensors:
    """StarCoder 1 and SantaCoder: GPT-2 with one KV head (`multi_query`) and weights stored [out, in]."""
    yield "transformer.wpe.weight", (Fields(spec.config).integer("n_positions", default=1024), spec.hidden_size)
    yield from decoder(
        spec, _fused("attn.c_attn", "attn.c_proj"), _mlp("c_fc", "c_proj"), norms("ln_1", "ln_2", bias=True),
        embedding="transformer.wte", layers="transformer.h.", final="transformer.ln_f", norm_bias=True,
    )  # fmt: skip


def gpt_neo(spec: ModelSpec) -> Tensors:
    """GPT-Neo: learned positions, projections without a bias except the output."""
    hidden = spec.hidden_size

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from linear(f"{at}attn.attention.{name}", hidden, hidden, name == "out_proj")

    positions = Fields(spec.config).integer("max_position_embeddings", default=2048)
    yield "transformer.wpe.weight", (positions, hidden)
    yield from decoder(
        spec, layer, _mlp("c_fc", "c_proj"), norms("ln_1", "ln_2", bias=True),
        embedding="transformer.wte", layers="transformer.h.", final="transformer.ln_f", norm_bias=True,
    )  # fmt: skip


def codegen(spec: ModelSpec) -> Tensors:
    """CodeGen: GPT-J with fused q, k, v."""
    yield from decoder(
        spec, _fused("attn.qkv_proj", "attn.out_proj", bias=False), _mlp("fc_in", "fc_out"), norms("ln_1", bias=True),
        embedding="transformer.wte", layers="transformer.h.", final="transformer.ln_f", norm_bias=True,
    )  # fmt: skip
    yield "lm_head.bias", (spec.vocab_size,)


def mpt(spec: ModelSpec) -> Tensors:
    """MPT: no biases, norms without a shift, ALiBi."""
    return decoder(
        spec, _fused("attn.Wqkv", "attn.out_proj", bias=False), _mlp("up_proj", "down_proj", "ffn", bias=False),
        norms("norm_1", "norm_2"),
        embedding="transformer.wte", layers="transformer.blocks.", final="transformer.norm_f",
    )  # fmt: skip


def persimmon(spec: ModelSpec) -> Tensors:
    """Persimmon: fused q, k, v, norms a head."""

    def head_norms(spec: ModelSpec, index: int, at: str) -> Tensors:
        if Fields(spec.config).boolean("qk_layernorm"):
            yield from norm(f"{at}self_attn.q_layernorm", spec.head_dim, True)
            yield from norm(f"{at}self_attn.k_layernorm", spec.head_dim, True)

    return decoder(
        spec, _fused("self_attn.query_key_value", "self_attn.dense"), _four_times(), head_norms,
        norms("input_layernorm", "post_attention_layernorm", bias=True), final="model.final_layernorm", norm_bias=True,
    )  # fmt: skip


def phi(spec: ModelSpec) -> Tensors:
    """Phi-1, 1.5 and 2: both halves in parallel under one norm, biases everywhere, on the head too."""

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        hidden, kv = spec.hidden_size, spec.num_kv_heads * spec.head_dim
        for name, rows in (("q_proj", spec.num_heads * spec.head_dim), ("k_proj", kv), ("v_proj", kv)):
            yield from linear(f"{at}self_attn.{name}", rows, hidden, True)
        yield from linear(f"{at}self_attn.dense", hidden, spec.num_heads * spec.head_dim, True)
        if Fields(spec.config).boolean("qk_layernorm"):
            size = hidden // spec.num_heads
            yield from norm(f"{at}self_attn.q_layernorm", size, True)
            yield from norm(f"{at}self_attn.k_layernorm", size, True)

    yield from decoder(
        spec, layer, _mlp("fc1", "fc2"), norms("input_layernorm", bias=True),
        final="model.final_layernorm", norm_bias=True,
    )  # fmt: skip
    yield "lm_head.bias", (spec.vocab_size,)


def dbrx(spec: ModelSpec) -> Tensors:
    """DBRX: fused q, k, v; experts stacked along the rows of three matrices; norms without a shift."""
    fields = Fields(spec.config)
    count, width, hidden = fields.integer("num_local_experts"), spec.intermediate_size, spec.hidden_size

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        fused = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
        yield from linear(f"{at}norm_attn_norm.attn.Wqkv", fused, hidden)
        yield from linear(f"{at}norm_attn_norm.attn.out_proj", hidden, hidden)
        yield from linear(f"{at}ffn.router.layer", count, hidden)
        for name in ("w1", "v1", "w2"):
            yield f"{at}ffn.experts.mlp.{name}", (count * width, hidden)

    return decoder(
        spec, layer, norms("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"),
        embedding="transformer.wte", layers="transformer.blocks.", final="transformer.norm_f",
    )  # fmt: skip


def _fused(name: str, output: str, bias: bool = True) -> LayerPart:
    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        query = spec.num_heads * spec.head_dim
        if query != spec.hidden_size:
            raise InputError("head_dim", spec.head_dim, f"hidden_size / heads = {spec.hidden_size} / {spec.num_heads}")
        yield from linear(at + name, query + 2 * spec.num_kv_heads * spec.head_dim, spec.hidden_size, bias)
        yield from linear(at + output, spec.hidden_size, query, bias)

    return part


def _mlp(up: str, down: str, block: str = "mlp", bias: bool = True) -> LayerPart:
    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield from linear(f"{at}{block}.{up}", spec.intermediate_size, spec.hidden_size, bias)
        yield from linear(f"{at}{block}.{down}", spec.hidden_size, spec.intermediate_size, bias)

    return part


def _four_times() -> LayerPart:
    return _mlp("dense_h_to_4h", "dense_4h_to_h")
