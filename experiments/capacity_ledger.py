"""What the ledger says of savings where no lever was measured: fewer bits of weights and KV, by the roofline of this
machine, at the throughput that a sweep measured. Estimates: they keep the measured share of the bound.

Levers that depend on the traffic (caches, shorter prompts, a small model in front) have no figure without a
measurement, so none is made up for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.calibrate import this_machine
from experiments.levers.catalogue import LEVERS
from ledger.capacity import Deployment
from ledger.cost import Scenario, levers
from ledger.errors import CannotRunError, InputError
from ledger.model_spec import load_model_spec
from ledger.serving import Traffic

OF_THE_DEVICE = ("weights", "kv")


def ledger_savings(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Entries as capacity_advice has them, `provenance` "estimated" and no run; none without a calibration of this
    machine, for a server, or where the ledger does not know the model.

    result: a sweep's. A lever that the sweep had pulled already has none.
    """
    settings, environment = result.get("settings") or {}, result.get("environment") or {}
    kind = "cpu" if environment.get("device", "cpu") == "cpu" else "cuda"
    device = this_machine(kind)
    open_levers = [name for name in OF_THE_DEVICE if settings.get(LEVERS[name].variable) == LEVERS[name].off]
    rates = [point["output_tokens_per_s"] for point in result["points"] if point["output_tokens_per_s"]]
    if not open_levers or device is None or not rates:
        return []
    workload, dtype = result["workload"], str(environment.get("dtype") or "fp32")
    lengths = [workload["lengths"][name]["mean"] for name in ("prompt_tokens", "output_tokens")]
    model = str(settings["model"])
    try:
        spec = load_model_spec("smollm2-135m" if model == "embedded" else model)
        scenario = Scenario(
            Traffic(1.0, max(1, round(lengths[0])), max(1, round(lengths[1]))),
            deployment=Deployment(spec, weights=dtype, kv_dtype=dtype, device=kind),
            device=device,
            concurrency=int(settings["max_num_seqs"]),
            measured_tokens_per_s=max(rates),
        )
        chosen = {LEVERS[name].variable: LEVERS[name].on for name in open_levers}
        found = {row["name"]: row["saved_pct"] for row in levers(scenario, chosen)["each"]}
    except (InputError, CannotRunError):
        return []
    return [
        {
            "lever": name, "from": LEVERS[name].off, "to": LEVERS[name].on, "saved_pct": found[LEVERS[name].variable],
            "saved_ci95": None, "quality": None, "same_workload": True, "workload": workload["name"], "run_id": None,
            "provenance": "estimated",
        }
        for name in open_levers
        if (found[LEVERS[name].variable] or 0) > 0
    ]  # fmt: skip
