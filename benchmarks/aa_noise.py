"""The noise of this machine: equal runs of one configuration, one after another, and the model that they make.

    python benchmarks/aa_noise.py [--runs 60] [--workload equal] [--requests 4] [--tokens 16] [--set NAME=VALUE]...
                                  [--clock wall|process] [--note TEXT] [--out benchmarks/results/aa-noise.json]

Every run is made as a comparison makes its own: a fresh engine with an empty pool, after the warm-up, by the load
generator, with the metrics of a comparison. The file holds every run's values, what they were made with, and the noise
model (noise_model.py), from which the tests of false alarms and of power draw. Measure it with nothing else running;
--note says so, or says what ran beside it. On a machine that can't be had alone, --clock process counts the processor
time of this process (all its threads, so with threads=1 alone): what others take away is then no part of the noise, and
the file says which clock it was. Such a file stands in for a quiet one; it is not one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from noise_model import NoiseModel

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.variables import parse_setting
from experiments import loadgen
from experiments.metrics import compute_metrics
from experiments.rig import Rig, draw_workload, machine, warm_up
from experiments.spec import BenchSpec
from experiments.summary import performance_curves

OUT = Path(__file__).with_name("results") / "aa-noise.json"
SETTINGS = {"kv_memory_mib": 64}


class ProcessClock:
    """Processor time of this process, in place of the wall clock."""

    def now_ns(self) -> int:
        """ns of all threads so far."""
        return time.process_time_ns()

    def sleep(self, seconds: float) -> None:
        """Wait by the wall; waiting takes no processor time."""
        time.sleep(seconds)


class ClockedRig(Rig):
    """A rig whose engines go by another clock."""

    def __init__(self, clock: ProcessClock | None) -> None:
        super().__init__()
        self._clock = clock

    def engine(self, config: EngineConfig, proposer: Any = None) -> Any:
        """As a rig's, by the clock given."""
        engine = super().engine(config, proposer)
        return engine if self._clock is None else Engine(config, engine.loaded, clock=self._clock)


def measure(spec: BenchSpec, runs: int, clock: str) -> dict[str, Any]:
    """Make `runs` equal runs by the clock named and return the file's object."""
    rig, config = ClockedRig(ProcessClock() if clock == "process" else None), spec.config()
    workload = draw_workload(spec, rig.tokenizer(config))
    before, warmed = machine(), warm_up(rig, config, workload)
    found: list[dict[str, Any]] = []
    began = time.perf_counter()
    while len(found) < runs:
        record = loadgen.run(rig.engine(config), workload)
        found.append(compute_metrics(record, price_per_device_hour=spec.price_per_device_hour, slo=None))
        print(f"{len(found):4} of {runs}  {found[-1]['output_tokens_per_s']:.2f} tokens/s", file=sys.stderr, flush=True)
    values = [{c.name: c.baseline[i] for c in performance_curves([found, found])} for i in range(runs)]
    return {
        "spec": spec.to_dict(),
        "clock": clock,
        "provenance": "measured",
        "seconds_a_run": round((time.perf_counter() - began) / runs, 3),
        "warm_up": {"runs": warmed.runs, "stable": warmed.stable},
        "environment": {**record["environment"], **before, "load_after": machine()["load_before"]},
        "values": values,
        "model": NoiseModel.of(values).to_json(),
    }


def main() -> int:
    """Measure, print the model without its innovations, write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--workload", default="equal")
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--clock", choices=("wall", "process"), default="wall")
    parser.add_argument("--note", default="")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    spec = BenchSpec.from_dict({
        "workload": options.workload, "num_requests": options.requests, "max_tokens_cap": options.tokens,
        "settings": {**SETTINGS, **dict(parse_setting(text) for text in options.set)},
    })  # fmt: skip
    found = {"note": options.note, **measure(spec, options.runs, options.clock)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(json.dumps({name: value for name, value in found["model"].items() if name != "innovations"}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
