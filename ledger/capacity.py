"""Whether a deployment fits, how many sequences it holds and how long they may be. Formulas only, nothing is measured.

A deployment is one model on tp x pp equal cards under one engine. Its figures are those of the rank that is fullest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ledger.buffers import (
    Buffer,
    LayerWidth,
    Step,
    activations,
    default_logit_rows,
    layer_width,
    other_buffers,
)
from ledger.engines import ENGINES, EngineRule, engine_rule
from ledger.errors import InputError
from ledger.formats import ElementFormat, element_format, positive
from ledger.kv_cache import LayerGroups, formula, layer_groups, layer_state_bytes, length_warnings, sequence_bytes
from ledger.memory import Account, MemoryLedger
from ledger.model_spec import ModelSpec
from ledger.partition import MAX_RANKS, stages
from ledger.weight_formats import (
    AS_STORED,
    FormattedGroups,
    formatted_groups,
    rank_weights,
    weight_format,
    weights_report,
    weights_text,
)

__all__ = [
    "ENGINES",
    "Deployment",
    "SurfacePoint",
    "deployment_ledger",
    "fits",
    "in_kv_format",
    "kv_room_bytes",
    "ledger_report",
    "max_concurrency",
    "max_seq_len",
    "max_seq_len_by_memory",
    "surface",
    "usable_bytes",
]

MAX_SEQUENCES = 10**9
MAX_TOKENS = 10**9
DEVICES = ("cuda", "cpu")
SURFACE_KV_DTYPES = ("bf16", "int8", "int4")


@dataclass(frozen=True)
class Stage:
    """What the fullest rank of one pipeline stage holds whatever runs on it, and what a sequence adds."""

    index: int
    weight_bytes: int
    groups: LayerGroups
    state_bytes: int


@dataclass(frozen=True)
class Deployment:
    """One model on `tp` x `pp` cards of `capacity_bytes` each, under an engine, with `concurrency` sequences at once.

    weights         a format of ledger.weight_formats, or "as-stored"
    kv_group_size   elements that share a scale in integer KV formats; None: 64; 0: payload only
    block_size      tokens of a KV page; None: no rounding
    memory_fraction None: the engine's default
    max_num_seqs    rows of logits the engine prepares for; None: the engine's default
    device          "cuda" or "cpu" (no context, graphs or communicator)

    InputError for a value that cannot be.
    """

    spec: ModelSpec
    weights: str = "bf16"
    kv_dtype: str = "bf16"
    kv_group_size: int | None = None
    seq_len: int = 4096
    concurrency: int = 1
    tp: int = 1
    pp: int = 1
    block_size: int | None = 16
    max_num_batched_tokens: int = 8192
    engine: str = "vllm"
    memory_fraction: float | None = None
    capacity_bytes: int | None = None
    max_num_seqs: int | None = None
    device: str = "cuda"

    def __post_init__(self) -> None:
        if self.weights != AS_STORED:
            weight_format(self.weights)
        element_format(self.kv_dtype, self.kv_group_size)
        positive("seq_len", self.seq_len)
        positive("concurrency", self.concurrency)
        positive("tp", self.tp, MAX_RANKS)
        stages(self.spec.num_layers, self.pp)
        positive("max_num_batched_tokens", self.max_num_batched_tokens)
        for name, limit in (("block_size", 10**9), ("max_num_seqs", 10**6), ("capacity_bytes", 10**18)):
            value = getattr(self, name)
            if value is not None:
                positive(name, value, limit)
        engine_rule(self.engine)
        fraction = self.memory_fraction
        if fraction is not None and (isinstance(fraction, bool) or not 0 < fraction <= 1):
            raise InputError("memory_fraction", fraction, "a number above 0, at most 1")
        if self.device not in DEVICES:
            raise InputError("device", self.device, " or ".join(DEVICES))

    @property
    def rule(self) -> EngineRule:
        """How the engine divides the memory."""
        return engine_rule(self.engine)

    @property
    def fraction(self) -> float:
        """The memory fraction in force."""
        return self.rule.memory_fraction if self.memory_fraction is None else self.memory_fraction

    @cached_property
    def stored(self) -> ElementFormat:
        """The format of KV elements."""
        return element_format(self.kv_dtype, self.kv_group_size)

    @cached_property
    def groups(self) -> FormattedGroups:
        """The parameters, those of like layers together, each group with its format."""
        return formatted_groups(self.spec, self.weights)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Every pipeline stage as its fullest rank holds it."""
        held = rank_weights(self.spec, self.weights, self.tp, self.pp, groups=self.groups)
        found = []
        for index, place in enumerate(stages(self.spec.num_layers, self.pp)):
            layers = self.spec.layers[place.start : place.stop]
            state = sum(layer_state_bytes(layer, self.tp) for layer in layers)
            found.append(Stage(index, held[index].total_bytes, layer_groups(layers), state))
        return tuple(found)

    @cached_property
    def width(self) -> LayerWidth:
        """The widest moment of the model's layers on one rank."""
        return layer_width(self.spec, self.tp, [group for group, _ in self.groups])

    @cached_property
    def others(self) -> tuple[Buffer, ...]:
        """Context, workspace, graphs, communicator."""
        return other_buffers(self.rule.name, self.tp * self.pp, self.device)

    @cached_property
    def steady_activations(self) -> Buffer | None:
        """The activation peak when it does not depend on what runs; None for our own engine, where it does."""
        return None if self.rule.name == "trilemma" else self.activations(1, 1)

    def activations(self, seq_len: int, concurrency: int) -> Buffer:
        """The activation peak of the largest step with so many sequences of that length."""
        rows = self.max_num_seqs or default_logit_rows(self.rule.name, self.capacity_bytes)
        tokens = self.max_num_batched_tokens
        if self.rule.name == "trilemma":
            tokens, rows = min(tokens, max(1, seq_len * concurrency)), max(1, min(rows, concurrency))
        return activations(self.spec, self.rule.name, Step(tokens, rows, seq_len * concurrency), self.width)


