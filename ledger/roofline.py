"""The roofline: what bounds each operator of a step (compute, memory or the link), and how long it takes at least.

time = max(operations / rate, bytes / bandwidth), operator by operator, one after another, nothing overlapped and no
launch cost: a bound that no engine beats and that good ones approach. (Williams, Waterman, Patterson: Roofline, 2009.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ledger.attention_ops import Step, attention, sources
from ledger.errors import InputError
from ledger.formats import element_format, positive
from ledger.hardware import DTYPES, Accelerator
from ledger.model_spec import ModelSpec
from ledger.operators import Operator, StepCosts

Bound = Literal["compute", "memory", "link"]
MAX_BATCH = 2**20  # a crossover beyond this many sequences is reported as none


@dataclass(frozen=True)
class Timed:
    """An operator on an accelerator: its bound, its time at the roof, and which dtype it runs in there."""

    operator: Operator
    bound: Bound
    time_s: float
    runs_in: str
    compute_s: float
    memory_s: float
    how: str


def timed(operator: Operator, device: Accelerator) -> Timed:
    """The operator at the device's roof. InputError when it needs a rate or a link that the device does not state."""
    runs_in, rate = device.rate(operator.compute_dtype)
    if operator.link_bytes:
        if device.link_bytes_per_s is None:
            raise InputError("tp", "above 1", f"1, since no link bandwidth is known for {device.label}")
        time_s = operator.link_bytes / device.link_bytes_per_s
        how = f"{operator.link_bytes:,.0f} B / {device.link_bytes_per_s / 1e9:,.4g} GB/s ({device.link_name or 'link'})"
        return Timed(operator, "link", time_s, runs_in, 0.0, 0.0, f"{how} = {_time(time_s)}")
    compute_s, memory_s = operator.flops / rate, operator.bytes / device.bandwidth_bytes_per_s
    how = (
        f"max({operator.flops:,.0f} FLOP / {rate / 1e12:,.4g} TFLOP/s ({runs_in}) = {_time(compute_s)},"
        f" {operator.bytes:,.0f} B / {device.bandwidth_bytes_per_s / 1e9:,.4g} GB/s = {_time(memory_s)})"
    )
    bound: Bound = "compute" if compute_s > memory_s else "memory"
    return Timed(operator, bound, max(compute_s, memory_s), runs_in, compute_s, memory_s, how)


def step_time_s(found: Iterable[Operator], device: Accelerator) -> float:
    """Seconds of a step at the roof: the sum over its operators."""
    return sum(timed(operator, device).time_s for operator in found)


def crossover_batch(costs: StepCosts, device: Accelerator) -> int | None:
    """The smallest batch at which decode's linear layers take as long to compute as to read.

    Searched over the operators' own formula (weights, experts touched, activations in and out); None when no batch up
    to MAX_BATCH gets there. The ratio of compute time to memory time never falls as the batch grows, since weight bytes
    a token only fall, so a binary search finds the first.
    """

    def computes(batch: int) -> bool:
        compute_s, memory_s = _linear_times(costs, device, batch)
        return compute_s >= memory_s

    return _first(computes, MAX_BATCH) if computes(MAX_BATCH) else None


def attention_intensity(
    spec: ModelSpec, seq_len: int, *, kv_dtype: str | None = "bf16", kv_group_size: int | None = None
) -> float | None:
    """Operations a byte of KV cache read that decode's attention does, whatever the batch; None without attention.

    For grouped-query attention at 2 bytes an element it is the query heads a KV head serves; for an absorbed latent
    2 x heads x (latent + rank) / (2 x latent).
    """
    step = Step(True, 1, positive("seq_len", seq_len), 1, element_format(kv_dtype, kv_group_size), 2)
    kinds = Counter(layer for layer in sources(spec.layers) if layer is not None)
    found = [(attention(spec, layer, step, writes=False), count) for layer, count in kinds.items()]
    moved = sum(mixing.kv_bytes * count for mixing, count in found)
    return sum(mixing.flops * count for mixing, count in found) / moved if moved else None


def roofline_report(
    spec: ModelSpec,
    accelerator: Accelerator,
    phase: str,
    batch: int,
    seq_len: int,
    *,
    weights: str = "bf16",
    kv_dtype: str | None = "bf16",
    kv_group_size: int | None = None,
    tp: int = 1,
) -> dict[str, Any]:
    """Every operator of a step with its bound and time on one of `tp` accelerators, the totals, ridges and crossover.

    `totals.tokens_per_s` is that of all ranks together; bytes and operations are one rank's. Everything is computed.
    """
    costs = StepCosts(spec, weights, tp)
    found = costs.operators(phase, batch, seq_len, kv_dtype=kv_dtype, kv_group_size=kv_group_size)
    rows = [timed(operator, accelerator) for operator in found]
    total_s = sum(row.time_s for row in rows)
    tokens = batch * (seq_len if phase == "prefill" else 1)
    crossover = crossover_batch(costs, accelerator)
    return {
        "model": spec.name,
        "accelerator": accelerator.to_json(),
        "phase": phase,
        "batch": batch,
        "seq_len": seq_len,
        "weights": weights,
        "kv_dtype": kv_dtype,
        "tp": tp,
        "operators": [_row(row, accelerator, total_s) for row in rows],
        "totals": _totals(rows, total_s, tokens),
        "ridge": {dtype: accelerator.ridge(dtype) for dtype in DTYPES if dtype in accelerator.flops_per_s},
        "crossover_batch": crossover,
        "crossover_how": _crossover_how(costs, accelerator, crossover),
        "attention_intensity": attention_intensity(spec, seq_len, kv_dtype=kv_dtype, kv_group_size=kv_group_size),
        "warnings": _warnings(spec, rows, seq_len),
        "provenance": "computed",
    }


