"""A mock target with the noise of real runs: the fake engine, each of whose runs is as slow as a measured series says.

The series comes from benchmarks/results/aa-noise.json, which benchmarks/aa_noise.py measures. The three curves of a run
are set apart from each other, since they vary apart: TTFT by the prefill step, the tail of the gaps by two slow decode
steps of twenty, throughput by the duration of the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from noise_model import NoiseModel

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.plan import StepPlan, StepResult
from experiments.compare import run_comparison
from tests.experiments.fakes import FakeExecutor, FakeRig, VirtualClock, fake_loaded

FILE = Path(__file__).parents[2] / "benchmarks" / "results" / "aa-noise.json"
WORKLOAD = {"workload": "equal", "num_requests": 2, "max_tokens_cap": 21}
PREFILL_S, SLOW_S, WHOLE_S = 0.100, 0.030, 0.500
DECODE_STEPS, SLOW_STEPS = 20, (7, 14)  # 4 of 40 gaps: the 95th percentile lies among them
SHORTEST_S = 1e-4
THROUGHPUT = "output_tokens_per_s"


def measured_noise() -> tuple[NoiseModel, dict[str, Any]]:
    """The noise model of the file, and the file."""
    data = json.loads(FILE.read_text("utf-8"))
    return NoiseModel.from_json(data["model"]), data


class NoisyExecutor(FakeExecutor):
    """One run's steps: `factors` multiplies each curve's nominal value, `slower` every time."""

    def __init__(self, clock: VirtualClock, config: EngineConfig, factors: dict[str, float], slower: float) -> None:
        super().__init__(clock, config, base_s=0.0, token_s=0.0)
        self._prefill_s = PREFILL_S * factors["ttft_s"] * slower
        self._slow_s = SLOW_S * factors["itl_s"] * slower
        rest_s = WHOLE_S / factors[THROUGHPUT] * slower - self._prefill_s - len(SLOW_STEPS) * self._slow_s
        self._fast_s = max(SHORTEST_S, rest_s / (DECODE_STEPS - len(SLOW_STEPS)))
        self._decodes = 0

    def execute(self, plan: StepPlan) -> StepResult:
        decoding = all(row.count == 1 for row in plan.rows)
        self._decodes = self._decodes + 1 if decoding else 0
        slow = self._decodes in SLOW_STEPS
        self._clock.sleep(self._prefill_s if not decoding else self._slow_s if slow else self._fast_s)
        return super().execute(plan)


class NoisyRig(FakeRig):
    """Each engine is the next run of one drawn series; seed=1, the candidate's, is `slower` times as slow."""

    def __init__(self, clock: VirtualClock, model: NoiseModel, seed: int, *, slower: float, scale: float) -> None:
        super().__init__(clock)
        self._series = model.series(np.random.default_rng(seed), scale)
        self._slower = slower

    def engine(self, config: EngineConfig, proposer: Any = None) -> Engine:
        executor = NoisyExecutor(self.clock, config, next(self._series), self._slower if config.seed == 1 else 1.0)
        return Engine(config, fake_loaded(), clock=self.clock, executor=executor, proposer=proposer)


def noisy_comparison(
    clock: VirtualClock,
    model: NoiseModel,
    seed: int,
    *,
    repeats: int | str,
    slower: float = 1.0,
    scale: float = 1.0,
) -> dict[str, Any]:
    """The JSON of one whole comparison on the mock target."""
    spec = {**WORKLOAD, "variable": "seed", "values": [0, 1], "repeats": repeats}
    return run_comparison(spec, None, f"n{seed}", rig=NoisyRig(clock, model, seed, slower=slower, scale=scale))


def called(result: dict[str, Any], *words: str) -> bool:
    """Whether any curve has one of these verdicts."""
    return any(curve["verdict"] in words for curve in result["curves"])