@dataclass(frozen=True)
class SurfacePoint:
    """One cell of context x concurrency: the KV bytes (and state) of the fullest rank, and whether they fit."""

    seq_len: int
    concurrency: int
    kv_dtype: str
    kv_bytes: int
    fits: bool | None


def deployment_ledger(d: Deployment) -> MemoryLedger:
    """The accounts of the rank that is fullest: weights, kv_cache, state (where there is any), activations,
    device_context, workspace, graph_pool, and communicator with several ranks.

    InputError for a family without a table of parameters.
    """
    stage = _fullest(d)
    peak = d.steady_activations or d.activations(d.seq_len, d.concurrency)
    kv = sequence_bytes(stage.groups, d.seq_len, d.stored, d.block_size, d.tp) * d.concurrency
    accounts = [
        Account("weights", stage.weight_bytes, _weights_how(d, stage)),
        Account("kv_cache", kv, _kv_how(d, stage)),
    ]
    if stage.state_bytes:
        size = stage.state_bytes * d.concurrency
        how = f"{stage.state_bytes:,} B of recurrent state x {d.concurrency:,} sequences = {size:,} B"
        accounts.append(Account("state", size, how))
    accounts += [Account(item.name, item.bytes, item.how, "estimated") for item in (peak, *d.others)]
    return MemoryLedger(tuple(accounts), d.capacity_bytes, usable_bytes(d))


def usable_bytes(d: Deployment) -> int | None:
    """The most that all accounts of the fullest rank may take together: the engine's share of the memory, and beside it
    the accounts that the share does not cover. None without a capacity.
    """
    if d.capacity_bytes is None:
        return None
    peak = d.steady_activations or d.activations(d.seq_len, d.concurrency)
    return _usable(d, d.capacity_bytes, _fixed(d, _fullest(d), peak))


def kv_room_bytes(d: Deployment) -> int | None:
    """What the engine would give to KV cache and state on the rank with least room; 0 when the rest does not fit."""
    if d.capacity_bytes is None:
        return None
    peak = d.steady_activations or d.activations(d.seq_len, d.concurrency)
    return min(_room(d, d.capacity_bytes, stage, peak) for stage in d.stages)


def fits(d: Deployment) -> bool | None:
    """True when every rank holds its share under the engine's rule; None without a capacity."""
    return _fits(d, d.seq_len, d.concurrency)


