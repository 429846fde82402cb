"""Answer caches in a run: what the load generator tells the engine, and what the metrics say of hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core_engine.answer_cache import AnswerCaches
from core_engine.answer_cache.make import frame_of
from core_engine.answer_cache.semantic import SemanticCache
from core_engine.answer_cache.shelf import Shelf
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from experiments import loadgen
from experiments.metrics import compute_metrics
from experiments.metrics.answer_cache import answer_cache
from experiments.targets.engine import EngineTarget
from experiments.workloads import Workload, WorkloadRequest, build
from tests.core_engine.vectors import FlatIndex, WordEncoder
from tests.experiments.fakes import NS, ByteTokenizer, FakeExecutor, FakeRig, VirtualClock, fake_loaded


def ask(text: str, key: str, at_s: float, *, reuse: bool = True) -> WorkloadRequest:
    ids = tuple(text.encode())
    return WorkloadRequest(ids, 4, 4, round(at_s * NS), question=text if reuse else None, answer_key=key)


def engine_of(**settings: Any) -> Engine:
    clock = VirtualClock()
    config = EngineConfig.from_settings(settings)
    caches = None
    if config.semantic_cache == "on":
        semantic = SemanticCache(WordEncoder(), FlatIndex, config.semantic_threshold, 100)
        exact: Shelf[Any] | None = Shelf(100) if config.exact_cache == "on" else None
        caches = AnswerCaches(exact, semantic, frame_of(ByteTokenizer()))
        config = EngineConfig.from_settings({**settings, "semantic_cache": "off"})
    return Engine(config, fake_loaded(), clock=clock, executor=FakeExecutor(clock, config), caches=caches)


QUESTIONS = (
    ask("how do i reset my password", "reset", 0.0),
    ask("how do i reset my password", "reset", 1.0),
    ask("please how do i reset my password", "reset", 2.0),
    ask("so how do i reset my password then", "another", 3.0),
    ask("where is the station", "station", 4.0),
)


def test_hits_by_tier_wrong_ones_and_saved_work() -> None:
    engine = engine_of(exact_cache="on", semantic_cache="on", semantic_threshold=0.8)
    record = loadgen.run(engine, Workload("test", 0, QUESTIONS, None, "poisson"))
    tiers = [(request.get("cache") or {}).get("tier") for request in record["requests"]]
    assert tiers == [None, "exact", "semantic", "semantic", None]
    found = compute_metrics(record)["answer_cache"]
    assert found["hits"] == {"exact": 1, "semantic": 2} and found["hit_rate"] == pytest.approx(3 / 5)
    assert (found["judged"], found["wrong"], found["wrong_hit_rate"]) == (3, 1, pytest.approx(1 / 3))
    hits = [len(QUESTIONS[place].prompt_token_ids) for place in (1, 2, 3)]
    assert (found["saved_prefill_tokens"], found["saved_decode_tokens"]) == (sum(hits), 12)
    total = sum(len(request.prompt_token_ids) + 4 for request in QUESTIONS)
    assert found["saved_share"] == pytest.approx((sum(hits) + 12) / total)
    assert found["ttft_hit_s"]["n"] == 3 and found["ttft_miss_s"]["n"] == 2
    assert found["ttft_hit_s"]["p99"] < 0.001 < found["ttft_miss_s"]["p50"]
    assert found["lookup_s"]["n"] == 5


def test_what_was_computed_is_what_the_steps_say() -> None:
    engine = engine_of(exact_cache="on")
    record = loadgen.run(engine, Workload("test", 0, QUESTIONS, None, "poisson"))
    computed = sum(step["prefill_tokens"] for step in record["steps"])
    asked = sum(len(request.prompt_token_ids) for request in QUESTIONS)
    prefix = sum(request["prefix_hit_tokens"] for request in record["requests"])
    assert computed == asked - answer_cache(record)["saved_prefill_tokens"] - prefix


def test_a_request_that_allows_nothing_gets_no_answer_in_other_words() -> None:
    engine = engine_of(exact_cache="on", semantic_cache="on", semantic_threshold=0.8)
    requests = (ask("how do i do it", "a", 0.0), ask("please how do i do it", "a", 1.0, reuse=False))
    record = loadgen.run(engine, Workload("test", 0, requests, None, "poisson"))
    assert compute_metrics(record)["answer_cache"]["hits"] == {"exact": 0, "semantic": 0}


def test_without_answer_keys_no_hit_is_judged() -> None:
    requests = tuple(WorkloadRequest((7, 8), 4, 4, at * NS) for at in range(2))
    record = loadgen.run(engine_of(exact_cache="on"), Workload("test", 0, requests, None, "poisson"))
    found = compute_metrics(record)["answer_cache"]
    assert found["hits"]["exact"] == 1
    assert (found["judged"], found["wrong"], found["wrong_hit_rate"]) == (0, 0, None)


def test_a_run_without_caches_says_nothing_of_them() -> None:
    record = loadgen.run(engine_of(), Workload("test", 0, QUESTIONS, None, "poisson"))
    assert "answer_cache" not in record and "answer_cache" not in compute_metrics(record)


def test_the_next_run_of_a_target_begins_with_empty_caches() -> None:
    target = EngineTarget(EngineConfig.from_settings({"exact_cache": "on"}), FakeRig(VirtualClock()))  # type: ignore[arg-type]
    workload = Workload("test", 0, QUESTIONS[:2], None, "poisson")
    for _ in range(2):
        target.reset()
        record = target.run(workload)
        assert record["answer_cache"]["lookups"] == {"exact": 1, "semantic": 0, "miss": 1}


def test_a_warm_up_stores_nothing_and_still_computes() -> None:
    rig = FakeRig(VirtualClock())
    target = EngineTarget(EngineConfig.from_settings({"exact_cache": "on"}), rig)  # type: ignore[arg-type]
    target.warm_up(Workload("test", 0, QUESTIONS, None, "poisson"))
    assert {config.exact_cache for config in rig.made} == {"off"}


class Reader:
    """An engine that finds an answer likely which begins as its prompt does."""

    def prompt_of(self, ids: Sequence[int]) -> list[int]:
        return list(ids)

    def score(self, ids: Sequence[int], start: int) -> list[float]:
        return [-0.125 if ids[start] == ids[0] else -5.0] * (len(ids) - start)


class ReaderRig:
    def engine(self, config: EngineConfig) -> Reader:
        return Reader()


def answers(*given: Sequence[int]) -> dict[str, Any]:
    return {
        "requests": [
            {"id": f"r{number:02d}", "output_token_ids": list(ids), "finish_reason": "stop"}
            for number, ids in enumerate(given)
        ]
    }


@pytest.mark.parametrize(
    ("baseline", "candidate", "seen"),
    [
        ({}, {"semantic_cache": "on"}, True),
        ({"semantic_cache": "on"}, {"semantic_cache": "on", "semantic_threshold": 0.5}, True),
        ({}, {"exact_cache": "on", "semantic_threshold": 0.5}, False),  # gives what would be computed
    ],
)
def test_another_questions_answer_is_seen_in_the_quality_of_a_comparison(
    baseline: dict[str, Any], candidate: dict[str, Any], seen: bool
) -> None:
    one, other = (EngineTarget(EngineConfig.from_settings(each), ReaderRig()) for each in (baseline, candidate))  # type: ignore[arg-type]
    workload = Workload("test", 0, tuple(WorkloadRequest((first, 9), 2, 2, 0) for first in (1, 3)), None, "poisson")
    found = one.agreement(other, (workload, workload), (answers((1, 1), (3, 3)), answers((1, 1), (1, 1))))
    assert found.logprobs == ([-0.125, -0.125], [-0.125, -5.0 if seen else -0.125])
    assert found.same_token_ids_share == 0.5


@pytest.mark.parametrize("name", ["repetitive", "repetitive-zh"])
def test_repetitive_traffic_comes_back_to_what_was_asked(name: str) -> None:
    workload = build(name, seed=3, tokenizer=ByteTokenizer(), num_requests=400)
    assert workload == build(name, seed=3, tokenizer=ByteTokenizer(), num_requests=400)
    texts = [request.question for request in workload.requests]
    keys = [request.answer_key for request in workload.requests]
    assert all(
        text and bytes(request.prompt_token_ids).decode() == text
        for request, text in zip(workload.requests, texts, strict=True)
    )
    literal = sum(text in texts[:place] for place, text in enumerate(texts))
    in_other_words = sum(key in keys[:place] and texts[place] not in texts[:place] for place, key in enumerate(keys))
    near = sum(str(key).endswith(".b") for key in keys)
    assert 0.3 < literal / 400 < 0.6 and in_other_words > 20 and near > 20
    # One text has one right answer.
    assert len(set(zip(texts, keys, strict=True))) == len(set(texts))
