"""Answer caches measured: what the figures count, staleness, the run with its arms, and the claim that reads it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from core_engine.answer_cache.semantic import SemanticCache
from core_engine.answer_cache.shelf import StoredAnswer
from experiments.caching import staleness as stale
from experiments.caching.evaluation import (
    MOST_STRANGERS,
    MOST_WRONG,
    THRESHOLDS,
    at_threshold,
    best_threshold,
    evaluate,
    judge_pairs,
    share,
)
from experiments.caching.pairs import Pair, read_pairs
from experiments.caching.run import run_cache
from experiments.caching.spec import CacheSpec
from experiments.claims.answer_caches import check, judge
from experiments.kinds import KINDS
from experiments.loadgen import Cancelled
from ledger.errors import InputError
from tests.core_engine.vectors import FlatIndex, WordEncoder
from tests.experiments.fakes import FakeRig, VirtualClock

SAME = (
    Pair("p1", "how do i boil an egg", "please how do i boil an egg", "x", "tune"),
    Pair("p2", "red green blue white", "white blue green red now", "x", "tune"),
    Pair("p3", "black red green white", "stone", "x", "tune"),
)
CHINESE = (Pair("z1", "怎么 煮 鸡蛋 好吃 呢", "如何 煮 鸡蛋 好吃 呢", "x", "tune"),)
NEAR = (
    Pair("n1", "how do i boil five eggs", "how do i boil six eggs", "x", "tune"),
    Pair("n2", "who may enter the garden now", "who may enter the garden then", "x", "tune"),
)


def test_shares_count_pairs_by_similarity_and_gate() -> None:
    judged = judge_pairs(WordEncoder(), SAME, NEAR)
    row = at_threshold(judged, 0.7)
    assert (row["hit"]["count"], row["hit_ungated"]["count"], row["hit"]["total"]) == (2, 2, 3)
    assert (row["wrong"]["count"], row["wrong_ungated"]["count"], row["wrong"]["total"]) == (0, 2, 2)
    assert judged.apart["near_miss"] == ["numbers", "words"]
    assert at_threshold(judged, 0.0)["hit"]["count"] == 3 and at_threshold(judged, 0.0)["wrong"]["count"] == 0


def test_in_the_crowd_only_the_own_answer_is_right() -> None:
    judged = judge_pairs(WordEncoder(), SAME, NEAR)
    row = at_threshold(judged, 0.7)
    assert (row["crowd_hit"]["count"], row["crowd_wrong"]["count"], row["crowd_wrong"]["total"]) == (2, 0, 5)
    assert at_threshold(judged, 0.0)["crowd_wrong"]["count"] >= 1  # "stone" gets whatever is nearest


def test_a_stranger_is_answered_wrongly_whoever_answers() -> None:
    judged = judge_pairs(WordEncoder(), SAME, NEAR)
    # Without its own pair, "white blue green red now" is near to "black red green white", in another order.
    assert at_threshold(judged, 0.6)["stranger_wrong"]["count"] == 1
    assert at_threshold(judged, 0.7)["stranger_wrong"] == share(0, 5)


@pytest.mark.parametrize(("same", "kind"), [(SAME, "paraphrase"), (SAME, "near_miss"), (CHINESE, "paraphrase")])
def test_the_figures_are_those_of_the_cache_itself(same: tuple[Pair, ...], kind: str) -> None:
    pairs = {"paraphrase": same, "near_miss": NEAR}[kind]
    judged = judge_pairs(WordEncoder(), same, NEAR)
    for threshold in (0.3, 0.6, 0.78, 0.9):
        hits = 0
        for pair in pairs:
            cache = SemanticCache(WordEncoder(), FlatIndex, threshold, 10)
            first, second = (cache.probe("space", text) for text in (pair.a, pair.b))
            assert first is not None and second is not None
            cache.put(first, StoredAnswer((1,), "stop", (), pair.id), 10**12, ())
            hits += cache.find(second, 0) is not None
        name = "hit" if kind == "paraphrase" else "wrong"
        assert at_threshold(judged, threshold)[name]["count"] == hits


def test_a_similarity_counts_for_less_in_chinese() -> None:
    judged = judge_pairs(WordEncoder(), CHINESE, NEAR)
    assert judged.similarity["paraphrase"][0] == pytest.approx(0.8) and 0.7 < judged.close["paraphrase"][0] < 0.78
    assert at_threshold(judged, 0.78)["hit"]["count"] == 0 < at_threshold(judged, 0.78)["hit_ungated"]["count"]
    assert np.array_equal(judged.similarity["near_miss"], judged.close["near_miss"])


def test_a_share_has_its_interval() -> None:
    found = share(1, 150)
    assert found["rate"] == pytest.approx(1 / 150) and found["low"] < found["rate"] < found["high"] < 0.04
    assert share(0, 150)["low"] == 0


def test_the_best_threshold_is_the_lowest_without_too_many_wrong_answers() -> None:
    judged = judge_pairs(WordEncoder(), SAME, NEAR)
    found = best_threshold([judged])
    assert found is not None
    for threshold in THRESHOLDS:
        if threshold >= found:
            row = at_threshold(judged, threshold)
            assert row["wrong"]["rate"] <= MOST_WRONG and row["stranger_wrong"]["rate"] <= MOST_STRANGERS
    below = at_threshold(judged, round(found - 0.01, 2))
    assert below["wrong"]["rate"] > MOST_WRONG or below["stranger_wrong"]["rate"] > MOST_STRANGERS


def test_the_curve_of_a_language_falls_with_the_threshold() -> None:
    found = evaluate(WordEncoder(), "zh", "tune", 0.9)
    json.dumps(found)
    for name in ("hit", "wrong", "hit_ungated", "wrong_ungated", "crowd_hit", "crowd_wrong", "stranger_wrong"):
        counts = [row[name]["count"] for row in found["curve"]]
        assert counts == sorted(counts, reverse=True), name
    assert found["paraphrases"] == found["near_misses"] == len(read_pairs("zh", "paraphrase", "tune"))
    assert found["chosen"]["threshold"] == 0.9


def test_every_change_misses_in_both_tiers_and_nothing_changed_hits() -> None:
    rows = stale.staleness(WordEncoder(), FlatIndex, 0.8)
    assert [row["change"] for row in rows] == list(stale.CHANGES) and stale.is_fresh(rows)
    assert {row["change"] for row in rows if row["exact"]} == {"nothing", "another tag"}


def test_an_old_answer_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core_engine.answer_cache.caches.AnswerCaches.invalidate", lambda self, tags: 0)
    rows = {row["change"]: row for row in stale.staleness(WordEncoder(), FlatIndex, 0.8)}
    assert rows["source tag"]["exact"] and rows["source tag"]["semantic"] and not stale.is_fresh(list(rows.values()))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"languages": ["fr"]}, "language"),
        ({"languages": []}, "language"),
        ({"half": "both"}, "half"),
        ({"traffic": "yes"}, "traffic"),
        ({"repeats": 0}, "repeats"),
        ({"settings": {"semantic_cache": "on"}}, "--set"),
        ({"settings": {"disaggregation": "on"}}, "settings"),
        ({"settings": {"semantic_threshold": 2}}, "semantic_threshold"),
        ({"endpoint": "http://127.0.0.1:1/v1"}, "--endpoint"),
        ({"unheard": 1}, "spec"),
    ],
)
def test_wrong_specs_are_refused_by_the_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        CacheSpec.from_dict(given)
    assert caught.value.field == field and "\n" not in str(caught.value)


def test_the_default_spec_round_trips_and_says_what_it_is() -> None:
    spec = CacheSpec.from_dict({})
    assert CacheSpec.from_dict(spec.to_dict()) == spec and spec.half == "held"
    assert [one.settings for one in spec.specs()][-1] == {"exact_cache": "on", "semantic_cache": "on"}
    assert KINDS["cache"].says(spec.to_dict()) == "pairs en,zh and repetitive"


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines embed without a model."""
    monkeypatch.setattr("core_engine.answer_cache.e5.load_e5", WordEncoder)
    monkeypatch.setattr("core_engine.answer_cache.make.UsearchIndex", FlatIndex)
    monkeypatch.setattr("core_engine.answer_cache.vector_index.UsearchIndex", FlatIndex)


