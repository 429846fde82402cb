"""Arithmetic and memory traffic of token mixing in one layer: attention over a cache, or a recurrent state.

Counts multiplications and additions of the two products (scores and values), as FlopCounterMode does; softmax and
rotations are left out. Every key and value is read once a step, as by a fused kernel that keeps its tile on chip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ledger.fields import Fields
from ledger.formats import ElementFormat
from ledger.layers import KIND_WORDS, CacheRow, LayerSpec
from ledger.model_spec import ModelSpec

SCAN_OPERATIONS = 5  # an element of state a token: decay, input product, sum; read-out product, sum
DELTA_OPERATIONS = 7  # the delta rule reads the state once more before it writes (product, sum)


@dataclass(frozen=True)
class Mixing:
    """Cost of one layer's token mixing for a whole step on one rank, with the arithmetic in words."""

    name: str
    flops: float
    kv_bytes: int
    activation_bytes: int
    how: str


@dataclass(frozen=True)
class Step:
    """What a step computes: `batch` sequences, each of `seq_len` tokens, the last one new (decode) or all."""

    decode: bool
    batch: int
    seq_len: int
    tp: int
    kv_format: ElementFormat
    element_bytes: int  # of an activation

    @property
    def tokens(self) -> int:
        """New tokens in the step."""
        return self.batch * (1 if self.decode else self.seq_len)

    @property
    def sampled(self) -> int:
        """Rows that need logits: one a sequence."""
        return self.batch


