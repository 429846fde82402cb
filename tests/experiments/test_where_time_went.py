"""The waterfall of runs of the real engine: an injected delay lands where it belongs, and the parts make up e2e."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from experiments import loadgen
from experiments.metrics import PARTS, compute_metrics, waterfall, waterfalls
from experiments.workloads import Workload, WorkloadRequest
from tests.experiments.fakes import NS, FakeExecutor, VirtualClock, fake_loaded

DELAY_S = 0.020


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def engine_of(clock: VirtualClock, loaded: Any = None, **settings: Any) -> Engine:
    config = EngineConfig.from_settings(settings)
    return Engine(config, loaded or fake_loaded(), clock=clock, executor=FakeExecutor(clock, config))


def workload_of(*requests: tuple[int, int, float]) -> Workload:
    made = tuple(WorkloadRequest((7,) * prompt, output, output, round(at * NS)) for prompt, output, at in requests)
    return Workload("test", 0, made, None, "poisson")


TWO = workload_of((4, 10, 0.0), (4, 10, 0.03))


def once(function: Callable[..., Any], clock: VirtualClock, at_call: int) -> Callable[..., Any]:
    """The function, with a delay before its `at_call`-th call."""
    calls = [0]

    def delayed(*args: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == at_call:
            clock.sleep(DELAY_S)
        return function(*args, **named)

    return delayed


def parts_of(record: dict[str, Any], place: int) -> dict[str, float]:
    parts = waterfall(record, record["requests"][place])
    assert parts is not None
    assert sum(parts[name] for name in PARTS) == pytest.approx(parts["e2e_s"])
    return parts


def test_without_a_delay_nothing_is_overhead_or_unexplained_on_a_clock_that_only_the_executor_moves(
    clock: VirtualClock,
) -> None:
    parts = parts_of(loadgen.run(engine_of(clock), TWO), 0)
    assert parts["overhead_s"] == parts["unexplained_s"] == parts["queue_s"] == 0


def test_a_delay_while_detokenizing_is_overhead(clock: VirtualClock) -> None:
    loaded = fake_loaded()
    loaded.tokenizer.decode = once(loaded.tokenizer.decode, clock, at_call=3)
    parts = parts_of(loadgen.run(engine_of(clock, loaded), TWO), 0)
    assert parts["overhead_s"] == pytest.approx(DELAY_S, abs=1e-6)
    assert parts["unexplained_s"] == pytest.approx(0, abs=1e-9)


def test_a_delay_while_another_request_is_taken_in_is_overhead_of_the_running_one(clock: VirtualClock) -> None:
    engine = engine_of(clock)
    engine.scheduler.add = once(engine.scheduler.add, clock, at_call=2)  # type: ignore[method-assign]
    record = loadgen.run(engine, TWO)
    assert parts_of(record, 0)["overhead_s"] == pytest.approx(DELAY_S, abs=1e-6)
    assert parts_of(record, 0)["unexplained_s"] == pytest.approx(0, abs=1e-9)
    assert parts_of(record, 1)["queue_s"] >= DELAY_S  # its own taking in is part of its wait


@pytest.mark.parametrize("hook", ["on_progress", "should_cancel"])
def test_a_delay_in_what_the_load_generator_calls_back_is_overhead(clock: VirtualClock, hook: str) -> None:
    callback = once(lambda *_: False, clock, at_call=3)
    parts = parts_of(loadgen.run(engine_of(clock), TWO, **{hook: callback}), 0)
    assert parts["overhead_s"] == pytest.approx(DELAY_S, abs=1e-6)
    assert parts["unexplained_s"] == pytest.approx(0, abs=1e-9)


def test_the_wait_of_a_preempted_request_is_queue(clock: VirtualClock) -> None:
    """One MiB is 64 tokens of the stand-in's pool: two requests of 50 can't both stay."""
    engine = engine_of(clock, kv_memory_mib=1, block_size=1, prefix_cache="off")
    record = loadgen.run(engine, workload_of((10, 40, 0.0), (10, 40, 0.0)))
    assert record["counters"]["preemptions"] >= 1
    victim = next(place for place, request in enumerate(record["requests"]) if request["preemptions"])
    (out, back), *_ = record["requests"][victim]["preemptions"]
    assert parts_of(record, victim)["queue_s"] >= (back - out) / 1e9 * 0.9 > 0.1
    assert parts_of(record, 1 - victim)["queue_s"] == 0


def test_time_that_no_timer_covers_is_unexplained(clock: VirtualClock) -> None:
    engine = engine_of(clock)
    end, calls = engine.trace.end, [0]

    def after_the_last_reading(*args: Any, **named: Any) -> None:
        end(*args, **named)
        calls[0] += 1
        if calls[0] == 3:
            clock.sleep(DELAY_S)

    engine.trace.end = after_the_last_reading  # type: ignore[method-assign]
    record = loadgen.run(engine, TWO)
    assert parts_of(record, 0)["unexplained_s"] == pytest.approx(DELAY_S, abs=1e-6)
    assert compute_metrics(record)["unexplained_share"]["p99"] > 0.05


def test_waiting_for_a_full_batch_is_queue(clock: VirtualClock) -> None:
    engine = engine_of(clock, batching="static", max_num_seqs=2)
    record = loadgen.run(engine, workload_of((4, 4, 0.0), (4, 4, 1.0)))
    assert parts_of(record, 0)["queue_s"] == pytest.approx(1.0, abs=0.01)
    assert len(waterfalls(record)) == 2
