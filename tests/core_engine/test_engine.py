"""Requests at the door, failures inside a step, the live ledger and the event log."""

from __future__ import annotations

from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from core_engine.request import SamplingParams
from ledger.errors import InputError
from ledger.kv_cache import kv_bytes_per_token
from ledger.weights import weight_bytes


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
