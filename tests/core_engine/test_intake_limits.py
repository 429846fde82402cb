"""The rate limit at the engine's door, and a prefix cache that is emptied while requests run."""

from __future__ import annotations

import pytest

from core_engine.intake import RateLimit
from core_engine.sampling_params import SamplingParams
from ledger.errors import InputError
from tests.core_engine.shadow import expected_tokens, shadow_engine

S = 1_000_000_000


def taken(limit: RateLimit, times_ns: list[int]) -> list[bool]:
    found = []
    for now_ns in times_ns:
        try:
            limit.take(now_ns)
            found.append(True)
        except InputError as error:
            assert error.field == "rate_limit_rps"
            found.append(False)
    return found


def test_a_burst_of_a_second_is_taken_then_the_rate() -> None:
    limit = RateLimit(2.0)
    assert taken(limit, [0, 0, 0]) == [True, True, False]
    assert taken(limit, [S // 2, S // 2 + 1, S]) == [True, False, True]
    assert taken(limit, [100 * S] * 3) == [True, True, False]  # a long rest is not saved up


def test_below_one_a_second_the_first_is_taken() -> None:
    assert taken(RateLimit(0.5), [0, S, 2 * S, 3 * S]) == [True, False, True, False]


def test_zero_is_no_limit() -> None:
    assert all(taken(RateLimit(0.0), [0] * 1000))


def test_the_engine_refuses_beyond_the_rate_and_scoring_is_not_counted() -> None:
    engine = shadow_engine(50, rate_limit_rps=0.001)
    engine.add([1, 2, 3], SamplingParams(max_tokens=2))
    engine.add_score([1, 2, 3], 1)
    with pytest.raises(InputError, match="rate_limit_rps"):
        engine.add([1, 2, 3], SamplingParams(max_tokens=2))


def test_an_emptied_prefix_cache_is_not_found_and_runs_go_on() -> None:
    engine = shadow_engine(50, block_size=4)
    prompt = list(range(1, 14))
    params = SamplingParams(max_tokens=6, seed=5)
    assert engine.generate([prompt], params)[0].token_ids == expected_tokens(prompt, 6, 5)
    running = engine.add(prompt, params)
    engine.step()
    request = engine.sessions.of(running)[0].request
    assert request.log.prefix_hit_tokens == 12
    assert engine.reset_prefix_cache() >= 3 and engine.pool.num_cached == 0
    newcomer = engine.add(prompt, params)
    while engine.has_unfinished():
        engine.step()
    assert engine.sessions.of(newcomer)[0].request.log.prefix_hit_tokens == 0
    for name in (running, newcomer):
        assert engine.completion(name).token_ids == expected_tokens(prompt, 6, 5)
    engine.pool.check_each([])
    assert engine.reset_prefix_cache() > 0 and engine.pool.num_free == engine.pool.num_blocks
    assert engine.reset_prefix_cache() == 0
