"""Operators of one step of a model: operations and bytes, grouped over identical layers, from the tensor tables.

Every weight matrix is 2 x rows x columns operations a token. Weights are read once a step, whatever the batch; of
experts, as many as the step's tokens are expected to choose. Elementwise work (norms, residual sums, activations,
softmax, rotations) counts bytes and no operations: it is bound by memory everywhere.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from ledger.attention_ops import Mixing, Step, attention, recurrence, sources
from ledger.errors import InputError
from ledger.fields import Fields
from ledger.formats import element_format, positive
from ledger.model_spec import ModelSpec
from ledger.partition import MAX_RANKS, rank_share
from ledger.weight_formats import WeightFormat, tensor_formats
from ledger.weights import CHOSEN_NAMES, PARTS, parameter_shapes, part_of

Phase = Literal["prefill", "decode"]
PHASES = ("prefill", "decode")
LOGIT_BYTES = 4  # logits are float32
_LAYER = re.compile(r"\.\d+\.")
_TABLE = re.compile(r"embed|wte|wpe")
_NORM = re.compile(PARTS["norms"].pattern)
# Tensors of two axes that are added or scaled with, not multiplied as matrices.
_VECTOR = re.compile(r"norm|bias|A_log|position|sinks")
_HEAD_NORM = {"q_norm": "num_heads", "k_norm": "num_kv_heads"}
_DELTA_RULE = re.compile(r"linear_attn|forget_gate")
_ROUTER = re.compile(r"router|\bgate$|shared_expert_gate")
# Tensor parallelism cuts these along their input and sums the results; all others along their output.
_SUMMED = re.compile(r"o_proj|out_proj|\bdense$|down_proj|fc_out|fc2|4h_to_h|\bc_proj")


@dataclass(frozen=True)
class Operator:
    """One kind of operation of a step, all its layers together, on one rank.

    `count` layers. `flops` operations (a multiplication and an addition are two); bytes by what they move: weights, KV
    cache and state, activations; `link_bytes` leave the rank. `how` is the arithmetic with the numbers put in.
    """

    name: str
    part: str
    count: int
    flops: float
    weight_bytes: float
    kv_bytes: float
    activation_bytes: float
    compute_dtype: str
    how: str = ""
    linear: bool = False  # a weight matrix
    link_bytes: float = 0.0

    @property
    def bytes(self) -> float:
        """All bytes of device memory it moves."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def intensity(self) -> float | None:
        """Operations a byte; None when it moves none."""
        return self.flops / self.bytes if self.bytes else None


def operators(
    spec: ModelSpec,
    phase: str,
    batch: int,
    seq_len: int,
    *,
    weights: str = "bf16",
    kv_dtype: str | None = "bf16",
    kv_group_size: int | None = None,
    tp: int = 1,
) -> tuple[Operator, ...]:
    """The operators of one step of `batch` sequences, on one of `tp` ranks.

    prefill: `seq_len` new tokens each, nothing cached before. decode: one new token each, the last of `seq_len`.
    Logits are computed for one row a sequence. InputError for numbers below 1, an unknown phase or format, or a model
    without a table of tensors.
    """
    return StepCosts(spec, weights, tp).operators(phase, batch, seq_len, kv_dtype=kv_dtype, kv_group_size=kv_group_size)


def experts_touched(experts: int, chosen: int, tokens: int) -> float:
    """Expected number of distinct experts that `tokens` tokens choose: E (1 - (1 - k / E)^T).

    For choices that are even and independent of one another; real routers are less even and touch fewer.
    """
    return experts * (1 - (1 - chosen / experts) ** tokens)


@dataclass(frozen=True)
class _Matrix:
    """A weight matrix of `count` layers, as one rank holds it."""

    name: str
    part: str
    shape: tuple[int, ...]
    stored: WeightFormat
    count: int
    share: float


