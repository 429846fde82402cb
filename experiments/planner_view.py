"""A finished plan as the page draws it: rows of figures, the command that gives it again, the simulator's errors."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "simulator-error.json"
ERRORS = ("tpot", "ttft", "throughput")
Result = Mapping[str, Any]


def best(result: Result) -> Mapping[str, Any] | None:
    """The cheapest plan; None where nothing meets the objectives."""
    return result["plans"][0] if result["plans"] else None


def fastest(result: Result) -> Mapping[str, Any] | None:
    """The plan that is fastest for a user, where that is another than the cheapest."""
    plans = result["plans"]
    found = max(plans, key=lambda one: one["tokens_per_s_per_user"], default=None)
    return None if found is None or found["id"] == plans[0]["id"] else found


def times_the_cost(plan: Mapping[str, Any], cheapest: Mapping[str, Any]) -> float:
    """How often the cheapest one's cost a plan costs."""
    return float(plan["cost_per_million_output_tokens"] / cheapest["cost_per_million_output_tokens"])


def cards_within_band(plan: Mapping[str, Any], rate_rps: float, headroom: float) -> tuple[int, int]:
    """(cards, cards) that the rate takes where every step is faster, or slower, by the error band: what a replica may
    take is then as much more or less, and the objectives are taken to be met."""
    from experiments.planner.search import replicas_for

    each, times = plan["devices"] // plan["replicas"], 1 + plan["error_band_pct"] / 100
    few, many = (replicas_for(rate_rps, limit, headroom) for limit in (plan["limit_rps"] * times,
                                                                       plan["limit_rps"] / times))  # fmt: skip
    return each * few, each * many


def marks(result: Result) -> list[dict[str, Any]]:
    """Points of the chart: every simulated replica at its limit, and the plans at their load with their numbers."""
    limits = [
        {"kind": "front" if one["on_front"] else "simulated", "name": one["label"], "id": "",
         "per_user": one["tokens_per_s_per_user"], "per_card": one["tokens_per_s_per_card"], "cost": None}
        for one in result["simulated"]
    ]  # fmt: skip
    plans = [
        {"kind": "plan", "name": one["label"], "id": str(one["id"]), "per_user": one["tokens_per_s_per_user"],
         "per_card": one["tokens_per_s_per_card"], "cost": one["cost_per_million_output_tokens"]}
        for one in result["plans"]
    ]  # fmt: skip
    return [*limits, *plans]


def least_certain(result: Result) -> Mapping[str, Any]:
    """The card whose step times are known worst."""
    found: Mapping[str, Any] = max(result["cards"], key=lambda card: card["error_band_pct"])
    return found


def plan_command(spec: Mapping[str, Any]) -> str:
    """The command line of a run's spec."""
    words = ["trilemma", "plan", spec["model"], "--gpu", ",".join(spec["gpus"]), "--rate", f"{spec['rate_rps']:g}"]
    for option in ("input_tokens", "output_tokens", "workload", "slo", "max_devices"):
        if spec.get(option) is not None:
            words += [f"--{option.replace('_', '-')}", str(spec[option])]
    for name, price in (spec.get("prices") or {}).items():
        words += ["--price", f"{name}={price:g}"]
    for option, key in _LISTS.items():
        if spec.get(key):
            words += [option, ",".join(map(str, spec[key]))]
    if not spec.get("disaggregation", True):
        words.append("--no-pd")
    words += ["--headroom", f"{spec['headroom']:g}", "--seed", str(spec["seed"])]
    return shlex.join(words)


_LISTS = {
    "--weights": "weights", "--kv-dtype": "kv_dtypes", "--tp": "tps", "--pp": "pps", "--max-num-seqs": "seqs",
    "--max-num-batched-tokens": "batched",
}  # fmt: skip


@dataclass(frozen=True)
class SimulatorErrors:
    """What the simulator was off by on this machine's processor, per run (%; those that count) and on average."""

    rows: Sequence[Mapping[str, Any]]
    mean_pct: Mapping[str, float]


def simulator_errors(path: Path = RESULTS) -> SimulatorErrors | None:
    """The benchmark of the simulator's error as it was last measured; None where it was not."""
    try:
        found = json.loads(path.read_text("utf-8"))
        rows = [
            {
                "formats": row["formats"],
                "case": row["case"],
                **{name: row["errors_pct"][name] if name in row["counted"] else None for name in ERRORS},
            }
            for row in found["rows"]
            if row["kind"] == "run"
        ]
        return SimulatorErrors(rows, {name: one["mape_pct"] for name, one in found["errors"].items()})
    except (OSError, ValueError, KeyError, TypeError):
        return None
