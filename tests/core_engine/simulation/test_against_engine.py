"""The simulator under the real engine's step durations makes the real engine's plans."""

from __future__ import annotations

from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.roofline_executor import SimulatedMemory
from core_engine.model.loader import LoadedModel
from core_engine.plan import StepPlan
from core_engine.request import SamplingParams
from core_engine.simulation.job import Job
from core_engine.simulation.replica import Replica
from tests.core_engine.simulation.made import times_of

PROMPTS = (40, 7, 90, 40, 61, 3, 120, 18)
ANSWERS = (12, 30, 5, 9, 1, 22, 14, 8)


def real_run(loaded: LoadedModel, config: EngineConfig) -> dict[str, Any]:
    """A record of requests that come while others run, some of them with a common beginning."""
    engine = Engine(config, loaded)
    engine.expect_more_arrivals(True)
    for number, (length, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        prompt = [2 + (place if number % 2 else place * 3) % 50 for place in range(length)]
        engine.add(prompt, SamplingParams(max_tokens=answer, ignore_eos=True), request_id=f"r{number:02d}")
        engine.expect_more_arrivals(number + 1 < len(PROMPTS))
        for _ in range(3):
            if engine.has_unfinished():
                engine.step()
    while engine.has_unfinished():
        engine.step()
    return engine.record()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"kv_memory_mib": 1, "max_num_seqs": 3},
        {"kv_dtype": "int8"},
        {"prefix_cache": "off", "kv_layout": "contiguous"},
        {"batching": "static", "max_num_seqs": 2, "max_queue": 10},
    ],
)
def test_forced_to_the_engines_step_durations_it_makes_the_engines_plans(
    tiny_loaded: LoadedModel, settings: dict[str, Any]
) -> None:
    config = EngineConfig.from_settings({"max_num_batched_tokens": 48, "block_size": 8, "kv_memory_mib": 2, **settings})
    record = real_run(tiny_loaded, config)
    steps = record["steps"]
    found: list[list[Any]] = []

    def watched(plan: StepPlan) -> None:
        rows = [[row.request_id, row.start, row.count, row.sample] for row in plan.rows]
        found.append([rows, list(plan.admitted), list(plan.preempted)])

    def duration(plan: StepPlan) -> float:
        """To the moment at which the engine planned its next step."""
        place = len(found)
        until = steps[place]["plan_start_ns"] if place < len(steps) else steps[-1]["commit_end_ns"]
        return (until - replica.clock.now_ns()) / 1e9

    replica = Replica(
        config,
        times_of("smollm2-135m", "l4"),
        SimulatedMemory(record["derived"]["num_kv_blocks"], 1),
        lambda ended: None,
        max_position=record["derived"]["max_position"],
        duration=duration,
        on_plan=watched,
    )
    replica.clock.reach_ns(steps[0]["plan_start_ns"])
    for number, request in enumerate(record["requests"]):
        job = Job(
            number, request["send_ns"], request["prompt_tokens"], len(request["output_token_ids"]),
            request["max_tokens"], token_ids=request["prompt_token_ids"],
        )  # fmt: skip
        replica.advance(job.arrival_ns)
        replica.submit(job)
        if number + 1 == len(PROMPTS):
            replica.scheduler.more_arrivals = False
    replica.advance(None)
    expected = [
        [[[row[0], row[1], row[2], row[4]] for row in step["rows"]], step["admitted"], step["preempted"]]
        for step in steps
    ]
    assert found == expected
