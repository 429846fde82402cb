"""Quality of a change before it is measured: nothing where the outputs are the same by construction, else what stored
comparisons and evaluations found for these values, else what such formats usually lose.

Knows the registry (a variable that does not move quality keeps the outputs) and the stored results, no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from core_engine.variables import VARIABLES
from experiments.advisor.prediction_estimate import EARLIER, EVALUATION, FORMATS, IDENTITY, QUALITY, Estimate
from experiments.advisor.prediction_history import Past, direction, repeated, same_change
from experiments.spec import CompareSpec
from experiments.store import Store

ALL_TEXTS = "all texts"
MOST_EVALUATIONS = 50
OTHER_LOAD = 0.01  # how much the change differs between workloads, ln units
LEAST_SCALE, SHARE_OFF = 0.004, 0.6  # of a usual loss: this, and so large a part of it
# ln of the probability a token that formats usually lose against 16 bits and more. Weights: rounding to nearest, AWQ
# and GPTQ on small models lose perplexity in this range (GPTQ, Frantar et al. 2023; AWQ, Lin et al. 2024; SmoothQuant,
# Xiao et al. 2023); KV: KIVI, Liu et al. 2024. A guess for any one model: the band is as wide as the loss.
USUAL_LOSS: Mapping[str, Mapping[str, float]] = {
    "weights": {
        "none": 0.0, "as-stored": 0.0, "w8a16": 0.002, "w8a8": 0.012, "w4a16-gptq": 0.06, "w4a16-awq": 0.08,
        "w4a16-rtn": 0.10,
    },
    "head_weights": {"16bit": 0.0, "int8": 0.002},
    "dtype": {"fp32": 0.0, "fp16": 0.0005, "bf16": 0.002},
    "kv_dtype": {"auto": 0.0, "fp32": 0.0, "fp16": 0.0005, "bf16": 0.001, "fp8": 0.006, "int8": 0.002, "int4": 0.04,
                 "int2": 0.5},
    "weight_group": {"32": 0.07, "64": 0.10, "128": 0.14},
    "weight_symmetric": {"on": 0.10, "off": 0.08},
    "kv_key_axis": {"channel": 0.04, "token": 0.08},
    "kv_protect": {"none": 0.04, "sinks": 0.03, "outliers": 0.03},
}  # fmt: skip


def quality(spec: CompareSpec, past: Sequence[Past], store: Store | None) -> tuple[Estimate | None, str]:
    """(estimate of the quality curve, why there is none)."""
    if QUALITY not in VARIABLES[spec.variable].moves:
        told = f"{spec.variable} changes no output: the same token ids in both arms"
        return Estimate(0.0, 0.0, IDENTITY, "computed", told, exact=True), ""
    found = repeated(spec, past, (QUALITY,)).get(QUALITY) or _elsewhere(spec, past) or _evaluated(spec, store)
    found = found or _usual(spec)
    return found, "" if found is not None else f"nothing is known of the quality of {spec.variable}={spec.values[1]}"


def _elsewhere(spec: CompareSpec, past: Sequence[Past]) -> Estimate | None:
    """The same values and settings under other loads: quality depends little on them."""
    found = [
        (one.run_id, sign * one.change[QUALITY][0], one.change[QUALITY][1])
        for one in past
        if (sign := same_change(spec, one.spec)) and QUALITY in one.change and QUALITY not in one.of_one_pair
    ]
    if not found:
        return None
    centre = fmean(change for _, change, _ in found)
    scale = math.hypot(OTHER_LOAD, max(error for _, _, error in found))
    basis = f"{len(found)} earlier comparisons of these values: {', '.join(name for name, _, _ in found[:3])}"
    return Estimate(centre, scale, EARLIER, "measured", basis)


def _evaluated(spec: CompareSpec, store: Store | None) -> Estimate | None:
    """The change of perplexity over all texts of a stored evaluation of these values on the same model."""
    if store is None:
        return None
    model = str(spec.settings.get("model", "embedded"))
    for run in store.list_runs(MOST_EVALUATIONS, kind="eval", state="done"):
        change = _perplexity_change(spec, model, run.spec, run.result or {})
        if change is not None:
            scale = max(LEAST_SCALE, OTHER_LOAD, 0.5 * abs(change))
            basis = f"perplexity of evaluation {run.id}, on texts of its own"
            return Estimate(-change, scale, EVALUATION, "measured", basis)
    return None


def _perplexity_change(
    spec: CompareSpec, model: str, asked: Mapping[str, Any], result: Mapping[str, Any]
) -> float | None:
    """ln of the change of perplexity from the first value to the second; None where the evaluation is of others."""
    vary = asked.get("vary")
    if not vary or vary[0] != spec.variable or str((asked.get("settings") or {}).get("model", "embedded")) != model:
        return None
    values, first, second = [str(value) for value in vary[1]], str(spec.values[0]), str(spec.values[1])
    if first != values[0] or second not in values:
        return None
    label = f"{spec.variable}={second}"
    candidates = result.get("candidates") or ()
    rows: Sequence[Mapping[str, Any]] = next((one["texts"] for one in candidates if one["label"] == label), [])
    change = next((row["change_pct"] for row in rows if row["text"] == ALL_TEXTS), None)
    return None if change is None else math.log1p(change / 100)


def _usual(spec: CompareSpec) -> Estimate | None:
    losses = USUAL_LOSS.get(spec.variable)
    first, second = (None if losses is None else losses.get(str(value)) for value in spec.values)
    if first is None or second is None or not direction(spec.variable, spec.values):
        return None
    change = first - second
    scale = LEAST_SCALE + SHARE_OFF * max(abs(change), 0.2 * (first + second))
    return Estimate(change, scale, FORMATS, "assumed", "what such formats usually lose, not measured on this model")
