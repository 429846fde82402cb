"""Layers with a state of constant size: Mamba, linear attention, short convolutions; alone or beside attention.

State elements follow the checkpoints' own definition of the recurrence: for each head a matrix of its head size by the
state (or key) size; a convolution remembers one input less than its kernel is long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.layer_rules.base import Layers, Shape, by_type, kinds_of
from ledger.layers import LayerSpec

BYTES_OF_STATE_DTYPE = {"": 2, "auto": 2, "bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Mamba2:
    """The sizes of a Mamba-2 mixer: `inner` channels in `heads`, B and C in `groups`."""

    heads: int
    inner: int
    groups: int
    state_size: int
    kernel: int

    @classmethod
    def of(cls, fields: Fields) -> Mamba2:
        """From whichever names the family uses. InputError when heads do not divide the inner width."""
        heads = fields.integer("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
        if fields.has("mamba_head_dim"):
            inner = heads * fields.integer("mamba_head_dim")
        else:
            expanded = fields.integer("mamba_expand", "expand", default=2) * fields.integer("hidden_size")
            inner = fields.optional_integer("mamba_d_ssm", default=expanded) or expanded
        if inner % heads:
            raise InputError(fields.where + "mamba_n_heads", heads, f"a divisor of the inner width {inner}")
        return cls(
            heads,
            inner,
            groups=fields.integer("mamba_n_groups", "mamba_ngroups", "n_groups"),
            state_size=fields.integer("mamba_d_state", "ssm_state_size", "state_size"),
            kernel=fields.integer("mamba_d_conv", "conv_kernel", default=4),
        )

    @property
    def channels(self) -> int:
        """Channels of the convolution: x with B and C."""
        return self.inner + 2 * self.groups * self.state_size

    def layer(self, fields: Fields) -> LayerSpec:
        """The state one sequence has in a layer."""
        return LayerSpec(
            "state",
            state_elements=self.inner * self.state_size,
            conv_elements=self.channels * (self.kernel - 1),
            state_heads=self.heads,
            state_element_bytes=state_bytes(fields),
        )


def mamba1_state(fields: Fields, inner: int) -> LayerSpec:
    """The state of a Mamba-1 layer of `inner` channels; tensor parallelism splits the channels."""
    return LayerSpec(
        "state",
        state_elements=inner * fields.integer("mamba_d_state", "state_size", default=16),
        conv_elements=inner * (fields.integer("mamba_d_conv", "conv_kernel", default=4) - 1),
        state_heads=inner,
        state_element_bytes=state_bytes(fields),
    )


def delta_state(
    key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int, element_bytes: int
) -> LayerSpec:
    """The state of a delta-rule layer: a matrix key_dim x value_dim a value head; q, k and v are convolved."""
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    return LayerSpec(
        "state",
        state_elements=value_heads * key_dim * value_dim,
        conv_elements=channels * (kernel - 1),
        state_heads=value_heads,
        state_element_bytes=element_bytes,
    )


def jamba(fields: Fields, shape: Shape) -> Layers:
    """Attention where index % attn_layer_period == attn_layer_offset; Mamba-1 elsewhere."""
    period = fields.integer("attn_layer_period", default=8)
    offset = fields.integer("attn_layer_offset", default=4, minimum=0)
    state = mamba1_state(fields, fields.integer("mamba_expand", default=2) * fields.integer("hidden_size"))
    return tuple(shape.full() if index % period == offset else state for index in range(shape.num_layers))


def every_layer_mamba1(fields: Fields, shape: Shape) -> Layers:
    """Mamba, Falcon-Mamba: no attention at all. `intermediate_size` wins over `expand`."""
    expanded = fields.integer("expand", default=2) * fields.integer("hidden_size")
    return (mamba1_state(fields, fields.integer("intermediate_size", default=expanded)),) * shape.num_layers


def every_layer_mamba2(fields: Fields, shape: Shape) -> Layers:
    """Mamba-2: no attention at all."""
    return (Mamba2.of(fields).layer(fields),) * shape.num_layers


def pattern_string(fields: Fields, shape: Shape) -> Layers:
    """Nemotron-H: Mamba-2, attention, or an MLP or experts alone; by a letter (M, *, -, E) or a name a layer."""
    none = LayerSpec("none")
    known = {
        "linear_attention": Mamba2.of(fields).layer(fields),
        "full_attention": shape.full(),
        "mlp": none,
        "moe": none,
    }
    return by_type(fields, nemotron_kinds(fields, shape.num_layers), known)


def nemotron_kinds(fields: Fields, count: int) -> list[str]:
    """The names of Nemotron-H's layers. InputError for a pattern of another length or with other letters."""
    named = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
    found = kinds_of(fields, Shape(count, 0, 0, 0))
    if found is not None:
        return found
    pattern = fields.text("hybrid_override_pattern")
    if len(pattern) != count or set(pattern) - set(named):
        accepted = f"{count} letters of M, *, - and E"
        raise InputError(fields.where + "hybrid_override_pattern", pattern[:60], accepted)
    return [named[letter] for letter in pattern]


