"""What the compiled step of core_engine/kernels/cpu holds beside weights and KV: its workspace, its logits, its panels.

The workspace is one allocation that grows to the largest step and stays. Its parts are those of step.h, in float32,
whatever format weights and KV have. Knows ModelSpec only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ledger.model_spec import ModelSpec
from ledger.packed_weights import MatrixFormat, input_floats, matrix_bytes
from ledger.weights import parameter_shapes

FLOAT_BITS, FLOAT_BYTES = 32, 4
QUERY_TILE = 32  # new tokens of a row whose attention is one piece of work
CHUNK = 32  # keys scored at a time
WORK_A_THREAD = 4  # pieces of attention that auto splits aim at
PRIVATE_TOKENS = 4  # so few are prepared for quantized products by every thread for itself
EXPAND_FROM = 16  # from so many on their weights are written as floats first, and the input is read as it is
BLOCK_FLOATS = 49_152  # of an input that a thread's products keep in the second-level cache


@dataclass(frozen=True)
class StepKernels:
    """How steps are computed, as far as their memory depends on it.

    panel_columns: columns of a packed panel, two vectors wide; 0 with torch's operators. kv_splits 0 is auto. pairs:
    products multiply pairs of bf16. launched: a GPU's kernels. formats: how parameters are quantized, by name; the
    others are plain.
    """

    panel_columns: int = 0
    threads: int = 1
    fused: bool = True
    flash: bool = True
    kv_splits: int = 0
    pairs: bool = False
    launched: bool = False
    formats: Mapping[str, MatrixFormat] = field(default_factory=dict, hash=False)

    @classmethod
    def of_run(cls, settings: Mapping[str, Any], environment: Mapping[str, Any]) -> StepKernels:
        """From a run's settings and its environment; one that says nothing of kernels ran with torch's."""
        splits = str(settings.get("kv_splits", "auto"))
        bits = environment.get("vector_bits") if environment.get("kernels") == "compiled" else None
        return cls(
            panel_columns=2 * int(bits or 0) // FLOAT_BITS,
            launched=environment.get("kernels") == "triton",
            pairs=bool(environment.get("bf16_pairs")) and environment.get("dtype") == "bf16",
            threads=int(environment.get("threads") or 1),
            fused=settings.get("fused_ops", "on") == "on",
            flash=settings.get("attention", "flash") == "flash",
            kv_splits=0 if splits == "auto" else int(splits),
        )

    def whole_panels(self, columns: int) -> int:
        """Columns filled up to whole panels."""
        return -(-columns // self.panel_columns) * self.panel_columns


@dataclass(frozen=True)
class StepRow:
    """One row of a step: tokens of context before it, new tokens, and of how many of these logits are wanted."""

    start: int
    count: int
    wanted: int = 1


def panel_padding_elements(spec: ModelSpec, kernels: StepKernels) -> int:
    """Elements that packed weights hold beyond the model's own: the last panel of every product, and of its bias, is
    held in full. q, k, v, gate and up are each filled up."""
    if not kernels.panel_columns:
        return 0
    query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    hidden, inner = spec.hidden_size, spec.intermediate_size

    def missing(columns: int) -> int:
        return kernels.whole_panels(columns) - columns

    into = missing(query) + 2 * missing(kv), missing(hidden), 2 * missing(inner), missing(hidden)
    layer = sum(columns * depth for columns, depth in zip(into, (hidden, query, hidden, inner), strict=True))
    layer += sum(columns for columns, has in zip(into, _biased(spec), strict=True) if has)
    return spec.num_layers * layer + missing(spec.vocab_size) * hidden


def held_weight_bytes(spec: ModelSpec, element_bytes: int, kernels: StepKernels) -> int:
    """Bytes of all weights as they are held, plain ones at `element_bytes`, quantized ones and panels as they are."""
    total = panel_padding_elements(spec, kernels) * element_bytes
    for name, shape in parameter_shapes(spec).items():
        fmt = kernels.formats.get(name)
        if fmt is None:
            total += prod(shape) * element_bytes
            continue
        out, depth = shape
        total += matrix_bytes(fmt, out, depth, kernels.panel_columns)
        if kernels.panel_columns and name in _packed_names(spec):
            total -= (kernels.whole_panels(out) - out) * depth * element_bytes  # it was counted as a plain one's
    return total


def _packed_names(spec: ModelSpec) -> set[str]:
    """Parameters that lie in panels even when they are plain."""
    head = "model.embed_tokens.weight" if spec.tie_embeddings else "lm_head.weight"
    return {name for name in parameter_shapes(spec) if name.endswith("_proj.weight")} | {head}


def _input_floats(spec: ModelSpec, tokens: int, wanted: int, kernels: StepKernels) -> int:
    """Floats of the largest product's input in the forms that its quantized parts read."""
    if not kernels.formats:
        return 0
    shapes, most = parameter_shapes(spec), 0
    head = "model.embed_tokens.weight" if spec.tie_embeddings else "lm_head.weight"
    products = [([head], wanted)]
    for layer in range(spec.num_layers):
        at = f"model.layers.{layer}."
        for part, names in (("self_attn", "q k v"), ("self_attn", "o"), ("mlp", "gate up"), ("mlp", "down")):
            products.append(([f"{at}{part}.{name}_proj.weight" for name in names.split()], tokens))
    for parts, count in products:
        forms: dict[tuple[Any, ...], int] = {}
        for place, name in enumerate(parts):
            fmt = kernels.formats.get(name)
            if fmt is not None:
                form = (fmt.bits, fmt.group, fmt.activation_group, place if fmt.ordered else -1)
                is_expanded = count >= EXPAND_FROM and not fmt.activation_group
                forms[form] = shapes[name][1] if is_expanded else input_floats(fmt, shapes[name][1])
        copies = count * (kernels.threads if count <= PRIVATE_TOKENS else 1)
        most = max(most, copies * sum(forms.values()))
    return most