def achieved(flops: float, moved_bytes: float, seconds: float, device: Accelerator, dtype: str) -> dict[str, Any]:
    """A measured step against the roof: rates, their shares of the ceilings, and the roof's time over the measured one.

    `flops` and `moved_bytes` are computed, `seconds` measured. InputError for a time of 0 or less.
    """
    if not seconds > 0:
        raise InputError("seconds", seconds, "a measured time above 0")
    runs_in, rate = device.rate(dtype)
    roof_s = max(flops / rate, moved_bytes / device.bandwidth_bytes_per_s)
    return {
        "seconds": seconds,
        "flops_per_s": flops / seconds,
        "bytes_per_s": moved_bytes / seconds,
        "compute_share": flops / seconds / rate,
        "bandwidth_share": moved_bytes / seconds / device.bandwidth_bytes_per_s,
        "intensity": flops / moved_bytes if moved_bytes else None,
        "ridge": rate / device.bandwidth_bytes_per_s,
        "bound": "compute" if flops / rate > moved_bytes / device.bandwidth_bytes_per_s else "memory",
        "runs_in": runs_in,
        "roof_s": roof_s,
        "roof_share": roof_s / seconds,
        "provenance": "measured",
    }


def _row(row: Timed, device: Accelerator, total_s: float) -> dict[str, Any]:
    operator = row.operator
    return {
        **{key: value for key, value in asdict(operator).items() if key != "how"},
        "bytes": operator.bytes,
        "intensity": operator.intensity,
        "runs_in": row.runs_in,
        "ridge": device.ridge(operator.compute_dtype),
        "bound": row.bound,
        "time_s": row.time_s,
        "share": row.time_s / total_s if total_s else None,
        "how": f"{operator.how}; {row.how}",
        "provenance": "computed",
    }


def _totals(rows: list[Timed], total_s: float, tokens: int) -> dict[str, Any]:
    flops, moved = sum(row.operator.flops for row in rows), sum(row.operator.bytes for row in rows)
    by_bound = {bound: sum(row.time_s for row in rows if row.bound == bound) for bound in ("compute", "memory", "link")}
    return {
        "flops": flops,
        "bytes": moved,
        "weight_bytes": sum(row.operator.weight_bytes for row in rows),
        "kv_bytes": sum(row.operator.kv_bytes for row in rows),
        "activation_bytes": sum(row.operator.activation_bytes for row in rows),
        "link_bytes": sum(row.operator.link_bytes for row in rows),
        "intensity": flops / moved if moved else None,
        "time_s": total_s,
        "tokens": tokens,
        "tokens_per_s": tokens / total_s if total_s else None,
        "time_by_bound_s": by_bound,
        "bound": max(by_bound, key=lambda bound: by_bound[bound]),
    }


def _linear_times(costs: StepCosts, device: Accelerator, batch: int) -> tuple[float, float]:
    """Seconds that decode's linear layers take to compute and to read, each in all."""
    found = [timed(operator, device) for operator in costs.decode_linear(batch)]
    return sum(item.compute_s for item in found), sum(item.memory_s for item in found)


def _crossover_how(costs: StepCosts, device: Accelerator, batch: int | None) -> str:
    """Both times at the crossover, with the numbers put in."""
    at = batch or MAX_BATCH
    compute_s, memory_s = _linear_times(costs, device, at)
    times = f"linear layers at batch {at:,}: compute {_time(compute_s)}, memory {_time(memory_s)}"
    if batch is None:
        return f"{times}; no batch up to {MAX_BATCH:,} is bound by compute"
    return f"{times}; the smallest batch at which compute is no shorter"


def _warnings(spec: ModelSpec, rows: list[Timed], seq_len: int) -> list[str]:
    found = []
    wider = sorted(
        {(row.operator.compute_dtype, row.runs_in) for row in rows if row.operator.compute_dtype != row.runs_in}
    )
    for dtype, runs_in in wider:
        found.append(f"{dtype} has no faster path on this accelerator: counted at its {runs_in} rate")
    if spec.max_position and seq_len > spec.max_position:
        found.append(
            f"{seq_len:,} tokens are more than the model's maximum of {spec.max_position:,}; computed all the same"
        )
    if spec.assumed:
        found.append(spec.assumed)
    return found


def _first(holds: Callable[[int], bool], last: int) -> int:
    """The smallest number of 1..last that `holds`, given that every one after it does too and `last` does."""
    low, high = 1, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:,.4g} {unit}"
    return f"{seconds * 1e9:,.4g} ns"
