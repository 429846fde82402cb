"""Whether a deployment fits, how many sequences it holds and how long they may be. Formulas only, nothing is measured.

A deployment is one model on tp x pp equal cards under one engine. Its figures are those of the rank that is fullest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ledger.buffers import Buffer
from ledger.deployment import Deployment, Stage
from ledger.engines import ENGINES
from ledger.formats import element_format, positive
from ledger.kv_blocks import KEY_AXES, PROTECTIONS, BlockFormat, blocks_of_sequence, one_shape
from ledger.kv_cache import formula, length_warnings
from ledger.memory import Account, MemoryLedger
from ledger.partition import stages
from ledger.vision import vision_label, vision_parameter_count
from ledger.weight_formats import weights_report, weights_text

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
SURFACE_KV_DTYPES = ("bf16", "int8", "int4")


@dataclass(frozen=True)
class SurfacePoint:
    """One cell of context x concurrency: the KV bytes (and state) of the fullest rank, and whether they fit."""

    seq_len: int
    concurrency: int
    kv_dtype: str
    kv_bytes: int
    fits: bool | None


def deployment_ledger(d: Deployment) -> MemoryLedger:
    """The accounts of the rank that is fullest: weights, vision_weights and state where there are any, kv_cache,
    activations, device_context, workspace, graph_pool, and communicator with several ranks.

    InputError for a family without a table of parameters.
    """
    stage = _fullest(d)
    peak = d.steady_activations or d.activations(d.seq_len, d.concurrency)
    kv = d.kv_sequence_bytes(stage, d.seq_len) * d.concurrency
    accounts = [
        Account("weights", stage.weight_bytes, _weights_how(d, stage)),
        Account("kv_cache", kv, _kv_how(d, stage)),
    ]
    if stage.vision_bytes:
        how = f"vision (and audio) part, 16 bit, whole on every rank of the first stage: {stage.vision_bytes:,} B"
        accounts.insert(1, Account("vision_weights", stage.vision_bytes, how))
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
    vision = vision_parameter_count(d.spec)
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
        "params_total": None if vision is None else weights["params_text"] + vision,
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
        "kv_key_axis": d.kv_key_axis,
        "kv_protect": d.kv_protect,
        "tp": d.tp,
        "pp": d.pp,
        "block_size": d.block_size,
        "warnings": _warnings(d),
        "provenance": "estimated",
    }


def _warnings(d: Deployment) -> list[str]:
    found = [*length_warnings(d.spec, d.seq_len), *filter(None, [vision_label(d.spec)])]
    if d.spec.assumed:
        found.append("weights are counted as those of a Llama-like decoder")
    if d.spec.num_heads % d.tp:
        found.append(f"{d.tp} ranks do not divide {d.spec.num_heads} query heads: engines refuse this split")
    if d.rule.name != "llama.cpp" and d.concurrency > d.logit_rows:
        found.append(f"{d.rule.label} runs {d.logit_rows:,} sequences at once at most, as set here (max_num_seqs)")
    return found


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
    changes: dict[str, Any] = {"kv_dtype": kv_dtype, "kv_group_size": group_size}
    if not BlockFormat(kv_dtype).has_zero:
        changes |= {"kv_key_axis": KEY_AXES[0], "kv_protect": PROTECTIONS[0]}
    other = replace(d, **changes)
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
    return max(d.stages, key=lambda stage: _held(d, stage))


def _held(d: Deployment, stage: Stage) -> int:
    return stage.weight_bytes + stage.vision_bytes + _sequence(d, stage, d.seq_len) * d.concurrency


def _sequence(d: Deployment, stage: Stage, seq_len: int) -> int:
    """Bytes one sequence adds on a stage: KV and state."""
    return d.kv_sequence_bytes(stage, seq_len) + stage.state_bytes


def _fixed(d: Deployment, stage: Stage, peak: Buffer) -> dict[str, int]:
    """Bytes of the accounts that do not grow with the sequences."""
    fixed = {"weights": stage.weight_bytes, "vision_weights": stage.vision_bytes, peak.name: peak.bytes}
    return fixed | {item.name: item.bytes for item in d.others}


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
    form, size = d.own_blocks, d.block_size
    layer = one_shape(d.spec.layers)
    if form is not None and layer is not None and size is not None:
        layers = sum(count for _, count in stage.groups)
        pool, beside = blocks_of_sequence(form, layer, layers, d.seq_len, size, d.tp)
        kept = "its open block and its sinks" if form.sink_blocks else "its open block"
        return (
            f"{d.concurrency:,} sequences x ({-(-d.seq_len // size):,} blocks of {size} tokens in {form.name} with "
            f"scales = {pool:,} B, and {kept} in float32 = {beside:,} B)"
        )
    settings = (d.kv_dtype, d.block_size, d.tp, d.kv_group_size, d.pp)
    return formula(d.spec, d.seq_len, d.concurrency, *settings, stage=stage.index)
