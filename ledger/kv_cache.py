"""Bytes of the KV cache, layer by layer. Knows models only as ModelSpec, and no engine.

Rules: 2 bytes an element unless a format is given, whatever the config's dtype; scales and zero points of the integer
formats included; a window keeps min(L, W) tokens; no page rounding unless a block size is given; recurrent state is
counted apart, because it does not grow. Parallel figures are those of the largest rank: KV heads are split down to one
head and replicated below that, a latent (MLA) is held whole by every rank, layers are split into pipeline stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ledger.formats import ElementFormat, element_format, positive
from ledger.layers import KIND_WORDS, CacheRow, LayerSpec
from ledger.model_spec import ModelSpec
from ledger.partition import MAX_RANKS, stages

LayerGroups = tuple[tuple[LayerSpec, int], ...]


def kv_bytes_per_token(spec: ModelSpec, element_bytes: int = 2) -> int:
    """Growth of the cache per token, bytes: layers without bound only. A model whose every layer slides has 0."""
    return sum(layer.growth_per_rank() for layer in spec.layers) * element_bytes


def kv_bytes_per_token_all_layers(spec: ModelSpec, element_bytes: int = 2) -> int:
    """Bytes per token with every attention layer charged in full: what an engine without window support reserves."""
    return sum(layer.kv_elements for layer in spec.layers) * element_bytes


def kv_bytes_per_sequence(
    spec: ModelSpec,
    seq_len: int,
    *,
    kv_dtype: str | None = None,
    block_size: int | None = None,
    tp: int = 1,
    pp: int = 1,
    kv_group_size: int | None = None,
) -> int:
    """KV bytes of one sequence of `seq_len` tokens, on the largest of `tp` x `pp` ranks."""
    stored = element_format(kv_dtype, kv_group_size)
    return max(
        sequence_bytes(layer_groups(spec.layers[stage.start : stage.stop]), seq_len, stored, block_size, tp)
        for stage in stages(spec.num_layers, pp)
    )


def state_bytes_per_sequence(spec: ModelSpec, tp: int = 1) -> int:
    """Bytes of recurrent and convolution state of one sequence: constant in its length.

    Recurrent state in the format the config states (often float32), else 2 bytes; convolution state 2 bytes an element.
    """
    return sum(layer_state_bytes(layer, tp) for layer in spec.layers)


def layer_groups(layers: Iterable[LayerSpec]) -> LayerGroups:
    """The distinct layers that keep KV, each with how many there are."""
    return tuple(Counter(layer for layer in layers if layer.keeps_kv).items())


def sequence_bytes(
    groups: LayerGroups, seq_len: int, stored: ElementFormat, block_size: int | None = None, tp: int = 1
) -> int:
    """KV bytes of one sequence in these layers, on the largest of `tp` ranks."""
    return sum(
        count * _row_bytes(row, stored, tp) * row.kept(seq_len, block_size)
        for layer, count in groups
        for row in layer.rows
    )


def layer_token_bytes(layer: LayerSpec, stored: ElementFormat, tp: int = 1, *, unbounded: bool = False) -> int:
    """Bytes that one token adds in one layer, on the largest of `tp` ranks: a row a head for key and for value.

    A row for several tokens counts its share, rounded up. `unbounded` leaves out what a window bounds.
    """
    return sum(
        -(-_row_bytes(row, stored, tp) // row.stride) for row in layer.rows if row.window is None or not unbounded
    )


def layer_state_bytes(layer: LayerSpec, tp: int = 1) -> int:
    """Bytes of one layer's recurrent and convolution state of one sequence, on the largest of `tp` ranks."""
    return layer.state_bytes_per_rank(tp)


def _row_bytes(row: CacheRow, stored: ElementFormat, tp: int) -> int:
    return row.heads_of_rank(tp) * stored.bytes_of(row.width)


