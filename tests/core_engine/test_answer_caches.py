"""The answer caches by themselves: what is the same request, when an answer leaves, and what may never be mixed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core_engine.answer_cache import AnswerCaches, CacheAsk, Hit
from core_engine.answer_cache.caches import MOST_MARKS, NS_PER_S
from core_engine.answer_cache.make import frame_of
from core_engine.answer_cache.semantic import LONGEST_QUESTION, SemanticCache
from core_engine.answer_cache.shelf import Shelf, StoredAnswer
from core_engine.plan import TokenLogprobs
from core_engine.request import Request, RequestLog
from core_engine.sampling_params import SamplingParams
from ledger.errors import InputError
from tests.core_engine.vectors import FlatIndex, WordEncoder

GREEDY = SamplingParams(max_tokens=4)
WORDS = CacheAsk(semantic=True)


class Letters:
    """One token a character; those from 1,000 on are special."""

    def encode(self, text: str) -> list[int]:
        return [ord(char) for char in text]

    def decode(self, ids: Any) -> str:
        return "".join(chr(token) for token in ids if token < 1000)


def caches_of(most: int = 100, threshold: float = 0.9, exact: bool = True, **options: Any) -> AnswerCaches:
    semantic = SemanticCache(WordEncoder(), FlatIndex, threshold, most)
    shelf: Shelf[Any] | None = Shelf(most) if exact else None
    return AnswerCaches(shelf, semantic, frame_of(Letters()), **options)  # type: ignore[arg-type]


def ended(answer: str, params: SamplingParams = GREEDY, reason: str = "stop") -> Request:
    tokens = [1, *map(ord, answer)]
    request = Request(f"of {answer}", 0, tokens, 1, params, 0, RequestLog(0, 0))
    request.finish_reason = reason
    return request


class Asker:
    """Asks in one namespace at one moment; what is not found is computed and stored as `answer`."""

    def __init__(self, caches: AnswerCaches, **fixed: Any) -> None:
        self.caches, self.fixed = caches, fixed

    def look(self, prompt: str | list[int], **changes: Any) -> tuple[Hit | None, Any]:
        given = {"space": "model", "params": GREEDY, "ask": CacheAsk(), "now_ns": 0, **self.fixed, **changes}
        ids = Letters().encode(prompt) if isinstance(prompt, str) else prompt
        return self.caches.look(given["space"], ids, given["params"], given["ask"], given["now_ns"])

    def told(self, prompt: str | list[int], answer: str = "42", **changes: Any) -> None:
        hit, pending = self.look(prompt, **changes)
        assert hit is None
        self.caches.store(pending, ended(answer), {**self.fixed, **changes}.get("now_ns", 0))

    def tier(self, prompt: str | list[int], **changes: Any) -> str | None:
        hit, _ = self.look(prompt, **changes)
        return None if hit is None else hit.tier


def test_the_same_request_gets_the_same_answer_and_says_whose_it_is() -> None:
    asker = Asker(caches_of())
    asker.told("what is six times seven", "42")
    hit, pending = asker.look("what is six times seven")
    assert pending is None and hit is not None
    assert hit.answer == StoredAnswer((52, 50), "stop", (), "of 42")
    assert hit.record() == {"tier": "exact", "source": "of 42", "similarity": None}


@pytest.mark.parametrize(
    "changes",
    [
        {"space": "another model"},
        {"params": replace(GREEDY, max_tokens=5)},
        {"params": replace(GREEDY, stop=("x",))},
        {"params": replace(GREEDY, repetition_penalty=1.1)},
        {"params": replace(GREEDY, temperature=1.0, seed=3)},
        {"ask": CacheAsk(data_version="2")},
        {"ask": CacheAsk(exact=False)},
    ],
)
def test_whatever_an_answer_follows_from_keeps_requests_apart(changes: dict[str, Any]) -> None:
    asker = Asker(caches_of())
    asker.told("what is six times seven")
    assert asker.tier("what is six times seven") == "exact"
    assert asker.tier("what is six times seven", **changes) is None
    assert asker.tier("what is six times eight") is None


def test_drawn_answers_are_reused_with_a_seed_of_their_own_alone() -> None:
    asker = Asker(caches_of())
    for params in (SamplingParams(temperature=1.0), SamplingParams(temperature=1.0, seed=1, n=2)):
        assert asker.look("a", params=params) == (None, None)
    seeded = SamplingParams(temperature=1.0, seed=1)
    asker.told("a", params=seeded)
    assert asker.tier("a", params=seeded) == "exact"
    assert asker.tier("a", params=replace(seeded, seed=2)) is None


def test_a_seed_that_greedy_decoding_ignores_separates_nothing() -> None:
    asker = Asker(caches_of())
    asker.told("a", params=replace(GREEDY, seed=1))
    assert asker.tier("a", params=replace(GREEDY, seed=2)) == "exact"


def test_other_words_hit_only_where_the_request_allows_it() -> None:
    asker = Asker(caches_of())
    asker.told("could you reset my password", ask=WORDS)
    assert asker.tier("my password, could you reset", ask=CacheAsk()) is None
    # The same words in another order are another sentence to the gate; here they only mean that it is asked.
    hit, _ = asker.look("Could you reset my password?", ask=WORDS)
    assert hit is not None and hit.tier == "semantic" and hit.similarity == pytest.approx(1, abs=1e-3)
    assert hit.question == "could you reset my password"


def test_an_answer_of_a_request_that_allows_no_reuse_in_other_words_is_given_to_no_such_request() -> None:
    asker = Asker(caches_of())
    asker.told("could you reset my password")
    assert asker.tier("Could you reset my password?", ask=WORDS) is None


def test_a_threshold_and_then_the_gate() -> None:
    asker = Asker(caches_of(threshold=0.8))
    asker.told("convert five miles into kilometres for me please now", ask=WORDS)
    assert asker.tier("convert eight miles into kilometres for me please now", ask=WORDS) is None
    assert asker.caches.counters()["refused"] == {"numbers": 1}
    assert asker.tier("bake a cake", ask=WORDS) is None
    assert asker.caches.counters()["refused"] == {"numbers": 1}, "too far away to be a candidate"


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("Be brief. User: {}", "Be thorough. User: {}"),
        ("User: {}", "Human: {}"),
        ("User: {} Assistant:", "User: {}"),
        ("First turn. User: {}", "Other turn. User: {}"),
    ],
)
def test_the_prompt_around_the_question_has_to_be_the_same(stored: str, asked: str) -> None:
    question, again = "could you reset my password", "Could you reset my password?"
    asker = Asker(caches_of())
    asker.told(stored.format(question), ask=replace(WORDS, question=question))
    assert asker.tier(stored.format(again), ask=replace(WORDS, question=again)) == "semantic"
    assert asker.tier(asked.format(again), ask=replace(WORDS, question=again)) is None


def test_special_tokens_around_the_question_count_too() -> None:
    asker = Asker(caches_of())
    question = list(map(ord, "could you reset my password"))
    asker.told([1001, *question, 1002], ask=replace(WORDS, question="could you reset my password"))
    again = list(map(ord, "Could you reset my password"))
    ask = replace(WORDS, question="Could you reset my password")
    assert asker.tier([1001, *again, 1002], ask=ask) == "semantic"
    assert asker.tier([1001, *again, 1003], ask=ask) is None


def test_a_question_that_is_not_in_the_prompt_is_not_looked_for() -> None:
    asker = Asker(caches_of(exact=False))
    assert asker.look("the prompt", ask=replace(WORDS, question="something else")) == (None, None)
    assert asker.look("x" * (LONGEST_QUESTION + 1), ask=WORDS) == (None, None)


@pytest.mark.parametrize(
    "changes",
    [{"space": "another model"}, {"params": replace(GREEDY, max_tokens=5)}, {"ask": replace(WORDS, data_version="2")}],
)
def test_the_semantic_tier_keeps_namespaces_apart(changes: dict[str, Any]) -> None:
    asker = Asker(caches_of(exact=False), ask=WORDS)
    asker.told("could you reset my password")
    assert asker.tier("could you reset my password") == "semantic"
    assert asker.tier("could you reset my password", **changes) is None


def test_an_answer_leaves_when_its_time_is_over() -> None:
    asker = Asker(caches_of(ttl_s=10.0))
    asker.told("long", ask=CacheAsk(semantic=True))
    asker.told("short", ask=CacheAsk(semantic=True, ttl_s=2.0))
    asker.told("never longer", ask=CacheAsk(ttl_s=1000.0))
    assert asker.tier("short", now_ns=2 * NS_PER_S - 1) == "exact"
    assert asker.tier("short", now_ns=2 * NS_PER_S, ask=WORDS) is None
    assert asker.tier("long", now_ns=10 * NS_PER_S - 1) == "exact"
    assert asker.tier("never longer", now_ns=10 * NS_PER_S) is None
    assert asker.tier("long", now_ns=10 * NS_PER_S, ask=WORDS) is None
    assert asker.caches.counters()["entries"] == 0 and asker.caches.counters()["expired"] == 5


@pytest.mark.parametrize("tier", ["exact", "semantic"])
def test_the_least_recently_used_answer_makes_room(tier: str) -> None:
    asker = Asker(caches_of(most=2, exact=tier == "exact"), ask=CacheAsk(exact=True, semantic=tier == "semantic"))
    asker.told("first apple")
    asker.told("second banana tree")
    assert asker.tier("first apple") == tier
    asker.told("third cherry blossom stone")
    assert asker.tier("second banana tree") is None
    assert asker.tier("first apple") == tier and asker.tier("third cherry blossom stone") == tier
    assert asker.caches.counters()["evicted"] == 1


def test_a_tag_lets_go_of_its_answers_and_of_no_others() -> None:
    asker = Asker(caches_of())
    asker.told("prices today", ask=CacheAsk(semantic=True, tags=("prices", "shop")))
    asker.told("opening hours", ask=CacheAsk(semantic=True, tags=("shop",)))
    assert asker.caches.invalidate(["prices"]) == 2  # one in each tier
    assert asker.tier("prices today", ask=WORDS) is None
    assert asker.tier("opening hours") == "exact"
    assert asker.caches.invalidate(["prices"]) == 0


def test_an_answer_that_was_invalidated_while_it_was_computed_is_not_kept() -> None:
    asker = Asker(caches_of())
    ask = CacheAsk(tags=("prices",))
    _, pending = asker.look("prices today", ask=ask)
    asker.caches.invalidate(["prices"])
    asker.caches.store(pending, ended("old"), 0)
    assert asker.tier("prices today") is None
    asker.told("prices today", "new", ask=ask)
    assert asker.tier("prices today") == "exact", "one asked for afterwards is"


@pytest.mark.parametrize("semantic", [False, True])
def test_an_answer_stored_without_a_tag_is_not_given_to_who_names_it_after_the_tag_was_invalidated(
    semantic: bool,
) -> None:
    asker = Asker(caches_of(exact=not semantic))
    asker.told("what does a day pass cost", "old", ask=CacheAsk(semantic=semantic))
    tagged = CacheAsk(semantic=semantic, tags=("prices",))
    assert asker.tier("what does a day pass cost", ask=tagged) is not None
    assert asker.caches.invalidate(["prices"]) == 0, "nobody stored anything under it"
    other = CacheAsk(semantic=semantic, tags=("hours",))
    assert asker.tier("what does a day pass cost", ask=other) is not None
    asker.told("what does a day pass cost", "new", ask=tagged)
    hit, _ = asker.look("what does a day pass cost", ask=tagged)
    assert hit is not None and hit.answer.source == "of new"
    assert asker.caches.counters()["entries"] == 1 and asker.caches.counters()["invalidated"] == 1


def test_clearing_is_an_invalidation_of_everything() -> None:
    asker = Asker(caches_of())
    asker.told("kept")
    _, pending = asker.look("under way")
    assert asker.caches.clear() == 1
    asker.caches.store(pending, ended("old"), 0)
    assert asker.tier("kept") is None and asker.tier("under way") is None


def test_more_tags_than_are_remembered_lose_no_invalidation() -> None:
    asker = Asker(caches_of())
    _, pending = asker.look("prices today", ask=CacheAsk(tags=("prices",)))
    asker.caches.invalidate(["prices"])
    asker.caches.invalidate([f"tag {number}" for number in range(MOST_MARKS + 1)])
    asker.caches.store(pending, ended("old"), 0)
    assert asker.tier("prices today") is None


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_only_a_finished_answer_is_kept(reason: str) -> None:
    asker = Asker(caches_of())
    _, pending = asker.look("a")
    asker.caches.store(pending, ended("half", reason=reason), 0)
    assert asker.tier("a") is None


def test_a_later_answer_to_the_same_request_takes_the_place_of_the_first() -> None:
    asker = Asker(caches_of(ttl_s=10.0))
    pendings = [asker.look("a")[1] for _ in range(2)]  # both under way at once
    asker.caches.store(pendings[0], ended("1"), 0)
    asker.caches.store(pendings[1], ended("2"), 5 * NS_PER_S)
    hit, _ = asker.look("a", now_ns=11 * NS_PER_S)
    assert hit is not None and hit.answer.source == "of 2", "and lives as long as the second"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"tags": "shop"}, "cache.tags"),
        ({"tags": [""]}, "cache.tags"),
        ({"ttl_s": 0}, "cache.ttl_s"),
        ({"ttl_s": True}, "cache.ttl_s"),
        ({"semantic": "yes"}, "cache.semantic"),
        ({"data_version": 3}, "cache.data_version"),
        ({"question": 3}, "cache.question"),
        ({"other": 1}, "cache.other"),
        ("on", "cache"),
    ],
)
def test_a_wrong_ask_is_named(given: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        CacheAsk.from_json(given)
    assert caught.value.field == field


def test_an_ask_in_json() -> None:
    assert CacheAsk.from_json(False) == CacheAsk(exact=False)
    assert CacheAsk.from_json({"semantic": True, "ttl_s": 5, "tags": ["a", "a"], "question": None}) == CacheAsk(
        semantic=True, ttl_s=5.0, tags=("a",)
    )


def test_answers_are_bounded_in_bytes_and_the_least_recently_used_leave_first() -> None:
    answer = StoredAnswer((300,) * 1000, "stop", (), "a request")
    shelf: Shelf[str] = Shelf(100, most_bytes=3 * answer.num_bytes() + 100)
    for key in "abc":
        shelf.put(key, answer, NS_PER_S)
    shelf.use("a")
    shelf.put("d", answer, NS_PER_S)
    assert [key for key, _ in shelf.items()] == ["c", "a", "d"] and shelf.departures.evicted == 1
    assert shelf.num_bytes == 3 * answer.num_bytes()
    shelf.put("e", answer, NS_PER_S, key_bytes=101)
    assert [key for key, _ in shelf.items()] == ["d", "e"]
    shelf.clear()
    assert shelf.num_bytes == 0


def test_an_answer_larger_than_its_shelf_is_not_kept() -> None:
    left: list[str] = []
    shelf: Shelf[str] = Shelf(100, left.append, most_bytes=2_000)
    shelf.put("large", StoredAnswer((300,) * 1000, "stop", (), "a request"), NS_PER_S, ("tag",))
    assert len(shelf) == 0 and shelf.num_bytes == 0 and left == ["large"]
    assert shelf.invalidate(["tag"]) == 0


def test_log_probabilities_count_among_the_bytes_of_an_answer() -> None:
    plain = StoredAnswer((300,) * 10, "stop", (), "a request")
    told = replace(plain, logprobs=(TokenLogprobs(-0.5, tuple((500 + place, -1.5) for place in range(20))),) * 10)
    assert told.num_bytes() > plain.num_bytes() + 10 * 20 * 24
