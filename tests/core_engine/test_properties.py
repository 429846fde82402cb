"""Random traces of add, abort, preempt, fail and finish, with the design's invariants on after every step."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core_engine.engine import Engine
from core_engine.request import State
from ledger.errors import InputError
from tests.core_engine.shadow import VOCAB, AheadShadow, ShadowExecutor, answer, expected_tokens, future, shadow_engine
from tests.core_engine.speculation.proposers import KnowingProposer, every_third


@dataclass(frozen=True)
class Shape:
    """One request: which common beginning it has, own prompt tokens, answer length, samples, step of its arrival."""

    family: int
    shared: int
    own: int
    output: int
    samples: int
    at_step: int

    def prompt(self, number: int) -> list[int]:
        return [(self.family * 7 + i) % 250 for i in range(self.shared)] + [
            (number * 13 + i) % 250 for i in range(self.own)
        ]


shapes = st.lists(
    st.builds(
        Shape,
        family=st.integers(0, 1),
        shared=st.integers(0, 20),
        own=st.integers(1, 12),
        output=st.integers(1, 14),
        samples=st.sampled_from([1, 1, 1, 2, 3]),
        at_step=st.integers(0, 15),
    ),
    min_size=1,
    max_size=9,
)
configs = st.fixed_dictionaries(
    {
        "batching": st.sampled_from(["continuous", "continuous", "static", "dynamic"]),
        "max_num_seqs": st.integers(1, 6),
        "max_num_batched_tokens": st.integers(1, 40),
        "chunked_prefill": st.sampled_from(["on", "on", "off"]),
        "block_size": st.sampled_from([1, 2, 4, 16]),
        "kv_watermark": st.sampled_from([0.0, 0.01, 0.3]),
        "kv_dtype": st.sampled_from(["auto", "int8"]),
        "drafts": st.sampled_from([0, 0, 1, 3, 7]),
        "ahead": st.booleans(),
        "layout": st.sampled_from([("paged", "on"), ("paged", "on"), ("paged", "off"), ("contiguous", "off")]),
    }
)
# (step, request, in flight): abort that request at that step, before it or while it executes.
aborts = st.sets(st.tuples(st.integers(0, 30), st.integers(0, 8), st.booleans()), max_size=4)
failures = st.sets(st.integers(0, 30), max_size=3)


def check_invariants(engine: Engine) -> None:
    scheduler, pool = engine.scheduler, engine.pool
    pool.check_each(request.blocks for request in scheduler.running)
    assert pool.num_used + pool.num_cached + pool.num_free == pool.num_blocks
    assert len(scheduler.running) <= engine.config.max_num_seqs
    assert all(not request.blocks for request in scheduler.waiting)
    for session in engine.sessions.live.values():
        assert session.request.num_computed <= len(session.request.tokens)
    for session in engine.sessions.ended.values():
        assert session.request.state is State.HELD or not session.request.blocks
        assert session.text.text == engine.tokenizer.decode(session.request.output_token_ids)


def run_trace(shapes: list[Shape], config: dict, spare: int, aborts: set, failures: set) -> Engine:
    layout, prefix = config["layout"]
    settings = {name: value for name, value in config.items() if name not in ("layout", "drafts", "ahead")}
    proposer = None
    if config["drafts"]:
        settings["num_draft_tokens"] = config["drafts"]
        proposer = KnowingProposer(future, every_third, vocab_size=VOCAB)
    size = config["block_size"]
    needed = max(-(-(shape.shared + shape.own + shape.output) // size) for shape in shapes)
    if config["chunked_prefill"] == "off":
        settings["max_num_batched_tokens"] = max(
            settings["max_num_batched_tokens"], *(shape.shared + shape.own for shape in shapes)
        )
    kind = AheadShadow if config["ahead"] else ShadowExecutor
    engine = shadow_engine(needed + spare, proposer, kind, **settings, kv_layout=layout, prefix_cache=prefix)
    executor = engine.executor
    assert isinstance(executor, ShadowExecutor)
    added: dict[int, str] = {}
    aborted: set[int] = set()

    def abort(step: int, in_flight: bool) -> None:
        for number in added:
            if (step, number, in_flight) in aborts:
                engine.abort(added[number])
                aborted.add(number)

    for step in range(5_000):
        for number, shape in enumerate(shapes):
            if shape.at_step == step:
                added[number] = engine.add(shape.prompt(number), answer(shape.output, n=shape.samples, seed=number))
        engine.expect_more_arrivals(len(added) < len(shapes))
        abort(step, False)
        executor.during = lambda _, step=step: abort(step, True)  # type: ignore[misc]
        if isinstance(executor, AheadShadow) and step % 2:
            executor.fail_late = step in failures
        else:
            executor.fail = step in failures
        with suppress(RuntimeError):  # the injected failure
            engine.step()
        check_invariants(engine)
        if len(added) == len(shapes) and not engine.has_unfinished():
            break
    assert len(added) == len(shapes) and not engine.sessions.live and not engine.scheduler.running
    assert engine.pool.num_used == 0
    for number, shape in enumerate(shapes):
        for completion in engine.completions(added[number]):
            wanted = expected_tokens(shape.prompt(number), shape.output, number, completion.sample_index)
            if completion.finish_reason == "abort":
                assert number in aborted and completion.token_ids == wanted[: len(completion.token_ids)]
            else:
                assert completion.token_ids == wanted, (number, completion)
    return engine


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shapes, configs, st.integers(0, 8), aborts, failures)
def test_every_trace_keeps_the_invariants_and_gives_every_request_its_text(
    shapes: list[Shape], config: dict, spare: int, aborts: set, failures: set
) -> None:
    run_trace(shapes, config, spare, aborts, failures)


@pytest.mark.slow
@settings(max_examples=6_000, derandomize=False, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shapes, configs, st.integers(0, 8), aborts, failures)
def test_six_thousand_traces(shapes: list[Shape], config: dict, spare: int, aborts: set, failures: set) -> None:
    run_trace(shapes, config, spare, aborts, failures)


def test_two_thousand_requests_through_a_pool_of_twenty_finish_with_the_right_text() -> None:
    engine = shadow_engine(80, block_size=4, max_num_seqs=64, max_num_batched_tokens=512)  # 16 tokens a request
    prompts = [[number % 250, number // 250, 3, 4, 5, 6] for number in range(2_000)]
    completions = engine.generate(prompts, answer(10, seed=1))
    for prompt, completion in zip(prompts, completions, strict=True):
        assert completion.token_ids == expected_tokens(prompt, 10, 1)
        assert completion.text == engine.tokenizer.decode(completion.token_ids)
    assert engine.pool.num_used == 0 and not engine.sessions.live and not engine.scheduler.waiting


def test_a_queue_bound_refuses_without_a_trace_of_the_refused() -> None:
    engine = shadow_engine(10, max_queue=2)
    engine.add([1], answer(2, n=2))
    with pytest.raises(InputError, match="max_queue"):
        engine.add([2], answer(2))
    assert len(engine.generate([], None)) == 0
    while engine.has_unfinished():
        engine.step()
    assert len(engine.sessions.ended) == 2
