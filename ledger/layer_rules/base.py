"""What every layer rule shares: the model's shape, and layers by the names in `layer_types`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.layers import LayerSpec

# Names of layer types in older config files, and what transformers 5 calls the same.
OLD_NAMES = {"mamba": "linear_attention", "attention": "full_attention", "recurrent": "linear_attention"}


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


def kinds_of(fields: Fields, shape: Shape, *names: str) -> list[str] | None:
    """The first of the lists `names` (layer_types, layers_block_type) that is there, in today's words, else None."""
    for name in names or ("layer_types", "layers_block_type"):
        kinds = fields.strings(name, shape.num_layers)
        if kinds is not None:
            return [OLD_NAMES.get(kind, kind) for kind in kinds]
    return None


def by_type(fields: Fields, kinds: list[str], known: dict[str, LayerSpec]) -> Layers:
    """One layer a name. InputError for a name that is not `known`."""
    strange = sorted(set(kinds) - set(known))
    if strange:
        raise InputError(fields.where + "layer_types", ", ".join(strange)[:60], " or ".join(known))
    return tuple(known[kind] for kind in kinds)


def windowed(shape: Shape, window: int | None) -> LayerSpec:
    """A sliding layer, or a full one where there is no window."""
    return shape.full() if window is None else replace(shape.full(), kind="swa", window=window)
