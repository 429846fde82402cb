"""What could be built: every combination of card, split, formats and batching limits that a plan may try."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from experiments.planner.spec import CARDS_IN_A_NODE, PlanSpec
from ledger.hardware import accelerator
from ledger.model_spec import ModelSpec
from ledger.weight_formats import AS_STORED, stored_weights, weight_format

WEIGHTS = ("bf16", "fp8", "w4a16")
KV_DTYPES = ("bf16", "fp8")
NATIVE = ("fp8", "fp4", "int8", "int4")  # formats that are tried by themselves only where the card multiplies in them


@dataclass(frozen=True)
class Candidate:
    """One replica, or with prefill_replicas above 0 a group of prefill and decode replicas that are scaled together."""

    gpu: str
    tp: int
    pp: int
    weights: str
    kv_dtype: str
    max_num_seqs: int
    max_num_batched_tokens: int
    prefill_replicas: int = 0
    decode_replicas: int = 1

    @property
    def devices(self) -> int:
        """Cards of the replica or the group."""
        return self.tp * self.pp * (self.prefill_replicas + self.decode_replicas)

    @property
    def is_apart(self) -> bool:
        """Whether prompts and answers are computed by different replicas."""
        return self.prefill_replicas > 0

    @property
    def shape(self) -> Candidate:
        """The same without its batching limits: what weights and step times depend on."""
        return replace(self, max_num_seqs=1, max_num_batched_tokens=1, prefill_replicas=0, decode_replicas=1)

    def to_json(self) -> dict[str, Any]:
        """The fields."""
        return asdict(self)


def candidates(spec: PlanSpec, model: ModelSpec) -> Iterator[Candidate]:
    """All of them, whether they can be or not."""
    for gpu in spec.gpus:
        for weights in spec.weights or _weights(model, gpu):
            for kv_dtype in spec.kv_dtypes or _kv_dtypes(gpu):
                for tp in spec.tps:
                    for pp in spec.pps:
                        for seqs in spec.seqs:
                            for batched in spec.batched:
                                yield Candidate(gpu, tp, pp, weights, kv_dtype, seqs, batched)


def cannot_be_split(candidate: Candidate, model: ModelSpec) -> str | None:
    """Why engines refuse the split; None where they don't."""
    if candidate.tp * candidate.pp > CARDS_IN_A_NODE:
        return f"{candidate.tp} x {candidate.pp} cards are more than the {CARDS_IN_A_NODE} of a node"
    if model.num_heads % candidate.tp:
        return f"{candidate.tp} ranks do not divide {model.num_heads} query heads"
    if candidate.pp > model.num_layers:
        return f"{candidate.pp} stages are more than {model.num_layers} layers"
    if candidate.tp * candidate.pp > 1 and accelerator(candidate.gpu).link_bytes_per_s is None:
        return f"no link is known between two {accelerator(candidate.gpu).label}"
    return None


def _weights(model: ModelSpec, gpu: str) -> tuple[str, ...]:
    if stored_weights(model) is not None:
        return (AS_STORED,)
    return tuple(name for name in WEIGHTS if _is_native(weight_format(name).compute_dtype, gpu))


def _kv_dtypes(gpu: str) -> tuple[str, ...]:
    return tuple(name for name in KV_DTYPES if _is_native(name, gpu))


def _is_native(dtype: str, gpu: str) -> bool:
    return dtype not in NATIVE or dtype in accelerator(gpu).flops_per_s
