"""Completions and chats over HTTP say what the engine says: text, tokens, usage, log-probabilities, stops, samples."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Call, Served, ask, call, serving, until

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import load_model
from core_engine.request import SamplingParams
from tests.core_engine.conftest import make_llama

TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"
PROMPT = "The quick brown fox"
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory: Path = tmp_path_factory.mktemp("tiny")
    make_llama(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    settings = {"model": str(directory), "dtype": "fp32", "kernels": "torch", "device": "cpu", "kv_memory_mib": 4}
    config = EngineConfig.from_settings(settings)
    return config, load_model(config)


@pytest.fixture(scope="module")
def served(loaded: Any) -> Iterator[Served]:
    config, model = loaded
    with serving(make=lambda: [Engine(config, model, clock=MonotonicClock())], model_name="tiny") as found:
        yield found


@pytest.fixture(scope="module")
def engine(loaded: Any) -> Engine:
    """The same engine, used directly."""
    return Engine(*loaded)


def greedy(**more: Any) -> dict[str, Any]:
    return {"prompt": PROMPT, "temperature": 0, "max_tokens": 12, **more}


def expected(engine: Engine, prompt: Any = PROMPT, **params: Any) -> Any:
    return engine.generate([prompt], SamplingParams(**{"max_tokens": 12, **params}))[0]


def joined(events: list[Any]) -> str:
    return "".join(c.get("text", c.get("delta", {}).get("content", "")) for e in events[:-1] for c in e["choices"])


def test_a_completion_is_what_the_engine_generates(served: Served, engine: Engine) -> None:
    answer = expected(engine)
    body = ask(served.app, COMPLETIONS, greedy(model="tiny")).json
    assert body["choices"][0]["text"] == answer.text and body["choices"][0]["finish_reason"] == answer.finish_reason
    assert body["object"] == "text_completion" and body["model"] == "tiny" and body["choices"][0]["logprobs"] is None
    usage = body["usage"]
    assert usage["prompt_tokens"] == answer.prompt_tokens == len(PROMPT)
    assert usage["completion_tokens"] == len(answer.token_ids)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_streamed_deltas_join_to_the_same_text_and_end_with_done(served: Served, engine: Engine) -> None:
    reply = ask(served.app, COMPLETIONS, greedy(stream=True, stream_options={"include_usage": True}))
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, last, done = reply.events
    assert done == "[DONE]" and joined([*chunks, done]) == expected(engine).text
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == len(expected(engine).token_ids)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]


def test_without_the_option_no_chunk_has_a_usage(served: Served) -> None:
    chunks = ask(served.app, COMPLETIONS, greedy(stream=True)).events[:-1]
    assert not any("usage" in chunk for chunk in chunks) and all(chunk["choices"] for chunk in chunks)


def test_continuous_usage_counts_up_to_the_whole(served: Served, engine: Engine) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = ask(served.app, COMPLETIONS, greedy(stream=True, stream_options=options)).events[:-1]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == len(expected(engine).token_ids) and counts[0] >= 1


def test_a_chat_goes_through_the_template(served: Served, engine: Engine) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    ids = engine.tokenizer.apply_chat_template(messages)
    body = {"messages": messages, "temperature": 0, "max_completion_tokens": 12}
    whole = ask(served.app, CHAT, body).json
    answer = expected(engine, ids)
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": answer.text}
    assert whole["usage"]["prompt_tokens"] == len(ids) and whole["object"] == "chat.completion"
    chunks = ask(served.app, CHAT, {**body, "stream": True}).events
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert joined(chunks) == answer.text and chunks[0]["object"] == "chat.completion.chunk"


def test_parts_of_a_message_are_joined(served: Served) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    of_parts = {"messages": [{"role": "user", "content": parts}], "temperature": 0, "max_tokens": 6}
    plain = {**of_parts, "messages": [{"role": "user", "content": "Hel\nlo"}]}
    answers = [ask(served.app, CHAT, body).json["choices"][0]["message"] for body in (of_parts, plain)]
    assert answers[0] == answers[1]


def test_a_chat_without_a_limit_has_the_room_that_is_left(served: Served, engine: Engine) -> None:
    content = "x" * 480
    body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "ignore_eos": True}
    usage = ask(served.app, CHAT, body).json["usage"]
    assert usage["total_tokens"] == engine.max_position


@pytest.mark.parametrize("prompt", [[5, 6, 7], [[5, 6, 7]]])
def test_a_prompt_may_be_token_ids(served: Served, engine: Engine, prompt: Any) -> None:
    assert ask(served.app, COMPLETIONS, greedy(prompt=prompt)).json["choices"][0]["text"] == (
        expected(engine, [5, 6, 7]).text
    )


def test_several_prompts_are_answered_in_their_order(served: Served, engine: Engine) -> None:
    prompts = ["one", "two", "three"]
    body = ask(served.app, COMPLETIONS, greedy(prompt=prompts)).json
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in body["choices"]] == [expected(engine, prompt).text for prompt in prompts]
    assert body["usage"]["prompt_tokens"] == sum(map(len, prompts)) and body["usage"]["completion_tokens"] == 36


def test_samples_differ_and_a_seed_repeats_them(served: Served, engine: Engine) -> None:
    body = greedy(temperature=2.0, n=3, seed=7)
    first, second = (ask(served.app, COMPLETIONS, body).json for _ in range(2))
    texts = [choice["text"] for choice in first["choices"]]
    assert texts == [choice["text"] for choice in second["choices"]] and len(set(texts)) == 3
    own = engine.generate([PROMPT], SamplingParams(max_tokens=12, temperature=2.0, n=3, seed=7))
    assert texts == [completion.text for completion in own]
    assert first["usage"]["prompt_tokens"] == len(PROMPT)  # once, whatever n
    assert first["usage"]["completion_tokens"] == sum(len(completion.token_ids) for completion in own)


def test_streamed_samples_are_told_apart_by_their_index(served: Served) -> None:
    body = greedy(temperature=2.0, n=2, seed=7)
    texts = ["", ""]
    for chunk in ask(served.app, COMPLETIONS, {**body, "stream": True}).events[:-1]:
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert texts == [choice["text"] for choice in ask(served.app, COMPLETIONS, body).json["choices"]]


def test_the_answer_ends_before_a_stop_text(served: Served, engine: Engine) -> None:
    text = expected(engine).text
    stop = text[4:6]
    choice = ask(served.app, COMPLETIONS, greedy(stop=stop)).json["choices"][0]
    assert choice["text"] == text[: text.index(stop)] and choice["finish_reason"] == "stop"
    streamed = ask(served.app, COMPLETIONS, greedy(stop=[stop], stream=True)).events
    assert joined(streamed) == choice["text"]


def test_sampling_parameters_reach_the_engine(served: Served, engine: Engine) -> None:
    params = {
        "temperature": 1.5, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 3, "presence_penalty": 0.5,
        "frequency_penalty": 0.25, "repetition_penalty": 1.1, "min_tokens": 2, "ignore_eos": True,
    }  # fmt: skip
    bias = {"logit_bias": {"65": 5}}
    text = ask(served.app, COMPLETIONS, greedy(**params, **bias)).json["choices"][0]["text"]
    assert text == expected(engine, **params, logit_bias={65: 5.0}).text
    assert text != expected(engine, **{**params, "seed": 4}, logit_bias={65: 5.0}).text


def test_log_probabilities_of_a_completion(served: Served, engine: Engine) -> None:
    answer = expected(engine, logprobs=2)
    found = ask(served.app, COMPLETIONS, greedy(logprobs=2)).json["choices"][0]["logprobs"]
    words = [engine.tokenizer.token_text(token) for token in answer.token_ids]
    assert found["tokens"] == words
    # Whoever shares a batch or a prefix changes the last bits.
    assert found["token_logprobs"] == pytest.approx([entry.chosen for entry in answer.logprobs], abs=1e-4)
    assert found["text_offset"] == [sum(map(len, words[:place])) for place in range(len(words))]
    for top, entry in zip(found["top_logprobs"], answer.logprobs, strict=True):
        assert next(iter(top.values())) == pytest.approx(entry.top[0][1], abs=1e-4) and 1 <= len(top) <= 3
    chunks = ask(served.app, COMPLETIONS, greedy(logprobs=2, stream=True)).events[:-1]
    streamed = [value for chunk in chunks for value in chunk["choices"][0]["logprobs"]["token_logprobs"]]
    assert streamed == pytest.approx(found["token_logprobs"], abs=1e-4)
    assert [chunk["choices"][0]["logprobs"]["text_offset"][0] for chunk in chunks] == found["text_offset"]


def test_log_probabilities_of_a_chat(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 4, "logprobs": True}
    content = ask(served.app, CHAT, {**body, "top_logprobs": 3}).json["choices"][0]["logprobs"]["content"]
    assert len(content) == 4
    for entry in content:
        assert len(entry["top_logprobs"]) == 3 and entry["top_logprobs"][0]["logprob"] == entry["logprob"] <= 0
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"] or entry["bytes"]
    assert ask(served.app, CHAT, body).json["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


def test_a_second_request_finds_the_prompt_of_the_first_until_the_cache_is_reset(served: Served) -> None:
    prompt = "a prompt of more than two blocks of tokens"  # 42 tokens, blocks of 16
    cached = []
    for reset in (True, False, True):
        if reset:
            assert "blocks" in ask(served.app, "/reset_prefix_cache", method="POST").json
        usage = ask(served.app, COMPLETIONS, greedy(prompt=prompt)).json["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 32, 0]


def test_a_client_that_goes_away_frees_its_blocks(served: Served) -> None:
    async def scenario() -> None:
        for stream in (True, False):
            before = served.metric("vllm:request_success_total", finished_reason="abort")
            request = Call(served.app, COMPLETIONS, greedy(max_tokens=480, stream=stream, ignore_eos=True))
            running = asyncio.create_task(request.run())
            await until(lambda: served.engine.pool.num_used > 0)
            request.hang_up()
            await asyncio.wait_for(running, 30)
            await until(lambda: served.engine.pool.num_used == 0 and not served.service.thread.arms[0].samples)
            await until(
                lambda before=before: served.metric("vllm:request_success_total", finished_reason="abort") == before + 1
            )
        assert (await call(served.app, COMPLETIONS, greedy())).status == 200

    asyncio.run(scenario())


def test_requests_side_by_side_get_their_own_answers(served: Served, engine: Engine) -> None:
    prompts = [f"prompt number {number}" for number in range(20)]

    async def scenario() -> list[str]:
        replies = await asyncio.gather(
            *(call(served.app, COMPLETIONS, greedy(prompt=prompt, stream=True)) for prompt in prompts)
        )
        return [joined(reply.events) for reply in replies]

    assert asyncio.run(scenario()) == [expected(engine, prompt).text for prompt in prompts]


def test_the_model_list(served: Served, engine: Engine) -> None:
    body = ask(served.app, "/v1/models").json
    assert body["object"] == "list" and body["data"][0]["id"] == "tiny"
    assert body["data"][0]["max_model_len"] == engine.max_position
