"""Attention that keeps keys and values: full, sliding windows in their patterns, chunks, and layers that share."""

from __future__ import annotations

from dataclasses import replace

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.layer_rules.base import LayerRule, Layers, Shape, by_type, typed, windowed
from ledger.layers import LayerSpec


def full(fields: Fields, shape: Shape) -> Layers:
    """Full attention in every layer (unless `layer_types` says otherwise)."""
    return typed(fields, shape, None) or (shape.full(),) * shape.num_layers


def one_window(default: int | None) -> LayerRule:
    """Every layer slides with `sliding_window`; null means none, one over the longest position never acts."""

    def rule(fields: Fields, shape: Shape) -> Layers:
        window = fields.optional_integer("sliding_window", default=default)
        longest = fields.optional_integer("max_position_embeddings")
        if window is not None and longest is not None and window >= longest:
            window = None
        return typed(fields, shape, window) or (windowed(shape, window),) * shape.num_layers

    return rule


def switched_window(fields: Fields, shape: Shape) -> Layers:
    """Qwen: `sliding_window` counts only if `use_sliding_window`, and from layer `max_window_layers` on."""
    if not fields.boolean("use_sliding_window"):
        return (shape.full(),) * shape.num_layers
    window = fields.integer("sliding_window", default=4096)
    first = fields.integer("max_window_layers", default=28, minimum=0)
    return typed(fields, shape, window) or tuple(
        windowed(shape, window) if index >= first else shape.full() for index in range(shape.num_layers)
    )


def patterned_window(period: int, default_window: int) -> LayerRule:
    """Every `period`-th layer is full, the others slide; `sliding_window_pattern` and `layer_types` override."""

    def rule(fields: Fields, shape: Shape) -> Layers:
        window = fields.integer("sliding_window", default=default_window)
        every = fields.integer("sliding_window_pattern", "_sliding_window_pattern", default=period)
        return typed(fields, shape, window) or tuple(
            shape.full() if (index + 1) % every == 0 else windowed(shape, window) for index in range(shape.num_layers)
        )

    return rule


def chunked(fields: Fields, shape: Shape) -> Layers:
    """Llama 4: layers with rotary positions attend within chunks; every fourth is full (`no_rope_layers` 0)."""
    chunk = fields.integer("attention_chunk_size", default=8192)
    interval = fields.integer("no_rope_layer_interval", default=4)
    rotary = fields.integers("no_rope_layers", shape.num_layers) or [
        int((index + 1) % interval != 0) for index in range(shape.num_layers)
    ]
    near = replace(shape.full(), kind="chunk", window=chunk)
    return typed(fields, shape, None, chunk) or tuple(near if on else shape.full() for on in rotary)


def full_with_index(fields: Fields, shape: Shape) -> Layers:
    """MiniMax-M3: full attention; the sparse layers also keep an index key a token, which chooses blocks to read."""
    section = fields.section("sparse_attention_config") or Fields({})
    width = section.integer("sparse_index_dim", default=fields.integer("index_head_dim", default=128))
    marks = section.integers("sparse_attention_freq", shape.num_layers) or [0] * shape.num_layers
    kinds = fields.strings("layer_types", shape.num_layers) or [
        "minimax_m3_sparse" if mark else "full_attention" for mark in marks
    ]
    known = {"full_attention": shape.full(), "minimax_m3_sparse": replace(shape.full(), index_dim=width)}
    return by_type(fields, kinds, known)


def two_geometries(fields: Fields, shape: Shape) -> Layers:
    """Gemma 4: full layers have their own head size and KV heads; the last `num_kv_shared_layers` keep nothing."""
    window = fields.integer("sliding_window", default=512)
    kinds = fields.strings("layer_types", shape.num_layers) or [
        "full_attention" if (index + 1) % 6 == 0 else "sliding_attention" for index in range(shape.num_layers)
    ]
    kinds[-1] = "full_attention"  # the model class forces it, even against an explicit list
    wide = fields.optional_integer("global_head_dim", default=512) or shape.head_dim
    wide_heads = shape.kv_heads
    if fields.boolean("attention_k_eq_v"):
        wide_heads = fields.optional_integer("num_global_key_value_heads") or shape.kv_heads
    far = LayerSpec("full", wide_heads, wide, wide)
    layers = by_type(fields, kinds, {"full_attention": far, "sliding_attention": windowed(shape, window)})
    shared = fields.integer("num_kv_shared_layers", default=0, minimum=0)
    if shared > shape.num_layers:
        raise InputError(fields.where + "num_kv_shared_layers", shared, f"at most {shape.num_layers}")
    own = shape.num_layers - shared
    return layers[:own] + tuple(replace(layer, kind="shared", window=None) for layer in layers[own:])


def wider_windows(fields: Fields, shape: Shape) -> Layers:
    """MiMo-V2: keys and values differ in size, and sliding layers have their own KV heads (twice the full ones').

    The checkpoint's own names (`hybrid_layer_pattern` with 1 for sliding, `swa_...`, `sliding_window_size`) win over
    transformers'.
    """
    value = fields.integer("v_head_dim", default=128)
    far = LayerSpec("full", shape.kv_heads, shape.head_dim, value)
    window = fields.optional_integer("sliding_window_size") or fields.integer("sliding_window", default=129)
    near = LayerSpec(
        "swa",
        fields.integer("swa_num_key_value_heads", default=2 * shape.kv_heads),
        fields.integer("swa_head_dim", default=shape.head_dim),
        fields.integer("swa_v_head_dim", default=value),
        window,
    )
    pattern = fields.integers("hybrid_layer_pattern", shape.num_layers)
    if pattern:
        return tuple(near if slides else far for slides in pattern)
    kinds = fields.strings("layer_types", shape.num_layers) or [
        "full_attention" if index == 0 or (index + 1) % 6 == 0 else "sliding_attention"
        for index in range(shape.num_layers)
    ]
    return by_type(fields, kinds, {"full_attention": far, "sliding_attention": near})