# Slow enough that an answer is there when its question comes again.
SMALL = {"num_requests": 40, "rate_rps": 0.5, "repeats": 2, "languages": ["en"], "half": "tune"}


def test_a_run_judges_pairs_and_serves_the_traffic_in_three_arms(words: None) -> None:
    settings = {"semantic_threshold": 0.9}
    result = run_cache({**SMALL, "settings": settings}, None, "x", rig=FakeRig(VirtualClock()))  # type: ignore[arg-type]
    json.dumps(result)
    assert [one["language"] for one in result["pairs"]] == ["en"] and result["threshold"] == 0.9
    none, exact, both = result["traffic"]["arms"]
    assert none["cache"] is None and exact["cache"]["hits"]["exact"] > 0 and exact["cache"]["wrong"] == 0
    assert both["cache"]["hits"]["exact"] >= exact["cache"]["hits"]["exact"]
    assert exact["cache"]["saved_share"] > 0.2
    assert result["traffic"]["repeats"] == 2 and set(result["traffic"]["against_first"]) == {
        "exact",
        "exact and semantic",
    }
    assert result["fresh"] and result["environment"]


def test_without_traffic_no_engine_is_made(words: None) -> None:
    rig = FakeRig(VirtualClock())
    result = run_cache({**SMALL, "traffic": False}, None, "x", rig=rig)  # type: ignore[arg-type]
    assert result["traffic"] is None and not rig.made


