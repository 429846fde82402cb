"""What a routed engine tells: sizes, live state and run record of both engines as one.

The record reads as an engine's: its steps are those of both, in the order in which they began, each with `model`
("small" or "large"); a request is that of whoever answered it, with `router`: {"escalated","probe_tokens",
"mean_logprob"}. The time that an escalated request spent at the small model counts as waiting. Memory is that of both.
KV by kind is left out: the two pools are of different blocks, so that figure is unknown here and not a sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core_engine.live import hit_rate

if TYPE_CHECKING:
    from core_engine.routing.engine import RoutedEngine

SUMMED = ("num_kv_blocks", "kv_pool_bytes", "kv_tail_bytes", "weights_bytes", "activation_peak_bytes")
IN_MEMORY = ("weights_bytes", "kv_pool_bytes", "kv_reserved_bytes", "kv_peak_used_bytes", "activation_peak_bytes")
OF_ONE = ("accounts", "predicted_bytes", "total_bytes", "unexplained_bytes", "other_bytes")
OF_KV = ("kv", "kv_events", "kv_commit_events")


def derived(engine: RoutedEngine, large: dict[str, int]) -> dict[str, int]:
    """Of both together; the rest is the large model's."""
    small = engine.small.derived()
    return {**large, **{name: large[name] + small[name] for name in SUMMED}}


def snapshot(engine: RoutedEngine, large: dict[str, Any]) -> dict[str, Any]:
    """Blocks and ledger are the large model's."""
    small = engine.small.snapshot()
    both = {name: large[name] + small[name] for name in ("running", "waiting", "output_tokens", "requests")}
    escalated = sum(one["escalated"] for one in engine.decisions.values())
    return {**large, **both, "router": {"decided": len(engine.decisions), "escalated": escalated}}


def record(engine: RoutedEngine, large: dict[str, Any]) -> dict[str, Any]:
    """Both records as one."""
    small = engine.small.record()
    steps, numbers = _steps({"small": small["steps"], "large": large["steps"]})
    found = {
        **large,
        "config": engine.config.settings(),
        "derived": engine.derived(),
        "steps": steps,
        "host_ns": sorted([*small["host_ns"], *large["host_ns"]]),
        "kv_events_after": [],
        "requests": [
            *(_request(engine, entry, numbers["small"]) for entry in small["requests"] if _answered(engine, entry)),
            *(_request(engine, entry, numbers["large"]) for entry in large["requests"]),
        ],
        "memory": _memory(small["memory"], large["memory"]),
        "counters": _counters(engine, small, large),
        "router": {
            "rule": f"mean log-probability of the first tokens at least {engine.rule.threshold:g}",
            "small": engine.small.loaded.name,
            "small_weights_bytes": small["memory"]["weights_bytes"],
        },
    }
    if "answer_cache" in large:
        found["answer_cache"] = _caches(small["answer_cache"], large["answer_cache"])
    return found


def _steps(by_model: dict[str, list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], dict[str, dict[int, int]]]:
    """All steps, numbered anew, and old number -> new one of each model."""
    pairs = [(model, step) for model, steps in by_model.items() for step in steps]
    pairs.sort(key=lambda pair: pair[1]["plan_start_ns"])
    numbers: dict[str, dict[int, int]] = {model: {} for model in by_model}
    steps = []
    for index, (model, step) in enumerate(pairs):
        numbers[model][step["index"]] = index
        told = {key: value for key, value in step.items() if key not in OF_KV}
        steps.append({**told, "index": index, "model": model})
    return steps, numbers


def _answered(engine: RoutedEngine, entry: dict[str, Any]) -> bool:
    """Whether the small model's entry stands for its request."""
    return not engine.is_escalated(entry["id"])


def _request(engine: RoutedEngine, entry: dict[str, Any], numbers: dict[int, int]) -> dict[str, Any]:
    decision = engine.decisions.get(entry["id"])
    steps = [[numbers[index], *rest] for index, *rest in entry["steps"] if index in numbers]
    return {**entry, "steps": steps, **({} if decision is None else {"router": decision})}


def _memory(small: dict[str, Any], large: dict[str, Any]) -> dict[str, Any]:
    """Sums of what each holds; the accounts of one engine don't describe two."""
    sums = {name: small[name] + large[name] for name in IN_MEMORY}
    return {**{name: value for name, value in large.items() if name not in OF_ONE}, **sums, "other_bytes": None}


def _counters(engine: RoutedEngine, small: dict[str, Any], large: dict[str, Any]) -> dict[str, Any]:
    rate = hit_rate([*engine.small.sessions.all_requests(), *engine.sessions.all_requests()])
    preemptions = small["counters"]["preemptions"] + large["counters"]["preemptions"]
    return {**large["counters"], "preemptions": preemptions, "prefix_hit_rate": rate}


def _caches(small: dict[str, Any], large: dict[str, Any]) -> dict[str, Any]:
    def merged(one: Any, other: Any) -> Any:
        if isinstance(one, dict):
            return {key: merged(one.get(key, 0), other.get(key, 0)) for key in {**one, **other}}
        return one + other

    found: dict[str, Any] = merged(small, large)
    return found
