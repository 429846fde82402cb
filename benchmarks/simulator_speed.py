"""How fast the simulator is: Azure conversation lengths on many replicas, step by step and with runs passed in one go.

    python benchmarks/simulator_speed.py [--requests 100000] [--replicas 64] [--rate 300] [--step-by-step]
                                         [--trace AzureLLMInferenceTrace_conv.csv] [--model llama-3.1-8b] [--gpu h100]
                                         [--router least-loaded] [--check 10000] [--scaling] [--out FILE.json]

Arrivals are a Poisson process at `--rate` requests/s. Lengths are the trace's, row after row; without a trace they are
drawn with its published means (1,155 and 211 tokens; log-normal). One process, one core. --check N first runs N
requests both ways and compares every event. --scaling also times a quarter and a half of the requests: the time a
request should not change.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from core_engine.simulation.fleet import serve
from core_engine.simulation.job import Ended, Job
from core_engine.simulation.routers import ROUTERS, router
from experiments.simulator.deployment import Deployed, SimulateSpec, deployed
from experiments.simulator.run import simulate_jobs

NS = 1_000_000_000
MEANS = (1155, 211)  # Azure LLM inference 2023, conversation: input and output tokens
SPREAD = (1.1, 0.9)  # standard deviations of the logarithms


def main(argv: list[str] | None = None) -> int:
    """Run and print; exit code 1 when the two ways differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--rate", type=float, default=300.0, help="requests/s of the fleet")
    parser.add_argument("--step-by-step", action="store_true")
    parser.add_argument("--trace", type=Path, default=None)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--router", choices=ROUTERS, default=ROUTERS[0])
    parser.add_argument("--check", type=int, default=0)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(argv)
    spec = SimulateSpec.from_dict(
        {"model": options.model, "gpu": options.gpu, "replicas": options.replicas, "router": options.router}
    )
    made, lengths = deployed(spec), lengths_of(options.trace)
    result: dict[str, Any] = {"options": {key: str(value) for key, value in vars(options).items()}}
    if options.check:
        result["equal"] = same_events(spec, made, list(jobs_of(lengths, options.check, options.rate)))
        print(f"{options.check:,} requests, event for event: {'equal' if result['equal'] else 'DIFFERENT'}", flush=True)
    sizes = [options.requests // 4, options.requests // 2, options.requests] if options.scaling else [options.requests]
    result["runs"] = [timed(spec, made, lengths, size, options) for size in sizes]
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1), "utf-8")
    return 0 if result.get("equal", True) else 1


def lengths_of(trace: Path | None) -> list[tuple[int, int]]:
    """(input, output) tokens, to be gone through again and again."""
    if trace is not None:
        with trace.open(encoding="utf-8", newline="") as file:
            return [(max(1, int(row[1])), max(1, int(row[2]))) for row in list(csv.reader(file))[1:]]
    rng = np.random.default_rng(0)
    columns = [
        np.maximum(1, np.rint(rng.lognormal(np.log(mean) - spread**2 / 2, spread, 20_000))).astype(int).tolist()
        for mean, spread in zip(MEANS, SPREAD, strict=True)
    ]
    return list(zip(*columns, strict=True))


def jobs_of(lengths: list[tuple[int, int]], count: int, rate: float) -> Iterator[Job]:
    """Jobs one by one, so that a million of them are never in memory together."""
    rng, now_s = np.random.default_rng(1), 0.0
    for first in range(0, count, 10_000):
        for place, gap in enumerate(rng.exponential(1 / rate, min(10_000, count - first)).tolist(), first):
            now_s += gap
            prompt, answer = lengths[place % len(lengths)]
            yield Job(place, round(now_s * NS), prompt, answer, answer)


def same_events(spec: SimulateSpec, made: Deployed, jobs: list[Job]) -> bool:
    """Whether single steps and runs give every request the same events."""
    found = []
    for skip in (False, True):
        ended: list[Ended] = []
        replicas = [made.replica(number, ended.append, skip=skip, keep_events=True) for number in range(spec.replicas)]
        serve(jobs, replicas, router(spec.router))
        found.append(sorted(ended, key=lambda item: item.job.index))
    return found[0] == found[1]


def timed(
    spec: SimulateSpec, made: Deployed, lengths: list[tuple[int, int]], count: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Seconds of a simulation, and what it said."""
    began, cpu = time.perf_counter(), time.process_time()
    metrics = simulate_jobs(spec, made, jobs_of(lengths, count, options.rate), skip=not options.step_by_step)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {
        "requests": count,
        "wall_s": took_s,
        "cpu_s": cpu_s,
        "us_a_request": 1e6 * cpu_s / count,
        "steps": metrics["steps"],
        "peak_rss_bytes": peak,
        "ttft_p95_s": metrics["ttft_s"]["p95"],
        "output_tokens_per_s": metrics["output_tokens_per_s"],
    }
    print(f"{count:,} requests: {took_s:.1f} s ({cpu_s:.1f} s of one core, {1e6 * cpu_s / count:,.0f} us each), "
          f"{metrics['steps']['count']:,} steps of which {metrics['steps']['passed_in_runs']:,} in runs, "
          f"{peak / 2**20:,.0f} MiB", flush=True)  # fmt: skip
    return found


if __name__ == "__main__":
    sys.exit(main())