def test_a_cancelled_run_keeps_what_there_is(words: None) -> None:
    calls = iter(range(10_000))
    with pytest.raises(Cancelled) as caught:
        run_cache(SMALL, None, "x", should_cancel=lambda: next(calls) > 3, rig=FakeRig(VirtualClock()))  # type: ignore[arg-type]
    assert caught.value.result is not None
    assert caught.value.result["cancelled"] and caught.value.result["pairs"] and caught.value.result["traffic"] is None


SOONER = {"ratio": 0.5, "low": 0.4, "high": 0.7}
LATER = {"ratio": 1.5, "low": 1.2, "high": 1.8}


@pytest.mark.parametrize(
    ("saved", "ttft", "near", "strangers", "fresh", "verdict"),
    [
        (0.5, SOONER, 0.0, 0.0, True, "holds"),
        (0.5, {"ratio": 0.9, "low": 0.5, "high": 1.6}, 0.0, 0.0, True, "holds with a limit"),
        (0.5, SOONER, 0.2, 0.0, True, "holds with a limit"),
        (0.5, SOONER, 0.0, 0.1, True, "holds with a limit"),
        (0.5, LATER, 0.0, 0.0, True, "holds with a limit"),
        (0.2, SOONER, 0.0, 0.0, True, "holds with a limit"),
        (0.0, SOONER, 0.0, 0.0, True, "does not hold here"),
        (0.5, SOONER, 0.0, 0.0, False, "does not hold here"),
        (None, SOONER, 0.0, 0.0, True, "undecided"),
        (0.5, None, 0.0, 0.0, True, "undecided"),
    ],
)
def test_the_claim_follows_from_what_was_saved_and_what_was_wrong(
    saved: float | None, ttft: Any, near: float, strangers: float, fresh: bool, verdict: str
) -> None:
    found, reason = judge(saved, ttft, {"en": 0.0, "zh": near}, {"en": strangers, "zh": 0.0}, fresh=fresh)
    assert found == verdict and "\n" not in reason
    assert ("came later" in reason) == (ttft == LATER)


def test_the_claim_shows_the_trap_beside_the_gain(words: None) -> None:
    def cache(spec: dict[str, Any]) -> dict[str, Any]:
        return run_cache(spec, None, "x", rig=FakeRig(VirtualClock()))  # type: ignore[arg-type]

    found = check({"num_requests": 30, "repeats": 1, "settings": {"semantic_threshold": 0.8}}, cache)
    rows = {row["part"]: row for row in found["evidence"]}
    assert rows["pairs, en"]["wrong_ungated"]["rate"] > rows["pairs, en"]["wrong"]["rate"]
    assert rows["traffic, exact"]["cache"]["hits"]["exact"] > 0
    assert not rows["after a change of: model"]["semantic"]
    assert found["verdict"] != "open" and np.isfinite(rows["traffic, exact"]["ttft_p50_s"])
