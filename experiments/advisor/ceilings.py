"""How near to the device's ceilings the steps of a run came: bytes and operations by the ledger, times as recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from experiments.metrics.events import NS_PER_S, Record
from ledger.errors import InputError
from ledger.hardware import Accelerator
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.operators import StepCosts
from ledger.roofline import timed

FEWEST_STEPS = 3  # of a kind, before anything is said of it


@dataclass(frozen=True)
class Ceilings:
    """What steps are held against: a device, and the model in the formats that it is computed in."""

    card: Accelerator
    model: ModelSpec
    weights: str
    kv_dtype: str


def ceilings_here(record: Record) -> Ceilings | None:
    """Those of this machine, when the run was made on it and `trilemma calibrate` has measured it; else None.

    None as well for weights in few bits: what their kernels reach is measured by trilemma profile, not by a formula.
    """
    from experiments.calibrate import stored, this_machine

    config, around = record["config"], record["environment"]
    found = stored()
    if found is None or found["cpu"] != around.get("cpu") or config.get("weights") != "none":
        return None
    card = this_machine("cpu" if around.get("device") == "cpu" else "cuda")
    dtype = around.get("dtype")
    if card is None or not isinstance(dtype, str):
        return None
    kv = str(config.get("kv_dtype", "auto"))
    try:
        return Ceilings(card, load_model_spec(str(config["model"])), dtype, dtype if kv == "auto" else kv)
    except InputError:
        return None  # a model that is not here any more


def shares_of_ceilings(record: Record, ceilings: Ceilings) -> dict[str, float]:
    """{"bandwidth_share","flops_share","kv_read_share"} of steps that decode alone, "prefill_flops_share" of others.

    A key is left out where the run has too few such steps, or the device has no rate for the format. Each is the
    time that a typical step would take at that ceiling alone, over the time that such steps took.
    """
    decode = [step for step in record["steps"] if step["decode_tokens"] and not step["prefill_tokens"]]
    prefill = [step for step in record["steps"] if step["prefill_tokens"] > step["decode_tokens"]]
    costs = StepCosts(ceilings.model, ceilings.weights)
    found: dict[str, float] = {}
    try:
        if len(decode) >= FEWEST_STEPS:
            batch = max(1, round(fmean(step["decode_tokens"] for step in decode)))
            context = max(1, round(fmean(step["kv_used_tokens"] for step in decode) / batch))
            found |= _decode(costs, ceilings, batch, context, _seconds(decode))
        if len(prefill) >= FEWEST_STEPS:
            tokens = max(1, round(fmean(step["prefill_tokens"] for step in prefill)))
            rows = [timed(one, ceilings.card) for one in costs.operators("prefill", 1, tokens)]
            found["prefill_flops_share"] = min(1.0, sum(row.compute_s for row in rows) / _seconds(prefill))
    except InputError:
        return found
    return found


def _decode(costs: StepCosts, ceilings: Ceilings, batch: int, context: int, seconds: float) -> dict[str, float]:
    rows = [timed(one, ceilings.card) for one in costs.operators("decode", batch, context, kv_dtype=ceilings.kv_dtype)]
    moved = sum(row.operator.bytes for row in rows)
    return {
        "bandwidth_share": min(1.0, sum(row.memory_s for row in rows) / seconds),
        "flops_share": min(1.0, sum(row.compute_s for row in rows) / seconds),
        "kv_read_share": sum(row.operator.kv_bytes for row in rows) / moved,
    }


def _seconds(steps: Sequence[Mapping[str, Any]]) -> float:
    """Mean time of a step in the model, host work left out where it is known."""
    return fmean(
        step["model_s"]
        if step.get("model_s") is not None
        else (step["execute_end_ns"] - step["execute_start_ns"]) / NS_PER_S
        for step in steps
    )