class StepCosts:
    """The tensors of a model in a weight format, classified and grouped once, and what steps do with them."""

    def __init__(self, spec: ModelSpec, weights: str = "bf16", tp: int = 1) -> None:
        self.spec, self.tp = spec, positive("tp", tp, MAX_RANKS)
        shapes = parameter_shapes(spec)
        formats = tensor_formats(spec, weights)
        grouped = Counter((_LAYER.sub(".*.", name, count=1), shape, formats[name]) for name, shape in shapes.items())
        self.matrices: list[_Matrix] = []
        self.tables: list[_Matrix] = []
        self.vectors: list[_Matrix] = []
        self.convolutions: list[_Matrix] = []
        for (name, shape, stored), count in grouped.items():
            self._place(name, shape, stored, count)
        if spec.tie_embeddings:
            table = max((table for table in self.tables if table.shape[0] == spec.vocab_size), key=_is_token_table)
            self.matrices.append(replace(table, name="lm_head (tied)", part="head"))
        # Quantized weights multiply 16-bit activations, or are fed from them.
        self.element_bytes = 4 if all(matrix.stored.bits == 32 for matrix in self.matrices) else 2
        self.plain_dtype = "fp32" if self.element_bytes == 4 else "bf16"

    def _place(self, name: str, shape: tuple[int, ...], stored: WeightFormat, count: int) -> None:
        part = part_of(name)
        held, of = rank_share(name, part, self.spec, self.tp)
        found = _Matrix(_short(name), part, shape, stored, count, held / of)
        last = found.name.rsplit(".", 1)[-1]
        if "conv" in last and len(shape) > 1:
            self.convolutions.append(replace(found, shape=(shape[0], 1, shape[-1])))
        elif len(shape) == 2 and _TABLE.search(last) and not _NORM.search(last):
            self.tables.append(replace(found, part="embedding"))
        elif len(shape) == 1 or _VECTOR.search(last):
            self.vectors.append(found)
        elif part == "experts":
            # DBRX has its experts one below the other along the rows.
            experts = shape[0] if len(shape) == 3 else Fields(self.spec.config).integer("num_local_experts")
            self.matrices.append(replace(found, shape=(experts, prod(shape[:-1]) // experts, shape[-1])))
        else:
            self.matrices.append(replace(found, shape=(prod(shape[:-1]), shape[-1])))

    def operators(
        self, phase: str, batch: int, seq_len: int, *, kv_dtype: str | None = "bf16", kv_group_size: int | None = None
    ) -> tuple[Operator, ...]:
        """All operators of a step; see the function `operators`."""
        if phase not in PHASES:
            raise InputError("phase", phase, " or ".join(PHASES))
        positive("batch", batch)
        positive("seq_len", seq_len)
        stored = element_format(kv_dtype, kv_group_size)
        step = Step(phase == "decode", batch, seq_len, self.tp, stored, self.element_bytes)
        return _distinct(
            (
                *self._gathers(step.tokens),
                *self._linear(step.tokens, step.sampled),
                *self._mixing(step),
                *self._convolutions(step.tokens),
                self._elementwise(step.tokens),
                *self._communication(step.tokens, step.sampled),
            )
        )

    def of_tokens(self, tokens: int, sampled: int) -> tuple[Operator, ...]:
        """All operators that depend on how many tokens a step computes and how many rows of logits it gives, however
        the tokens lie in sequences: everything but attention and recurrent states."""
        return (
            *self._gathers(tokens),
            *self._linear(tokens, sampled),
            *self._convolutions(tokens),
            self._elementwise(tokens),
            *self._communication(tokens, sampled),
        )

    def decode_linear(self, batch: int) -> tuple[Operator, ...]:
        """The weight matrices alone in a decode step of `batch` sequences."""
        return tuple(self._linear(batch, batch))

    def _linear(self, tokens: int, sampled: int) -> Iterable[Operator]:
        """Weight matrices over `tokens` tokens, the head over `sampled` rows."""
        for matrix in self.matrices:
            if len(matrix.shape) == 3:
                yield self._experts(matrix, tokens)
            else:
                yield self._matrix(matrix, sampled if matrix.part == "head" else tokens)

    def _matrix(self, matrix: _Matrix, rows: int) -> Operator:
        wide, deep = matrix.shape
        flops = 2 * wide * deep * rows * matrix.count * matrix.share
        held = matrix.stored.bytes_of(matrix.shape) * matrix.count * matrix.share
        out_bytes = LOGIT_BYTES if matrix.part == "head" else self.element_bytes
        split_in, split_out = (matrix.share, 1.0) if _SUMMED.search(matrix.name) else (1.0, matrix.share)
        moved = rows * matrix.count * (deep * self.element_bytes * split_in + wide * out_bytes * split_out)
        how = (
            f"{_times(matrix.count)}2 x {wide:,} x {deep:,} x {rows:,} {'rows' if matrix.part == 'head' else 'tokens'}"
            f"{_on_rank(matrix)} = {flops:,.0f} FLOP;"
            f" {held:,.0f} B weights ({matrix.stored.name}) + {moved:,.0f} B in and out"
        )
        return Operator(
            matrix.name, matrix.part, matrix.count, flops, held, 0, moved, self._compute_dtype(matrix), how, True
        )

    def _compute_dtype(self, matrix: _Matrix) -> str:
        """What a product runs in: a router kept in float32 beside quantized weights multiplies 16-bit activations."""
        found = matrix.stored.compute_dtype
        return self.plain_dtype if found == "fp32" else found

    def _experts(self, matrix: _Matrix, tokens: int) -> Operator:
        experts, first, second = matrix.shape
        chosen = self._chosen(experts)
        touched = experts_touched(experts, chosen, tokens)
        one = matrix.stored.bytes_of(matrix.shape[1:])
        flops = 2 * first * second * chosen * tokens * matrix.count * matrix.share
        held = touched * one * matrix.count * matrix.share
        moved = tokens * chosen * (first + second) * self.element_bytes * matrix.count * matrix.share
        how = (
            f"{_times(matrix.count)}{chosen} of {experts} experts x 2 x {first:,} x {second:,} x {tokens:,} tokens"
            f"{_on_rank(matrix)} = {flops:,.0f} FLOP;"
            f" {experts} x (1 - (1 - {chosen}/{experts})^{tokens}) = {touched:,.1f} experts read"
            f" x {one:,} B ({matrix.stored.name}) = {held:,.0f} B + {moved:,.0f} B in and out"
        )
        return Operator(
            matrix.name, matrix.part, matrix.count, flops, held, 0, moved, self._compute_dtype(matrix), how, True
        )

    def _gathers(self, tokens: int) -> Iterable[Operator]:
        for table in self.tables:
            row = table.stored.bytes_of((1, table.shape[1]))
            read, written = tokens * row, tokens * table.shape[1] * self.element_bytes
            how = f"{tokens:,} tokens x {row:,} B a row read, {written:,} B written"
            yield Operator(table.name, "embedding", table.count, 0, read, 0, written, self.plain_dtype, how)

    def _mixing(self, step: Step) -> Iterable[Operator]:
        """Attention and recurrent states, identical layers together."""
        delta = self.has_delta_rule
        counted: Counter[Mixing] = Counter()
        kinds = Counter(zip(self.spec.layers, sources(self.spec.layers), strict=True))
        for (layer, source), count in kinds.items():
            if source is not None:
                counted[attention(self.spec, source, step, writes=layer.keeps_kv)] += count
            if layer.state_elements or layer.conv_elements:
                counted[recurrence(layer, step, delta_rule=delta)] += count
        for cost, count in counted.items():
            part = "state" if cost.name == "state scan" else "attention"
            yield Operator(
                cost.name, part, count, cost.flops * count, 0, cost.kv_bytes * count, cost.activation_bytes * count,
                self.plain_dtype, f"{_times(count)}({cost.how})",
            )  # fmt: skip

    @property
    def has_delta_rule(self) -> bool:
        """Whether recurrent layers update their state by the delta rule."""
        return any(_DELTA_RULE.search(tensor.name) for tensor in (*self.matrices, *self.vectors))

    def _convolutions(self, tokens: int) -> Iterable[Operator]:
        for matrix in self.convolutions:
            channels, _, kernel = matrix.shape
            flops = 2 * channels * kernel * tokens * matrix.count * matrix.share
            held = matrix.stored.bytes_of((channels, kernel)) * matrix.count * matrix.share
            moved = 2 * tokens * channels * self.element_bytes * matrix.count * matrix.share
            how = f"{_times(matrix.count)}2 x {channels:,} channels x {kernel} x {tokens:,} tokens"
            yield Operator(matrix.name, "state", matrix.count, flops, held, 0, moved, self.plain_dtype, how)

    def _elementwise(self, tokens: int) -> Operator:
        """Norms (read, write), residual sums (two reads, a write), activations between MLP matrices; unfused."""
        held = sum(self._vector_bytes(vector, tokens) for vector in self.vectors)
        normed = 2 * sum(_normed_elements(self.spec, vector) for vector in self.vectors if _NORM.search(vector.name))
        sums = 3 * self.spec.hidden_size * self._halves()
        inner = self._inner_elements()
        moved = tokens * (normed + sums + inner) * self.element_bytes
        how = (
            f"{tokens:,} tokens x ({normed:,} norms + {sums:,} residual sums + {inner:,.0f} activations)"
            f" x {self.element_bytes} B = {moved:,.0f} B; {held:,.0f} B of norms and biases; operations not counted"
        )
        return Operator(
            "norms, residuals, activations", "norms", self.spec.num_layers, 0, held, 0, moved, self.plain_dtype, how
        )

    def _vector_bytes(self, vector: _Matrix, tokens: int) -> float:
        """Bytes read of a norm, bias or other vector; of experts' biases those of the experts touched."""
        size = vector.stored.bytes_of(vector.shape) * vector.count * vector.share
        if vector.part != "experts":
            return size
        experts = vector.shape[0]
        return size * experts_touched(experts, self._chosen(experts), tokens) / experts

    def _chosen(self, experts: int) -> int:
        """Routed experts a token goes to; InputError when the config says more than there are."""
        chosen = Fields(self.spec.config).integer(*CHOSEN_NAMES)
        if chosen > experts:
            raise InputError(CHOSEN_NAMES[0], chosen, f"at most the {experts} experts")
        return chosen

    def _inner_elements(self) -> float:
        """Elements of a token between the matrices of all MLPs: read from the first ones, written for the last."""
        hidden, total = self.spec.hidden_size, 0.0
        for matrix in self.matrices:
            if matrix.part == "experts":
                inner = prod(matrix.shape[1:]) // hidden
                total += matrix.count * matrix.share * inner * self._chosen(matrix.shape[0])
            elif matrix.part == "mlp" and hidden in matrix.shape and not _ROUTER.search(matrix.name):
                total += matrix.count * matrix.share * prod(matrix.shape) // hidden
        return total

    def _halves(self) -> int:
        """Blocks that add to the residual stream: one for token mixing, one for an MLP, in layers that have them."""
        mixing = sum(layer.kind != "none" for layer in self.spec.layers)
        counts: dict[str, int] = defaultdict(int)
        for matrix in self.matrices:
            if matrix.part in ("mlp", "experts") and not _ROUTER.search(matrix.name):
                counts[matrix.name] += matrix.count
        ends = [count for name, count in counts.items() if _ends_block(name)]
        return mixing + min(self.spec.num_layers, sum(ends))

    def _communication(self, tokens: int, sampled: int) -> Iterable[Operator]:
        """Ring all-reduces of tensor parallelism: a rank sends 2 (tp - 1) / tp of the vector, one way."""
        if self.tp == 1:
            return
        halves = self._halves() + 1  # and one for the embedding, whose rows are split over the ranks
        vector = tokens * self.spec.hidden_size * self.element_bytes
        sent = halves * 2 * (self.tp - 1) / self.tp * vector
        how = f"{halves} x 2 x ({self.tp} - 1) / {self.tp} x {vector:,} B = {sent:,.0f} B sent by a rank"
        yield Operator("all-reduce", "communication", halves, 0, 0, 0, 0, self.plain_dtype, how, link_bytes=sent)
        logits = sampled * self.spec.vocab_size * LOGIT_BYTES
        gathered = (self.tp - 1) / self.tp * logits
        how = f"({self.tp} - 1) / {self.tp} x {logits:,} B of logits = {gathered:,.0f} B received by a rank"
        yield Operator(
            "all-gather of logits", "communication", 1, 0, 0, 0, 0, self.plain_dtype, how, link_bytes=gathered
        )


def _distinct(found: Iterable[Operator]) -> tuple[Operator, ...]:
    """The operators with names of their own: a second one of a name (another shape) becomes "name (2)"."""
    seen: Counter[str] = Counter()
    named = []
    for operator in found:
        seen[operator.name] += 1
        times = seen[operator.name]
        named.append(operator if times == 1 else replace(operator, name=f"{operator.name} ({times})"))
    return tuple(named)


def _normed_elements(spec: ModelSpec, vector: _Matrix) -> int:
    """Elements of a token that a norm passes over in all its layers: a norm of one head's size runs over all heads."""
    elements = prod(vector.shape)
    for name, heads in _HEAD_NORM.items():
        if name in vector.name and elements == spec.head_dim:
            return elements * int(getattr(spec, heads)) * vector.count
    return elements * vector.count


def _ends_block(name: str) -> bool:
    """True for the last matrix of an MLP or of its routed experts (a shared expert adds to the same sum)."""
    return "shared" not in name and bool(re.search(r"down_proj|fc_out|fc2|4h_to_h|mlp\.c_proj", name))


def _is_token_table(table: _Matrix) -> bool:
    return not re.search(r"position|wpe|per_layer", table.name)


def _short(name: str) -> str:
    """A parameter's name without the layer prefix and `.weight`: "self_attn.q_proj"."""
    return name.split(".*.")[-1].removesuffix(".weight").removeprefix("model.").removeprefix("transformer.")


def _on_rank(matrix: _Matrix) -> str:
    return "" if matrix.share == 1 else f" x {matrix.share:.4g} on this rank"


def _times(count: int) -> str:
    return "" if count == 1 else f"{count} layers x "
