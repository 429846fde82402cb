"""Bytes of the KV cache, layer by layer. Knows models only as ModelSpec, and no engine.

Rules: 2 bytes an element unless a format is given, whatever the config's dtype; a window keeps min(L, W) tokens; no
page rounding unless a block size is given; recurrent state is counted apart, because it does not grow. Tensor-parallel
figures are those of the largest rank: KV heads are split down to one head and replicated below that; a latent (MLA) is
held whole by every rank.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ledger.formats import ElementFormat, element_format, positive
from ledger.layers import KIND_WORDS, LayerSpec
from ledger.model_spec import ModelSpec

MAX_TP = 1024


def kv_bytes_per_token(spec: ModelSpec, element_bytes: int = 2) -> int:
    """Growth of the cache per token, bytes: layers without bound only. A model whose every layer slides has 0."""
    return sum(layer.kv_elements for layer in spec.layers if layer.window is None) * element_bytes


def kv_bytes_per_token_all_layers(spec: ModelSpec, element_bytes: int = 2) -> int:
    """Bytes per token with every attention layer charged in full: what an engine without window support reserves."""
    return sum(layer.kv_elements for layer in spec.layers) * element_bytes


def kv_bytes_per_sequence(
    spec: ModelSpec, seq_len: int, *, kv_dtype: str | None = None, block_size: int | None = None, tp: int = 1
) -> int:
    """KV bytes of one sequence of `seq_len` tokens, on the largest of `tp` ranks."""
    stored = element_format(kv_dtype)
    return sum(_bytes_a_token(layer, stored, tp) * layer.tokens_kept(seq_len, block_size) for layer in spec.layers)


def state_bytes_per_sequence(spec: ModelSpec, tp: int = 1) -> int:
    """Bytes of recurrent and convolution state of one sequence: constant in its length.

    Recurrent state in the format the config states (often float32), else 2 bytes; convolution state 2 bytes an element.
    """
    return sum(_state_bytes(layer, tp) for layer in spec.layers)


def kv_report(
    spec: ModelSpec,
    seq_len: int,
    concurrency: int = 1,
    kv_dtype: str | None = None,
    block_size: int | None = None,
    tp: int = 1,
    kv_group_size: int | None = None,
) -> dict[str, Any]:
    """The `kv` figures: bytes per token, sequence and batch, a record a layer, the formula, warnings.

    Integer formats count their payload; with `kv_group_size` also a 2-byte scale and a 2-byte zero point a group.
    InputError for numbers below 1, an unknown format, or a group size on a format that has no scales.
    """
    positive("seq_len", seq_len)
    positive("concurrency", concurrency)
    positive("tp", tp, MAX_TP)
    if block_size is not None:
        positive("block_size", block_size)
    stored = element_format(kv_dtype, kv_group_size)
    a_token = [_bytes_a_token(layer, stored, tp) for layer in spec.layers]
    kept = [layer.tokens_kept(seq_len, block_size) for layer in spec.layers]
    sequence = sum(size * tokens for size, tokens in zip(a_token, kept, strict=True))
    return {
        "model": spec.name,
        "kv_bytes_per_token": sum(
            size for size, layer in zip(a_token, spec.layers, strict=True) if layer.window is None
        ),
        "kv_bytes_per_token_all_layers": sum(a_token),
        "kv_bytes_per_sequence": sequence,
        "kv_bytes_total": sequence * concurrency,
        "state_bytes_per_sequence": state_bytes_per_sequence(spec, tp),
        "per_layer": [
            {
                "layer": index,
                "kind": layer.kind,
                "kv_heads": layer.kv_heads,
                "k_head_dim": layer.k_head_dim,
                "v_head_dim": layer.v_head_dim,
                "latent_dim": layer.latent_dim,
                "window": layer.window,
                "bytes_per_token": a_token[index],
                "tokens_kept": kept[index],
                "bytes_per_sequence": a_token[index] * kept[index],
                "state_bytes_per_sequence": _state_bytes(layer, tp),
            }
            for index, layer in enumerate(spec.layers)
        ],
        "formula": formula(spec, seq_len, concurrency, kv_dtype, block_size, tp, kv_group_size),
        "seq_len": seq_len,
        "concurrency": concurrency,
        "kv_dtype": kv_dtype,
        "kv_group_size": kv_group_size,
        "block_size": block_size,
        "tp": tp,
        "warnings": _warnings(spec, seq_len),
        "provenance": "computed",
    }


def formula(
    spec: ModelSpec,
    seq_len: int | None = None,
    concurrency: int = 1,
    kv_dtype: str | None = None,
    block_size: int | None = None,
    tp: int = 1,
    kv_group_size: int | None = None,
) -> str:
    """The arithmetic with the numbers put in, e.g. "2 x 30 layers x 3 KV heads x 64 x 4 B = 46,080 B a token".

    One term for each kind of layer; with `seq_len` also the bytes of a sequence and of `concurrency` sequences.
    """
    stored = element_format(kv_dtype, kv_group_size)
    groups = _groups(spec, tp)
    if not groups:
        return "no layer keeps keys or values: 0 B a token"
    plain = len(groups) == 1 and groups[0][0].kind == "full"
    terms = [_term(layer, count, tp, stored, name_kind=not plain) for layer, count in groups]
    sizes = [count * _bytes_a_token(layer, stored, tp) for layer, count in groups]
    unbounded = sum(size for size, (layer, _) in zip(sizes, groups, strict=True) if layer.window is None)
    text = f"{' + '.join(terms)} = {sum(sizes):,} B a token"
    if unbounded != sum(sizes):
        text += f", {unbounded:,} B of it without bound"
    if tp > 1:
        text += f" (on the largest of {tp} ranks)"
    if seq_len is None:
        return text
    kept = [layer.tokens_kept(seq_len, block_size) for layer, _ in groups]
    total = sum(size * tokens for size, tokens in zip(sizes, kept, strict=True))
    parts = " + ".join(f"{tokens:,} tokens x {size:,} B" for size, tokens in zip(sizes, kept, strict=True))
    text += f"; {parts} = {total:,} B a sequence of {seq_len:,}"
    return text if concurrency == 1 else f"{text}; x {concurrency:,} sequences = {total * concurrency:,} B"


def _term(layer: LayerSpec, count: int, tp: int, stored: ElementFormat, *, name_kind: bool) -> str:
    layers = f"{count:,} {KIND_WORDS[layer.kind]} layers" if name_kind else f"{count:,} layers"
    if layer.kind == "mla":
        return f"{layers} x {layer.latent_dim} latent elements x {stored.per_element}"
    heads = max(1, -(-layer.kv_heads // tp))
    split = f"{heads} KV heads" if tp == 1 else f"{heads} of {layer.kv_heads} KV heads"
    if layer.k_head_dim == layer.v_head_dim:
        return f"2 x {layers} x {split} x {layer.k_head_dim} x {stored.per_element}"
    return f"{layers} x {split} x ({layer.k_head_dim} + {layer.v_head_dim}) x {stored.per_element}"


def _groups(spec: ModelSpec, tp: int) -> list[tuple[LayerSpec, int]]:
    """The distinct layers that keep KV, each with how many there are; unbounded ones first."""
    counted = Counter(layer for layer in spec.layers if layer.keeps_kv)
    return sorted(counted.items(), key=lambda item: (item[0].window or 0, -item[0].kv_elements_per_rank(tp)))


def _bytes_a_token(layer: LayerSpec, stored: ElementFormat, tp: int) -> int:
    return stored.bytes_of(layer.kv_elements_per_rank(tp))


def _state_bytes(layer: LayerSpec, tp: int) -> int:
    if not layer.state_elements:
        return 0
    share = -(-layer.state_heads // tp)

    def of_rank(elements: int) -> int:
        return -(-elements * share // layer.state_heads)

    return of_rank(layer.state_elements) * layer.state_element_bytes + of_rank(layer.conv_elements) * 2


def _warnings(spec: ModelSpec, seq_len: int) -> list[str]:
    found = []
    if spec.max_position and seq_len > spec.max_position:
        limit = f"the model's maximum of {spec.max_position:,}"
        found.append(f"{seq_len:,} tokens are more than {limit}; computed all the same")
    if spec.assumed:
        found.append(spec.assumed)
    return found
