"""A stored run as evidence: its metrics JSON, and what its record of steps and requests says beyond them.

Owns what is read out of a record for the advisor. The document it makes has the form of docs/advisor.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from experiments.advisor.ceilings import Ceilings, ceilings_here, shares_of_ceilings
from experiments.advisor.evidence import Evidence, evidence_of
from experiments.metrics import compute_metrics
from experiments.metrics.events import NS_PER_S, Record, emissions, emissions_once, successes, window_ns
from experiments.metrics.intervals import Intervals
from experiments.store import Store
from experiments.sweep.growth import growth
from ledger.errors import CannotRunError, InputError

KINDS = ("bench", "compare", "factorial", "sweep", "jitter")
FEWEST_GAPS = 8  # of either kind, before their means are compared
PREFIX_TOKENS = 16  # prompts are compared in pieces of this length, as caches keep them
# Below this share of free blocks a request that waits beside a free seat waits for memory, not for its turn.
SCARCE = 0.5


def evidence_from_run(run_id: str, store: Store, *, arm: int = 0, slo: str | None = None) -> Evidence:
    """Evidence of one arm (0 = baseline) of a stored run. slo goes before the run's own objectives.

    InputError for an unknown run, arm or kind of run; CannotRunError for a run that has no result yet.
    """
    run = store.get_run(run_id)
    if run.kind not in KINDS:
        raise InputError("--run", run_id, f"a run of kind {', '.join(KINDS)} (this one is {run.kind})")
    stored = [key for key in store.record_keys(run_id) if key[0] == arm]
    if not stored:
        kept = sorted({key[0] for key in store.record_keys(run_id)})
        if not kept:
            raise CannotRunError(f"run {run_id} is {run.state} and has no record of requests to look at")
        raise InputError("--arm", arm, f"an arm that is stored: {', '.join(map(str, kept))}")
    record = store.record(run_id, *stored[0])
    price = float(run.spec.get("price_per_device_hour") or 1.0)
    document = document_of(record, price_per_device_hour=price, ceilings=ceilings_here(record))
    told = slo if slo is not None else run.spec.get("slo")
    return evidence_of(document, f"run {run_id}", slo=told, strict=False)


def document_of(
    record: Record, *, price_per_device_hour: float = 1.0, ceilings: Ceilings | None = None
) -> dict[str, Any]:
    """The numbers of one run record, in the form of docs/advisor.md. ceilings: what its steps are held against."""
    record = emissions_once(record)
    metrics = compute_metrics(record, price_per_device_hour=price_per_device_hour)
    document = with_extras(metrics)
    for group, found in _of_steps(record).items():
        document[group] = {**document.get(group, {}), **found}
    document["load"]["growing"] = growth(record)["growing"]
    document["prefix"] = {"repeated_share": repeated_share(record)}
    if ceilings is not None and record["steps"]:
        document["steps"] |= shares_of_ceilings(record, ceilings)
    return document


def with_extras(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics JSON with those of its own groups put where the document has them, unless it says them itself."""
    document: dict[str, Any] = dict(metrics)
    made = {
        "load": {
            "offered_rps": _at(metrics, "offered_load", "offered_rps"),
            "running": _at(metrics, "concurrency", "mean"),
            "running_peak": _at(metrics, "concurrency", "peak"),
            "prompt_tokens": _at(metrics, "workload", "lengths", "prompt_tokens", "mean"),
            "output_tokens": _at(metrics, "workload", "lengths", "output_tokens", "mean"),
        },
        "steps": {
            "idle_slot_share": _at(metrics, "slots", "idle_share"),
            "host_share": _at(metrics, "host_work", "share", "mean"),
        },
        "speculation": _speculation(metrics),
        "client": _client(metrics) if _at(metrics, "target", "kind") == "endpoint" else {},
    }
    for group, found in made.items():
        told = metrics.get(group)
        if isinstance(told, Mapping) or told is None:
            document[group] = {name: value for name, value in found.items() if value is not None} | dict(told or {})
    if "engine" not in document and _at(metrics, "target", "kind") == "engine":
        document["engine"] = "trilemma"
    return document


