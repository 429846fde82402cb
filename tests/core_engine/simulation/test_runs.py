"""Steps passed in one go lead to the very state, events and gaps that steps taken one by one lead to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core_engine.simulation.made import jobs_of, served, times_of

CASES: dict[str, dict[str, Any]] = {
    "calm": {"rate": 4.0},
    "full": {"rate": 60.0},
    "pool too small": {"rate": 60.0, "blocks": 90},
    "no prefix cache": {"rate": 30.0, "prefix_cache": "off"},
    "contiguous": {"rate": 30.0, "prefix_cache": "off", "kv_layout": "contiguous"},
    "one slot": {"rate": 10.0, "max_num_seqs": 1},
    "budget below the rows": {"rate": 60.0, "max_num_batched_tokens": 8},
    "static": {"rate": 30.0, "batching": "static"},
    "dynamic": {"rate": 30.0, "batching": "dynamic", "max_wait_ms": 40.0},
    "round robin": {"rate": 60.0, "replicas": 3, "route": "round-robin"},
    "least loaded": {"rate": 60.0, "replicas": 3},
    "prefix aware": {"rate": 60.0, "replicas": 3, "route": "prefix-aware"},
    "windows": {"rate": 20.0, "times": times_of("gemma-2-2b"), "count": 30},
}


@pytest.mark.parametrize("name", CASES)
def test_events_equal_those_of_single_steps(name: str) -> None:
    options = dict(CASES[name])
    jobs = jobs_of(options.pop("count", 80), options.pop("rate"), seed=sum(map(ord, name)))
    alone, stepped = served(jobs, skip=False, **options)
    passed, skipped = served(jobs, skip=True, **options)
    assert alone == passed and len(passed) == len(jobs)
    assert [replica.num_steps for replica in stepped] == [replica.num_steps for replica in skipped]
    assert [replica.gaps.percentile(99) for replica in stepped] == [replica.gaps.percentile(99) for replica in skipped]
    for one, other in zip(stepped, skipped, strict=True):
        assert one.pool.cached == other.pool.cached and one.pool.kept == other.pool.kept
        assert one.clock.now_ns() == other.clock.now_ns() and one.peak_used_blocks == other.peak_used_blocks
    assert sum(replica.num_passed for replica in stepped) == 0
    if name != "static":  # whose batch keeps finished rows
        assert sum(replica.num_passed for replica in skipped) > 0


def test_the_small_pool_really_preempts_and_prefixes_are_really_found() -> None:
    jobs = jobs_of(200, 60.0, seed=sum(map(ord, "pool too small")))
    ended, _ = served(jobs, blocks=90)
    assert sum(item.preemptions for item in ended) > 0
    roomy, _ = served(jobs)
    assert sum(item.prefix_hit_tokens for item in roomy) > 0
    assert all(item.output_tokens == item.job.output_tokens and item.reason == "stop" for item in roomy)


@pytest.mark.slow
def test_ten_thousand_requests_on_many_replicas_are_equal_event_for_event() -> None:
    jobs = jobs_of(10_000, 200.0, prompt=2000, output=300)
    settings = {"replicas": 16, "blocks": 4000, "max_num_seqs": 64, "max_num_batched_tokens": 2048}
    assert served(jobs, skip=False, **settings)[0] == served(jobs, **settings)[0]
