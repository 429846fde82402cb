"""Parameters of a model: names, shapes and bytes. The names are those of Hugging Face checkpoints.

Knows ModelSpec and the tables of tensors by family. A family without a table is refused: a guess would be silent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.formats import ElementFormat
from ledger.model_spec import ModelSpec
from ledger.tensors import TABLES

# The first pattern that a parameter's name matches decides its part.
PARTS = {
    "head": re.compile(r"^lm_head"),
    "embedding": re.compile(r"embed(?!ding_norm)|wte|wpe|per_layer_(model_)?proj|per_layer_input"),
    "norms": re.compile(r"norm|\bln_"),
    "experts": re.compile(r"\bexperts\."),
    "attention": re.compile(r"attention|self_attn|\battn\.|(mixer|temporal_block)\.[qkvo]_proj"),
    "state": re.compile(
        r"mamba|linear_attn|temporal_block|\bconv\.|mixer\.(dt_bias|A_log|D$|conv1d|(in|x|dt|out)_proj)"
    ),
    "mlp": re.compile(""),
}
LAYER = re.compile(r"\b(?:layers|h|blocks)\.(\d+)\.")
CHOSEN_NAMES = ("num_experts_per_tok", "top_k_experts", "experts_per_token")


@dataclass(frozen=True)
class TensorGroup:
    """Parameters that differ by their layer's index only: the first one's name, its part and shape, the layers' indices
    (ascending; empty for a parameter outside the layers).
    """

    name: str
    part: str
    shape: tuple[int, ...]
    layers: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many parameters these are."""
        return len(self.layers) or 1

    @property
    def elements(self) -> int:
        """Elements of all of them."""
        return self.count * prod(self.shape)


def parameter_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter; a tied head is not listed, because it is the embedding.

    An unknown architecture that the caller asked to treat as plain attention is counted as a Llama-like decoder.
    InputError when the family has no table, or the spec came from typed fields and lacks a size.
    """
    table = TABLES.get(spec.model_type) or (TABLES["llama"] if spec.assumed else None)
    if table is None:
        raise InputError("model_type", spec.model_type, f"for weights: {', '.join(sorted(TABLES))}")
    for name in ("hidden_size", "intermediate_size", "vocab_size"):
        if not getattr(spec, name):
            raise InputError(name, "missing", "a config that has it")
    return dict(table(spec))


def tensor_groups(spec: ModelSpec) -> tuple[TensorGroup, ...]:
    """All parameters, those of like layers together: a few dozen groups, however deep the model."""
    kinds = {layer: code for code, layer in enumerate(dict.fromkeys(spec.layers))}
    codes = [kinds[layer] for layer in spec.layers]
    found: dict[tuple[object, ...], tuple[str, tuple[int, ...], list[int]]] = {}
    for name, shape in parameter_shapes(spec).items():
        match = LAYER.search(name)
        if match is None:
            found[(name,)] = (name, shape, [])
            continue
        index = int(match[1])
        code = codes[index] if index < spec.num_layers else None
        key = (name[: match.start(1)], name[match.end(1) :], shape, code)
        found.setdefault(key, (name, shape, []))[2].append(index)
    return tuple(TensorGroup(name, part_of(name), shape, tuple(layers)) for name, shape, layers in found.values())


def parameter_count(spec: ModelSpec) -> int:
    """Number of parameters, a tied head once."""
    return sum(prod(shape) for shape in parameter_shapes(spec).values())


def weight_bytes(spec: ModelSpec, element_bytes: int = 2) -> int:
    """Bytes of all parameters at `element_bytes` each, a tied head once."""
    return parameter_count(spec) * element_bytes


def parts(spec: ModelSpec) -> dict[str, int]:
    """Parameters by part, in the order of PARTS. The parts add up to parameter_count."""
    found = dict.fromkeys(PARTS, 0)
    for group in tensor_groups(spec):
        found[group.part] += group.elements
    return found


def active_parameter_count(spec: ModelSpec) -> int:
    """Parameters that one token uses: of the routed experts only the chosen ones; embeddings in full."""
    groups = tensor_groups(spec)
    return sum(group.elements for group in groups) - sum(idle_elements(spec, group) for group in groups)


def idle_elements(spec: ModelSpec, group: TensorGroup) -> int:
    """Elements of a group that one token does not use: those of the experts that were not chosen."""
    if group.part != "experts":
        return 0
    chosen, held = Fields(spec.config).integer(*CHOSEN_NAMES), group.shape[0]
    if chosen > held:
        raise InputError(CHOSEN_NAMES[0], chosen, f"at most the {held} experts")
    return group.elements // held * (held - chosen)


def weights_how(spec: ModelSpec, element_bytes: int = 2) -> str:
    """The sum with the numbers put in, part by part."""
    terms = " + ".join(f"{count:,} {part}" for part, count in parts(spec).items() if count)
    tied = " (head tied to the embedding, held once)" if spec.tie_embeddings else ""
    count = parameter_count(spec)
    unit = ElementFormat(8 * element_bytes).per_element
    return f"{terms} = {count:,} parameters{tied} x {unit} = {count * element_bytes:,} B"


def part_of(name: str) -> str:
    """The part (a key of PARTS) that a parameter belongs to, by its name."""
    return next(part for part, pattern in PARTS.items() if pattern.search(name))