def mamba2_or_attention(fields: Fields, shape: Shape) -> Layers:
    """Granite 4 and Bamba: Mamba-2, and attention where `layer_types` or `attn_layer_indices` says so."""
    chosen = fields.integers("attn_layer_indices") or []
    kinds = kinds_of(fields, shape) or [
        "full_attention" if index in chosen else "linear_attention" for index in range(shape.num_layers)
    ]
    if "linear_attention" not in kinds:
        return by_type(fields, kinds, {"full_attention": shape.full()})
    return by_type(fields, kinds, {"full_attention": shape.full(), "linear_attention": Mamba2.of(fields).layer(fields)})


def beside_mamba(fields: Fields, shape: Shape) -> Layers:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    return (_beside(shape.full(), Mamba2.of(fields).layer(fields)),) * shape.num_layers


def shared_attention_beside_mamba2(fields: Fields, shape: Shape) -> Layers:
    """Zamba2: Mamba-2 in every layer; "hybrid" ones put a shared attention of twice the width before it.

    The attention's weights are shared between layers, its keys and values are not.
    """
    size = _doubled_head_dim(fields, shape)
    attention = LayerSpec("full", shape.kv_heads, size, size)
    return _with_hybrid(fields, shape, attention, Mamba2.of(fields).layer(fields), _zamba2_pattern(shape.num_layers))


def shared_attention_beside_mamba1(fields: Fields, shape: Shape) -> Layers:
    """Zamba: as Zamba2, with Mamba-1 and one shared attention."""
    size = fields.optional_integer("attention_head_dim") or _doubled_head_dim(fields, shape)
    period = fields.integer("attn_layer_period", default=6)
    offset = fields.integer("attn_layer_offset", default=4, minimum=0)
    default = [index == 2 or (index > 2 and (index - 3) % period == offset) for index in range(shape.num_layers)]
    state = mamba1_state(fields, fields.integer("mamba_expand", default=2) * fields.integer("hidden_size"))
    return _with_hybrid(fields, shape, LayerSpec("full", shape.kv_heads, size, size), state, default)


def gated_delta(fields: Fields, shape: Shape) -> Layers:
    """Qwen3-Next, Qwen3.5: linear attention with a matrix state; every `full_attention_interval`-th layer full."""
    interval = fields.integer("full_attention_interval", default=4)
    kinds = kinds_of(fields, shape) or [
        "full_attention" if (index + 1) % interval == 0 else "linear_attention" for index in range(shape.num_layers)
    ]
    return by_type(fields, kinds, {"full_attention": shape.full(), "linear_attention": _delta_of(fields)})


def delta_at_ends(fields: Fields, shape: Shape) -> Layers:
    """OLMo-Hybrid: as Qwen3-Next with its own default sizes; the last layer is full when no fourth one is."""
    kinds = kinds_of(fields, shape) or [
        "full_attention" if index % 4 == 3 else "linear_attention" for index in range(shape.num_layers)
    ]
    if "full_attention" not in kinds:
        kinds[-1] = "full_attention"
    state = delta_state(*olmo_delta_sizes(fields, shape.heads), state_bytes(fields))
    return by_type(fields, kinds, {"full_attention": shape.full(), "linear_attention": state})


def olmo_delta_sizes(fields: Fields, heads: int) -> tuple[int, int, int, int, int]:
    """(key heads, value heads, key size, value size, kernel) of OLMo-Hybrid, class defaults filled in."""
    key_heads = fields.optional_integer("linear_num_key_heads") or heads
    key_dim = fields.optional_integer("linear_key_head_dim") or int(0.75 * fields.integer("hidden_size") / key_heads)
    return (
        key_heads,
        fields.optional_integer("linear_num_value_heads") or heads,
        key_dim,
        fields.optional_integer("linear_value_head_dim") or 2 * key_dim,
        fields.integer("linear_conv_kernel_dim", default=4),
    )