def attended(
    seq_len: int, window: int | None = None, *, chunk: bool = False, stride: int = 1, top: int | None = None
) -> int:
    """Entries that the token at position `seq_len` (counted from 1) reads.

    `window`: at most that many tokens, or with `chunk` those of its own chunk. `stride`: one entry for so many tokens.
    `top`: at most so many entries, chosen by an indexer.
    """
    seen = seq_len
    if window is not None:
        seen = (seq_len - 1) % window + 1 if chunk else min(seq_len, window)
    return min(seen // stride, seen if top is None else top)


def attended_in_all(
    seq_len: int, window: int | None = None, *, chunk: bool = False, stride: int = 1, top: int | None = None
) -> int:
    """Sum of `attended` over the positions 1 to `seq_len` (a causal prefill): n (n + 1) / 2 without bounds."""
    if window is not None and chunk:
        chunks, rest = divmod(seq_len, window)
        return chunks * _triangle(window) + _triangle(rest)
    if window is not None:
        inside = min(seq_len, window)
        return _triangle(inside) + (seq_len - inside) * window
    if top is not None and seq_len // stride > top:
        growing = top * stride - 1
        return _strided(growing, stride) + (seq_len - growing) * top
    return _strided(seq_len, stride)


def _triangle(count: int) -> int:
    return count * (count + 1) // 2


def _strided(count: int, stride: int) -> int:
    """Sum of i // stride for i in 1..count."""
    whole = count // stride
    return stride * whole * (whole - 1) // 2 + whole * (count - whole * stride + 1)


def sources(layers: Iterable[LayerSpec]) -> list[LayerSpec | None]:
    """Whose cache each layer reads: its own, or that of the last layer of its head sizes; None without attention."""
    latest: dict[tuple[int, int], LayerSpec] = {}
    found: list[LayerSpec | None] = []
    for layer in layers:
        geometry = layer.kv_heads, layer.k_head_dim
        if layer.keeps_kv:
            latest[geometry] = layer
        found.append(latest.get(geometry) if layer.keeps_kv or layer.kind == "shared" else None)
    return found


def attention(spec: ModelSpec, layer: LayerSpec, step: Step, *, writes: bool = True) -> Mixing:
    """Scores and values of one attention layer on one rank; `writes` is False for a layer that reads another's cache.

    Grouped-query attention multiplies each cached element by as many query heads as share it. A latent is read in
    absorbed form in decode (every head scores the latent itself), and expanded to keys and values in a first prefill.
    """
    heads = -(-spec.num_heads // step.tp)
    fields = Fields(spec.config)
    top = _chosen_entries(fields, layer)
    if layer.kind == "mla" and not step.decode and top is None:
        return _expanded_latent(spec, layer, step, heads)
    reader = attended if step.decode else attended_in_all
    flops, read, written, terms = 0, 0, 0, []
    for row in layer.rows:
        chosen = top if row.what in ("latent", "compressed entry") else None
        entries = step.batch * reader(
            step.seq_len, row.window, chunk=layer.kind == "chunk", stride=row.stride, top=chosen
        )
        width = _multiplied_width(fields, layer, row)
        queries = fields.integer("index_n_heads") if row.what == "index key" else heads
        flops += 2 * queries * width * entries
        terms.append(f"2 x {queries} heads x {width} ({row.what}) x {entries:,} entries")
        row_bytes = row.heads_of_rank(step.tp) * step.kv_format.bytes_of(row.width)
        once = step.batch * attended(
            step.seq_len, row.window if step.decode else None, chunk=layer.kind == "chunk", stride=row.stride,
            top=chosen if step.decode else None,
        )  # fmt: skip
        read += once * row_bytes
        if writes:
            written += step.tokens * row_bytes // row.stride
    query, result = _query_widths(fields, layer)
    moved = step.tokens * heads * (query + result) * step.element_bytes
    how = f"{' + '.join(terms)}; {read:,} B of KV read once, {written:,} B written, {moved:,} B queries and results"
    name = f"attention ({KIND_WORDS[layer.kind].removesuffix('-attention')})"
    return Mixing(name, flops, read + written, moved, how)


@dataclass(frozen=True)
class Reader:
    """How layers read one kind of cache row, all layers alike together, on one rank; for rows of any start and count.

    A token reads `attended` entries. flops: of an entry read by one token, in a decode row and in a prompt. bytes: of
    an entry, read once for a row of a step.
    """

    window: int | None
    chunk: bool
    stride: int
    top: int | None
    decode_flops: float
    prefill_flops: float
    decode_bytes: float
    prefill_bytes: float

    @property
    def is_plain(self) -> bool:
        """Whether every token reads one entry for each token so far."""
        return self.window is None and self.top is None and self.stride == 1

    def entries(self, length: int) -> int:
        """Entries that the token at position `length` (counted from 1) reads."""
        return attended(length, self.window, chunk=self.chunk, stride=self.stride, top=self.top)

    def pairs(self, start: int, count: int) -> int:
        """Sum of `entries` over `count` tokens behind `start` others."""
        bounds = {"chunk": self.chunk, "stride": self.stride, "top": self.top}
        before = attended_in_all(start, self.window, **bounds) if start else 0  # type: ignore[arg-type]
        return attended_in_all(start + count, self.window, **bounds) - before  # type: ignore[arg-type]

    def held(self, start: int, count: int) -> int:
        """Entries that a piece of a prompt reads once: of the tokens in sight before it, and its own."""
        before = start if self.window is None else min(start, self.window)
        return (before + count) // self.stride


@dataclass(frozen=True)
class Readers:
    """All cache reads of a model, and bytes of a new token beside them: cache written, queries and results."""

    readers: tuple[Reader, ...]
    decode_token_bytes: float
    prefill_token_bytes: float


def readers(spec: ModelSpec, kv_format: ElementFormat, element_bytes: int, tp: int = 1) -> Readers:
    """What `attention` counts, taken apart into what a row of any start and count costs.

    A latent that a prompt expands is counted as read by decode alone: a chunk behind others would expand those again.
    """
    fields, heads = Fields(spec.config), -(-spec.num_heads // tp)
    found: dict[tuple[int | None, bool, int, int | None], list[float]] = {}
    decode_token = prefill_token = 0.0
    kinds = Counter(zip(spec.layers, sources(spec.layers), strict=True))
    for (layer, source), count in kinds.items():
        if source is None:
            continue
        top = _chosen_entries(fields, source)
        is_expanded = source.kind == "mla" and top is None
        query, result = _query_widths(fields, source)
        written = 0.0
        for row in source.rows:
            chosen = top if row.what in ("latent", "compressed entry") else None
            queries = fields.integer("index_n_heads") if row.what == "index key" else heads
            flops = 2.0 * count * queries * _multiplied_width(fields, source, row)
            row_bytes = count * row.heads_of_rank(tp) * kv_format.bytes_of(row.width)
            costs = found.setdefault((row.window, source.kind == "chunk", row.stride, chosen), [0.0] * 4)
            costs[0] += flops
            costs[1] += 2.0 * count * heads * _expanded_widths(fields) if is_expanded else flops
            costs[2] += row_bytes
            costs[3] += 0 if is_expanded else row_bytes
            written += row_bytes / row.stride if layer.keeps_kv else 0
        moved = count * heads * element_bytes
        decode_token += written + moved * (query + result)
        prefill_token += written + moved * (2 * _expanded_widths(fields) if is_expanded else query + result)
    made = tuple(Reader(*bounds, *costs) for bounds, costs in found.items())
    return Readers(made, decode_token, prefill_token)


def _expanded_widths(fields: Fields) -> int:
    """Elements of a head's expanded key and value together."""
    return fields.integer("qk_nope_head_dim") + fields.integer("qk_rope_head_dim") + fields.integer("v_head_dim")


def _chosen_entries(fields: Fields, layer: LayerSpec) -> int | None:
    """How many latents or compressed entries an indexer lets a token read; None: all of them.

    A latent layer without index keys in a model that has an indexer takes the choice of the layer before.
    """
    if layer.index_dim:
        return fields.integer("index_topk")
    return fields.optional_integer("index_topk") if layer.kind == "mla" else None


def _multiplied_width(fields: Fields, layer: LayerSpec, row: CacheRow) -> int:
    """Elements of an entry that a query head multiplies: those scored plus those summed as values."""
    if row.what == "latent":
        return row.width + fields.integer("kv_lora_rank")
    if row.what == "compressed entry" or (row.what == "key" and not layer.v_head_dim):
        return 2 * row.width  # one tensor is both key and value
    return row.width


def _query_widths(fields: Fields, layer: LayerSpec) -> tuple[int, int]:
    """(elements of a head's query, of its result)."""
    if layer.kind == "mla":
        return layer.latent_dim, fields.integer("kv_lora_rank")
    return layer.k_head_dim, layer.v_head_dim or layer.k_head_dim


def _expanded_latent(spec: ModelSpec, layer: LayerSpec, step: Step, heads: int) -> Mixing:
    fields = Fields(spec.config)
    key = fields.integer("qk_nope_head_dim") + fields.integer("qk_rope_head_dim")
    value = fields.integer("v_head_dim")
    pairs = step.batch * attended_in_all(step.seq_len)
    written = step.tokens * step.kv_format.bytes_of(layer.latent_dim)
    moved = step.tokens * heads * 2 * (key + value) * step.element_bytes
    how = (
        f"2 x {heads} heads x ({key} + {value}) x {pairs:,} pairs, keys and values expanded from the latent; "
        f"{written:,} B of latents written, {moved:,} B queries, keys, values and results"
    )
    return Mixing("attention (latent, expanded)", 2 * heads * (key + value) * pairs, written, moved, how)


def recurrence(layer: LayerSpec, step: Step, *, delta_rule: bool) -> Mixing:
    """The recurrent state of one layer on one rank: read and written a sequence in decode, written in prefill."""
    share = -(-layer.state_heads // step.tp) / layer.state_heads if layer.state_heads else 0
    elements = layer.state_elements * share
    operations = DELTA_OPERATIONS if delta_rule else SCAN_OPERATIONS
    kept = layer.state_bytes_per_rank(step.tp) * step.batch
    moved = kept * (2 if step.decode else 1)
    how = (
        f"{operations} operations x {elements:,.0f} state elements x {step.tokens:,} tokens; "
        f"{step.batch:,} states x {kept // step.batch:,} B {'read and written' if step.decode else 'written'}"
    )
    return Mixing("state scan", operations * elements * step.tokens, moved, 0, how)
