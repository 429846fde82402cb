"""Plans: candidates at the load that they would carry, priced, worded and with their launch lines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from experiments.planner.binding import binding
from experiments.planner.candidates import Candidate
from experiments.planner.evaluate import At, Evaluator, Tried
from experiments.planner.launch_lines import launch_lines
from experiments.planner.ledger_stage import LedgerStage
from experiments.planner.search import label, replicas_for
from experiments.planner.spec import PlanSpec
from experiments.planner.traffic import PlanTraffic
from ledger.money import SECONDS_PER_HOUR, cost_per_million_output_tokens
from ledger.weight_formats import AS_STORED

MORE = 3  # replicas are added where the load they would carry misses after all, at most so many times
FULL_PRECISION = ("bf16", "fp16", "fp32")


@dataclass(frozen=True)
class Planned:
    """A candidate, how many of it, and its simulation at each one's share of the demand."""

    tried: Tried
    replicas: int
    at: At
    cost_per_million: float
    cost_per_hour: float
    per_card: float

    @property
    def devices(self) -> int:
        """Cards in all."""
        return self.replicas * self.tried.candidate.devices

    @property
    def tpot_s(self) -> float:
        """Mean time of a token; of an answer of one token, its whole time."""
        return float(self.at.metrics["tpot_s"]["mean"] or self.at.metrics["e2e_s"]["mean"])

    @property
    def per_user(self) -> float:
        """Tokens/s that a user sees."""
        return 1 / self.tpot_s


def planned(
    spec: PlanSpec, stage: LedgerStage, traffic: PlanTraffic, evaluator: Evaluator, tried: Tried
) -> Planned | None:
    """The plan of a candidate; None, counted in `stage.pruned`, where it takes too many cards or misses an objective in
    its own simulation at its own load."""
    assert tried.limit is not None
    candidate = tried.candidate
    count = replicas_for(spec.rate_rps, tried.limit, spec.headroom)
    for replicas in range(count, count + 1 + MORE):
        if spec.max_devices is not None and replicas * candidate.devices > spec.max_devices:
            stage.pruned.add_too_many(candidate, replicas * candidate.devices)
            return None
        at = evaluator.at(tried, spec.rate_rps / replicas, tried.requests)
        if at.meets:
            return _priced(spec, traffic, tried, replicas, at)
    stage.pruned.add("objective", candidate, f"misses {', '.join(at.missed)} at its share of the demand")
    return None


def _priced(spec: PlanSpec, traffic: PlanTraffic, tried: Tried, replicas: int, at: At) -> Planned:
    devices = replicas * tried.candidate.devices
    price = spec.price(tried.candidate.gpu)
    tokens_per_s = spec.rate_rps * traffic.mean_output
    # A whole number of tokens is asked for, so that of many hours is taken.
    hours = 1e6
    cost = cost_per_million_output_tokens(
        hours * SECONDS_PER_HOUR, round(tokens_per_s * hours * SECONDS_PER_HOUR), price, devices
    )
    assert cost is not None
    return Planned(tried, replicas, at, cost, devices * price, tokens_per_s / devices)


def plan_json(
    spec: PlanSpec, stage: LedgerStage, traffic: PlanTraffic, evaluator: Evaluator, one: Planned, number: int,
    on_front: bool,
) -> dict[str, Any]:  # fmt: skip
    """A plan for records, tables and the page."""
    candidate, metrics = one.tried.candidate, one.at.metrics
    made = evaluator.made(candidate)
    profile = made.profile
    deployment = replace(stage.deployment(candidate, traffic.longest), concurrency=1)
    return {
        "id": number,
        "label": label(candidate),
        **candidate.to_json(),
        "gpu_label": profile.accelerator.label,
        "replicas": one.replicas,
        "devices_per_replica": candidate.devices,
        "devices": one.devices,
        "disaggregation": _apart(candidate, made.times.link),
        "limit_rps": one.tried.limit,
        "limit_outcome": None if one.tried.search is None else one.tried.search.outcome,
        "load_rps": one.at.rate,
        "price_per_device_hour": spec.price(candidate.gpu),
        "price_provenance": "given" if candidate.gpu in spec.prices else "assumed",
        "cost_per_hour": one.cost_per_hour,
        "cost_per_million_output_tokens": one.cost_per_million,
        "tokens_per_s_per_user": one.per_user,
        "tokens_per_s_per_card": one.per_card,
        **{name: metrics[name] for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s")},
        "objectives": metrics["objectives"],
        "running": one.at.running,
        "kv_peak_share": one.at.kv_peak,
        "requests": one.at.requests,
        "binding": binding(one.tried, stage.times(candidate), traffic),
        "on_front": on_front,
        "quality_risk": quality_risk(candidate),
        "launch": launch_lines(candidate, deployment, made.memory.num_blocks * made.memory.block_bytes, one.replicas),
        "calibration": profile.calibration,
        "error_band_pct": profile.error_band_pct,
        "sources": list(profile.sources),
        "provenance": "simulated",
    }


def quality_risk(candidate: Candidate) -> str | None:
    """What a quantized plan may lose, which nothing here simulates; None where nothing is quantized."""
    told = []
    if candidate.weights not in (*FULL_PRECISION, AS_STORED):
        told.append(f"weights in {candidate.weights}")
    if candidate.kv_dtype not in FULL_PRECISION:
        told.append(f"KV in {candidate.kv_dtype}")
    return f"{' and '.join(told)} may cost quality, which is not simulated" if told else None


def _apart(candidate: Candidate, link: Any) -> dict[str, Any] | None:
    if not candidate.is_apart:
        return None
    return {
        "prefill_replicas": candidate.prefill_replicas,
        "decode_replicas": candidate.decode_replicas,
        "link": None if link is None else link.label,
    }