def workspace_bytes(spec: ModelSpec, rows: Sequence[StepRow], kernels: StepKernels) -> int:
    """Bytes of workspace of one step (within a cache line for each of its 14 parts)."""
    query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    hidden, inner, tokens = spec.hidden_size, spec.intermediate_size, sum(row.count for row in rows)
    qkv = kernels.whole_panels(query) + 2 * kernels.whole_panels(kv)
    floats = tokens * (2 * hidden + qkv + query + inner + spec.head_dim)
    if not kernels.fused:
        floats += tokens * (inner + hidden)  # up apart from gate, and what is added to the residual
    floats += _partials(spec, rows, kernels) * (query + 2 * spec.num_heads)
    if not kernels.flash:
        floats += sum(_scores(spec, row, kernels) for row in rows)
    floats += _input_floats(spec, tokens, sum(row.wanted for row in rows), kernels)
    return FLOAT_BYTES * (floats + kernels.threads * _scratch(spec, kernels))


def workspace_how(spec: ModelSpec, rows: Sequence[StepRow], kernels: StepKernels) -> str:
    """The workspace's parts with the numbers put in."""
    tokens, parts = sum(row.count for row in rows), []
    if not kernels.fused:
        parts.append("gate, up and residuals apart")
    if not kernels.flash:
        parts.append(f"{sum(_scores(spec, row, kernels) for row in rows):,} scores")
    partials = _partials(spec, rows, kernels)
    if partials:
        parts.append(f"{partials:,} partial results of split KV")
    said = f" ({', '.join(parts)})" if parts else ""
    total = workspace_bytes(spec, rows, kernels)
    return f"workspace of {tokens:,} tokens on {kernels.threads} threads{said} {total:,} B"


def _biased(spec: ModelSpec) -> list[bool]:
    """Whether qkv, output, gate and up, and down have biases, by the table of parameters."""
    names = [name for name in parameter_shapes(spec) if name.endswith("bias")]
    return [any(part in name for name in names) for part in ("q_proj", "o_proj", "gate_proj", "down_proj")]


def _splits(rows: Sequence[StepRow], kernels: StepKernels) -> int:
    singles = sum(row.count == 1 for row in rows)
    wanted = WORK_A_THREAD * kernels.threads
    if not kernels.flash or (not kernels.kv_splits and not 0 < singles < wanted):
        return 1
    return kernels.kv_splits or -(-wanted // singles)


def _partials(spec: ModelSpec, rows: Sequence[StepRow], kernels: StepKernels) -> int:
    """Pieces of attention with a place for a partial result: all of them as soon as any row is split."""
    splits = _splits(rows, kernels)
    return sum(_pieces(spec, row, splits, kernels) for row in rows) if splits > 1 else 0


def _pieces(spec: ModelSpec, row: StepRow, splits: int, kernels: StepKernels) -> int:
    if row.count > 1:
        return -(-row.count // QUERY_TILE) * spec.num_kv_heads
    keys = row.start + 1
    return min(splits, keys if kernels.kv_splits else -(-keys // CHUNK))


def _scores(spec: ModelSpec, row: StepRow, kernels: StepKernels) -> int:
    """Floats of the whole matrix of a row: all queries x all keys of the row, queries in panels."""
    keys = row.start + row.count
    if row.count == 1:
        return spec.num_heads * keys
    group, whole = spec.num_heads // spec.num_kv_heads, row.count // QUERY_TILE
    queries = whole * kernels.whole_panels(QUERY_TILE * group)
    if row.count % QUERY_TILE:
        queries += kernels.whole_panels(row.count % QUERY_TILE * group)
    return spec.num_kv_heads * queries * keys


def _scratch(spec: ModelSpec, kernels: StepKernels) -> int:
    """Floats of one thread's own buffers: a tile of queries with a chunk of keys and values, or what one new token's
    attention needs, or gate before up beside the rows of a product as bf16 where pairs are multiplied."""
    columns, group, query = kernels.panel_columns, spec.num_heads // spec.num_kv_heads, spec.num_heads * spec.head_dim
    tile = kernels.whole_panels(QUERY_TILE * group) * (2 * spec.head_dim + 2) + CHUNK * (2 * spec.head_dim + columns)
    single = 2 * query + (2 + CHUNK) * spec.num_heads + CHUNK * spec.head_dim
    pairs = max(_block(kernels, depth) * -(-depth // 2) for depth in (spec.hidden_size, spec.intermediate_size, query))
    products = _block(kernels, spec.hidden_size) * columns + (pairs if kernels.pairs else 0)
    if kernels.formats:  # what a quantized panel gives, before it is used, and its weights as floats
        depths = spec.hidden_size, spec.intermediate_size, query
        products += (_block(kernels, min(depths)) + max(depths)) * columns
    return max(tile, single, products)


def _block(kernels: StepKernels, depth: int) -> int:
    """Tokens whose inputs a thread's products go through together."""
    rows_of_tile = 12 if kernels.panel_columns == 32 else 6
    return max(rows_of_tile, BLOCK_FLOATS // depth // rows_of_tile * rows_of_tile)
