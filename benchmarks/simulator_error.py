"""The simulator against the engine on this machine: calibrated on one set of steps, tested on workloads it never saw.

    python benchmarks/simulator_error.py [--formats none/auto,none/int8,w8a8/auto,w4a16-rtn/int4] [--repeats 3]
                                         [--budget 60] [--out benchmarks/results/simulator-error.json] [--add]

For each pair of weight and KV format: calibrate (kept in $TRILEMMA_HOME/simulator.json), then run every test workload
on the engine and on the simulated engine through the same load generator, and compare the medians over repeats. A
machine shared with others is not as fast at one moment as at the next, so beside each workload some steps of the
calibration are timed again, and the simulated machine is as much slower or faster (`drift`); the errors without that
stand beside. Tests vary lengths, arrival rates up to and beyond what the engine can serve, and clients of a closed
loop; their shapes are none of the calibration's. With --add the rows that the file has of other formats stay. TTFT
counts where the engine is below its knee (achieved rate within 5 % of the offered one), and throughput in closed
loops and above it. The knee is the last rate of the ladder whose p95 TTFT is under four times that of the lowest
rate; it should be the same in both, or next to it. Writes JSON, and a Markdown table beside it.

Needs a quiet machine: everything in it is a timing.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from experiments.rig import Rig, machine
from experiments.simulator.calibration import calibrate_simulator, drift, probe, store
from experiments.simulator.deployment import Deployed, SimulateSpec, deployed
from experiments.spec import BenchSpec
from experiments.targets import EngineTarget, Target, measure
from experiments.targets.simulator import SimulatorTarget
from ledger.step_time import StepTimes

FORMATS = "none/auto,none/int8,w8a8/auto,w4a16-rtn/int4"
BELOW_KNEE, KNEE_TIMES = 0.95, 4.0
LIMITS = {"tpot": 10.0, "ttft": 15.0, "throughput": 10.0}
Entry = dict[str, Any]  # a calibration as it is kept
LADDER = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # of the closed loop's requests/s


@dataclass(frozen=True)
class Case:
    """A test workload by name, and the fields of its bench."""

    name: str
    fields: dict[str, Any]


CLOSED = (
    Case("closed, 1 client, chat", {"workload": "chat", "concurrency": 1, "num_requests": 6}),
    Case("closed, 4 clients, mixed", {"workload": "mixed", "concurrency": 4, "num_requests": 20}),
    Case("closed, 8 clients, mixed", {"workload": "mixed", "concurrency": 8, "num_requests": 32}),
    Case("closed, 8 clients, short answers", {"workload": "long-tail", "concurrency": 8, "num_requests": 24}),
    Case("closed, 2 clients, long prompts", {"workload": "mixed", "concurrency": 2, "num_requests": 8,
                                             "length_scale": 3.0, "max_tokens_cap": 96}),
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run and write; exit code 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default=FORMATS, help="weights/kv_dtype pairs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a calibration's steps")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/simulator-error.json"))
    parser.add_argument("--add", action="store_true", help="to what the file has of other formats")
    options = parser.parse_args(argv)
    rig, rows, calibrations = Rig(_say), [], []
    for pair in options.formats.split(","):
        weights, kv_dtype = pair.split("/")
        settings = {"weights": weights, "kv_dtype": kv_dtype}
        _say(f"== {pair}: calibrating")
        entry = calibrate_simulator(settings, budget_s=options.budget, report=_say, rig=rig)
        store(entry)
        calibrations.append({"formats": pair, "seconds": entry["duration_s"], **entry["fit"]})
        rows += _of_formats(pair, settings, entry, rig, options.repeats)
    if options.add and options.out.exists():
        before, now = json.loads(options.out.read_text("utf-8")), options.formats.split(",")
        calibrations += [entry for entry in before["calibrations"] if entry["formats"] not in now]
        rows += [row for row in before["rows"] if row["formats"] not in now]
    result = {
        "calibrations": calibrations,
        "rows": rows,
        "errors": _errors(rows),
        "knees": [row for row in rows if row["kind"] == "knee"],
        "limits_pct": LIMITS,
        "repeats": options.repeats,
        "environment": machine(),
        "provenance": "measured and simulated",
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1), "utf-8")
    table = markdown(result)
    options.out.with_suffix(".md").write_text(table, "utf-8")
    print(table)
    return 0 if _holds(result) else 1


def _of_formats(pair: str, settings: dict[str, Any], entry: Entry, rig: Rig, repeats: int) -> list[dict[str, Any]]:
    found = [_compare(pair, case, settings, entry, rig, repeats) for case in CLOSED]
    capacity = next(row for row in found if row["case"].startswith("closed, 8 clients, mixed"))["measured"]["requests"]
    ladder = []
    for share in LADDER:
        fields = {"workload": "mixed", "rate_rps": round(share * capacity, 3), "num_requests": 32, "seed": 7}
        ladder.append(_compare(pair, Case(f"mixed at {share:g} of capacity", fields), settings, entry, rig, repeats))
    knees = {side: _knee([row[side]["ttft_p95"] for row in ladder]) for side in ("measured", "simulated")}
    return [*found, *ladder, {"kind": "knee", "formats": pair, "rates": list(LADDER), **knees}]


def _knee(ttft_p95: list[float]) -> int:
    """The place of the last rate up to which TTFT stays under KNEE_TIMES that of the lowest rate."""
    place = 0
    while place + 1 < len(ttft_p95) and ttft_p95[place + 1] <= KNEE_TIMES * ttft_p95[0]:
        place += 1
    return place


def _compare(pair: str, case: Case, settings: dict[str, Any], entry: Entry, rig: Rig, repeats: int) -> dict[str, Any]:
    spec = BenchSpec.from_dict({**case.fields, "settings": settings})
    engine = EngineTarget(spec.config(), rig)
    workload = engine.draw(spec)
    engine.warm_up(workload)
    made = deployed(SimulateSpec.from_dict({**case.fields, "settings": settings}))
    probes, runs = [probe(entry, rig.engine(spec.config()))], []
    for _ in range(repeats):
        runs.append(_figures(spec, engine, workload))
        probes.append(probe(entry, rig.engine(spec.config())))
    measured, now = _median(runs), drift(entry, probes)
    tokenizer = rig.tokenizer(spec.config())
    simulated = _figures(spec, SimulatorTarget(_slower(made, now), tokenizer), workload)
    undrifted = _figures(spec, SimulatorTarget(made, tokenizer), workload)
    is_closed = spec.concurrency is not None
    below = not is_closed and measured["requests"] >= BELOW_KNEE * (spec.rate_rps or 0.0)
    counted = ["tpot", "ttft" if below else "throughput"]
    errors, without = _errors_pct(simulated, measured), _errors_pct(undrifted, measured)
    said = (f"{name} {errors[name]:+.1f} % (without drift {without[name]:+.1f} %)" for name in counted)
    _say(f"{pair} {case.name}: drift {now:.2f}, {', '.join(said)}")
    return {
        "kind": "run", "formats": pair, "case": case.name, "measured": measured, "simulated": simulated,
        "drift": now, "errors_pct": errors, "errors_without_drift_pct": without, "counted": counted,
    }  # fmt: skip


def _errors_pct(simulated: dict[str, float], measured: dict[str, float]) -> dict[str, float]:
    return {name: 100 * (simulated[name] / measured[name] - 1) for name in LIMITS}


def _slower(made: Deployed, times: float) -> Deployed:
    """The deployment on a machine on which everything takes so many times as long."""
    card = made.profile.accelerator
    rates = {fmt: rate / times for fmt, rate in card.flops_per_s.items()}
    profile = replace(
        made.profile,
        accelerator=replace(card, bandwidth_bytes_per_s=card.bandwidth_bytes_per_s / times, flops_per_s=rates),
        host_step_s=made.profile.host_step_s * times,
        host_row_s=made.profile.host_row_s * times,
    )
    return replace(made, profile=profile, times=StepTimes(
        made.spec, profile, weights=made.times.weights, kv_dtype=made.times.kv_dtype, link=made.times.link
    ))  # fmt: skip


def _figures(spec: BenchSpec, target: Target, workload: Any) -> dict[str, float]:
    metrics = measure(spec, target, workload, around={}).metrics
    return {
        "tpot": metrics["tpot_s"]["mean"],
        "ttft": metrics["ttft_s"]["mean"],
        "ttft_p95": metrics["ttft_s"]["p95"],
        "throughput": metrics["output_tokens_per_s"],
        "requests": metrics["requests_per_s"],
    }


def _median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


def _errors(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean absolute percentage errors of what counts, and the largest."""
    found = {}
    for name in LIMITS:
        sizes = [abs(row["errors_pct"][name]) for row in rows if row["kind"] == "run" and name in row["counted"]]
        plain = [
            abs(row["errors_without_drift_pct"][name])
            for row in rows
            if row["kind"] == "run" and name in row["counted"]
        ]
        if sizes:
            found[name] = {
                "mape_pct": sum(sizes) / len(sizes),
                "max_pct": max(sizes),
                "without_drift_mape_pct": sum(plain) / len(plain),
                "n": len(sizes),
            }
    return found