def _client(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """How the sender kept its schedule. In the engine's own process sending waits for steps: that is no client."""
    return {
        "lateness_p99_s": _at(metrics, "offered_load", "lateness_s", "p99"),
        "sent_rps": _at(metrics, "offered_load", "achieved_rps"),
        "in_flight_peak": _at(metrics, "in_flight", "peak"),
    }


def _speculation(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What was drafted, and from the engine's own timing of steps with and without drafts how much faster they are."""
    form = _at(metrics, "config", "speculation")
    if form in (None, "off"):
        return {}
    paces = [one for one in _at(metrics, "counters", "pace") or []
             if one["with_drafts_s_per_token"] and one["without_s_per_token"]]  # fmt: skip
    most = max(paces, key=lambda one: int(one["steps"]), default=None)
    return {
        "k": _at(metrics, "config", "num_draft_tokens"),
        "parallel": form == "medusa",
        "speedup": None if most is None else most["without_s_per_token"] / most["with_drafts_s_per_token"],
    }


def _of_steps(record: Record) -> dict[str, dict[str, Any]]:
    """What the steps say: load, how full they were, KV, gaps beside prompts. Empty where a record has none."""
    steps = record["steps"]
    if not steps:
        return {"load": {}}
    weights = [step["commit_end_ns"] - step["plan_start_ns"] for step in steps]
    window = window_ns(record)
    busy = Intervals((step["plan_start_ns"], step["commit_end_ns"]) for step in steps)
    return {
        "load": {"waiting": _mean((step["waiting"] for step in steps), weights)},
        "steps": {
            "batch": _mean((step["num_seqs"] for step in steps), weights),
            "busy_share": None if window is None else min(1.0, busy.within(*window) / (window[1] - window[0])),
            **_gaps(record),
        },
        "kv": _kv(record, weights),
    }


def _mean(values: Iterator[float], weights: list[int]) -> float | None:
    """Mean of a figure of the steps, weighted with what they lasted."""
    whole = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / whole if whole else None


def _kv(record: Record, weights: list[int]) -> dict[str, Any]:
    steps = record["steps"]
    if not all("kv" in step for step in steps):
        return {}
    used = [_used_share(step["kv"]) for step in steps]
    return {
        "used_share": _mean(iter(used), weights),
        "peak_share": max(used),
        "admission_waits": _admission_waits(record),
    }


def _used_share(kv: Mapping[str, int]) -> float:
    """Share of the pool in blocks that somebody holds; what only the prefix cache keeps is free for the asking."""
    held = kv["used_tokens"] + kv["held_tokens"] + kv["internal_tokens"] + kv["unused_tokens"]
    return held / (held + kv["cached_tokens"] + kv["free_tokens"])


def _admission_waits(record: Record) -> int | None:
    """Times that a request began to wait for memory: a seat and tokens of the step were left, and blocks scarce."""
    config = record["config"]
    if config.get("batching") != "continuous" or "max_num_batched_tokens" not in config:
        return None
    seats, budget = int(config["max_num_seqs"]), int(config["max_num_batched_tokens"])
    waits, before = 0, False
    for step in record["steps"]:
        seat = step["running"] + step["slots_held"] < seats
        room = step["prefill_tokens"] + step["decode_tokens"] < budget
        now = bool(step["waiting"]) and seat and room and _used_share(step["kv"]) > SCARCE
        waits += now and not before
        before = now
    return waits


def _gaps(record: Record) -> dict[str, float | None]:
    """Mean gap between tokens while a step also computed a prompt, and while none did."""
    prompts = Intervals(
        (step["execute_start_ns"], step["execute_end_ns"]) for step in record["steps"] if step["prefill_tokens"]
    )
    beside: list[float] = []
    alone: list[float] = []
    for request in successes(record):
        for (before, _), (after, _) in pairwise(emissions(request)):
            (beside if prompts.within(before, after) else alone).append((after - before) / NS_PER_S)
    if min(len(beside), len(alone)) < FEWEST_GAPS:
        return {}
    return {"itl_with_prefill_s": fmean(beside), "itl_without_prefill_s": fmean(alone)}


def repeated_share(record: Record) -> float | None:
    """Share of prompt tokens that an earlier prompt of the run began with, in whole pieces of 16; None without ids."""
    seen: set[int] = set()
    repeated = whole = 0
    for request in sorted(record["requests"], key=lambda one: int(one["arrival_ns"])):
        ids = request.get("prompt_token_ids")
        if not ids:
            continue
        whole += len(ids)
        key, known = 0, True
        for start in range(0, len(ids) - PREFIX_TOKENS + 1, PREFIX_TOKENS):
            key = hash((key, *ids[start : start + PREFIX_TOKENS]))
            known = known and key in seen
            repeated += PREFIX_TOKENS * known
            seen.add(key)
    return repeated / whole if whole else None


def _at(found: Mapping[str, Any], *path: str) -> Any:
    value: Any = found
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
