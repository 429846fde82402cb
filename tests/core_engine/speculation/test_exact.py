"""Answers with drafts are those without, token for token in fp32, whoever proposes and whatever else is on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.model.loader import LoadedModel
from core_engine.replay import replay
from core_engine.sampling_params import SamplingParams
from core_engine.speculation.ngram import NgramProposer
from tests.core_engine.conftest import load_fp32
from tests.core_engine.speculation.proposers import KnowingProposer, always, answers, every_third

PROMPTS = [[5, 6, 7, 8] * 3, [9, 10, 11], [3, 4, 5, 6, 7, 3, 4, 5, 6] * 2]
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
# Few ids can be chosen, so that sequences repeat themselves and look-ups find something.
LOOPING = SamplingParams(max_tokens=24, ignore_eos=True, logit_bias=tuple((token, 60.0) for token in (5, 6, 7)))
FIXED = {"draft_control": "fixed"}
PROPOSERS = {"oracle": lambda _: False, "mixed": every_third, "poor": always}


def run(loaded: LoadedModel, params: SamplingParams, proposer: Any = None, **settings: Any) -> tuple[Engine, list[Any]]:
    engine = Engine(EngineConfig.from_settings({**FIXED, **settings}), loaded, proposer=proposer)
    return engine, engine.generate(PROMPTS[: settings.get("max_num_seqs", 3)], params)


def ids(completions: list[Any]) -> list[tuple[Any, ...]]:
    return [(done.token_ids, done.text, done.finish_reason, done.logprobs) for done in completions]


def knowing(loaded: LoadedModel, expected: list[Any], name: str, **more: Any) -> KnowingProposer:
    return KnowingProposer(answers(PROMPTS, expected), PROPOSERS[name], vocab_size=loaded.spec.vocab_size, **more)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models are faster so, most of all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def plain(tiny_loaded: LoadedModel, one_thread: None) -> list[Any]:
    return run(tiny_loaded, GREEDY)[1]


@pytest.fixture(scope="module")
def looping(tiny_loaded: LoadedModel, one_thread: None) -> list[Any]:
    return run(tiny_loaded, LOOPING)[1]


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("name", PROPOSERS)
def test_greedy_ids_with_and_without_drafts_are_identical(
    tiny_loaded: LoadedModel, plain: list[Any], name: str, k: int
) -> None:
    for batch in (1, 3):
        engine, got = run(
            tiny_loaded, GREEDY, knowing(tiny_loaded, plain, name), num_draft_tokens=k, max_num_seqs=batch
        )
        assert ids(got) == ids(plain[:batch])
        counters = engine.record()["counters"]
        if name == "oracle":
            assert counters["alpha"] == 1.0 and counters["tokens_per_pass"] > min(k, 3)
        if name == "poor":
            assert counters["alpha"] == 0.0 and counters["tokens_per_pass"] == 1.0
        if name == "mixed":
            assert 0 < counters["alpha"] < 1


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_prompt_look_up_gives_the_same_ids_and_is_sometimes_right(
    tiny_loaded: LoadedModel, looping: list[Any], k: int
) -> None:
    engine, got = run(tiny_loaded, LOOPING, speculation="ngram", num_draft_tokens=k)
    assert ids(got) == ids(looping)
    counters = engine.record()["counters"]
    assert counters["drafted_tokens"] > 0 and 0 < counters["alpha"] < 1 and counters["tokens_per_pass"] > 1


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 7},
        {"max_num_batched_tokens": 4},
        {"chunked_prefill": "off"},
        {"block_size": 1},
        {"prefix_cache": "off"},
        {"kv_layout": "contiguous", "prefix_cache": "off"},
        {"batching": "static"},
        {"attention": "naive"},
        {"draft_control": "adaptive"},
        {"kv_dtype": "int8", "block_size": 8},
        {"kv_dtype": "int4", "block_size": 8},
        {"kv_dtype": "int2", "block_size": 8, "kv_protect": "sinks", "prefix_cache": "off"},
        {"kv_dtype": "int8", "block_size": 1},
    ],
    ids=str,
)
def test_whatever_else_is_on(tiny_loaded: LoadedModel, settings: dict[str, Any]) -> None:
    """With quantized KV too: no block is made of rejected drafts."""
    expected = run(tiny_loaded, GREEDY, **settings)[1]
    engine, got = run(tiny_loaded, GREEDY, knowing(tiny_loaded, expected, "mixed"), **settings)
    assert ids(got) == ids(expected)
    drafted = engine.record()["counters"]["drafted_tokens"]
    assert drafted == 0 if settings.get("kv_dtype") and settings["block_size"] == 1 else drafted > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"repetition_penalty": 1.5},
        {"frequency_penalty": 1.2, "presence_penalty": 0.7},
        {"logit_bias": ((8, 3.0), (200, -50.0)), "logprobs": 3},
        {"min_tokens": 9, "ignore_eos": False, "stop_token_ids": tuple(range(3, 120))},
        {"temperature": 0.9, "seed": 4, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.3, "logprobs": 0},
        {"temperature": 1.0, "seed": 8, "min_p": 0.02},
    ],
    ids=str,
)
def test_penalties_bans_filters_and_logprobs(tiny_loaded: LoadedModel, changes: dict[str, Any]) -> None:
    """Fault 21, with a proposer that is often right; sampled answers are the same too, their drafts not being drawn."""
    params = SamplingParams(**{"max_tokens": 24, "ignore_eos": True, **changes})
    expected = run(tiny_loaded, params)[1]
    engine, got = run(tiny_loaded, params, knowing(tiny_loaded, expected, "mixed"))
    assert [one[:3] for one in ids(got)] == [one[:3] for one in ids(expected)]
    for one, other in zip(got, expected, strict=True):
        assert [entry.chosen for entry in one.logprobs] == pytest.approx(
            [entry.chosen for entry in other.logprobs], abs=1e-4
        )
    assert engine.record()["counters"]["alpha"] > 0


def test_a_stop_inside_an_accepted_run_ends_the_answer_there(tiny_loaded: LoadedModel, plain: list[Any]) -> None:
    """Fault 22: the first stop in token order wins, and what comes after it was neither accepted nor emitted."""
    text, tokens = plain[0].text, plain[0].token_ids
    for changes, length in (
        ({"stop": (text[5],)}, None),
        ({"stop_token_ids": (tokens[6],)}, None),
        ({"max_tokens": 3}, 3),
        ({"answer_tokens": 4}, 4),
        ({"max_tokens": 9, "stop_token_ids": (tokens[8],)}, None),
    ):
        params = SamplingParams(**{"max_tokens": 24, "ignore_eos": True, **changes})
        expected = run(tiny_loaded, params, max_num_seqs=1)[1]
        proposer = knowing(tiny_loaded, plain, "oracle")
        engine, got = run(tiny_loaded, params, proposer, max_num_seqs=1, num_draft_tokens=8)
        assert ids(got) == ids(expected) and (length is None or len(got[0].token_ids) == length)
        request = engine.record()["requests"][0]
        assert sum(count for _, count in request["emissions"]) == len(got[0].token_ids)
        counters = engine.record()["counters"]
        assert counters["accepted_tokens"] <= len(got[0].token_ids) - 1
        assert counters["alpha"] in (1.0, None)  # cut drafts were not tested
        assert engine.pool.num_used == 0


def test_drafts_are_bounded_by_the_room_left(tiny_loaded: LoadedModel, plain: list[Any]) -> None:
    """Fault 25: by max_tokens, even when a proposer gives more than it was asked for."""
    proposer = knowing(tiny_loaded, plain, "oracle", excess=3)
    engine, got = run(tiny_loaded, GREEDY, proposer, num_draft_tokens=8)
    assert ids(got) == ids(plain)
    ends = {one.request_id: one.prompt_tokens + 24 for one in got}
    for request_id, tokens, k in proposer.asked:
        assert 1 <= k <= 8 and tokens + k + 1 <= ends[request_id]
    for step in engine.trace.steps:
        for row in step["rows"]:
            assert row[1] + row[2] < ends[row[0]]


def test_drafts_never_go_beyond_the_models_positions_or_the_pool(tiny: Any) -> None:
    loaded = load_fp32(tiny[0], threads=1)
    spec = loaded.decoder.spec
    block_bytes = 2 * spec.num_layers * 4 * spec.num_kv_heads * spec.head_dim * 4
    for blocks in (5, 200):  # the pool ends first, or the model's 512 positions
        prompt = [7] * (16 if blocks == 5 else 500)
        params = SamplingParams(max_tokens=400, ignore_eos=True)
        done = []
        for proposer in (None, KnowingProposer(lambda _: [7] * 600, vocab_size=256)):
            executor = TorchExecutor(loaded.decoder, block_size=4, kv_memory_bytes=blocks * block_bytes)
            config = EngineConfig.from_settings({"block_size": 4, "max_num_batched_tokens": 600, **FIXED})
            done += Engine(config, loaded, executor=executor, proposer=proposer).generate([prompt], params)
        assert ids(done[:1]) == ids(done[1:]) and done[0].finish_reason == "length"


def test_a_second_request_that_finds_the_prefix_reads_no_rejected_token(tiny_loaded: LoadedModel) -> None:
    """Fault 24: the answer of the first, its rejected drafts among it, is the prefix of the second."""
    alone = Engine(EngineConfig.from_settings({"prefix_cache": "off", "block_size": 4}), tiny_loaded)
    first = alone.generate(PROMPTS[:1], GREEDY)
    longer = [*PROMPTS[0], *first[0].token_ids, 44]
    expected = alone.generate([longer], GREEDY)
    proposer = KnowingProposer(answers(PROMPTS[:1], first), every_third, vocab_size=256)
    engine = Engine(EngineConfig.from_settings({"block_size": 4, **FIXED}), tiny_loaded, proposer=proposer)
    assert ids(engine.generate(PROMPTS[:1], GREEDY)) == ids(first)
    assert 0 < engine.record()["counters"]["alpha"] < 1
    second = engine.generate([longer], GREEDY)
    assert ids(second) == ids(expected)
    assert engine.record()["requests"][-1]["prefix_hit_tokens"] >= 32


def test_preemption_and_a_failed_step_change_no_token(tiny_loaded: LoadedModel, plain: list[Any]) -> None:
    spec = tiny_loaded.decoder.spec
    block_bytes = 2 * spec.num_layers * 4 * spec.num_kv_heads * spec.head_dim * 4
    executor = TorchExecutor(tiny_loaded.decoder, block_size=4, kv_memory_bytes=15 * block_bytes)
    config = EngineConfig.from_settings({"block_size": 4, "prefix_cache": "off", **FIXED})
    proposer = knowing(tiny_loaded, plain, "mixed")
    engine = Engine(config, tiny_loaded, executor=executor, proposer=proposer)
    names = [engine.add(prompt, GREEDY) for prompt in PROMPTS]
    execute, calls = executor.execute, 0

    def failing(plan: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 5 == 0:
            execute(plan)  # all of its KV is written, drafts included, and then it fails
            raise RuntimeError("injected")
        return execute(plan)

    executor.execute = failing  # type: ignore[method-assign]
    while engine.has_unfinished():
        held = {request.id: request.blocks for request in engine.scheduler.running}
        try:
            engine.step()
        except RuntimeError:
            for request in engine.scheduler.running:
                assert request.blocks == held.get(request.id, request.blocks)
        engine.pool.check_each(request.blocks for request in engine.scheduler.running)
    assert ids([engine.completion(name) for name in names]) == ids(plain)
    assert engine.scheduler.num_preemptions > 0 and engine.pool.num_used == 0
    assert {*names} <= {*proposer.released}


def test_a_record_with_drafts_can_be_replayed(tiny_loaded: LoadedModel, plain: list[Any]) -> None:
    engine, _ = run(tiny_loaded, GREEDY, knowing(tiny_loaded, plain, "mixed"), block_size=4)
    record = engine.record()
    assert any(step.get("drafts") for step in record["steps"])
    assert sum(1 for _ in replay(record)) == len(record["steps"])


def test_scores_are_left_alone(tiny_loaded: LoadedModel, plain: list[Any]) -> None:
    tokens = [*PROMPTS[0], *plain[0].token_ids]
    without = Engine(EngineConfig.from_settings({}), tiny_loaded).score(tokens, 5)
    proposer = knowing(tiny_loaded, plain, "oracle")
    engine = Engine(EngineConfig.from_settings(FIXED), tiny_loaded, proposer=proposer)
    assert engine.score(tokens, 5) == pytest.approx(without) and not proposer.asked


def test_a_stream_brings_accepted_tokens_together(tiny_loaded: LoadedModel, plain: list[Any]) -> None:
    engine = Engine(EngineConfig.from_settings(FIXED), tiny_loaded, proposer=knowing(tiny_loaded, plain, "oracle"))
    outputs = list(engine.stream(PROMPTS[0], GREEDY))
    assert [token for output in outputs for token in output.token_ids] == plain[0].token_ids
    assert "".join(output.text for output in outputs) == plain[0].text
    assert max(len(output.token_ids) for output in outputs) == 5


def test_compiled_kernels_give_the_same_ids(tiny: Any) -> None:
    loaded = load_fp32(tiny[0], kernels="auto", threads=1)  # compiled where the head size fits the vectors
    if loaded.kernels.kernels != "compiled":
        pytest.skip(loaded.kernels.kernels_reason)
    for settings in ({}, {"kv_dtype": "int8"}, {"attention": "naive"}, {"kv_splits": "4"}):
        expected = run(loaded, GREEDY, kernels="compiled", **settings)[1]
        for name in PROPOSERS:
            engine, got = run(loaded, GREEDY, knowing(loaded, expected, name), kernels="compiled", **settings)
            assert ids(got) == ids(expected)
            assert engine.record()["counters"]["drafted_tokens"] > 0


def test_look_up_takes_the_newest_place_after_the_longest_match_and_goes_on_in_a_loop() -> None:
    from core_engine.plan import GREEDY as sampling
    from core_engine.speculation.proposer import Ask

    def look_up(tokens: list[int], k: int = 4) -> tuple[int, ...]:
        return NgramProposer().propose([Ask("a", 0, tokens, k, sampling)])[0].tokens

    assert look_up([1, 2, 3, 4, 9, 2, 3, 4, 8, 7, 1, 2, 3, 4]) == (9, 2, 3, 4)  # four agree, later three do
    assert look_up([1, 2, 7, 1, 2, 8, 1, 2]) == (8, 1, 2, 8)  # the newest of equal length
    assert look_up([5, 6, 5, 6, 5, 6], 5) == (5, 6, 5, 6, 5)
    assert look_up([1, 2, 3, 4]) == () and look_up([3]) == () and look_up([3, 9, 3]) == ()
    assert look_up([258, 1, 0, 258, 1]) == (0, 258, 1, 0)  # ids whose bytes overlap: 258 is 02 01 00 00
