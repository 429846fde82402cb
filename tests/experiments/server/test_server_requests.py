"""What a request may ask: read as it stands, or refused in one line with field, value and what is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.server.errors import LONGEST_MESSAGE, Refusal, refusal_of
from experiments.server.protocol import NEUTRAL, OF_KIND, parse_body
from ledger.errors import InputError

PROMPT = {"prompt": "Hello"}
MESSAGES = {"messages": [{"role": "user", "content": "Hello"}]}


def parse(kind: str, **body: Any) -> Any:
    return parse_body(kind, json.dumps({**(PROMPT if kind == "completion" else MESSAGES), **body}).encode())


def test_defaults_are_those_of_the_protocol() -> None:
    completion, chat = parse("completion"), parse("chat")
    assert completion.params(100).max_tokens == 16 and chat.params(100).max_tokens == 100
    assert completion.params(100).temperature == chat.params(100).temperature == 1.0
    assert completion.params(100).logprobs is None and not completion.stream and completion.model is None


def test_null_is_the_same_as_absent() -> None:
    nulls = dict.fromkeys(name for name in (*OF_KIND["chat"], *NEUTRAL, "anything") if name != "messages")
    assert parse("chat", **nulls) == parse("chat")


def test_extras_of_vllm_are_taken() -> None:
    params = parse(
        "completion", top_k=-1, min_p=0.1, repetition_penalty=1.2, ignore_eos=True, min_tokens=3, stop_token_ids=[5]
    ).params(100)
    assert (params.top_k, params.min_p, params.repetition_penalty) == (0, 0.1, 1.2)
    assert params.ignore_eos and params.min_tokens == 3 and params.stop_token_ids == (5,)


def test_names_of_a_bias_become_ids() -> None:
    assert parse("completion", logit_bias={"42": -5}).params(1).logit_bias == ((42, -5.0),)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [({}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 4}, 4), ({"logprobs": False}, None)],
)
def test_log_probabilities_of_a_chat(given: dict[str, Any], wanted: int | None) -> None:
    assert parse("chat", **given).params(10).logprobs == wanted


def test_values_that_ask_for_nothing_are_accepted() -> None:
    assert parse("completion", echo=False, suffix="", best_of=2, n=2, use_beam_search=False).params(1).n == 2
    assert parse("chat", response_format={"type": "text"}, tools=[], tool_choice="none", user="me")


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        ("completion", {"echo": True}, "echo"),
        ("completion", {"suffix": "end"}, "suffix"),
        ("completion", {"best_of": 3}, "best_of"),
        ("completion", {"echo": 0}, "echo"),  # equal to false in Python, and no flag
        ("completion", {"temprature": 1}, "temprature"),
        ("completion", {"messages": []}, "messages"),
        ("chat", {"prompt": "x"}, "prompt"),
        ("chat", {"tools": [{"type": "function"}]}, "tools"),
        ("chat", {"response_format": {"type": "json_object"}}, "response_format"),
        ("chat", {"top_logprobs": 2}, "top_logprobs"),
        ("chat", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat", {"logprobs": 1}, "logprobs"),
        ("chat", {"max_completion_tokens": 0}, "max_completion_tokens"),
        ("chat", {"messages": []}, "messages"),
        ("chat", {"messages": "Hello"}, "messages"),
        ("chat", {"messages": [{"content": "x"}]}, r"messages\[0\].role"),
        ("chat", {"messages": [{"role": "user"}]}, r"messages\[0\].content"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, r"messages\[0\].content"),
        ("chat", {"messages": [{"role": "user", "content": "x", "name": "me"}]}, r"messages\[0\].name"),
        ("completion", {"max_tokens": 0}, "max_tokens"),
        ("completion", {"max_tokens": 2.5}, "max_tokens"),
        ("completion", {"temperature": -1}, "temperature"),
        ("completion", {"temperature": "hot"}, "temperature"),
        ("completion", {"top_p": 0}, "top_p"),
        ("completion", {"n": 0}, "n"),
        ("completion", {"n": 2, "temperature": 0}, "n"),
        ("completion", {"stop": [""]}, "stop"),
        ("completion", {"seed": -1}, "seed"),
        ("completion", {"logit_bias": {"a": 1}}, "logit_bias"),
        ("completion", {"logit_bias": {"5": 101}}, "logit_bias of token 5"),
        ("completion", {"logprobs": True}, "logprobs"),
        ("completion", {"min_tokens": 20}, "min_tokens"),
        ("completion", {"stream": "yes"}, "stream"),
        ("completion", {"stream_options": {"include_usage": True}}, "stream_options"),
        ("completion", {"stream": True, "stream_options": {"x": True}}, "stream_options.x"),
        ("completion", {"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ("completion", {"model": 5}, "model"),
        ("completion", {"prompt": None}, "prompt"),
        ("completion", {"prompt": []}, "prompt"),
        ("completion", {"prompt": [1, "x"]}, "prompt"),
        ("completion", {"prompt": [True]}, "prompt"),
        ("completion", {"prompt": {}}, "prompt"),
        ("completion", {"prompt": ["x"] * 1025}, "prompt"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(kind: str, body: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: .* is not accepted; accepted: .+") as caught:
        parse(kind, **body)
    refusal = refusal_of(caught.value)
    assert refusal.status == 400 and refusal.body()["error"]["type"] == "invalid_request_error"
    assert refusal.body()["error"]["param"] == caught.value.field


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"\xff{}", b'{"prompt": NaN}', b"[" * 100_000, b'{"temperature": Infinity}']
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match=r"^body: "):
        parse_body("completion", body)


def test_a_long_value_does_not_make_a_long_refusal() -> None:
    message = refusal_of(InputError("prompt", "x" * 100_000, "less")).body()["error"]["message"]
    assert len(message) <= LONGEST_MESSAGE + 10 and message.startswith("prompt: ") and message.endswith("less")


@pytest.mark.parametrize("field", ["max_queue", "rate_limit_rps"])
def test_a_limit_that_is_reached_is_429_with_a_time_to_come_back(field: str) -> None:
    refusal = refusal_of(InputError(field, 5, "at most 4"), retry_after_s=7)
    assert refusal.status == 429 and refusal.headers() == {"retry-after": "7"}
    assert refusal.body()["error"]["type"] == "rate_limit_error"


def test_a_fault_of_ours_is_500_and_a_refusal_stays_itself() -> None:
    assert refusal_of(RuntimeError("boom")).status == 500
    assert refusal_of(Refusal(404, "x")).status == 404
