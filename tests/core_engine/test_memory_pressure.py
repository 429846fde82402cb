"""A pool that is too small: preemption, aborts, contiguous reservations, and what is left when all is done."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import tracemalloc
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.model.loader import LoadedModel
from core_engine.replay import ReplayMismatch, replay
from core_engine.request import SamplingParams
from tests.core_engine.shadow import answer, expected_tokens, shadow_engine


def small_engine(loaded: LoadedModel, num_blocks: int, block_size: int = 4, **settings: Any) -> Engine:
    """An engine over the real executor with a pool of `num_blocks`."""
    spec = loaded.decoder.spec
    block_bytes = 2 * spec.num_layers * block_size * spec.num_kv_heads * spec.head_dim * 4
    executor = TorchExecutor(loaded.decoder, block_size=block_size, kv_memory_bytes=num_blocks * block_bytes)
    config = EngineConfig.from_settings({"block_size": block_size, **settings})
    return Engine(config, loaded, executor=executor)


def finish(engine: Engine) -> None:
    while engine.has_unfinished():
        engine.step()


def preempt_youngest(engine: Engine) -> None:
    """What the scheduler does when blocks run out, at will."""
    from core_engine.scheduler import _Draft

    running = engine.scheduler.running
    if running:
        engine.scheduler._preempt(running[-1], _Draft(0, engine.clock.now_ns()))


@pytest.mark.parametrize("prefix_cache", ["on", "off"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_preemption_at_every_step_changes_neither_text_nor_usage(
    tiny_loaded: LoadedModel, temperature: float, prefix_cache: str
) -> None:
    prompt = list(range(30, 47))
    params = SamplingParams(max_tokens=12, ignore_eos=True, temperature=temperature, seed=9)
    engine = small_engine(tiny_loaded, 40, prefix_cache=prefix_cache)
    expected = engine.generate([prompt], params)[0]
    for every in (1, 2, 5):
        engine = small_engine(tiny_loaded, 40, prefix_cache=prefix_cache)
        request_id = engine.add(prompt, params)
        for step in itertools.count():
            if not engine.has_unfinished():
                break
            engine.step()
            if step % every == 0 and engine.has_unfinished():
                preempt_youngest(engine)
        got = engine.completion(request_id)
        assert (got.token_ids, got.text) == (expected.token_ids, expected.text)
        record = engine.record()["requests"][0]
        assert len(record["preemptions"]) >= 2
        assert sum(tokens for _, tokens in record["emissions"]) == 12


def test_a_seeded_request_gives_the_same_ids_alone_batched_chunked_and_preempted(tiny_loaded: LoadedModel) -> None:
    prompt = list(range(60, 83))
    params = SamplingParams(max_tokens=14, ignore_eos=True, temperature=1.2, seed=77, top_k=40)
    alone = small_engine(tiny_loaded, 60).generate([prompt], params)[0].token_ids
    unseeded = SamplingParams(max_tokens=20, ignore_eos=True, temperature=1.0)
    for settings in ({}, {"max_num_batched_tokens": 5}, {"prefix_cache": "off"}, {"batching": "static"}):
        engine = small_engine(tiny_loaded, 17, **settings)
        for mate in range(5):
            engine.add([5 + mate] * (3 + 5 * mate), unseeded)
        request_id = engine.add(prompt, params)
        engine.add([9] * 11, unseeded)
        finish(engine)
        assert engine.completion(request_id).token_ids == alone, settings
        assert engine.scheduler.num_preemptions > 0


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_a_pool_of_the_longest_request_and_one_block_finishes_all_with_few_preemptions(batching: str) -> None:
    lengths = [(9, 30), (17, 22), (3, 36), (25, 14), (12, 20), (6, 33)]
    longest = max(prompt + output for prompt, output in lengths)
    engine = shadow_engine(-(-longest // 4) + 1, block_size=4, max_num_seqs=6, batching=batching)
    prompts = [[number * 20 + i for i in range(prompt)] for number, (prompt, _) in enumerate(lengths)]
    names = [engine.add(prompt, answer(output, seed=5)) for prompt, (_, output) in zip(prompts, lengths, strict=True)]
    finish(engine)
    for name, prompt, (_, output) in zip(names, prompts, lengths, strict=True):
        assert engine.completion(name).token_ids == expected_tokens(prompt, output, 5)
    # A request is put back at most once for every block that an older one grows by.
    assert engine.scheduler.num_preemptions <= sum(-(-output // 4) for _, output in lengths)


def test_a_thousand_random_steps_of_the_real_executor_with_room_for_little_more_than_one(
    tiny_loaded: LoadedModel,
) -> None:
    rng = random.Random(11)
    engine = small_engine(tiny_loaded, 9, max_num_seqs=6, max_num_batched_tokens=24)
    prompts: dict[str, tuple[list[int], int]] = {}
    begin = [rng.randrange(3, 250) for _ in range(8)]
    for _ in range(1_000):
        if len(engine.sessions.live) < 8:
            prompt = begin[: rng.randrange(9)] + [rng.randrange(3, 250) for _ in range(rng.randint(1, 14))]
            output = rng.randint(1, 12)
            prompts[engine.add(prompt, SamplingParams(max_tokens=output, ignore_eos=True))] = (prompt, output)
        if rng.random() < 0.02 and engine.sessions.live:
            engine.abort(rng.choice(list(engine.sessions.live)))
        engine.step()
        engine.pool.check_each(request.blocks for request in engine.scheduler.running)
    finish(engine)
    assert engine.scheduler.num_preemptions > 50 and engine.pool.num_used == 0
    oracle = Engine(EngineConfig.from_settings({"prefix_cache": "off"}), tiny_loaded)
    checked = rng.sample(list(prompts.items()), 60)
    for name, (prompt, output) in checked:
        got = engine.completion(name)
        wanted = oracle.generate([prompt], SamplingParams(max_tokens=output, ignore_eos=True))[0].token_ids
        assert got.token_ids == (wanted[: len(got.token_ids)] if got.finish_reason == "abort" else wanted)


def test_an_abort_at_every_boundary_of_a_step_keeps_the_invariants() -> None:
    for when in range(12):
        for in_flight in (False, True):
            engine = shadow_engine(12, block_size=4, max_num_seqs=3)
            names = [engine.add([n * 9 + i for i in range(7)], answer(9, seed=2)) for n in range(4)]
            for step in itertools.count():
                if not engine.has_unfinished():
                    break
                if step == when and not in_flight:
                    engine.abort(names[1])
                if step == when and in_flight:
                    engine.executor.during = lambda _, engine=engine, names=names: engine.abort(names[1])  # type: ignore[attr-defined]
                engine.step()
                engine.executor.during = lambda _: None  # type: ignore[attr-defined]
                engine.pool.check_each(request.blocks for request in engine.scheduler.running)
            assert engine.pool.num_used == 0
            for number in (0, 2, 3):
                prompt = [number * 9 + i for i in range(7)]
                assert engine.completion(names[number]).token_ids == expected_tokens(prompt, 9, 2)


def test_contiguous_memory_reserves_the_stated_limit_and_admits_fewer() -> None:
    settings: dict[str, Any] = {"block_size": 4, "max_num_seqs": 8, "prefix_cache": "off"}
    limit = {"max_tokens": 40, "answer_tokens": 6, "ignore_eos": True, "temperature": 1.0, "seed": 3}
    running = {}
    for layout in ("paged", "contiguous"):
        engine = shadow_engine(36, **settings, kv_layout=layout)
        prompts = [[n * 10 + i for i in range(8)] for n in range(8)]
        answers = engine.generate(prompts, SamplingParams(**limit))
        for prompt, one in zip(prompts, answers, strict=True):
            assert one.token_ids == expected_tokens(prompt, 6, 3) and one.finish_reason == "stop"
        running[layout] = max(step["num_seqs"] for step in engine.trace.steps)
        first = engine.trace.steps[0]["kv"]
        assert sum(first[f"{kind}_tokens"] for kind in ("used", "held", "internal", "unused", "cached", "free")) == 144
        if layout == "contiguous":
            assert first["unused_tokens"] == 3 * 40  # 12 blocks each, of which 2 are begun
    assert running == {"paged": 8, "contiguous": 3}


def test_free_memory_in_pieces_does_not_serve_a_contiguous_request() -> None:
    engine = shadow_engine(12, block_size=4, kv_layout="contiguous", prefix_cache="off")
    small = [engine.add([n], answer(15, seed=1)) for n in range(3)]  # 4 blocks each
    engine.step()
    engine.abort(small[0])
    engine.abort(small[2])
    engine.add([7], answer(27, seed=1))  # 7 blocks: 8 are free, in two pieces of 4
    engine.step()
    kv = engine.trace.steps[-1]["kv"]
    assert (kv["free_tokens"], kv["largest_free_tokens"]) == (32, 16)
    assert len(engine.scheduler.waiting) == 1
    finish(engine)
    assert engine.pool.num_used == 0


def test_the_watermark_leaves_room_for_running_requests_to_grow() -> None:
    preemptions = {}
    for watermark in (0.0, 0.4):
        engine = shadow_engine(20, block_size=4, max_num_seqs=16, kv_watermark=watermark, prefix_cache="off")
        engine.generate([[n] * 8 for n in range(12)], answer(16, seed=1))
        preemptions[watermark] = engine.scheduler.num_preemptions
    assert preemptions[0.4] < preemptions[0.0]


def test_memory_after_a_run_is_as_before_it() -> None:
    engine = shadow_engine(80, block_size=4, max_num_seqs=20)
    prompts = [[n % 250, n // 250, 5, 6, 7] for n in range(600)]

    def run() -> None:
        engine.generate(prompts, answer(6, seed=1))
        engine.clear_history()
        gc.collect()

    tracemalloc.start()
    try:
        run()
        before = tracemalloc.get_traced_memory()[0]
        run()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert engine.pool.num_used == 0 and not engine.sessions.live and not engine.sessions.ended
    assert grown < 20_000  # bytes: less than an object a request, and the run takes some 3 MB


def calls_of_a_step(engine: Engine) -> int:
    """Python functions that one step calls: its work, without the machine's noise."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        engine.step()
    finally:
        sys.setprofile(None)
    return count


