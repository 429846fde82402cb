"""C35: both knees of a load test, found without anybody looking at a curve, and the limits that follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.sweep_rows import Sweep, rows, spec_of

CLIENTS = (1, 2, 4, 8, 16, 32)
# Room for all clients in the batch, but not for their KV: 24 MiB are 34 blocks of the embedded model in 32 bits.
SETTINGS = {"max_num_seqs": 32, "max_num_batched_tokens": 512, "kv_memory_mib": 24, "prefix_cache": "off"}
SURE = 0.9


def check(options: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
    """Requests of 32 and 16 tokens, 1 to 32 clients, with KV for about a dozen."""
    spec = spec_of(
        options, SETTINGS, over="concurrency", values=list(CLIENTS), workload="equal", max_tokens_cap=16, find=False
    )
    result = sweep(spec)
    knees, limits = result["knees"], result["limits"]
    verdict, reason = judge(knees, limits)
    found = [_knee_row(name, knees[name], result) for name in ("latency", "memory")]
    return {
        "verdict": verdict,
        "reason": reason,
        "evidence": [*found, _limit_row(limits, result), *rows("clients", result)],
    }


def judge(knees: Mapping[str, Mapping[str, Any]], limits: Mapping[str, Any]) -> Verdict:
    """Holds when both knees are found, each with SURE confidence, the memory one where the ledger puts it."""
    latency, memory = knees["latency"], knees["memory"]
    found = f"latency: {_said(latency)}; memory: {_said(memory)}"
    if limits["instance_limit_rps"] is not None:
        found += f"; the instance limit is {limits['instance_limit_rps']:.3g} requests/s"
    if not latency["found"] and not memory["found"]:
        return FAILS, found
    if not (latency["found"] and memory["found"]):
        missing = "latency" if not latency["found"] else "memory"
        doubtful = "may be one" in knees[missing]["reason"]
        return (UNDECIDED if doubtful else LIMITED), f"{found}; one of the two only"
    sure = min(latency["confidence"], memory["confidence"])
    if sure < SURE:
        return UNDECIDED, f"{found}; with a confidence of {sure:.0%}, more repeats would decide it"
    low, high = memory["running_before"] or 0, memory["next_load"]
    predicted = memory["predicted"]["all_mean"]
    if not low <= predicted <= high:
        return LIMITED, f"{found}; the ledger counts {predicted} sequences, outside of {low} to {high}"
    return HOLDS, f"{found}; the ledger counts {predicted} sequences"


def _said(knee: Mapping[str, Any]) -> str:
    if not knee["found"]:
        return str(knee["reason"])
    before = "below" if knee["load"] is None else f"between {knee['load']:g} and"
    return f"{before} {knee['next_load']:g} clients ({knee['confidence']:.0%})"


def _knee_row(name: str, knee: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    kept = (
        "load",
        "next_load",
        "ci95",
        "confidence",
        "running_before",
        "running",
        "context_tokens",
        "tokens",
        "reason",
    )
    return {
        "part": f"{name} knee",
        **{key: knee[key] for key in kept if knee.get(key) is not None},
        "run_id": result["run_id"],
        "provenance": "measured",
    }


def _limit_row(limits: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("basis", "instance_limit_rps", "scale_out_rps", "formula", "reason")
    found = {key: limits[key] for key in kept if limits[key] is not None}
    return {"part": "limits", **found, "run_id": result["run_id"], "provenance": "computed"}