def _holds(result: dict[str, Any]) -> bool:
    within = all(
        result["errors"][name]["mape_pct"] <= limit for name, limit in LIMITS.items() if name in result["errors"]
    )
    return within and all(abs(knee["measured"] - knee["simulated"]) <= 1 for knee in result["knees"])


def markdown(result: dict[str, Any]) -> str:
    """The error table."""
    lines = ["| formats | workload | TPOT | TTFT | throughput |", "|--|--|--:|--:|--:|"]
    for row in result["rows"]:
        if row["kind"] == "run":
            cells = [
                f"{row['errors_pct'][name]:+.1f} %" if name in row["counted"] else f"({row['errors_pct'][name]:+.1f} %)"
                for name in ("tpot", "ttft", "throughput")
            ]
            lines.append(f"| {row['formats']} | {row['case']} | {' | '.join(cells)} |")
    errors = " | ".join(
        f"**{result['errors'][name]['mape_pct']:.1f} %**" if name in result["errors"] else "" for name in LIMITS
    )
    lines.append(f"| mean absolute error | of those not in brackets | {errors} |")
    without = " | ".join(
        f"{result['errors'][name]['without_drift_mape_pct']:.1f} %" if name in result["errors"] else ""
        for name in LIMITS
    )
    lines.append(f"| | the same, had the machine been as fast as when it was calibrated | {without} |")
    for knee in result["knees"]:
        at = knee["rates"]
        lines.append(f"\nKnee of {knee['formats']}: measured at {at[knee['measured']]:g} of capacity, "
                     f"simulated at {at[knee['simulated']]:g}.")  # fmt: skip
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
