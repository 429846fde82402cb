"""Steps planned and launched while the one before is still being computed: same answers, same blocks, nothing lost."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from core_engine.engine import Engine
from core_engine.replay import replay
from core_engine.sampling_params import SamplingParams
from tests.core_engine.shadow import AheadShadow, ShadowExecutor, answer, expected_tokens, shadow_engine


def ahead_engine(num_blocks: int, **settings: object) -> tuple[Engine, AheadShadow]:
    engine = shadow_engine(num_blocks, None, AheadShadow, **settings)
    assert isinstance(engine.executor, AheadShadow)
    return engine, engine.executor


def finish(engine: Engine) -> None:
    while engine.has_unfinished():
        engine.step()


def test_all_steps_but_the_first_of_a_batch_are_launched_behind_another() -> None:
    engine, executor = ahead_engine(40, block_size=4)
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8]]
    answers = engine.generate(prompts, answer(12, seed=3))
    assert [a.token_ids for a in answers] == [expected_tokens(prompt, 12, 3) for prompt in prompts]
    assert [step.get("ahead", False) for step in engine.trace.steps] == [False] + [True] * 11
    assert executor.launched_behind == 11, "nothing is launched for answers that end by length"


def test_off_and_a_host_that_computes_itself_wait_for_every_step() -> None:
    off, executor = ahead_engine(40, overlap="off")
    off.generate([[1, 2]], answer(5))
    assert executor.launched_behind == 0
    host = shadow_engine(40, None, ShadowExecutor, overlap="on")
    host.generate([[1, 2]], answer(5))
    assert not any(step.get("ahead") for engine in (off, host) for step in engine.trace.steps)


@pytest.mark.parametrize("seed", range(6))
def test_an_answer_that_stops_leaves_one_unread_row_and_its_blocks_behind(seed: int) -> None:
    engine, _ = ahead_engine(60, block_size=2, max_num_seqs=4)
    wanted = {}
    for number in range(4):
        prompt = [number, seed, 9]
        whole = expected_tokens(prompt, 20, seed)
        stop = whole[3 + 2 * number]  # somewhere, nobody knows beforehand
        wanted[engine.add(prompt, answer(20, seed=seed, stop_token_ids=(stop,)))] = whole[: whole.index(stop) + 1]
    finish(engine)
    for request_id, tokens in wanted.items():
        assert engine.completions(request_id)[0].token_ids == tokens
    assert engine.pool.num_used == 0


def test_a_newcomer_joins_at_the_step_after_the_one_in_flight() -> None:
    engine, _ = ahead_engine(60, block_size=4)
    first = engine.add([1, 2, 3], answer(10, seed=1))
    engine.step()
    second = engine.add([7, 7], answer(4, seed=2))
    engine.step()  # the one that was foreseen
    engine.step()
    assert {row[0] for row in engine.trace.steps[-1]["rows"]} == {first, second}
    finish(engine)
    assert engine.completions(first)[0].token_ids == expected_tokens([1, 2, 3], 10, 1)
    assert engine.completions(second)[0].token_ids == expected_tokens([7, 7], 4, 2)


def test_an_aborted_request_leaves_the_step_that_was_launched_with_it() -> None:
    engine, _ = ahead_engine(60, block_size=1)
    kept, dropped = engine.add([1], answer(9, seed=1)), engine.add([2], answer(9, seed=2))
    engine.step()
    engine.abort(dropped)
    outputs = engine.step()
    assert [output.request_id for output in outputs] == [kept]
    finish(engine)
    assert engine.completions(kept)[0].token_ids == expected_tokens([1], 9, 1)
    assert engine.pool.num_used == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_failed_step_takes_the_one_behind_it_along_and_both_are_done_again(late: bool) -> None:
    engine, executor = ahead_engine(60, block_size=2)
    request = engine.add([5, 6], answer(12, seed=4))
    engine.step()
    executor.fail, executor.fail_late = not late, late
    used = engine.pool.num_used
    failures = 0
    for _ in range(2):  # the launch fails at once, the result one step later
        try:
            engine.step()
        except RuntimeError:
            failures += 1
            assert engine.pool.num_used <= used
    assert failures == 1
    finish(engine)
    assert engine.completions(request)[0].token_ids == expected_tokens([5, 6], 12, 4)


@pytest.mark.parametrize("failing", range(1, 11))
def test_any_step_may_fail_over_quantized_blocks(failing: int) -> None:
    """Where it fills a block, the one launched behind it has begun the next block in the same slot."""
    engine, executor = ahead_engine(60, block_size=4, kv_dtype="int8", prefix_cache="off", max_num_seqs=2)
    wanted = {engine.add([5, seed], answer(12, seed=seed)): expected_tokens([5, seed], 12, seed) for seed in (4, 6)}
    steps = 0
    while engine.has_unfinished():
        steps += 1
        executor.fail_late = steps == failing
        with suppress(RuntimeError):
            engine.step()
    assert {name: engine.completions(name)[0].token_ids for name in wanted} == wanted


@pytest.mark.parametrize(
    "params",
    [{"repetition_penalty": 1.2}, {"min_tokens": 3}, {"logprobs": 1}, {"logit_bias": {5: 1.0}}],
    ids=lambda params: next(iter(params)),
)
def test_what_the_host_has_a_part_in_is_not_foreseen(params: dict[str, Any]) -> None:
    engine, executor = ahead_engine(60)
    engine.generate([[1, 2, 3]], SamplingParams(max_tokens=6, temperature=1.0, ignore_eos=True, **params))
    assert executor.launched_behind == 0


def test_nobody_is_preempted_for_a_foreseen_step() -> None:
    engine, _ = ahead_engine(7, block_size=2, max_num_seqs=3, prefix_cache="off")
    prompts = [[1, 1], [2, 2], [3, 3]]
    answers = engine.generate(prompts, answer(8, seed=2))
    assert [a.token_ids for a in answers] == [expected_tokens(prompt, 8, 2) for prompt in prompts]
    assert all(not step["preempted"] for step in engine.trace.steps if step.get("ahead"))
    assert engine.scheduler.num_preemptions


def test_a_record_with_foreseen_steps_can_be_replayed() -> None:
    engine, _ = ahead_engine(12, block_size=2, max_num_seqs=2, prefix_cache="off")
    for number in range(5):
        whole = expected_tokens([number, 8], 9, 1)
        engine.add([number, 8], answer(9, seed=1, stop_token_ids=(whole[2 + number],)))
    finish(engine)
    record = engine.record()
    assert any(step.get("ahead") for step in record["steps"])
    assert len(list(replay(record))) == len(record["steps"])