def kv_report(
    spec: ModelSpec,
    seq_len: int,
    concurrency: int = 1,
    kv_dtype: str | None = None,
    block_size: int | None = None,
    tp: int = 1,
    kv_group_size: int | None = None,
    pp: int = 1,
) -> dict[str, Any]:
    """The `kv` figures: bytes per token, sequence and batch, a record a layer, the formula, warnings.

    Integer formats store a scale (int4 and int2 a zero point too) for every `kv_group_size` elements, default 64; 0
    counts the payload only. With `pp` the figures are those of the stage that takes most; `per_layer` lists all layers.
    InputError for numbers below 1, an unknown format, or a group size on a format that has no scales.
    """
    positive("seq_len", seq_len)
    positive("concurrency", concurrency)
    positive("tp", tp, MAX_RANKS)
    if block_size is not None:
        positive("block_size", block_size)
    stored = element_format(kv_dtype, kv_group_size)
    split = stages(spec.num_layers, pp)
    stage, layers = largest_stage(spec, seq_len, stored, block_size, tp, pp)
    groups = layer_groups(layers)
    sequence = sequence_bytes(groups, seq_len, stored, block_size, tp)
    return {
        "model": spec.name,
        "kv_bytes_per_token": _token_bytes(groups, stored, tp, unbounded=True),
        "kv_bytes_per_token_all_layers": _token_bytes(groups, stored, tp),
        "kv_bytes_per_sequence": sequence,
        "kv_bytes_total": sequence * concurrency,
        "state_bytes_per_sequence": sum(layer_state_bytes(layer, tp) for layer in layers),
        "per_layer": _per_layer(spec, seq_len, stored, block_size, tp, split),
        "formula": formula(spec, seq_len, concurrency, kv_dtype, block_size, tp, kv_group_size, pp),
        "overhead": _overhead(groups, stored, tp),
        "seq_len": seq_len,
        "concurrency": concurrency,
        "kv_dtype": kv_dtype,
        "kv_group_size": stored.group_size,
        "block_size": block_size,
        "tp": tp,
        "pp": pp,
        "stage": stage,
        "layers_per_stage": [len(stage) for stage in split],
        "warnings": length_warnings(spec, seq_len),
        "provenance": "computed",
    }


def largest_stage(
    spec: ModelSpec, seq_len: int, stored: ElementFormat, block_size: int | None, tp: int, pp: int
) -> tuple[int, tuple[LayerSpec, ...]]:
    """(index, layers) of the pipeline stage whose cache takes most for sequences of `seq_len` tokens.

    Of stages with equal caches it is the one with most recurrent state.
    """
    cut = [spec.layers[stage.start : stage.stop] for stage in stages(spec.num_layers, pp)]
    sizes = [
        (
            sequence_bytes(layer_groups(layers), seq_len, stored, block_size, tp),
            sum(layer_state_bytes(layer, tp) for layer in layers),
        )
        for layers in cut
    ]
    index = sizes.index(max(sizes))
    return index, cut[index]


def formula(
    spec: ModelSpec,
    seq_len: int | None = None,
    concurrency: int = 1,
    kv_dtype: str | None = None,
    block_size: int | None = None,
    tp: int = 1,
    kv_group_size: int | None = None,
    pp: int = 1,
    stage: int | None = None,
) -> str:
    """The arithmetic with the numbers put in, e.g. "2 x 30 layers x 3 KV heads x 64 x 4 B = 46,080 B a token".

    One term for each kind of layer; with `seq_len` also the bytes of a sequence and of `concurrency` sequences. With
    `pp` it is about the given stage, or the one that takes most.
    """
    stored = element_format(kv_dtype, kv_group_size)
    largest, layers = largest_stage(spec, seq_len or 1, stored, block_size, tp, pp)
    if stage is not None:
        held = stages(spec.num_layers, pp)[stage]
        largest, layers = stage, spec.layers[held.start : held.stop]
    groups = sorted(layer_groups(layers), key=lambda item: (item[0].window or 0, -item[0].kv_elements_per_rank(tp)))
    if not groups:
        return "no layer keeps keys or values: 0 B a token"
    plain = len(groups) == 1 and groups[0][0].kind == "full"
    terms = [_term(layer, count, tp, stored, name_kind=not plain) for layer, count in groups]
    sizes = [count * layer_token_bytes(layer, stored, tp) for layer, count in groups]
    unbounded = _token_bytes(groups, stored, tp, unbounded=True)
    text = f"{' + '.join(terms)} = {sum(sizes):,} B a token"
    if unbounded != sum(sizes):
        text += f", {unbounded:,} B of it without bound"
    text += _where(tp, pp, largest, len(layers), spec.num_layers)
    if stored.payload_only:
        text += " (payload only: no scales or zero points)"
    if seq_len is None:
        return text
    pieces = _pieces(groups, seq_len, stored, block_size, tp)
    total = sum(kept * size for kept, _, size in pieces)
    text += f"; {' + '.join(f'{kept:,} {what} x {size:,} B' for kept, what, size in pieces)}"
    text += f" = {total:,} B a sequence of {seq_len:,}"
    return text if concurrency == 1 else f"{text}; x {concurrency:,} sequences = {total * concurrency:,} B"


def _pieces(
    groups: Iterable[tuple[LayerSpec, int]], seq_len: int, stored: ElementFormat, block_size: int | None, tp: int
) -> list[tuple[int, str, int]]:
    """(how many are kept, of what, bytes of each over all layers) for every kind of layer and row."""
    pieces = []
    for layer, count in groups:
        found: dict[tuple[int, str], int] = {}
        for row in layer.rows:
            what = "tokens" if row.stride == 1 else f"entries of {row.stride} tokens"
            key = (row.kept(seq_len, block_size), what)
            found[key] = found.get(key, 0) + count * _row_bytes(row, stored, tp)
        pieces += [(kept, what, size) for (kept, what), size in found.items()]
    return pieces


