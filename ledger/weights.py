"""Parameters of a model: names, shapes and bytes. The names are those of Hugging Face checkpoints.

Knows ModelSpec and the tables of tensors by family. A family without a table is refused: a guess would be silent.
"""

from __future__ import annotations

from math import prod

from ledger.errors import InputError
from ledger.formats import ElementFormat
from ledger.model_spec import ModelSpec
from ledger.tensors import TABLES


def parameter_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter; a tied head is not listed, because it is the embedding.

    InputError when the family has no table, or the spec came from typed fields and lacks a size.
    """
    if spec.model_type not in TABLES:
        raise InputError("model_type", spec.model_type, f"for weights: {', '.join(sorted(TABLES))}")
    for name in ("hidden_size", "intermediate_size", "vocab_size"):
        if not getattr(spec, name):
            raise InputError(name, "missing", "a config that has it")
    return dict(TABLES[spec.model_type](spec))


def parameter_count(spec: ModelSpec) -> int:
    """Number of parameters, a tied head once."""
    return sum(prod(shape) for shape in parameter_shapes(spec).values())


def weight_bytes(spec: ModelSpec, element_bytes: int = 2) -> int:
    """Bytes of all parameters at `element_bytes` each, a tied head once."""
    return parameter_count(spec) * element_bytes


def parts(spec: ModelSpec) -> dict[str, int]:
    """Parameters by part: embedding, attention, mlp, norms, head. The parts add up to parameter_count."""
    found = {"embedding": 0, "attention": 0, "mlp": 0, "norms": 0, "head": 0}
    for name, shape in parameter_shapes(spec).items():
        found[_part_of(name)] += prod(shape)
    return found


def weights_how(spec: ModelSpec, element_bytes: int = 2) -> str:
    """The sum with the numbers put in, part by part."""
    terms = " + ".join(f"{count:,} {part}" for part, count in parts(spec).items() if count)
    tied = " (head tied to the embedding, held once)" if spec.tie_embeddings else ""
    count = parameter_count(spec)
    unit = ElementFormat(8 * element_bytes).per_element
    return f"{terms} = {count:,} parameters{tied} x {unit} = {count * element_bytes:,} B"


def _part_of(name: str) -> str:
    if "norm" in name:
        return "norms"
    for mark, part in (("embed", "embedding"), ("self_attn", "attention"), ("mlp", "mlp"), ("lm_head", "head")):
        if mark in name:
            return part
    raise AssertionError(f"parameter {name} belongs to no part")
