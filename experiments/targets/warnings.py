"""What makes a run's figures less than they seem, read from its record: one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.metrics.events import successes
from experiments.targets.counting import ASSUMED, SPREAD

# A client that wakes up so late stamps tokens late as well, by up to as much.
MOST_LAG_S = 0.010


def warnings_of(record: Mapping[str, Any], name: str) -> list[str]:
    """Warnings about one run, `name` being what it is called; none for what the engine's records never have."""
    return [*_cold(record, name), *_busy(record, name), *_lengths(record, name), *_counted(record, name)]


def _cold(record: Mapping[str, Any], name: str) -> list[str]:
    cold = "warm_up" in record and record["warm_up"] is None
    return [f"{name} was cold: compilation and first allocations are in its figures"] if cold else []


def _busy(record: Mapping[str, Any], name: str) -> list[str]:
    found = []
    if record.get("others_before"):
        found.append(f"the server had {record['others_before']} requests of others when {name} began")
    lag = (record.get("client_lag_s") or {}).get("p99")
    if lag is not None and lag > MOST_LAG_S:
        found.append(f"{name}: this machine was up to {1000 * lag:.0f} ms late (p99) in reading what came")
    retried = sum(request.get("attempts", 1) > 1 for request in record["requests"])
    if retried:
        found.append(f"{retried} requests of {name} were sent more than once; the time of it is in their latency")
    return found


def _lengths(record: Mapping[str, Any], name: str) -> list[str]:
    """Answers and prompts of other lengths than the workload's."""
    good = [request for request in successes(record) if request.get("usage_tokens") is not None]
    short = sum(request["usage_tokens"] < request["max_tokens"] for request in good)
    other = [r for r in good if abs(r["prompt_tokens"] - r["asked_prompt_tokens"] - record["salt_tokens"]) > 1]
    found = []
    if short:
        found.append(f"{short} of {len(good)} answers of {name} are shorter than asked: the server ended them")
    if other:
        asked, had = (sum(r[key] for r in other) for key in ("asked_prompt_tokens", "prompt_tokens"))
        found.append(f"{len(other)} prompts of {name} are longer or shorter at the server: {had} tokens, not {asked}")
    return found


def _counted(record: Mapping[str, Any], name: str) -> list[str]:
    guessed = {how: count for how, count in record.get("tokens_counted", {}).items() if how in (SPREAD, ASSUMED)}
    return [f"{name}: tokens of {count} answers are counted as {how}" for how, count in guessed.items()]