def test_a_step_does_no_more_work_after_two_thousand_finished_requests() -> None:
    engine = shadow_engine(80, block_size=4, max_num_seqs=8, prefix_cache="off")

    def measured_step() -> int:
        engine.add([1, 2, 3], answer(3, seed=1))
        engine.step()
        calls = calls_of_a_step(engine)
        finish(engine)
        return calls

    early = measured_step()
    engine.generate([[n % 250, n // 250] for n in range(2_000)], answer(2, seed=1))
    assert measured_step() == early


def test_history_is_bounded_and_the_last_requests_stay() -> None:
    engine = shadow_engine(80, block_size=4)
    engine.sessions._keep = 3
    names = [engine.add([n], answer(2, seed=1)) for n in range(6)]
    finish(engine)
    assert list(engine.sessions.ended) == names[3:]
    assert engine.completion(names[5]).finish_reason == "length"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batching": "static"},
        {"batching": "dynamic", "max_wait_ms": 0.0},
        {"kv_layout": "contiguous", "prefix_cache": "off"},
        {"max_num_batched_tokens": 5},
    ],
)
def test_a_record_replays_to_the_same_plans_and_another_one_is_told_apart(settings: dict[str, Any]) -> None:
    engine = shadow_engine(14, block_size=4, max_num_seqs=5, **settings)
    names = [engine.add([n % 2] * 6 + [n] * (1 + 3 * n), answer(7 + n, seed=1)) for n in range(7)]
    engine.step()
    engine.abort(names[2])
    engine.add([3] * 9, answer(5, seed=1, n=2))
    finish(engine)
    record = engine.record()
    held = []
    for plan, scheduler in replay(record):
        held.append(scheduler.pool.num_used)
        assert [row.request_id for row in plan.rows] == [row[0] for row in record["steps"][plan.index]["rows"]]
    assert held == [step["kv_used_blocks"] for step in record["steps"]]
    record["steps"][3]["rows"][0][2] += 1
    with pytest.raises(ReplayMismatch, match="step 3"):
        list(replay(record))


def test_the_journal_of_blocks_gives_who_holds_what_while_every_step_executes() -> None:
    engine = shadow_engine(14, block_size=4, max_num_seqs=5)
    tables: list[dict[str, set[int]]] = []
    engine.executor.during = lambda _: tables.append(  # type: ignore[attr-defined]
        {request.id: set(request.blocks) for request in engine.scheduler.running}
    )
    for n in range(7):
        engine.add([7] * 9 + [n], answer(6 + n, seed=1))
    finish(engine)
    held: dict[str, set[int]] = {}

    def apply(events: list[Any]) -> None:
        for what, name, blocks in events:
            if what in ("take", "share"):
                held.setdefault(name, set()).update(blocks)
            elif what == "drop":
                held[name] -= set(blocks)

    for step, table in zip(engine.record()["steps"], tables, strict=True):
        apply(step["kv_events"])
        assert {name: blocks for name, blocks in held.items() if blocks} == table
        apply(step["kv_commit_events"])
    assert not any(held.values())
