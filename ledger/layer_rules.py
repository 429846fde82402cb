"""Which attention each layer of an architecture has. One function a rule; a family of models picks one (families.py).

Every rule takes the text section of a config and the model's Shape and returns one LayerSpec a layer. An explicit
`layer_types` list wins over an implicit pattern. The rules restate what the public configuration classes derive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.layers import LayerSpec

BYTES_OF_STATE_DTYPE = {"": 2, "auto": 2, "bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Shape:
    """What all layers share unless a rule says otherwise."""

    num_layers: int
    heads: int
    kv_heads: int
    head_dim: int

    def full(self) -> LayerSpec:
        """A full-attention layer of this shape."""
        return LayerSpec("full", self.kv_heads, self.head_dim, self.head_dim)


Layers = tuple[LayerSpec, ...]
LayerRule = Callable[[Fields, Shape], Layers]


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


def latent(fields: Fields, shape: Shape) -> Layers:
    """Latent attention: one vector of kv_lora_rank + qk_rope_head_dim a token and layer, no heads, no factor 2."""
    fields.require(["kv_lora_rank", "qk_rope_head_dim"])
    width = fields.integer("kv_lora_rank") + fields.integer("qk_rope_head_dim")
    return (LayerSpec("mla", latent_dim=width),) * shape.num_layers


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


def jamba(fields: Fields, shape: Shape) -> Layers:
    """Attention where index % attn_layer_period == attn_layer_offset; Mamba-1 elsewhere."""
    period = fields.integer("attn_layer_period", default=8)
    offset = fields.integer("attn_layer_offset", default=4, minimum=0)
    inner = fields.integer("mamba_expand", default=2) * fields.integer("hidden_size")
    state = LayerSpec(
        "state",
        state_elements=inner * fields.integer("mamba_d_state", default=16),
        conv_elements=inner * (fields.integer("mamba_d_conv", default=4) - 1),
        state_heads=inner,
        state_element_bytes=_state_bytes(fields),
    )
    return tuple(shape.full() if index % period == offset else state for index in range(shape.num_layers))


def pattern_string(fields: Fields, shape: Shape) -> Layers:
    """Nemotron-H: one letter a layer, M = Mamba-2, * = attention, - and E = MLP or experts only."""
    pattern = fields.text("hybrid_override_pattern")
    if len(pattern) != shape.num_layers or set(pattern) - set("M*-E"):
        accepted = f"{shape.num_layers} letters of M, *, - and E"
        raise InputError(fields.where + "hybrid_override_pattern", pattern[:60], accepted)
    heads = fields.integer("mamba_num_heads")
    width = heads * fields.integer("mamba_head_dim")
    state_size = fields.integer("ssm_state_size")
    state = LayerSpec(
        "state",
        state_elements=width * state_size,
        conv_elements=(width + 2 * fields.integer("n_groups") * state_size) * (fields.integer("conv_kernel") - 1),
        state_heads=heads,
        state_element_bytes=_state_bytes(fields),
    )
    letters = {"M": state, "*": shape.full(), "-": LayerSpec("none"), "E": LayerSpec("none")}
    return tuple(letters[letter] for letter in pattern)


def gated_delta(fields: Fields, shape: Shape) -> Layers:
    """Qwen3-Next, Qwen3.5: linear attention with a matrix state; every `full_attention_interval`-th layer full."""
    key_heads, value_heads = fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads")
    key_dim, value_dim = fields.integer("linear_key_head_dim"), fields.integer("linear_value_head_dim")
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    state = LayerSpec(
        "state",
        state_elements=value_heads * key_dim * value_dim,
        conv_elements=channels * (fields.integer("linear_conv_kernel_dim") - 1),
        state_heads=value_heads,
        state_element_bytes=_state_bytes(fields),
    )
    interval = fields.integer("full_attention_interval", default=4)
    kinds = fields.strings("layer_types", shape.num_layers) or [
        "full_attention" if (index + 1) % interval == 0 else "linear_attention" for index in range(shape.num_layers)
    ]
    return by_type(fields, kinds, {"full_attention": shape.full(), "linear_attention": state})


def typed(fields: Fields, shape: Shape, window: int | None, chunk: int | None = None) -> Layers | None:
    """Layers as `layer_types` lists them; None when the config has no such list."""
    kinds = fields.strings("layer_types", shape.num_layers)
    if kinds is None:
        return None
    known = {"full_attention": shape.full()}
    if window is not None or "sliding_attention" not in kinds:
        known["sliding_attention"] = windowed(shape, window)
    if chunk is not None:
        known["chunked_attention"] = replace(shape.full(), kind="chunk", window=chunk)
    return by_type(fields, kinds, known)


def by_type(fields: Fields, kinds: list[str], known: dict[str, LayerSpec]) -> Layers:
    strange = sorted(set(kinds) - set(known))
    if strange:
        raise InputError(fields.where + "layer_types", ", ".join(strange)[:60], " or ".join(known))
    return tuple(known[kind] for kind in kinds)


def windowed(shape: Shape, window: int | None) -> LayerSpec:
    return shape.full() if window is None else replace(shape.full(), kind="swa", window=window)


def _state_bytes(fields: Fields) -> int:
    """Bytes of one element of recurrent state: 4 where the config says float32, else 2."""
    for name in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        dtype = fields.text(name)
        if dtype not in BYTES_OF_STATE_DTYPE:
            raise InputError(fields.where + name, dtype[:60], ", ".join(filter(None, BYTES_OF_STATE_DTYPE)))
        if dtype:
            return BYTES_OF_STATE_DTYPE[dtype]
    return 2
