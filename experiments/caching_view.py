"""A run with answer caches as the Caching page draws it: curves over the threshold, what was saved, what went stale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.store import Run

LANGUAGES = ("en", "zh")
REPEATS = (1, 3, 5)
LINES = ("hit", "hit_ungated", "wrong", "wrong_ungated")
Result = Mapping[str, Any]


@dataclass(frozen=True)
class CachingChoice:
    """Which traffic is run beside the pairs ("none": none), how often, and the threshold that is judged."""

    workload: str = "repetitive"
    repeats: int = 3
    threshold: float | None = None

    def spec(self) -> dict[str, Any]:
        """The spec of the run."""
        settings = {} if self.threshold is None else {"semantic_threshold": self.threshold}
        if self.workload == "none":
            return {"traffic": False, "settings": settings}
        return {"workload": self.workload, "repeats": self.repeats, "settings": settings}


def traffics() -> tuple[str, ...]:
    """Workloads whose questions come again, and none."""
    from experiments.workloads import WORKLOADS
    from experiments.workloads.repetitive import LANGUAGES as texts

    return (*(name for name, spec in WORKLOADS.items() if spec.text in texts), "none")


def default_threshold() -> float:
    """The registry's."""
    from core_engine.variables import VARIABLES

    return float(VARIABLES["semantic_threshold"].default)


def curve_rows(pairs: Mapping[str, Any], least: float) -> list[dict[str, Any]]:
    """The curve of one language from a threshold on: a row for each line and threshold, rates in %."""
    return [
        {
            "line": line,
            "threshold": row["threshold"],
            "rate_pct": 100 * row[line]["rate"],
            "low_pct": 100 * row[line]["low"],
            "high_pct": 100 * row[line]["high"],
            "count": row[line]["count"],
            "total": row[line]["total"],
        }
        for line in LINES
        for row in pairs["curve"]
        if row["threshold"] >= least
    ]


def lowest_of_interest(pairs: Mapping[str, Any]) -> float:
    """Below this threshold every pair is similar enough, so the curves are flat."""
    curve = pairs["curve"]
    full = [row["threshold"] for row in curve if row["hit_ungated"]["rate"] == row["wrong_ungated"]["rate"] == 1]
    return float(max(full, default=curve[0]["threshold"]))


def arm_rows(result: Result) -> list[dict[str, Any]]:
    """An arm a row: hits, wrong ones, saved work in %, TTFT in ms of all, of hits and of the others, tokens/s."""
    rows = []
    for arm in (result["traffic"] or {"arms": []})["arms"]:
        found, metrics = arm["cache"], arm["metrics"]
        rows.append(
            {
                "arm": arm["name"],
                "exact": None if found is None else found["hits"]["exact"],
                "semantic": None if found is None else found["hits"]["semantic"],
                "judged": None if found is None else found["judged"],
                "wrong": None if found is None else found["wrong"],
                "saved_pct": None if found is None or found["saved_share"] is None else 100 * found["saved_share"],
                "saved_prefill": None if found is None else found["saved_prefill_tokens"],
                "saved_decode": None if found is None else found["saved_decode_tokens"],
                "ttft_ms": _ms(metrics["ttft_s"]["p50"]),
                "ttft_hit_ms": None if found is None else _ms(found["ttft_hit_s"]["p50"]),
                "ttft_miss_ms": None if found is None else _ms(found["ttft_miss_s"]["p50"]),
                "lookup_ms": None if found is None else _ms(found["lookup_s"]["p50"]),
                "tokens_per_s": metrics["output_tokens_per_s"],
            }
        )
    return rows


def cache_command(run: Run) -> str:
    """The command line of the run."""
    spec = run.spec
    sets = "".join(f" --set {name}={value}" for name, value in spec["settings"].items())
    traffic = f" --workload {spec['workload']} --repeats {spec['repeats']}" if spec["traffic"] else " --no-traffic"
    return f"trilemma cache{traffic}{sets}"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
