"""Latent attention: one compressed vector a token for all heads, with what its successors keep beside or instead."""

from __future__ import annotations

from dataclasses import replace

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.layer_rules.base import LayerRule, Layers, Shape, by_type, kinds_of
from ledger.layer_rules.state import delta_state
from ledger.layers import LayerSpec

DELTA_STATE_BYTES = 4  # the model classes turn the state of this attention into float32 before they keep it


def latent(attentions: int = 1) -> LayerRule:
    """One vector of kv_lora_rank + qk_rope_head_dim a token and attention block, no heads, no factor 2."""

    def rule(fields: Fields, shape: Shape) -> Layers:
        return (_latent_layer(fields, attentions),) * shape.num_layers

    return rule


def latent_with_index(fields: Fields, shape: Shape) -> Layers:
    """DeepSeek sparse attention: beside the latent an index key a token, by which an indexer chooses what to read.

    GLM-5: a layer whose `indexer_types` entry is "shared" takes the choice of the layer before and keeps no index keys.
    """
    fields.require(["index_head_dim"])
    plain = _latent_layer(fields)
    indexed = replace(plain, index_dim=fields.integer("index_head_dim"))
    own = _own_indexer(fields, shape.num_layers)
    return tuple(indexed if owns else plain for owns in own)


def _own_indexer(fields: Fields, count: int) -> list[bool]:
    kinds = fields.strings("indexer_types", count)
    if kinds is None and isinstance(fields.values.get("index_topk_pattern"), str):
        kinds = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in fields.text("index_topk_pattern")]
        if len(kinds) != count:
            raise InputError(fields.where + "index_topk_pattern", f"{len(kinds)} letters", f"{count} letters F or S")
    if kinds is None:
        every = max(1, fields.integer("index_topk_freq", default=1, minimum=0))
        offset = fields.integer("index_skip_topk_offset", default=2, minimum=0)
        return [max(index - offset + 1, 0) % every == 0 for index in range(count)]
    if set(kinds) - {"full", "shared"}:
        raise InputError(fields.where + "indexer_types", ", ".join(sorted(set(kinds)))[:60], "full or shared")
    return [kind == "full" for kind in kinds]


def compressed(fields: Fields, shape: Shape) -> Layers:
    """DeepSeek-V4: a window of shared keys and values, and compressed entries of everything before it.

    One tensor serves as key and value, with a single head. Compressed-sparse layers add one entry and one index key for
    every 4 tokens, heavily compressed layers one entry for every 128 (`compress_rates`). What waits in a compressor's
    buffer until its window is full (fewer tokens than the rate) is not counted.
    """
    near = LayerSpec("swa", 1, shape.head_dim, 0, fields.integer("sliding_window", default=128))
    rates = fields.section("compress_rates") or Fields({})
    sparse_rate = fields.integer("compress_rate_csa", default=rates.integer("compressed_sparse_attention", default=4))
    heavy_rate = fields.integer("compress_rate_hca", default=rates.integer("heavily_compressed_attention", default=128))
    known = {
        "sliding_attention": near,
        "compressed_sparse_attention": replace(
            near,
            kind="csa",
            compressed_dim=shape.head_dim,
            index_dim=fields.integer("index_head_dim", default=128),
            compress_ratio=sparse_rate,
        ),
        "heavily_compressed_attention": replace(
            near, kind="hca", compressed_dim=shape.head_dim, compress_ratio=heavy_rate
        ),
    }
    return by_type(fields, _compressed_kinds(fields, shape.num_layers), known)


def _compressed_kinds(fields: Fields, count: int) -> list[str]:
    kinds = fields.strings("layer_types", count)
    if kinds:
        return kinds
    ratios = fields.integers("compress_ratios")
    if ratios is None:
        names = ("heavily_compressed_attention", "compressed_sparse_attention")
        return [names[0] if index < 2 else names[index % 2] for index in range(count)]
    named = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    if len(ratios) < count or set(ratios) - set(named):
        raise InputError(fields.where + "compress_ratios", str(ratios)[:60], f"{count} numbers of 0, 4 and 128")
    return [named[ratio] for ratio in ratios[:count]]  # entries beyond belong to the prediction layers


def kimi_linear(fields: Fields, shape: Shape) -> Layers:
    """Kimi-Linear: delta attention with a gate a channel; the layers of `full_attn_layers` (from 1) are latent."""
    linear = fields.section("linear_attn_config") or Fields({})
    heads = linear.integer("num_heads", default=fields.integer("linear_num_heads", default=32))
    size = linear.integer("head_dim", default=fields.integer("linear_head_dim", default=128))
    kernel = linear.integer("short_conv_kernel_size", default=fields.integer("linear_conv_kernel_dim", default=4))
    kinds = kinds_of(fields, shape)
    if kinds is None:
        numbers = linear.integers("full_attn_layers")
        chosen = range(5, shape.num_layers + 1, 4) if numbers is None else numbers
        kinds = ["full_attention" if n in chosen else "linear_attention" for n in range(1, shape.num_layers + 1)]
    state = delta_state(heads, heads, size, size, kernel, DELTA_STATE_BYTES)
    return by_type(fields, kinds, {"full_attention": _latent_layer(fields), "linear_attention": state})


def ling_hybrid(fields: Fields, shape: Shape) -> Layers:
    """Ling 2.5: delta attention as in Kimi-Linear, every `layer_group_size`-th layer latent."""
    size, heads = fields.integer("head_dim", default=128), shape.heads
    kernel = fields.integer("short_conv_kernel_size", default=4)
    state = delta_state(heads, heads, size, size, kernel, DELTA_STATE_BYTES)
    group = fields.integer("layer_group_size", default=6)
    kinds = kinds_of(fields, shape) or [
        "full_attention" if (index + 1) % group == 0 else "linear_attention" for index in range(shape.num_layers)
    ]
    return by_type(fields, kinds, {"full_attention": _latent_layer(fields), "linear_attention": state})


def _latent_layer(fields: Fields, attentions: int = 1) -> LayerSpec:
    fields.require(["kv_lora_rank", "qk_rope_head_dim"])
    width = fields.integer("kv_lora_rank") + fields.integer("qk_rope_head_dim")
    return LayerSpec("mla", latent_dim=width, attentions=attentions)
