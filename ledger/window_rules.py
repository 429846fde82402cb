"""More layer rules: which layers slide, which read another layer's cache, which attend to an image only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.layer_rules import LayerRule, Layers, Shape, by_type, typed, windowed
from ledger.layers import LayerSpec


def leading_full(period: int, default_window: int) -> LayerRule:
    """Layers 0, `period`, 2 `period` ... are full, the others slide."""

    def rule(fields: Fields, shape: Shape) -> Layers:
        window = fields.optional_integer("sliding_window", default=default_window)
        return typed(fields, shape, window) or _mixed(shape, window, lambda index: index % period == 0)

    return rule


def optional_pattern(period: int) -> LayerRule:
    """EXAONE 4: every `sliding_window_pattern`-th layer is full, also written as "LLLG"; without a window all are."""

    def rule(fields: Fields, shape: Shape) -> Layers:
        window = fields.optional_integer("sliding_window")
        listed = typed(fields, shape, window)
        if listed or window is None:
            return listed or (shape.full(),) * shape.num_layers
        pattern = fields.values.get("sliding_window_pattern")
        if isinstance(pattern, str):
            if not pattern or set(pattern) - {"L", "G"}:
                raise InputError(fields.where + "sliding_window_pattern", pattern[:60], "letters L and G")
            return _mixed(shape, window, lambda index: pattern[index % len(pattern)] == "G")
        every = fields.optional_integer("sliding_window_pattern", default=period) or period
        return _mixed(shape, window, lambda index: (index + 1) % every == 0)

    return rule


def late_window(fields: Fields, shape: Shape) -> Layers:
    """dots.llm1: layers from `max_window_layers` on slide, when there is a `sliding_window`."""
    window = fields.optional_integer("sliding_window")
    first = fields.integer("max_window_layers", default=shape.num_layers, minimum=0)
    return typed(fields, shape, window) or _mixed(shape, window, lambda index: index < first)


def restarted_pattern(fields: Fields, shape: Shape) -> Layers:
    """Cohere 2 MoE: the pattern of full layers starts again after the dense layers, which have their own."""
    window = fields.integer("sliding_window", default=4096)
    dense = fields.integer("first_k_dense_replace", default=0, minimum=0)
    before = fields.integer("prefix_dense_sliding_window_pattern", default=1)
    after = fields.integer("sliding_window_pattern", default=4)

    def is_full(index: int) -> bool:
        return (index + 1) % before == 0 if index < dense else (index - dense + 1) % after == 0

    return typed(fields, shape, window) or _mixed(shape, window, is_full)


def shared_tail(period: int) -> LayerRule:
    """Gemma 3n: every `period`-th layer is full; the last `num_kv_shared_layers` read an earlier layer's cache."""

    def rule(fields: Fields, shape: Shape) -> Layers:
        window = fields.integer("sliding_window", default=512)
        layers = typed(fields, shape, window) or _mixed(shape, window, lambda index: (index + 1) % period == 0)
        shared = fields.integer("num_kv_shared_layers", default=0, minimum=0)
        if shared >= shape.num_layers and shared:
            raise InputError(fields.where + "num_kv_shared_layers", shared, f"fewer than {shape.num_layers}")
        own = shape.num_layers - shared
        return layers[:own] + tuple(replace(layer, kind="shared", window=None) for layer in layers[own:])

    return rule


def named_pattern(fields: Fields, shape: Shape) -> Layers:
    """GPT-Neo: `attention_types` repeats lists of "global" and "local"; local layers see `window_size` tokens."""
    window = fields.integer("window_size", default=256)
    kinds: list[str] = []
    groups = fields.values.get("attention_types") or [[["global", "local"], -(-shape.num_layers // 2)]]
    for group in groups if isinstance(groups, list) else [None]:
        match group:
            case [list(names), int(times)] if 0 <= times <= shape.num_layers and len(names) <= shape.num_layers:
                kinds = [*kinds, *([str(name)[:60] for name in names] * times)][: shape.num_layers]
            case _:
                accepted = f'lists like [["global", "local"], 12] for {shape.num_layers} layers'
                raise InputError(fields.where + "attention_types", "a list of another form", accepted)
    if len(kinds) < shape.num_layers:
        raise InputError(fields.where + "attention_types", f"{len(kinds)} layers", f"{shape.num_layers} layers")
    return by_type(fields, kinds, {"global": shape.full(), "local": windowed(shape, window)})


def image_layers(fields: Fields, shape: Shape) -> Layers:
    """Llama 3.2 Vision: `cross_attention_layers` keep the image's keys and values, nothing for each text token."""
    crossing = fields.integers("cross_attention_layers") or [3, 8, 13, 18, 23, 28, 33, 38]
    strange = [index for index in crossing if index >= shape.num_layers]
    if strange:
        raise InputError(fields.where + "cross_attention_layers", strange[0], f"layers below {shape.num_layers}")
    return tuple(LayerSpec("none") if index in set(crossing) else shape.full() for index in range(shape.num_layers))


def _mixed(shape: Shape, window: int | None, is_full: Callable[[int], bool]) -> Layers:
    return tuple(shape.full() if is_full(index) else windowed(shape, window) for index in range(shape.num_layers))
