"""One deployment simulated for the page: fixed lengths at a rate, as `trilemma simulate` serves them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from experiments.planner.traffic import PlanTraffic
from experiments.simulator.deployment import SimulateSpec, deployed
from experiments.simulator.run import about, simulate_jobs

REQUESTS = 150  # enough for a p95, and a second or two of this machine's time


@dataclass(frozen=True)
class Deployment:
    """A model on cards and its load. prefill_replicas above 0: prompts are computed apart."""

    model: str
    gpu: str
    tp: int = 1
    pp: int = 1
    replicas: int = 1
    prefill_replicas: int = 0
    weights: str = "bf16"
    kv_dtype: str = "bf16"
    max_num_seqs: int = 256
    rate_rps: float = 10.0
    input_tokens: int = 1024
    output_tokens: int = 256
    price_per_device_hour: float = 1.0


def simulated(asked: Deployment) -> dict[str, Any]:
    """The metrics JSON of the run with `simulated` (on what) and `warnings`; InputError for what cannot be."""
    spec = SimulateSpec.from_dict(
        {
            "model": asked.model, "gpu": asked.gpu, "tp": asked.tp, "pp": asked.pp, "replicas": asked.replicas,
            "prefill_replicas": asked.prefill_replicas, "weights": asked.weights, "kv_dtype": asked.kv_dtype,
            "price_per_device_hour": asked.price_per_device_hour,
            "settings": {"max_num_seqs": asked.max_num_seqs, "prefix_cache": "off"},
        }
    )  # fmt: skip
    made = deployed(spec)
    traffic = PlanTraffic(((asked.input_tokens, asked.output_tokens),), 0, "")
    metrics = simulate_jobs(spec, made, list(islice(traffic.jobs(asked.rate_rps), REQUESTS)))
    return metrics | {"simulated": about(spec, made), "warnings": list(made.warnings)}


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The latencies as rows: name, mean, p50, p95, p99 in s and n."""
    return [{"name": name, **result[name]} for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s")]
