"""Fleets and jobs for the tests: small pools, shared prefixes, all random from a seed."""

from __future__ import annotations

import random
from typing import Any

from core_engine.config import EngineConfig
from core_engine.executor.roofline_executor import SimulatedMemory
from core_engine.simulation.fleet import serve
from core_engine.simulation.job import Ended, Job
from core_engine.simulation.replica import Replica
from core_engine.simulation.routers import router
from ledger.device_profile import device_profile
from ledger.model_spec import load_model_spec
from ledger.step_time import StepTimes

NS = 1_000_000_000
BLOCK = 16


def times_of(model: str = "llama-3.1-8b", card: str = "h100-sxm", **options: Any) -> StepTimes:
    return StepTimes(load_model_spec(model), device_profile(card), **options)


def config_of(**settings: Any) -> EngineConfig:
    return EngineConfig.from_settings(
        {"max_num_seqs": 16, "max_num_batched_tokens": 512, "block_size": BLOCK, "max_queue": 100_000, **settings}
    )


def jobs_of(
    count: int, rate: float, *, seed: int = 0, prompt: int = 600, output: int = 60, turns: int = 20
) -> list[Job]:
    """Poisson arrivals; a third of the prompts begin like another one, in pieces of 64 tokens."""
    rnd, now_ns, found = random.Random(seed), 0, []
    for index in range(count):
        now_ns += round(rnd.expovariate(rate) * NS)
        length, answer = rnd.randint(1, prompt), rnd.randint(1, output)
        shared = tuple(1000 * rnd.randrange(turns) + place for place in range(length // 64)) if index % 3 == 0 else ()
        found.append(Job(index, now_ns, length, answer, answer + 10, shared, 64))
    return found


def served(
    jobs: list[Job], *, replicas: int = 1, route: str = "least-loaded", blocks: int = 2000, skip: bool = True,
    keep_events: bool = True, times: StepTimes | None = None, options: dict[str, Any] | None = None, **settings: Any,
) -> tuple[list[Ended], list[Replica]]:  # fmt: skip
    """What became of the jobs, in their order, and the replicas afterwards."""
    times, config, ended = times or times_of(), config_of(**settings), []
    made = [
        Replica(
            config, times, SimulatedMemory(blocks, 1), ended.append, number=number, skip=skip, keep_events=keep_events,
            **(options or {}),
        )
        for number in range(replicas)
    ]  # fmt: skip
    serve(jobs, made, router(route))
    return sorted(ended, key=lambda item: item.job.index), made
