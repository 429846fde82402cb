"""Answer caches behind the server: what a body allows, what a hit looks like, and how answers are invalidated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving import ask, serving

from experiments.server.event_log import EventLog
from experiments.server.protocol import parse_body

PATH, CHAT = "/v1/completions", "/v1/chat/completions"
BODY = {"prompt": "abc", "max_tokens": 4, "temperature": 0}
ON = {"exact_cache": "on"}


def hits(served: Any, tier: str = "exact") -> float:
    return float(served.metric("trilemma:answer_cache_hits_total", tier=tier))


def test_the_same_body_twice_is_computed_once_and_answered_alike() -> None:
    with serving(ON) as served:
        first, second = (ask(served.app, PATH, BODY).json for _ in range(2))
        assert hits(served) == 1
        assert first["choices"] == second["choices"] and first["usage"] == second["usage"]
        assert served.engine.trace.output_tokens == 8 and len(served.engine.trace.steps) == 4


def test_only_what_the_engine_computed_counts_as_its_tokens() -> None:
    with serving(ON) as served:
        for _ in range(3):
            ask(served.app, PATH, BODY)
        engine = {"engine": "0"}
        assert hits(served) == 2
        assert served.metric("vllm:generation_tokens_total", **engine) == 4
        assert served.metric("vllm:prompt_tokens_total", **engine) == 3
        assert served.metric("vllm:time_to_first_token_seconds_count", **engine) == 3


def test_chats_without_a_limit_of_their_own_differ_in_their_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    with serving(ON) as served:
        submit = served.service.thread.submit

        def seen(job: Any) -> None:
            asked.append(job.params)
            submit(job)

        monkeypatch.setattr(served.service.thread, "submit", seen)
        for text in ("How?", "How is that done?"):
            body = {"messages": [{"role": "user", "content": text}], "temperature": 0}
            assert ask(served.app, CHAT, body).status == 200
    assert len(asked) == 2 and asked[0] == asked[1]


def test_a_stream_of_a_stored_answer_ends_as_any_other() -> None:
    with serving(ON) as served:
        whole = ask(served.app, PATH, BODY).json["choices"][0]
        body = ask(served.app, PATH, {**BODY, "stream": True, "stream_options": {"include_usage": True}}).body.decode()
        lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        chunks = [json.loads(line) for line in lines[:-1]]
        assert "".join(choice["text"] for chunk in chunks for choice in chunk["choices"]) == whole["text"]
        assert chunks[-2]["choices"][0]["finish_reason"] == "length" and chunks[-1]["usage"]["completion_tokens"] == 4
        assert hits(served) == 1


@pytest.mark.parametrize("cache", [False, {"exact": False}, {"data_version": "2"}])
def test_a_body_can_refuse_what_is_stored(cache: Any) -> None:
    with serving(ON) as served:
        for body in (BODY, {**BODY, "cache": cache}):
            assert ask(served.app, PATH, body).status == 200
        assert hits(served) == 0


def test_answers_are_invalidated_by_tag_all_of_them_or_with_the_prefix_cache() -> None:
    with serving(ON) as served:
        tagged = {**BODY, "cache": {"tags": ["prices"]}}

        def again() -> bool:
            before = hits(served)
            assert ask(served.app, PATH, tagged).status == 200
            return hits(served) > before

        assert not again() and again()
        assert ask(served.app, "/invalidate_answers", {"tags": ["hours"]}).json == {"answers": 0} and again()
        assert ask(served.app, "/invalidate_answers", {"tags": ["prices"]}).json == {"answers": 1} and not again()
        assert ask(served.app, "/invalidate_answers", {}).json == {"answers": 1} and not again()
        ask(served.app, "/reset_prefix_cache", {})
        assert not again()
        for wrong in ({"tags": "prices"}, {"tag": []}):
            assert ask(served.app, "/invalidate_answers", wrong).status == 400


@pytest.mark.parametrize(
    ("cache", "param"), [("yes", "cache"), ({"ttl_s": -1}, "cache.ttl_s"), ({"colour": 1}, "cache.colour")]
)
def test_a_wrong_cache_field_is_named_even_where_nothing_is_cached(cache: Any, param: str) -> None:
    with serving({}) as served:
        reply = ask(served.app, PATH, {**BODY, "cache": cache})
        assert reply.status == 400 and reply.json["error"]["param"] == param
        assert ask(served.app, PATH, {**BODY, "cache": True}).status == 200


def test_the_question_of_a_chat_is_its_last_message_unless_it_says_otherwise() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How?"}]
    for cache, question in ((True, "How?"), ({"semantic": True, "question": "ow"}, "ow"), (False, None), ({}, None)):
        body = json.dumps({"messages": messages, "cache": cache}).encode()
        assert parse_body("chat", body).cache.question == question
    assert not parse_body("chat", json.dumps({"messages": messages}).encode()).cache.semantic


def test_a_static_batch_that_waits_keeps_no_stored_answer_back() -> None:
    with serving({**ON, "batching": "static", "max_num_seqs": 1}) as served:
        first = ask(served.app, PATH, BODY)
        assert ask(served.app, PATH, BODY).json["choices"] == first.json["choices"] and hits(served) == 1


def test_the_event_log_says_where_an_answer_came_from(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with serving(ON, events=EventLog(str(path))) as served:
        for _ in range(2):
            ask(served.app, PATH, BODY)
    assert [json.loads(line)["cache"] for line in path.read_text().splitlines()] == [[], ["exact"]]
