"""Requests at the door, failures inside a step, the live ledger and the event log."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from core_engine.replay import replay
from core_engine.request import SamplingParams
from ledger.errors import InputError
from ledger.kv_cache import kv_bytes_per_token
from ledger.weights import weight_bytes
from tests.core_engine.shadow import answer, expected_tokens, shadow_engine


def engine_of(loaded: LoadedModel, **settings: Any) -> Engine:
    return Engine(EngineConfig.from_settings(settings), loaded)


def test_ledger_bytes_equal_what_the_tensors_hold(tiny_loaded: LoadedModel) -> None:
    engine = engine_of(tiny_loaded, block_size=16, kv_memory_mib=1)
    per_token = kv_bytes_per_token(tiny_loaded.spec, element_bytes=4)
    cache = engine.executor._cache  # type: ignore[attr-defined]
    assert engine.executor.kv_pool_bytes() == per_token * engine.pool.num_blocks * 16
    padding = engine.executor.padding_bytes()  # type: ignore[attr-defined]
    assert engine.executor.kv_pool_bytes() + padding == cache.nelement() * cache.element_size()
    held = sum(tensor.nelement() * tensor.element_size() for tensor in tiny_loaded.weights.tensors())
    assert tiny_loaded.weights.num_bytes() == held == weight_bytes(tiny_loaded.spec, element_bytes=4)


def test_live_ledger_counts_computed_tokens_and_owned_blocks(tiny_loaded: LoadedModel) -> None:
    engine = engine_of(tiny_loaded, block_size=16)
    engine.add(list(range(3, 24)), SamplingParams(max_tokens=5, ignore_eos=True))  # 21 tokens: 2 blocks
    engine.step()
    per_token = kv_bytes_per_token(tiny_loaded.spec, element_bytes=4)
    ledger = engine.snapshot()["ledger"]
    assert ledger["kv_used_bytes"] == 21 * per_token
    assert ledger["kv_reserved_bytes"] == 32 * per_token
    assert ledger["kv_wasted_bytes"] == 11 * per_token
    blocks = engine.snapshot()["blocks"]
    assert sorted(fill for fill in blocks["fill"] if fill) == [5, 16]
    assert blocks["owners"].count(0) == 2


@pytest.mark.parametrize(
    ("prompt", "settings", "word"),
    [
        ([], {}, "at least one token"),
        ([999], {}, "ids from 0"),
        ([3] * 600, {}, "positions"),
        ([3] * 300, {"chunked_prefill": "off", "max_num_batched_tokens": 256}, "chunked_prefill=off"),
    ],
)
def test_a_request_that_can_never_run_is_refused_with_the_reason(
    tiny_loaded: LoadedModel, prompt: list[int], settings: dict[str, Any], word: str
) -> None:
    engine = engine_of(tiny_loaded, **settings)
    with pytest.raises(InputError, match=word):
        engine.add(prompt)
    assert not engine.has_unfinished() and not engine.sessions.live


def test_one_that_outgrows_the_pool_alone_ends_with_length(tiny_loaded: LoadedModel) -> None:
    from core_engine.executor.torch_executor import TorchExecutor

    spec = tiny_loaded.decoder.spec
    block_bytes = 2 * spec.num_layers * 4 * spec.num_kv_heads * spec.head_dim * 4
    executor = TorchExecutor(tiny_loaded.decoder, block_size=4, kv_memory_bytes=3 * block_bytes)
    engine = Engine(EngineConfig.from_settings({"block_size": 4}), tiny_loaded, executor=executor)
    answer = engine.generate([[5] * 8], SamplingParams(max_tokens=50, ignore_eos=True))[0]
    assert answer.finish_reason == "length"
    assert len(answer.token_ids) == 12 + 1 - 8  # the last token needs no KV of its own
    assert engine.pool.num_used == 0


def test_a_full_queue_refuses_one_more(tiny_loaded: LoadedModel) -> None:
    engine = engine_of(tiny_loaded, max_queue=2)
    engine.add([5])
    engine.add([6])
    with pytest.raises(InputError, match="max_queue"):
        engine.add([7])


def test_a_step_that_fails_leaves_pool_and_answer_as_they_would_have_been(
    tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    expected = engine_of(tiny_loaded).generate([[5, 6, 7]], params)[0].token_ids
    engine = engine_of(tiny_loaded)
    request_id = engine.add([5, 6, 7], params)
    engine.expect_more_arrivals(False)
    engine.step()
    used = engine.pool.num_used
    with monkeypatch.context() as patch:
        patch.setattr(engine.executor, "execute", lambda plan: (_ for _ in ()).throw(RuntimeError("boom")))
        with pytest.raises(RuntimeError, match="boom"):
            engine.step()
    assert engine.pool.num_used == used
    while engine.has_unfinished():
        engine.step()
    assert engine.completion(request_id).token_ids == expected


@pytest.mark.parametrize("after", [0, 1, 3])
def test_abort_at_any_time_frees_everything(tiny_loaded: LoadedModel, after: int) -> None:
    engine = engine_of(tiny_loaded)
    first = engine.add([5, 6, 7], SamplingParams(max_tokens=6, ignore_eos=True))
    for _ in range(after):
        engine.step()
    engine.abort(first)
    engine.abort(first)
    assert engine.pool.num_used == 0 and not engine.has_unfinished()
    assert engine.sessions.of(first)[0].request.finish_reason == "abort"


def test_the_event_log_accounts_for_every_token(tiny_loaded: LoadedModel) -> None:
    engine = engine_of(tiny_loaded, max_num_batched_tokens=8)
    engine.generate([list(range(3, 20)), [9]], SamplingParams(max_tokens=4, ignore_eos=True))
    record = engine.record()
    for request in record["requests"]:
        assert sum(tokens for _, tokens in request["emissions"]) == 4
        assert sum(tokens for _, _, tokens in request["steps"]) == request["prompt_tokens"] + 3
        assert request["arrival_ns"] <= request["admit_ns"] <= request["emissions"][0][0] <= request["finish_ns"]
    assert sum(step["prefill_tokens"] for step in record["steps"]) == 18
    assert (
        record["memory"]["kv_peak_used_bytes"]
        <= record["memory"]["kv_reserved_bytes"]
        <= record["memory"]["kv_pool_bytes"]
    )
    assert record["memory"]["activation_peak_bytes"] > 0


def test_stream_yields_the_same_text_as_generate(tiny_loaded: LoadedModel) -> None:
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    whole = engine_of(tiny_loaded).generate([[7, 8, 9]], params)[0].text
    assert "".join(output.text for output in engine_of(tiny_loaded).stream([7, 8, 9], params)) == whole


def finish(engine: Engine) -> None:
    while engine.has_unfinished():
        engine.step()


def test_a_generated_id_is_one_that_nobody_uses() -> None:
    engine = shadow_engine(50, block_size=4)
    engine.add([1, 2], answer(2, seed=1), request_id="r01")
    engine.add([3, 4], answer(2, seed=1), request_id="r00")
    names = [engine.add([1, 2], answer(2, seed=1)) for _ in range(3)]
    assert len({*names, "r00", "r01"}) == 5


@pytest.mark.parametrize(
    ("first", "second"), [(("a.0", 1), ("a", 2)), (("a", 2), ("a.1", 1)), (("a.0", 2), ("a", 2)), (("a", 1), ("a", 1))]
)
def test_ids_of_samples_never_collide_with_others(first: tuple[str, int], second: tuple[str, int]) -> None:
    engine = shadow_engine(50, block_size=4)
    engine.add([1, 2, 3], answer(5, seed=1, n=first[1]), request_id=first[0])
    with pytest.raises(InputError, match="not in use"):
        engine.add([7, 8, 9], answer(3, seed=2, n=second[1]), request_id=second[0])
    finish(engine)
    assert engine.pool.num_used == 0


@pytest.mark.parametrize("prompt", [[1.0, 2.0], [True, False], ["1"], [None]])
def test_token_ids_that_are_not_whole_numbers_are_refused_at_the_door(prompt: list[Any]) -> None:
    engine = shadow_engine(50, block_size=4)
    with pytest.raises(InputError, match="whole numbers"):
        engine.add(prompt)
    with pytest.raises(InputError, match="start"):
        engine.score([1, 2, 3], 1.5)  # type: ignore[arg-type]
    assert not engine.has_unfinished()


def test_an_array_of_token_ids_becomes_plain_numbers() -> None:
    engine = shadow_engine(50, block_size=4)
    engine.add(np.array([1, 2, 3]), answer(2, seed=1))  # type: ignore[arg-type]
    engine.add(torch.tensor([4, 5]), answer(2, seed=1))  # type: ignore[arg-type]
    finish(engine)
    json.dumps(engine.record())


def test_two_streams_and_a_whole_answer_between_them_lose_no_output() -> None:
    engine = shadow_engine(50, block_size=4)
    first = engine.stream([1, 2, 3], answer(6, seed=1))
    second = engine.stream([4, 5], answer(7, seed=2, n=2))
    got: tuple[list[int], list[int]] = ([], [])
    for turn in range(40):
        for tokens, stream in zip(got, (first, second), strict=True):
            tokens += [token for output in itertools.islice(stream, 1) for token in output.token_ids]
        if turn == 1:
            assert engine.generate([[9, 9]], answer(5, seed=3))[0].token_ids == expected_tokens([9, 9], 5, 3)
            engine.score([1, 2, 3, 4], 2)
    assert got[0] == expected_tokens([1, 2, 3], 6, 1)
    assert len(got[1]) == 14


def test_a_stream_whose_request_is_aborted_says_so_and_ends() -> None:
    engine = shadow_engine(50, block_size=4)
    outputs = []
    for output in engine.stream([1, 2, 3], answer(9, seed=1)):
        outputs.append(output)
        if len(outputs) == 3:
            engine.abort(output.request_id)
    assert [output.finish_reason for output in outputs] == [None, None, None, "abort"]


def test_an_answer_that_can_not_be_had_leaves_nothing_behind() -> None:
    engine = shadow_engine(50, block_size=4, max_queue=3)
    with pytest.raises(InputError):
        engine.generate([[1, 2], []], answer(3, seed=1))
    assert not engine.has_unfinished() and not engine.sessions.live
    engine.executor.fail = True  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="injected"):
        engine.generate([[1, 2], [3]], answer(3, seed=1))
    assert not engine.has_unfinished() and engine.pool.num_used == 0
    assert len(engine.generate([[n] for n in range(9)], answer(3, seed=1))) == 9  # more than the queue holds


def test_more_answers_than_history_keeps_are_all_given() -> None:
    engine = shadow_engine(50, block_size=4)
    engine.sessions._keep = 5
    assert len(engine.generate([[n] for n in range(20)], answer(2, seed=1, n=2))) == 40
    assert len(engine.sessions.ended) <= 6


def test_samples_are_forgotten_together_and_a_group_can_always_be_aborted() -> None:
    engine = shadow_engine(50, block_size=4)
    group = engine.add([1, 2, 3], answer(20, seed=1, n=2))
    engine.step()
    engine.abort(f"{group}.0")
    engine.clear_history()
    engine.abort(group)
    assert [one.finish_reason for one in engine.completions(group)] == ["abort", "abort"]


def test_looking_at_the_record_changes_nothing() -> None:
    engine = shadow_engine(50, block_size=4)
    name = engine.add([1] * 9, answer(5, seed=1))
    engine.step()
    engine.abort(name)
    assert engine.record()["kv_events_after"] == engine.record()["kv_events_after"] != []


def test_after_the_history_is_cleared_the_journal_begins_with_who_holds_what() -> None:
    engine = shadow_engine(50, block_size=4)
    engine.add([1] * 9, answer(8, seed=1))
    engine.step()
    engine.clear_history()
    held = set(engine.scheduler.running[0].blocks)
    finish(engine)
    first = engine.record()["steps"][0]["kv_events"]
    assert ["take", "r00", sorted(held)] in first


def test_a_failed_first_step_leaves_no_trace_in_the_log_and_replays() -> None:
    engine = shadow_engine(50, block_size=4)
    engine.add([1] * 9, answer(5, seed=1))
    engine.executor.fail = True  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="injected"):
        engine.step()
    assert engine.record()["requests"][0]["admit_ns"] is None
    finish(engine)
    record = engine.record()
    assert len(list(replay(record))) == len(record["steps"])


def test_a_record_with_steps_of_requests_it_does_not_have_is_refused_by_replay() -> None:
    engine = shadow_engine(50, block_size=4)
    engine.generate([[1, 2, 3]], answer(3, seed=1))
    engine.score([1, 2, 3, 4, 5], 2)
    with pytest.raises(InputError, match="all requests"):
        list(replay(engine.record()))


def test_a_batch_that_the_queue_can_never_fill_is_refused() -> None:
    with pytest.raises(InputError, match="max_queue"):
        EngineConfig.from_settings({"batching": "static", "max_num_seqs": 8, "max_queue": 4})
    EngineConfig.from_settings({"batching": "continuous", "max_num_seqs": 8, "max_queue": 4})


def test_bans_that_leave_no_token_are_refused() -> None:
    engine = shadow_engine(50, block_size=4)
    with pytest.raises(InputError, match="stop_token_ids"):
        engine.add([1, 2], SamplingParams(max_tokens=4, min_tokens=2, stop_token_ids=tuple(range(251))))