def max_concurrency(d: Deployment) -> int | None:
    """The most sequences of `seq_len` that fit at once; 0 when not even one does; None without a capacity."""
    if d.capacity_bytes is None:
        return None
    return _largest(lambda count: bool(_fits(d, d.seq_len, count)), MAX_SEQUENCES)


def max_seq_len_by_memory(d: Deployment) -> int | None:
    """The longest sequences of which `concurrency` fit, whatever the model's maximum; 0 when not even one token does.

    None without a capacity, or when memory sets no limit (every layer has a window, or none keeps KV).
    """
    if d.capacity_bytes is None or _fits(d, MAX_TOKENS, d.concurrency):
        return None
    return _largest(lambda length: bool(_fits(d, length, d.concurrency)), MAX_TOKENS)


def max_seq_len(d: Deployment) -> int | None:
    """The longest sequences of which `concurrency` fit, at most the model's maximum; None when nothing limits it."""
    found = max_seq_len_by_memory(d)
    longest = d.spec.max_position or None
    if d.capacity_bytes is None:
        return None
    if found is None:
        return longest
    return found if longest is None else min(found, longest)


def surface(
    d: Deployment,
    lengths: Sequence[int],
    concurrencies: Sequence[int],
    kv_dtypes: Sequence[str] = SURFACE_KV_DTYPES,
) -> list[SurfacePoint]:
    """One point for every length, concurrency and KV format, in that order of nesting: format, length, concurrency.

    The deployment's group size goes with the integer formats. InputError for a length or concurrency below 1.
    """
    for length in lengths:
        positive("seq_len", length)
    for count in concurrencies:
        positive("concurrency", count)
    points = []
    for name in kv_dtypes:
        grouped = element_format(name).group_size is not None
        other = in_kv_format(d, name, d.kv_group_size if grouped else None)
        for length in lengths:
            a_sequence = max(_sequence(other, stage, length) for stage in other.stages)
            points += [
                SurfacePoint(length, count, name, a_sequence * count, _fits(other, length, count))
                for count in concurrencies
            ]
    return points


def ledger_report(d: Deployment, measured_bytes: int | None = None) -> dict[str, Any]:
    """The `ledger` figures: accounts, total, capacity, what fits, parameters, weights by part, the engine's rule.

    With `measured_bytes` (what the device or process really held) `unexplained_bytes` is that minus the total.
    `precisions` has the most sequences for each KV format, and without the scales and zero points of its groups.
    """
    if measured_bytes is not None:
        positive("measured_bytes", measured_bytes, 10**18)
    ledger, weights = deployment_ledger(d), weights_report(d.spec, d.weights, d.tp, d.pp, groups=d.groups)
    return {
        "model": d.spec.name,
        **ledger.to_json(),
        "usable_bytes": ledger.usable_bytes,
        "kv_room_bytes": kv_room_bytes(d),
        "fits": fits(d),
        "max_concurrency": max_concurrency(d),
        "max_seq_len": max_seq_len(d),
        "max_seq_len_by_memory": max_seq_len_by_memory(d),
        "measured_bytes": measured_bytes,
        "unexplained_bytes": None if measured_bytes is None else ledger.unexplained_bytes(measured_bytes),
        "params_total": weights["params_text"],
        "params_text": weights["params_text"],
        "params_active": weights["params_active"],
        "weights": weights,
        "precisions": [_precision(d, name) for name in dict.fromkeys((d.kv_dtype, *SURFACE_KV_DTYPES))],
        "engine": {
            "name": d.rule.name,
            "memory_fraction": d.fraction,
            "flag": d.rule.flag,
            "rule": d.rule.rule,
            "how": d.rule.how,
            "source": d.rule.source,
        },
        "seq_len": d.seq_len,
        "concurrency": d.concurrency,
        "kv_dtype": d.kv_dtype,
        "kv_group_size": d.stored.group_size,
        "tp": d.tp,
        "pp": d.pp,
        "block_size": d.block_size,
        "warnings": length_warnings(d.spec, d.seq_len),
        "provenance": "estimated",
    }


