"""What parallel ranks hold and hand to each other in a step: heads, bytes of weights, bytes of every collective.

The split is ledger/partition.py's. Bytes are the payload that a rank hands to a collective; what a ring then sends over
its links is `ring_factor` times that. Knows ModelSpec of the decoders that our engine runs, and no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from ledger.formats import positive
from ledger.kv_blocks import BlockFormat
from ledger.memory import Account, MemoryLedger, predict_ledger
from ledger.model_spec import ModelSpec
from ledger.partition import HeadShare, even_parts, head_shares, outer_stages, stages
from ledger.weights import LAYER, parameter_shapes, part_of

LOGIT_BYTES = 4  # logits are float32 whatever the model's dtype
REDUCES_A_LAYER = 2  # behind the attention's output and behind the MLP's


def ring_factor(ranks: int) -> float:
    """Bytes that each rank of a ring sends to all-reduce one byte: 2 (n - 1) / n (reduce-scatter, then all-gather)."""
    return 2 * (positive("ranks", ranks) - 1) / ranks


@dataclass(frozen=True)
class RankPart:
    """What one rank has of a model: its layers, heads, columns of the MLP and ids of the vocabulary."""

    stage: int
    tp_rank: int
    tp: int
    pp: int
    layers: range
    heads: HeadShare
    inner: range
    vocabulary: range

    @property
    def is_first(self) -> bool:
        """Whether it looks up tokens."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether it computes logits."""
        return self.stage == self.pp - 1

    def to_json(self) -> dict[str, Any]:
        """Counts for records and pages; ranges as [first, last + 1]."""
        return {
            "stage": self.stage,
            "tp_rank": self.tp_rank,
            "layers": [self.layers.start, self.layers.stop],
            "query_heads": len(self.heads.query),
            "kv_heads": len(self.heads.kv),
            "kv_head_range": [self.heads.kv.start, self.heads.kv.stop],
            "mlp_columns": len(self.inner),
            "vocabulary_ids": len(self.vocabulary) if self.is_first or self.is_last else 0,
        }


def rank_parts(spec: ModelSpec, tp: int, pp: int) -> tuple[RankPart, ...]:
    """The parts of all tp x pp ranks: those of the first stage first, its tensor-parallel ranks in order.

    InputError for more ranks than query heads, more stages than layers.
    """
    heads = head_shares(spec.num_heads, spec.num_kv_heads, tp)
    inner, vocabulary = even_parts(spec.intermediate_size, tp), even_parts(spec.vocab_size, tp)
    return tuple(
        RankPart(stage, rank, tp, pp, layers, heads[rank], inner[rank], vocabulary[rank])
        for stage, layers in enumerate(stages(spec.num_layers, pp))
        for rank in range(tp)
    )


def local_spec(spec: ModelSpec, part: RankPart) -> ModelSpec:
    """The shape of what a rank computes with: its layers, heads, MLP columns and vocabulary as if they were all."""
    layers = tuple(
        replace(layer, kv_heads=len(part.heads.kv)) for layer in spec.layers[part.layers.start : part.layers.stop]
    )
    return replace(
        spec,
        num_layers=len(layers),
        num_heads=len(part.heads.query),
        num_kv_heads=len(part.heads.kv),
        intermediate_size=len(part.inner),
        vocab_size=len(part.vocabulary),
        layers=layers,
    )


def part_weight_bytes(spec: ModelSpec, part: RankPart, element_bytes: int) -> int:
    """Bytes of the unquantized weights that a rank holds; a tied embedding once a rank."""
    return element_bytes * sum(_held(spec, part, name, shape) for name, shape in parameter_shapes(spec).items())


def _held(spec: ModelSpec, part: RankPart, name: str, shape: tuple[int, ...]) -> int:
    """Elements of one parameter in a rank. A bias behind a row split is held, and added, by the first rank alone."""
    layer = LAYER.search(name)
    if layer is None and part.stage not in outer_stages(name, part.pp, tied=spec.tie_embeddings):
        return 0
    if layer is not None and int(layer[1]) not in part.layers:
        return 0
    kind, elements = part_of(name), prod(shape)
    if kind == "norms":
        return elements
    if name.endswith(("o_proj.bias", "down_proj.bias")):
        return elements if part.tp_rank == 0 else 0
    mine, of = {
        "embedding": (len(part.vocabulary), spec.vocab_size),
        "head": (len(part.vocabulary), spec.vocab_size),
        "mlp": (len(part.inner), spec.intermediate_size),
    }.get(kind, (len(part.heads.query), spec.num_heads))
    if ".k_proj." in name or ".v_proj." in name:
        mine, of = len(part.heads.kv), spec.num_kv_heads
    return elements * mine // of


