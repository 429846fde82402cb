"""Ladders on the virtual clock: how fast each configuration is and what the quality guard says are scripted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core_engine.config import EngineConfig
from experiments.playbook.run import run_ladder
from experiments.store import Store
from tests.experiments.fakes import FakeRig, VirtualClock

FAST = {"workload": "equal", "num_requests": 6, "max_tokens_cap": 6, "repeats": 2, "settings": {"max_num_seqs": 4}}


def speeds(config: EngineConfig) -> dict[str, float]:
    """INT8 KV and W8A8 pay, four bits too, drafts cost more than they save."""
    base = 0.020
    base *= 0.8 if config.kv_dtype == "int8" else 1
    base *= {"none": 1.0, "w8a8": 0.7}.get(config.weights, 0.5)
    base *= 20 if config.speculation != "off" else 1
    return {"base_s": base}


def quality(verdict: str, drop: float = 0.0) -> dict[str, Any]:
    """As guard_quality gives it."""
    return {
        "verdict": verdict, "drop": drop, "ci95": [drop - 0.001, drop + 0.001], "most_drop": 0.01, "items": 168,
        "items_needed": 900 if verdict == "undecided" else None, "accuracy": {"start": 0.6, "with_step": 0.6 - drop},
        "slices": [{"slice": "rare_facts", "drop": 0.2, "lost": 5, "gained": 0, "items": 24}]
        if verdict == "lost" else [], "provenance": "measured",
    }  # fmt: skip


class Guard:
    """Says `lost` of four-bit weights and two-bit KV, `kept` of everything else; remembers what it was asked."""

    def __init__(self, also: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        self.asked: list[dict[str, Any]] = []
        self._also = also

    def __call__(self, start: Any, after: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.asked.append(dict(after))
        self._also(after)
        bad = str(after.get("weights", "")).startswith("w4a16") or after.get("kv_dtype") == "int2"
        return quality("lost", 0.06) if bad else quality("kept", 0.0005)


def climb(clock: VirtualClock, store: Store | None = None, run_id: str = "r0", **spec: Any) -> dict[str, Any]:
    """Run a ladder; `rig`, `guard` and the hooks of run_ladder may be among the fields."""
    hooks = {name: spec.pop(name) for name in ("on_live", "should_cancel", "guard", "rig") if name in spec}
    hooks.setdefault("rig", FakeRig(clock, speed=speeds))
    hooks.setdefault("guard", Guard())
    return run_ladder({**FAST, **spec}, store, run_id, **hooks)


def outcomes(result: dict[str, Any]) -> dict[str, str]:
    """Step -> what became of it."""
    return {row["name"]: row["outcome"] for row in result["steps"]}