def _precision(d: Deployment, kv_dtype: str) -> dict[str, Any]:
    """How many sequences fit with the cache in this format, and how many would if its groups stored nothing extra."""
    grouped = element_format(kv_dtype).group_size is not None
    other = in_kv_format(d, kv_dtype, d.kv_group_size if grouped else None)
    held = max_concurrency(other)
    a_sequence = max(_sequence(other, stage, d.seq_len) for stage in d.stages)
    bare = max_concurrency(in_kv_format(d, kv_dtype, 0)) if grouped else held
    return {
        "kv_dtype": kv_dtype,
        "bytes_per_sequence": a_sequence,
        "max_concurrency": held,
        "max_concurrency_payload_only": bare,
    }


def in_kv_format(d: Deployment, kv_dtype: str, group_size: int | None) -> Deployment:
    """The deployment with its cache in another format; what is costly to derive does not depend on it."""
    other = replace(d, kv_dtype=kv_dtype, kv_group_size=group_size)
    for key in ("groups", "stages", "width", "others"):
        other.__dict__[key] = getattr(d, key)
    return other


def _fits(d: Deployment, seq_len: int, concurrency: int) -> bool | None:
    if d.capacity_bytes is None:
        return None
    peak = d.steady_activations or d.activations(seq_len, concurrency)
    return all(
        _sequence(d, stage, seq_len) * concurrency <= _room(d, d.capacity_bytes, stage, peak)
        and _fixed_fits(d, d.capacity_bytes, stage, peak)
        for stage in d.stages
    )


def _fullest(d: Deployment) -> Stage:
    return max(d.stages, key=lambda stage: stage.weight_bytes + _sequence(d, stage, d.seq_len) * d.concurrency)


def _sequence(d: Deployment, stage: Stage, seq_len: int) -> int:
    """Bytes one sequence adds on a stage: KV and state."""
    return sequence_bytes(stage.groups, seq_len, d.stored, d.block_size, d.tp) + stage.state_bytes


def _fixed(d: Deployment, stage: Stage, peak: Buffer) -> dict[str, int]:
    """Bytes of the accounts that do not grow with the sequences."""
    return {"weights": stage.weight_bytes, peak.name: peak.bytes} | {item.name: item.bytes for item in d.others}


def _usable(d: Deployment, capacity: int, fixed: dict[str, int]) -> int:
    """The most that the accounts may take together under the engine's rule."""
    rule, total = d.rule, sum(fixed.values())
    outside = sum(size for name, size in fixed.items() if name not in rule.covers)
    if rule.rule == "of total":
        return min(capacity, int(capacity * d.fraction) + outside)
    if rule.rule == "of free at start":
        start = max(0, capacity - fixed.get("device_context", 0))
        return min(capacity, int(start * d.fraction) + outside)
    if rule.rule == "of free after loading":
        return min(capacity, total + int(max(0, capacity - total) * d.fraction))
    return int(capacity * d.fraction)


def _room(d: Deployment, capacity: int, stage: Stage, peak: Buffer) -> int:
    fixed = _fixed(d, stage, peak)
    return max(0, _usable(d, capacity, fixed) - sum(fixed.values()))


def _fixed_fits(d: Deployment, capacity: int, stage: Stage, peak: Buffer) -> bool:
    fixed = _fixed(d, stage, peak)
    return sum(fixed.values()) <= _usable(d, capacity, fixed)


def _largest(holds: Callable[[int], bool], limit: int) -> int:
    """The largest n from 0 to `limit` for which `holds`, which is true up to some n and false beyond."""
    low, high = 0, 1
    while high < limit and holds(high):
        low, high = high, min(limit, 2 * high)
    if high == limit and holds(limit):
        return limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _weights_how(d: Deployment, stage: Stage) -> str:
    text = weights_text(d.spec, d.weights, groups=d.groups)
    if d.tp * d.pp == 1:
        return text
    where = f"the largest of {d.tp * d.pp} ranks"
    if d.pp > 1:
        where += f" (stage {stage.index + 1} of {d.pp}: {len(stages(d.spec.num_layers, d.pp)[stage.index])} layers)"
    return f"{text}; {where} holds {stage.weight_bytes:,} B"


def _kv_how(d: Deployment, stage: Stage) -> str:
    settings = (d.kv_dtype, d.block_size, d.tp, d.kv_group_size, d.pp)
    return formula(d.spec, d.seq_len, d.concurrency, *settings, stage=stage.index)