def part_block_bytes(spec: ModelSpec, part: RankPart, form: BlockFormat, block_size: int) -> int:
    """Bytes of one KV block in a rank."""
    return form.block_bytes(local_spec(spec, part), block_size)


def predict_ranks(
    spec: ModelSpec, parts: Iterable[RankPart], *, num_blocks: int, kv: BlockFormat, dtype_bytes: int, **sizes: Any
) -> tuple[MemoryLedger, ...]:
    """What each rank will hold; `sizes` are predict_ledger's. Activations are those of a step in one micro-batch."""
    found = []
    for part in parts:
        shape = local_spec(spec, part)
        if not part.is_last:
            shape = replace(shape, vocab_size=1)  # no logits
        pool = num_blocks * kv.block_bytes(shape, sizes["block_size"])
        whole = predict_ledger(shape, dtype_bytes=dtype_bytes, kv_pool_bytes=pool, kv=kv, **sizes)
        held = part_weight_bytes(spec, part, dtype_bytes)
        weights = Account("weights", held, f"the rank's part of every parameter x {dtype_bytes} B = {held:,} B")
        found.append(
            replace(whole, accounts=tuple(weights if line.name == "weights" else line for line in whole.accounts))
        )
    return tuple(found)


def together(ranks: Sequence[MemoryLedger], runtime_bytes: int | None) -> MemoryLedger:
    """The accounts of all ranks added up, and the runtime where it is given: a reading of all processes."""
    names = dict.fromkeys(account.name for rank in ranks for account in rank.accounts)
    accounts = []
    for name in names:
        sizes = [rank.account(name).bytes for rank in ranks]
        accounts.append(Account(name, sum(sizes), " + ".join(f"{size:,}" for size in sizes) + " B, rank by rank"))
    if runtime_bytes is not None:
        how = "readings: resident in each process before the weights are read"
        accounts.insert(0, Account("runtime", runtime_bytes, how, "measured"))
    return MemoryLedger(tuple(accounts))


@dataclass(frozen=True)
class Traffic:
    """What a rank hands over in a step: calls and payload bytes of all-reduces and of sends to the next stage, and the
    bytes of its logits on their way to who samples."""

    all_reduces: int = 0
    all_reduce_bytes: int = 0
    sends: int = 0
    send_bytes: int = 0
    logits_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All payload."""
        return self.all_reduce_bytes + self.send_bytes + self.logits_bytes

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, name) + getattr(other, name) for name in asdict(self)))

    def to_json(self) -> dict[str, int]:
        """The fields and their sum."""
        return {**asdict(self), "total_bytes": self.total_bytes}


def part_traffic(
    spec: ModelSpec, part: RankPart, tokens: int, logit_rows: int, element_bytes: int, micro_batches: int = 1
) -> Traffic:
    """What a rank hands over in a step of `tokens` tokens whose logits are wanted at `logit_rows` places.

    Two all-reduces a layer of tokens x hidden elements, and one behind the look-up of a split embedding; every rank of
    a stage sends its tokens x hidden elements to its peer in the next one; every rank of the last one gives its
    columns of the logits, float32. micro_batches are the parts that the tokens came in: they change calls, not bytes.
    """
    hidden_bytes = tokens * spec.hidden_size * element_bytes
    reduces = REDUCES_A_LAYER * len(part.layers) + part.is_first if part.tp > 1 else 0
    sends = 0 if part.is_last else 1
    return Traffic(
        all_reduces=reduces * micro_batches,
        all_reduce_bytes=reduces * hidden_bytes,
        sends=sends * micro_batches,
        send_bytes=sends * hidden_bytes,
        logits_bytes=logit_rows * len(part.vocabulary) * LOGIT_BYTES if part.is_last else 0,
    )


def traffic_how(spec: ModelSpec, tp: int, pp: int, element_bytes: int) -> str:
    """The formula of a step's payload, with the model's numbers put in."""
    size = f"{spec.hidden_size} x {element_bytes} B"
    terms = []
    if tp > 1:
        reduces = REDUCES_A_LAYER * spec.num_layers + 1
        terms.append(f"{tp} ranks x {reduces} all-reduces (2 a layer, 1 behind the embedding) x tokens x {size}")
    if pp > 1:
        terms.append(f"{tp} x {pp - 1} sends to the next stage x tokens x {size}")
    return " + ".join([*terms, f"logit rows x {spec.vocab_size:,} x {LOGIT_BYTES} B"])


def bubble_share(pp: int, micro_batches: int) -> float:
    """Share of a step in which a stage waits, were all micro-batches alike: (p - 1) / (m + p - 1)."""
    return (positive("pp", pp) - 1) / (positive("micro_batches", micro_batches) + pp - 1)


def imbalance(counts: Iterable[int]) -> float:
    """The largest over the mean: how much longer the largest rank works than it would if all were alike."""
    found = list(counts)
    return max(found) * len(found) / sum(found)