def lightning(fields: Fields, shape: Shape) -> Layers:
    """MiniMax-01 and M1: lightning attention keeps one matrix a query head; `attn_type_list` has 1 for full layers."""
    state = LayerSpec(
        "state",
        state_elements=shape.heads * shape.head_dim**2,
        state_heads=shape.heads,
        state_element_bytes=state_bytes(fields),
    )
    numbers = fields.integers("attn_type_list", shape.num_layers)
    if numbers:
        kinds = ["full_attention" if number else "linear_attention" for number in numbers]
    else:
        kinds = kinds_of(fields, shape) or [
            "full_attention" if (index + 1) % 2 else "linear_attention" for index in range(shape.num_layers)
        ]
    return by_type(fields, kinds, {"full_attention": shape.full(), "linear_attention": state})


def griffin(fields: Fields, shape: Shape) -> Layers:
    """RecurrentGemma: gated linear recurrences, and sliding attention, as `block_types` repeats."""
    width = fields.optional_integer("lru_width") or fields.integer("hidden_size")
    state = LayerSpec(
        "state",
        state_elements=width,
        conv_elements=width * (fields.integer("conv1d_width", default=4) - 1),
        state_heads=shape.heads,
        state_element_bytes=4,  # the model class keeps it in float32 whatever its own dtype
    )
    near = replace(shape.full(), kind="swa", window=fields.integer("attention_window_size", default=2048))
    blocks = fields.strings("block_types", None) or ["recurrent", "recurrent", "attention"]
    strange = sorted(set(blocks) - {"recurrent", "attention"})
    if strange:
        raise InputError(fields.where + "block_types", ", ".join(strange)[:60], "recurrent or attention")
    return tuple(near if blocks[index % len(blocks)] == "attention" else state for index in range(shape.num_layers))


def conv_or_attention(fields: Fields, shape: Shape) -> Layers:
    """LFM2: short convolutions (no recurrence: their window is all the state), and full attention between them."""
    hidden = fields.integer("hidden_size")
    conv = LayerSpec(
        "state", conv_elements=hidden * (fields.integer("conv_L_cache", default=3) - 1), state_heads=hidden
    )
    chosen = fields.integers("full_attn_idxs")
    kinds = fields.strings("layer_types", shape.num_layers) or [
        "full_attention" if chosen is None or index in chosen else "conv" for index in range(shape.num_layers)
    ]
    return by_type(fields, kinds, {"full_attention": shape.full(), "conv": conv})


def state_bytes(fields: Fields) -> int:
    """Bytes of one element of recurrent state: 4 where the config says float32, else 2."""
    for name in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        dtype = fields.text(name)
        if dtype not in BYTES_OF_STATE_DTYPE:
            raise InputError(fields.where + name, dtype[:60], ", ".join(filter(None, BYTES_OF_STATE_DTYPE)))
        if dtype:
            return BYTES_OF_STATE_DTYPE[dtype]
    return 2


def _delta_of(fields: Fields) -> LayerSpec:
    return delta_state(
        fields.integer("linear_num_key_heads"),
        fields.integer("linear_num_value_heads"),
        fields.integer("linear_key_head_dim"),
        fields.integer("linear_value_head_dim"),
        fields.integer("linear_conv_kernel_dim"),
        state_bytes(fields),
    )


def _beside(attention: LayerSpec, state: LayerSpec) -> LayerSpec:
    return replace(
        attention,
        state_elements=state.state_elements,
        conv_elements=state.conv_elements,
        state_heads=state.state_heads,
        state_element_bytes=state.state_element_bytes,
    )


def _doubled_head_dim(fields: Fields, shape: Shape) -> int:
    return 2 * fields.integer("hidden_size") // shape.heads


def _with_hybrid(fields: Fields, shape: Shape, attention: LayerSpec, state: LayerSpec, default: list[bool]) -> Layers:
    kinds = kinds_of(fields, shape, "layers_block_type", "layer_types") or [
        "hybrid" if hybrid else "linear_attention" for hybrid in default
    ]
    return by_type(fields, kinds, {"hybrid": _beside(attention, state), "linear_attention": state})


def _zamba2_pattern(count: int) -> list[bool]:
    """The class default, for the 54 layers of the 2.7B model: hybrid layers six apart, with three exceptions."""
    return [index in {6, 12, 18, 24, 30, 36, 42, 47, 51} for index in range(count)]
