"""`trilemma plan`: from a spec to ranked plans, what was pruned, and the front. A kind of run that can be cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from experiments.planner.evaluate import Evaluator
from experiments.planner.ledger_stage import LedgerStage
from experiments.planner.pareto import front
from experiments.planner.plans import Planned, plan_json, planned
from experiments.planner.search import ROUNDS, OnProgress, label, search, speeds
from experiments.planner.spec import PlanSpec
from experiments.planner.traffic import traffic_of
from ledger.device_profile import device_profile
from ledger.kv_cache import length_warnings
from ledger.model_spec import load_model_spec

QUALITY = "quality is not simulated: measure a quantized plan's with trilemma eval before you take it"


def run_plan(
    spec: Mapping[str, Any], on_live: Callable[[dict[str, Any]], None], should_cancel: Callable[[], bool]
) -> dict[str, Any]:
    """The result of a stored run. Cancelled when asked to stop."""
    began_s = monotonic()

    def progress(done: float, note: str) -> None:
        took_s = monotonic() - began_s
        left_s = None if done < 0.05 else took_s * (1 - done) / done
        on_live({"phase": "searching", "fraction": done, "eta_s": left_s, "note": note})

    return plan(PlanSpec.from_dict(spec), progress, should_cancel)


def plan(
    spec: PlanSpec,
    on_progress: OnProgress = lambda done, note: None,
    should_cancel: Callable[[], bool] = lambda: False,
    rounds: tuple[Any, ...] = ROUNDS,
) -> dict[str, Any]:
    """Everything that a plan says. rounds: of the search, the last one's horizon is that of the plans."""
    model, traffic = load_model_spec(spec.model), traffic_of(spec)
    stage = LedgerStage(spec, model, traffic)
    evaluator = Evaluator(spec, traffic, should_cancel)
    tried = search(spec, stage, traffic, evaluator, on_progress, rounds)
    finalists = [one for one in tried if one.requests == rounds[-1].requests]
    on_progress(0.97, "the plans at their own load")
    found = [one for each in finalists if (one := planned(spec, stage, traffic, evaluator, each)) is not None]
    ranked = sorted(found, key=lambda one: (one.cost_per_million, one.tpot_s, one.tried.candidate.devices))
    on_front = {id(ranked[at]) for at in front([(one.per_user, one.per_card) for one in ranked])}
    shown = [one for place, one in enumerate(ranked) if place < spec.top or id(one) in on_front]
    plans = [
        plan_json(spec, stage, traffic, evaluator, one, place + 1, id(one) in on_front)
        for place, one in enumerate(shown)
    ]
    return {
        "model": model.name,
        "traffic": traffic.to_json(spec.rate_rps),
        "slo": spec.slo,
        "headroom": spec.headroom,
        "max_devices": spec.max_devices,
        "prices": {gpu: spec.price(gpu) for gpu in spec.gpus},
        "prices_assumed": [gpu for gpu in spec.gpus if gpu not in spec.prices],
        "plans": plans,
        "pareto": [one["id"] for one in plans if one["on_front"]],
        "simulated": _points(tried, traffic, spec),
        "pruned": stage.pruned.to_json(),
        "counts": {
            "candidates": stage.total,
            "simulated": len(tried) + stage.pruned.count("objective"),
            "requests": evaluator.simulated_requests,
            "plans": len(found),
        },
        "cards": [device_profile(gpu).to_json() for gpu in spec.gpus],
        "warnings": _warnings(spec, model, traffic, plans, stage),
        "quality": QUALITY,
        "provenance": "simulated",
    }


def _points(tried: list[Any], traffic: Any, spec: PlanSpec) -> list[dict[str, Any]]:
    """Every replica that was simulated, at its limit: the plane on which the front lies, rougher the fewer requests."""
    found = []
    for one in tried:
        per_user, per_card = speeds(one, traffic)
        found.append(
            {
                "label": label(one.candidate), **one.candidate.to_json(), "limit_rps": one.limit,
                "tokens_per_s_per_user": per_user, "tokens_per_s_per_card": per_card, "requests": one.requests,
                "provenance": "simulated",
            }
        )  # fmt: skip
    best = set(front([(one["tokens_per_s_per_user"], one["tokens_per_s_per_card"]) for one in found]))
    return [one | {"on_front": place in best} for place, one in enumerate(found)]


def _warnings(spec: PlanSpec, model: Any, traffic: Any, plans: list[dict[str, Any]], stage: LedgerStage) -> list[str]:
    found = list(length_warnings(model, traffic.longest))
    for gpu in spec.gpus:
        profile = device_profile(gpu)
        if profile.calibration == "uncalibrated":
            found.append(f"{profile.accelerator.label} is uncalibrated: its step times are a guess, within about "
                         f"{profile.error_band_pct:.0f} %")  # fmt: skip
        if gpu not in spec.prices:
            found.append(f"no price of {gpu} was given: 1 per device-hour is assumed")
    if spec.workload is not None:
        found.append("prompts are computed in full: what they share is not looked up, so a prefix cache does better")
    if not plans:
        dropped = stage.pruned.to_json()
        worst, every = max(dropped, key=lambda one: one["count"], default=None), sum(one["count"] for one in dropped)
        why = "" if worst is None else f": {worst['count']} of {every} dropped candidates: {worst['what']}"
        fewest = stage.pruned.fewest_devices
        enough = (
            "" if fewest is None else f"; with more cards than allowed the objectives are met from about {fewest} on"
        )
        found.append(f"no plan meets the objectives with these cards{why}{enough}")
    return found


__all__ = ["Planned", "plan", "run_plan"]
