"""The parts of an endpoint target that need no server: event streams, token counts, a server's metrics, salts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.targets.counting import emissions
from experiments.targets.salt import NUM_WORDS, new_salt
from experiments.targets.server_metrics import busy_requests, counters, parse_metrics
from experiments.targets.stream import Answer, BrokenStreamError, EventStream
from tests.experiments.endpoint_rig import Bytes

EVENTS = [
    b"data: one\n\n",
    b": alive\n\n",
    b"event: x\ndata: two\r\n\r\n",
    "data: 三\ndata: drei\n\n".encode(),
    b"data: end",
]


@given(st.lists(st.integers(1, 20), max_size=30))
def test_events_are_the_same_however_the_bytes_are_cut(sizes: list[int]) -> None:
    whole, stream, found = b"".join(EVENTS), EventStream(), []
    for size in [*sizes, len(b"".join(EVENTS))]:
        piece, whole = whole[:size], whole[size:]
        found += stream.feed(piece)
    found += stream.close()
    assert found == ["one", "two", "三\ndrei", "end"]


@pytest.mark.parametrize("data", [b"<html>\n", b"data: \xff\xfe\n\n", b"HTTP/1.1 200\n"])
def test_what_is_no_event_stream_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenStreamError):
        list(EventStream().feed(data))


def answer(*chunks: tuple[str, int | None], total: int | None = None, logprobs: int | None = None) -> Answer:
    """An answer of (text, tokens so far by usage) chunks, 1 ns apart."""
    made = Answer()
    for place, (text, usage) in enumerate(chunks):
        event: dict[str, object] = {"choices": [{"text": text, "finish_reason": None}]}
        if usage is not None:
            event["usage"] = {"completion_tokens": usage}
        if logprobs is not None:
            event["choices"] = [{"text": text, "logprobs": {"tokens": ["x"] * logprobs}}]
        made.take(json.dumps(event), place)
    if total is not None:
        made.take(json.dumps({"choices": [], "usage": {"completion_tokens": total}}), 99)
    return made


@pytest.mark.parametrize(
    ("made", "tokenizer", "tokens", "how"),
    [
        (answer(("a", 2), ("b", 3)), None, [2, 1], "usage of each chunk"),
        (answer(("a", None), ("b", None), total=2), None, [1, 1], "one a chunk, the total agrees"),
        (
            answer(("a", None), ("b", None), total=3),
            None,
            [1, 1],
            "one a chunk, the total agrees",
        ),  # the end's own token
        (answer(("a", None), ("bcd", None), logprobs=3), None, [3, 3], "log-probabilities"),
        (answer(("abc", None), ("d", None)), Bytes(), [3, 1], "the model's tokenizer"),
        (answer(("abc", None), ("d", None), total=8), Bytes(), [6, 2], "the total, spread over chunks by bytes"),
        (answer(("abcd", None), ("efgh", None), total=8), None, [4, 4], "the total, spread over chunks by bytes"),
        (answer(("a", None), ("b", None)), None, [1, 1], "one a chunk, assumed"),
        (answer(("", 1), ("ab", 2)), None, [2], "usage of each chunk"),  # a character that took two tokens
        (answer(("a", 1), ("", 2), ("b", 3)), None, [1, 1, 1], "usage of each chunk"),
        (answer(("", None)), None, [], None),
    ],
)
def test_tokens_of_a_chunk_are_counted_by_the_surest_way_there_is(
    made: Answer, tokenizer: object, tokens: list[int], how: str | None
) -> None:
    found, said = emissions(made, tokenizer)
    assert ([count for _, count in found], said) == (tokens, how)


def test_counters_are_differences_and_what_is_not_there_is_none() -> None:
    before = parse_metrics(
        '# HELP x\nvllm:prefix_cache_hits_total{a="}"} 5\nvllm:prefix_cache_queries_total 10\n'
        "vllm:num_preemptions_total 3\nvllm:num_requests_running 2\n"
        "vllm:num_requests_waiting 1\nbroken\nnot_a_number NaN\n"
    )
    after = {**before, "vllm:prefix_cache_hits": 15.0, "vllm:prefix_cache_queries": 30.0}
    found = counters(before, after)
    assert (found["prefix_hit_rate"], found["preemptions"], found["acceptance_rate"]) == (0.5, 0, None)
    assert counters(before, {**after, "vllm:num_preemptions": 1.0})["preemptions"] is None  # it was started again
    assert set(counters(None, after).values()) == {None}
    assert busy_requests(before) == 3 and busy_requests(None) is None


def test_salts_differ_and_have_equally_many_words() -> None:
    salts = [new_salt() for _ in range(50)]
    assert len(set(salts)) == 50
    assert {len(salt.split()) for salt in salts} == {NUM_WORDS}
