"""Text models that exist only inside multimodal ones: Gemma 3n, Gemma 4 unified, Llama 3.2 Vision."""

from __future__ import annotations

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.base import Tensors, decoder, linear, norm
from ledger.tensors.gated import FOUR_NORMS, TWO_NORMS, attention, gated_mlp, mlp

MAX_STREAMS = 64


def gemma3n(spec: ModelSpec) -> Tensors:
    """Gemma 3n: alternating updates over `altup_num_inputs` streams, low-rank residuals, embeddings a layer."""
    fields = Fields(spec.config)
    hidden, narrow = spec.hidden_size, fields.integer("hidden_size_per_layer_input")
    streams, rank = fields.integer("altup_num_inputs"), fields.integer("laurel_rank")
    bias = fields.boolean("attention_bias")
    if streams > MAX_STREAMS:
        raise InputError("altup_num_inputs", streams, f"at most {MAX_STREAMS}")

    def heads(spec: ModelSpec, index: int, at: str) -> Tensors:
        query, kv, at = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim, f"{at}self_attn."
        yield from linear(f"{at}q_proj", query, hidden, bias)
        yield from norm(f"{at}q_norm", spec.head_dim)
        yield from linear(f"{at}o_proj", hidden, query, bias)
        if spec.layers[index].kind != "shared":
            yield from linear(f"{at}k_proj", kv, hidden, bias)
            yield from linear(f"{at}v_proj", kv, hidden, bias)
            yield from norm(f"{at}k_norm", spec.head_dim)

    def streams_part(spec: ModelSpec, index: int, at: str) -> Tensors:
        yield f"{at}altup.correct_output_scale", (hidden,)
        yield from linear(f"{at}altup.correction_coefs", streams, streams)
        yield from linear(f"{at}altup.prediction_coefs", streams * streams, streams)
        yield from linear(f"{at}altup.modality_router", streams, hidden)
        yield from norm(f"{at}altup.router_norm", hidden)
        yield from linear(f"{at}laurel.linear_left", rank, hidden)
        yield from linear(f"{at}laurel.linear_right", hidden, rank)
        yield from norm(f"{at}laurel.post_laurel_norm", hidden)
        yield from linear(f"{at}per_layer_input_gate", narrow, hidden)
        yield from linear(f"{at}per_layer_projection", hidden, narrow)
        yield from norm(f"{at}post_per_layer_input_norm", hidden)

    yield from decoder(spec, heads, mlp(), FOUR_NORMS, streams_part)
    width = spec.num_layers * narrow
    yield "model.embed_tokens_per_layer.weight", (fields.integer("vocab_size_per_layer_input"), width)
    yield from linear("model.per_layer_model_projection", width, hidden)
    yield from norm("model.per_layer_projection_norm", narrow)
    for index in range(streams - 1):
        yield from linear(f"model.altup_projections.{index}", hidden, hidden)
        yield from linear(f"model.altup_unembed_projections.{index}", hidden, hidden)


def gemma4_unified(spec: ModelSpec) -> Tensors:
    """Gemma 4 unified: Gemma 4's two attention geometries and nothing beside the MLP."""
    fields = Fields(spec.config)
    bias, same = fields.boolean("attention_bias"), fields.boolean("attention_k_eq_v")

    def heads(spec: ModelSpec, index: int, at: str) -> Tensors:
        layer, hidden, at = spec.layers[index], spec.hidden_size, f"{at}self_attn."
        query, kv = spec.num_heads * layer.k_head_dim, layer.kv_heads * layer.k_head_dim
        yield from linear(f"{at}q_proj", query, hidden, bias)
        yield from norm(f"{at}q_norm", layer.k_head_dim)
        yield from linear(f"{at}o_proj", hidden, query, bias)
        if layer.kind == "shared":
            return
        yield from norm(f"{at}k_norm", layer.k_head_dim)
        yield from linear(f"{at}k_proj", kv, hidden, bias)
        if layer.kind == "swa" or not same:
            yield from linear(f"{at}v_proj", kv, hidden, bias)

    def feed_forward(spec: ModelSpec, index: int, at: str) -> Tensors:
        wide = fields.boolean("use_double_wide_mlp") and spec.layers[index].kind == "shared"
        return gated_mlp(f"{at}mlp", spec.intermediate_size * (2 if wide else 1), spec.hidden_size)

    return decoder(spec, heads, feed_forward, FOUR_NORMS)


def mllama(spec: ModelSpec) -> Tensors:
    """Llama 3.2 Vision's text model: layers that attend to the image have their own norms and gates.

    Eight embedding rows are added for the image tokens; the head does not have them.
    """
    self_attention, flat = attention(), mlp()

    def layer(spec: ModelSpec, index: int, at: str) -> Tensors:
        hidden = spec.hidden_size
        if spec.layers[index].kind != "none":
            yield from self_attention(spec, index, at)
        else:
            query, kv, name = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim, f"{at}cross_attn."
            yield from linear(f"{name}q_proj", query, hidden)
            yield from linear(f"{name}k_proj", kv, hidden)
            yield from linear(f"{name}v_proj", kv, hidden)
            yield from linear(f"{name}o_proj", hidden, query)
            yield from norm(f"{name}q_norm", spec.head_dim)
            yield from norm(f"{name}k_norm", spec.head_dim)
            yield f"{at}cross_attn_attn_gate", (1,)
            yield f"{at}cross_attn_mlp_gate", (1,)
        yield from flat(spec, index, at)

    for name, shape in decoder(spec, layer, TWO_NORMS):
        yield name, (shape[0] + 8, shape[1]) if name == "model.embed_tokens.weight" else shape
