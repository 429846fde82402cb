"""Which attention each layer of an architecture has. One function a rule; a family of models picks one (families.py).

Every rule takes the text section of a config and the model's Shape and returns one LayerSpec a layer. An explicit
`layer_types` list wins over an implicit pattern. The rules restate what the public configuration classes derive.
"""

from ledger.layer_rules.attention import (
    chunked,
    full,
    full_with_index,
    one_window,
    patterned_window,
    switched_window,
    two_geometries,
    wider_windows,
)
from ledger.layer_rules.base import LayerRule, Layers, Shape, by_type, typed, windowed
from ledger.layer_rules.latent import compressed, kimi_linear, latent, latent_with_index, ling_hybrid
from ledger.layer_rules.state import (
    beside_mamba,
    conv_or_attention,
    delta_at_ends,
    every_layer_mamba1,
    every_layer_mamba2,
    gated_delta,
    griffin,
    jamba,
    lightning,
    mamba2_or_attention,
    pattern_string,
    shared_attention_beside_mamba1,
    shared_attention_beside_mamba2,
)

__all__ = [
    "LayerRule",
    "Layers",
    "Shape",
    "beside_mamba",
    "by_type",
    "chunked",
    "compressed",
    "conv_or_attention",
    "delta_at_ends",
    "every_layer_mamba1",
    "every_layer_mamba2",
    "full",
    "full_with_index",
    "gated_delta",
    "griffin",
    "jamba",
    "kimi_linear",
    "latent",
    "latent_with_index",
    "lightning",
    "ling_hybrid",
    "mamba2_or_attention",
    "one_window",
    "pattern_string",
    "patterned_window",
    "shared_attention_beside_mamba1",
    "shared_attention_beside_mamba2",
    "state",
    "switched_window",
    "two_geometries",
    "typed",
    "wider_windows",
    "windowed",
]
