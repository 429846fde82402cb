"""The frame that tables of tensors share: linear layers, and a decoder as embedding, layers, final norm and head."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ledger.model_spec import ModelSpec

Tensors = Iterator[tuple[str, tuple[int, ...]]]
LayerPart = Callable[[ModelSpec, int, str], Tensors]  # (spec, layer index, name prefix such as "model.layers.0.")


def linear(name: str, rows: int, columns: int, bias: bool = False) -> Tensors:
    """A weight [rows, columns] and, with `bias`, a bias [rows]."""
    yield f"{name}.weight", (rows, columns)
    if bias:
        yield f"{name}.bias", (rows,)


def norm(name: str, size: int, bias: bool = False) -> Tensors:
    """A scale of `size` elements and, with `bias`, a shift."""
    yield f"{name}.weight", (size,)
    if bias:
        yield f"{name}.bias", (size,)


def decoder(
    spec: ModelSpec,
    *parts: LayerPart,
    embedding: str = "model.embed_tokens",
    layers: str = "model.layers.",
    final: str = "model.norm",
    norm_bias: bool = False,
) -> Tensors:
    """Embedding, every layer's parts, final norm and, unless tied, the head."""
    yield f"{embedding}.weight", (spec.vocab_size, spec.hidden_size)
    for index in range(spec.num_layers):
        for part in parts:
            yield from part(spec, index, f"{layers}{index}.")
    yield from norm(final, spec.hidden_size, norm_bias)
    if not spec.tie_embeddings:
        yield "lm_head.weight", (spec.vocab_size, spec.hidden_size)


def norms(*names: str, bias: bool = False) -> LayerPart:
    """Norms over the hidden size, by name."""

    def part(spec: ModelSpec, index: int, at: str) -> Tensors:
        for name in names:
            yield from norm(at + name, spec.hidden_size, bias)

    return part
