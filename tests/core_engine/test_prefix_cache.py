"""The prefix cache: when it hits, when it must not, and that a hit never changes an answer."""

from __future__ import annotations

from typing import Any

import pytest

from core_engine.blocks import BlockPool
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.model.loader import LoadedModel
from core_engine.prefix import PrefixIndex, namespace
from core_engine.request import SamplingParams
from ledger.errors import InputError
from tests.core_engine.shadow import answer, expected_tokens, shadow_engine

LONG = SamplingParams(max_tokens=10, ignore_eos=True)


def engine_of(loaded: LoadedModel, **settings: Any) -> Engine:
    return Engine(EngineConfig.from_settings({"block_size": 4, **settings}), loaded)


def ids(engine: Engine, prompt: list[int]) -> list[int]:
    return engine.generate([prompt], LONG)[0].token_ids


def hits(engine: Engine) -> list[int]:
    return [request["prefix_hit_tokens"] for request in engine.record()["requests"]]


@pytest.mark.parametrize("length", [7, 8, 9, 12])
def test_a_prompt_that_is_cached_whole_still_computes_a_token_and_answers_the_same(
    tiny_loaded: LoadedModel, length: int
) -> None:
    prompt = list(range(20, 20 + length))
    engine = engine_of(tiny_loaded)
    first, second = ids(engine, prompt), ids(engine, prompt)
    assert first == second == ids(engine_of(tiny_loaded, prefix_cache="off"), prompt)
    assert hits(engine) == [0, (length - 1) // 4 * 4]
    assert all(step["prefill_tokens"] + step["decode_tokens"] >= 1 for step in engine.trace.steps)


def test_a_hit_covers_the_common_blocks_only(tiny_loaded: LoadedModel) -> None:
    engine = engine_of(tiny_loaded)
    common = list(range(30, 50))
    for tail in ([1, 2, 3], [7, 8, 9, 10, 11], [1, 2, 3, 4]):
        plain = ids(engine_of(tiny_loaded, prefix_cache="off"), common + tail)
        assert ids(engine, common + tail) == plain
    assert hits(engine) == [0, 20, 20]
    assert engine.record()["counters"]["prefix_hit_rate"] == pytest.approx(40 / (23 + 25 + 24))


def test_a_generated_text_is_found_by_the_next_turn(tiny_loaded: LoadedModel) -> None:
    engine = engine_of(tiny_loaded)
    turn = list(range(40, 49))
    turn += ids(engine, turn)
    second = ids(engine, [*turn, 3, 4])
    assert second == ids(engine_of(tiny_loaded, prefix_cache="off"), [*turn, 3, 4])
    assert hits(engine)[1] == 16  # 18 tokens have KV: the last sampled one never got any


def test_a_recycled_block_is_no_longer_found_under_its_old_prefix(tiny_loaded: LoadedModel) -> None:
    old, new = list(range(10, 26)), list(range(60, 76))
    executor = TorchExecutor(tiny_loaded.decoder, block_size=4, kv_memory_bytes=7 * _block_bytes(tiny_loaded))
    engine = Engine(EngineConfig.from_settings({"block_size": 4}), tiny_loaded, executor=executor)
    expected = ids(engine_of(tiny_loaded, prefix_cache="off"), old)
    assert ids(engine, old) == expected
    ids(engine, new)  # takes every block of the pool
    assert ids(engine, old) == expected
    assert hits(engine) == [0, 0, 0]


def _block_bytes(loaded: LoadedModel) -> int:
    spec = loaded.decoder.spec
    return 2 * spec.num_layers * 4 * spec.num_kv_heads * spec.head_dim * 4


def test_two_equal_prompts_in_one_step_equal_two_in_turn(tiny_loaded: LoadedModel) -> None:
    prompt = list(range(20, 41))
    together = engine_of(tiny_loaded).generate([prompt, prompt], LONG)
    in_turn = engine_of(tiny_loaded)
    assert [one.token_ids for one in together] == [ids(in_turn, prompt), ids(in_turn, prompt)]


def test_the_duplicate_of_a_published_block_is_freed_not_cached() -> None:
    engine = shadow_engine(20, block_size=4)
    prompt = list(range(9))
    engine.generate([prompt, prompt], answer(2, seed=3))
    assert engine.pool.num_cached == 2 and engine.pool.num_free == 18


@pytest.mark.parametrize(
    "other",
    [
        {"model": "b"},
        {"kv_dtype": "int8"},
        {"spec": "rope_theta=500000"},
        {"adapter": "french"},
    ],
)
def test_the_same_tokens_under_another_model_format_rope_or_adapter_never_hit(other: dict[str, str]) -> None:
    index = PrefixIndex(2)
    base = {"model": "a", "kv_dtype": "bf16", "spec": "rope_theta=10000", "adapter": "none"}
    tokens = [1, 2, 3, 4]
    here, there = namespace(**base), namespace(**{**base, **other})
    keys = index.keys(here, tokens)
    assert index.publish(0, here, keys, tokens, 0)
    assert index.match(here, keys, tokens, 4) == [0]
    assert index.match(there, index.keys(there, tokens), tokens, 4) == []


def test_engines_of_another_format_have_another_namespace(tiny: Any, tiny_loaded: LoadedModel) -> None:
    from core_engine.model.loader import load_model

    half = load_model(EngineConfig.from_settings({"model": str(tiny[0]), "dtype": "bf16"}))
    spaces = set()
    for loaded in (tiny_loaded, half):
        engine = engine_of(loaded)
        request_id = engine.add([5, 6, 7])
        spaces.add(engine.sessions.of(request_id)[0].request.namespace)
    assert len(spaces) == 2


def test_prefixes_whose_hashes_collide_are_told_apart_by_their_tokens() -> None:
    index = PrefixIndex(2, digest=lambda data: b"all the same")
    space = namespace(model="a")
    first, second = [1, 2], [3, 4]
    assert index.publish(5, space, index.keys(space, first), first, 0)
    assert index.match(space, index.keys(space, first), first, 2) == [5]
    assert index.match(space, index.keys(space, second), second, 2) == []


def test_the_least_recently_used_block_goes_first_and_the_end_of_a_prefix_before_its_beginning() -> None:
    engine = shadow_engine(6, block_size=4)
    engine.generate([list(range(9))], answer(1, seed=1))  # caches two blocks
    engine.generate([list(range(50, 59))], answer(1, seed=1))  # and two more
    engine.generate([list(range(100, 110))], answer(1, seed=1))  # takes two free ones and the oldest
    engine.generate([list(range(9))], answer(1, seed=1))
    assert hits(engine)[3] == 4  # the beginning of the oldest prefix is still there, its end is gone


def test_a_cached_block_is_given_up_when_memory_is_needed() -> None:
    engine = shadow_engine(5, block_size=4)
    for number in range(20):
        prompt = [number] * 10
        assert engine.generate([prompt], answer(8, seed=1))[0].token_ids == expected_tokens(prompt, 8, 1)
    assert engine.pool.num_used == 0


def test_samples_of_one_prompt_share_its_blocks_and_differ_in_text() -> None:
    engine = shadow_engine(60, block_size=4, max_num_seqs=8)
    prompt = list(range(21))
    answers = engine.generate([prompt], answer(6, seed=4, n=4))
    assert [one.sample_index for one in answers] == [0, 1, 2, 3]
    for one in answers:
        assert one.token_ids == expected_tokens(prompt, 6, 4, one.sample_index)
    computed = sum(step["prefill_tokens"] for step in engine.trace.steps)
    assert computed == 21 + 3 * 1  # the prompt once, and the last token of it for each other sample


def test_scores_are_the_same_whatever_is_cached(tiny_loaded: LoadedModel) -> None:
    tokens = list(range(20, 45))
    engine = engine_of(tiny_loaded)
    cold = engine.score(tokens, 9)
    assert engine.score(tokens, 9) == pytest.approx(cold, abs=1e-5)
    assert len(cold) == 16


def test_contiguous_memory_and_a_prefix_cache_exclude_each_other_with_the_value_to_set() -> None:
    with pytest.raises(InputError, match=r"prefix_cache=off \(needed by kv_layout=contiguous\)"):
        EngineConfig.from_settings({"kv_layout": "contiguous"})
    assert EngineConfig.from_settings({"kv_layout": "contiguous", "prefix_cache": "off"}).prefix_cache == "off"


def test_a_block_shared_while_free_or_dropped_twice_is_an_error() -> None:
    pool = BlockPool(2, 4)
    with pytest.raises(ValueError, match="free"):
        pool.share(0)
    taken = pool.take(1)
    pool.drop(taken)
    with pytest.raises(ValueError, match="nobody holds"):
        pool.drop(taken)