def _where(tp: int, pp: int, stage: int, held: int, num_layers: int) -> str:
    if tp == pp == 1:
        return ""
    ranks = f"on the largest of {tp * pp} ranks"
    return f" ({ranks})" if pp == 1 else f" ({ranks}: stage {stage + 1} of {pp}, {held} of {num_layers} layers)"


def _term(layer: LayerSpec, count: int, tp: int, stored: ElementFormat, *, name_kind: bool) -> str:
    layers = f"{count:,} {KIND_WORDS[layer.kind]} layers" if name_kind else f"{count:,} layers"
    rows = layer.rows
    if [row.what for row in rows] == ["key", "value"] and rows[0].width == rows[1].width:
        return f"2 x {layers} x {_heads_text(rows[0], tp)}{stored.row_text(rows[0].width)}"
    if len(rows) == 1:
        return f"{layers} x {_heads_text(rows[0], tp)}{_row_text(rows[0], stored)}"
    if all(row.heads == rows[0].heads and row.stride == 1 for row in rows):
        return f"{layers} x {_heads_text(rows[0], tp)}({' + '.join(_row_text(row, stored) for row in rows)})"
    each = " + ".join(f"{_heads_text(row, tp)}{_row_text(row, stored)} {row.what}" for row in rows)
    return f"{layers} x ({each})"


def _heads_text(row: CacheRow, tp: int) -> str:
    if row.replicated:
        return f"{row.heads} x " if row.heads > 1 else ""
    heads = row.heads_of_rank(tp)
    return f"{heads} KV heads x " if tp == 1 else f"{heads} of {row.heads} KV heads x "


def _row_text(row: CacheRow, stored: ElementFormat) -> str:
    text = stored.row_text(row.width)
    return text if row.stride == 1 else f"{text} / {row.stride}"


def _token_bytes(
    groups: Iterable[tuple[LayerSpec, int]], stored: ElementFormat, tp: int, *, unbounded: bool = False
) -> int:
    return sum(count * layer_token_bytes(layer, stored, tp, unbounded=unbounded) for layer, count in groups)


def _overhead(groups: LayerGroups, stored: ElementFormat, tp: int) -> dict[str, Any]:
    """What scales and zero points add, and what the cache costs an element with them, over all attention layers."""
    elements = sum(count * layer.kv_elements_per_rank(tp) for layer, count in groups)
    payload = _token_bytes(groups, ElementFormat(stored.bits), tp)
    size = _token_bytes(groups, stored, tp)
    return {
        "bytes_per_group": stored.group_overhead_bytes if stored.group_size else 0,
        "payload_bytes_per_token_all_layers": payload,
        "overhead_bytes_per_token_all_layers": size - payload,
        "bits_per_element": 8 * size / elements if elements else None,
    }


def _per_layer(
    spec: ModelSpec,
    seq_len: int,
    stored: ElementFormat,
    block_size: int | None,
    tp: int,
    split: Sequence[range],
) -> list[dict[str, Any]]:
    rows = []
    stage_of = [place for place, stage in enumerate(split) for _ in stage]
    for index, layer in enumerate(spec.layers):
        rows.append(
            {
                "layer": index,
                "stage": stage_of[index],
                "kind": layer.kind,
                "kv_heads": layer.kv_heads,
                "k_head_dim": layer.k_head_dim,
                "v_head_dim": layer.v_head_dim,
                "latent_dim": layer.latent_dim,
                "index_dim": layer.index_dim,
                "compressed_dim": layer.compressed_dim,
                "compress_ratio": layer.compress_ratio,
                "window": layer.window,
                "bytes_per_token": layer_token_bytes(layer, stored, tp),
                "tokens_kept": layer.tokens_kept(seq_len, block_size),
                "bytes_per_sequence": sequence_bytes(((layer, 1),), seq_len, stored, block_size, tp),
                "state_bytes_per_sequence": layer_state_bytes(layer, tp),
            }
        )
    return rows


def length_warnings(spec: ModelSpec, seq_len: int) -> list[str]:
    """What to say beside figures of sequences of this length: over the model's maximum, an assumed architecture."""
    found = []
    if spec.max_position and seq_len > spec.max_position:
        limit = f"the model's maximum of {spec.max_position:,}"
        found.append(f"{seq_len:,} tokens are more than {limit}; computed all the same")
    if spec.assumed:
        found.append(spec.assumed)
    return found
