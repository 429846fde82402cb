"""Decoders before the gated MLP: GPT-2, GPT-J, GPT-NeoX, OPT and Falcon. LayerNorms have a shift."""

from __future__ import annotations

from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.base import Tensors, decoder, linear, norm, norms


def gpt2(spec: ModelSpec) -> Tensors:
    """GPT-2: weights stored [in, out], learned positions, fused q, k, v."""
    hidden, inner = spec.hidden_size, spec.intermediate_size

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        for name, rows, columns in (
            ("attn.c_attn", hidden, 3 * hidden),
            ("attn.c_proj", hidden, hidden),
            ("mlp.c_fc", hidden, inner),
            ("mlp.c_proj", inner, hidden),
        ):
            yield f"{at}{name}.weight", (rows, columns)
            yield f"{at}{name}.bias", (columns,)

    yield "transformer.wpe.weight", (Fields(spec.config).integer("n_positions", default=1024), hidden)
    yield from decoder(
        spec, layer, norms("ln_1", "ln_2", bias=True),
        embedding="transformer.wte", layers="transformer.h.", final="transformer.ln_f", norm_bias=True,
    )  # fmt: skip


def gptj(spec: ModelSpec) -> Tensors:
    """GPT-J: both halves in parallel under one norm, no attention biases, a bias on the head."""
    hidden, inner = spec.hidden_size, spec.intermediate_size

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{at}attn.{name}", hidden, hidden)
        yield from linear(f"{at}mlp.fc_in", inner, hidden, True)
        yield from linear(f"{at}mlp.fc_out", hidden, inner, True)

    yield from decoder(
        spec, layer, norms("ln_1", bias=True),
        embedding="transformer.wte", layers="transformer.h.", final="transformer.ln_f", norm_bias=True,
    )  # fmt: skip
    yield "lm_head.bias", (spec.vocab_size,)


def gpt_neox(spec: ModelSpec) -> Tensors:
    """GPT-NeoX: fused q, k, v; two norms whether or not the halves are parallel."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    bias = Fields(spec.config).boolean("attention_bias", True)

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield from linear(f"{at}attention.query_key_value", 3 * hidden, hidden, bias)
        yield from linear(f"{at}attention.dense", hidden, hidden, bias)
        yield from linear(f"{at}mlp.dense_h_to_4h", inner, hidden, True)
        yield from linear(f"{at}mlp.dense_4h_to_h", hidden, inner, True)

    return decoder(
        spec, layer, norms("input_layernorm", "post_attention_layernorm", bias=True),
        embedding="gpt_neox.embed_in", layers="gpt_neox.layers.", final="gpt_neox.final_layer_norm", norm_bias=True,
    )  # fmt: skip


def opt(spec: ModelSpec) -> Tensors:
    """OPT: learned positions with two extra rows; small models embed in `word_embed_proj_dim` and project."""
    fields = Fields(spec.config)
    hidden, inner = spec.hidden_size, spec.intermediate_size
    narrow = fields.integer("word_embed_proj_dim", default=hidden)
    bias = fields.boolean("enable_bias", True)
    yield "model.decoder.embed_tokens.weight", (spec.vocab_size, narrow)
    yield "model.decoder.embed_positions.weight", (fields.integer("max_position_embeddings", default=2048) + 2, hidden)
    if narrow != hidden:
        yield "model.decoder.project_in.weight", (hidden, narrow)
        yield "model.decoder.project_out.weight", (narrow, hidden)
    if fields.boolean("do_layer_norm_before", True) and not fields.boolean("_remove_final_layer_norm"):
        yield from norm("model.decoder.final_layer_norm", hidden, True)
    for index in range(spec.num_layers):
        at = f"model.decoder.layers.{index}."
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from linear(f"{at}self_attn.{name}", hidden, hidden, bias)
        yield from norm(f"{at}self_attn_layer_norm", hidden, True)
        yield from linear(f"{at}fc1", inner, hidden, bias)
        yield from linear(f"{at}fc2", hidden, inner, bias)
        yield from norm(f"{at}final_layer_norm", hidden, True)
    if not spec.tie_embeddings:
        yield "lm_head.weight", (spec.vocab_size, narrow)


def falcon(spec: ModelSpec) -> Tensors:
    """Falcon: fused q, k, v with one KV head (7B) or groups (new architecture, two norms)."""
    fields = Fields(spec.config)
    hidden, inner, bias = spec.hidden_size, spec.intermediate_size, fields.boolean("bias")
    fused = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield from linear(f"{at}self_attention.query_key_value", fused, hidden, bias)
        yield from linear(f"{at}self_attention.dense", hidden, hidden, bias)
        yield from linear(f"{at}mlp.dense_h_to_4h", inner, hidden, bias)
        yield from linear(f"{at}mlp.dense_4h_to_h", hidden, inner, bias)

    if fields.boolean("new_decoder_architecture"):
        single = fields.optional_integer("num_ln_in_parallel_attn", default=2) == 1
        names = ("input_layernorm",) if single else ("ln_attn", "ln_mlp")
    elif fields.boolean("parallel_attn", True):
        names = ("input_layernorm",)
    else:
        names = ("input_layernorm", "post_attention_layernorm")
    return decoder(
        spec, layer, norms(*names, bias=True),
        embedding="transformer.word_embeddings", layers="transformer.h.", final="transformer.ln_f", norm_bias=True,
    )  # fmt: skip
