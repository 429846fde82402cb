"""Results that a claim's experiment could have had, without an engine."""

from __future__ import annotations

from typing import Any


def batching_answers(static="better", dynamic="better", equal="no difference", seen=None):
    """A stand-in for the engine: gives each comparison the verdict it is told."""

    def compare(spec):
        if seen is not None:
            seen.append(spec)
        verdict = equal if spec["workload"] == "equal" else {"static": static, "dynamic": dynamic}[spec["values"][0]]
        curve = {
            "name": "output_tokens_per_s",
            "baseline": 50.0,
            "candidate": 90.0,
            "change_pct": 80.0,
            "ci95": [70.0, 90.0],
            "noise_floor_pct": 2.0,
            "verdict": verdict,
            "provenance": "measured",
        }
        return {"curves": [{**curve, "name": "ttft_s"}, curve], "repeats": 5, "run_id": "00000000"}

    return compare


def kv_metrics(wasted, running):
    kinds = {kind: {"bytes": wasted} for kind in ("internal", "reserved_unused", "external", "wasted")}
    return {"kv_waste": kinds, "concurrency": {"mean": running, "peak": 4}}


def throughput(static: str, dynamic: str, equal: str) -> dict[str, dict[str, Any]]:
    """The rows that C10 judges, with these verdicts and one interval."""
    verdicts = {"static_mixed": static, "dynamic_mixed": dynamic, "static_equal": equal}
    return {name: {"verdict": verdict, "ci95": [10.0, 20.0]} for name, verdict in verdicts.items()}
