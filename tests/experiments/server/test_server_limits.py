"""Limits, keys, failures and the end: everyone gets an answer or a status, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeExecutor, VirtualClock, fake_loaded
from serving import Call, Served, ask, call, serving, until

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.plan import StepPlan
from experiments.metrics.objectives import parse_slo
from experiments.server import engine_thread
from experiments.server.app import Limits
from experiments.server.canary import Canary, CanaryPlan
from experiments.server.event_log import EventLog
from ledger.errors import CannotRunError, InputError

PATH = "/v1/completions"
BODY = {"prompt": "abc", "max_tokens": 4, "temperature": 0}


def answer(tokens: int, prompt: int = 3) -> str:
    """What the fake engine says: letters by position."""
    return "".join(chr(65 + (prompt + place) % 26) for place in range(tokens))


def error(reply: Any) -> dict[str, Any]:
    found: dict[str, Any] = reply.json["error"]
    assert set(found) == {"message", "type", "param", "code"} and "\n" not in found["message"]
    return found


def test_a_key_is_needed_where_there_is_one() -> None:
    with serving(limits=Limits(api_key="secret")) as served:
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "secret"},
            {"authorization": "Bearer "},
        ):
            for path, body in ((PATH, BODY), ("/v1/models", None), ("/metrics", None), ("/canary", None)):
                reply = ask(served.app, path, body, **headers)
                assert reply.status == 401 and error(reply)["code"] == "invalid_api_key"
                assert reply.headers["www-authenticate"] == "Bearer" and "secret" not in reply.body.decode()
        assert ask(served.app, PATH, BODY, authorization="Bearer secret").json["choices"][0]["text"] == answer(4)
        assert ask(served.app, "/health").status == 200


def test_a_web_page_of_elsewhere_does_not_get_in() -> None:
    with serving(limits=Limits(hosts=("127.0.0.1", "localhost"))) as served:
        for host in ("evil.example", "[bad", "", "127.0.0.1.evil.example"):
            assert ask(served.app, PATH, BODY, host=host).status == 403
        assert ask(served.app, PATH, BODY, host="localhost:8000", origin="http://evil.example").status == 403
        assert ask(served.app, PATH, BODY, host="localhost:8000", origin="http://localhost:8000").status == 200
        assert ask(served.app, PATH, BODY, host="127.0.0.1:8000", content_type="text/plain").status == 415


@pytest.mark.parametrize("stated", [True, False])
def test_a_body_that_is_too_large_is_413(stated: bool) -> None:
    with serving(limits=Limits(max_body_bytes=200)) as served:
        large = {**BODY, "prompt": "x" * 300}
        headers = {"content_length": str(len(json.dumps(large)))} if stated else {}
        reply = ask(served.app, PATH, large, **headers)
        assert reply.status == 413 and "at most 200" in error(reply)["message"]
        assert ask(served.app, PATH, BODY).status == 200


def test_errors_are_json_with_the_field() -> None:
    with serving() as served:
        reply = ask(served.app, PATH, {**BODY, "echo": True})
        assert reply.status == 400 and error(reply)["param"] == "echo"
        assert ask(served.app, PATH, b"{").status == 400
        assert ask(served.app, PATH, {**BODY, "model": "other"}).status == 404
        assert ask(served.app, "/v1/nothing").status == 404 and ask(served.app, PATH).status == 405
        assert ask(served.app, "/canary").status == 404
        too_long = ask(served.app, PATH, {**BODY, "prompt": "x" * 5000})
        assert too_long.status == 400 and error(too_long)["param"] == "prompt"
        assert served.metric("trilemma:http_responses_total", path=PATH, status="400") == 3


def test_a_full_queue_is_429_and_those_inside_are_answered() -> None:
    async def scenario(served: Served) -> None:
        executor = served.engine.executor
        executor.gate.clear()
        first = asyncio.create_task(call(served.app, PATH, BODY))
        await until(executor.in_step.is_set)
        waiting = [asyncio.create_task(call(served.app, PATH, BODY)) for _ in range(2)]
        await until(lambda: served.service.in_flight() == 3)
        refused = asyncio.create_task(call(served.app, PATH, BODY))
        await asyncio.sleep(0.05)  # whether at the door or by the engine, it must not be taken in
        executor.gate.set()
        reply = await refused
        assert reply.status == 429 and int(reply.headers["retry-after"]) >= 1
        assert error(reply)["param"] == "max_queue" and error(reply)["type"] == "rate_limit_error"
        for task in (first, *waiting):
            assert (await task).json["choices"][0]["text"] == answer(4)

    with serving({"max_num_seqs": 1, "max_queue": 2}) as served:
        asyncio.run(scenario(served))


def test_a_burst_fills_free_places_before_anyone_is_refused() -> None:
    async def scenario(served: Served) -> list[int]:
        replies = await asyncio.gather(*(call(served.app, PATH, {**BODY, "max_tokens": 200}) for _ in range(6)))
        return [reply.status for reply in replies]

    with serving({"max_num_seqs": 4, "max_queue": 2}) as served:
        assert asyncio.run(scenario(served)) == [200] * 6


def test_a_request_whose_prompts_do_not_all_fit_is_refused_whole() -> None:
    async def scenario(served: Served) -> None:
        executor = served.engine.executor
        executor.gate.clear()
        first = asyncio.create_task(call(served.app, PATH, BODY))
        await until(executor.in_step.is_set)
        inside = asyncio.create_task(call(served.app, PATH, {**BODY, "prompt": ["a", "b"]}))
        await until(lambda: served.service.in_flight() == 2)
        refused = asyncio.create_task(call(served.app, PATH, {**BODY, "prompt": ["a", "b"]}))
        await until(lambda: served.service.in_flight() == 3)
        executor.gate.set()
        assert (await refused).status == 429
        assert (await first).status == (await inside).status == 200
        assert served.metric("vllm:request_success_total", finished_reason="length") == 3
        assert not served.engine.has_unfinished() and not served.engine.pool.num_used

    with serving({"max_num_seqs": 1, "max_queue": 3}) as served:
        asyncio.run(scenario(served))


def test_more_answers_than_the_queue_ever_holds_is_no_matter_of_time() -> None:
    with serving({"max_num_seqs": 1, "max_queue": 3}) as served:
        never = ask(served.app, PATH, {**BODY, "prompt": ["a", "b", "c", "d"]})
        assert never.status == 400 and "max_queue=3" in error(never)["message"]
        assert ask(served.app, PATH, {**BODY, "prompt": ["a", "b", "c"]}).status == 200


def test_the_rate_limit_is_429() -> None:
    with serving({"rate_limit_rps": 0.001}) as served:
        assert ask(served.app, PATH, BODY).status == 200
        reply = ask(served.app, PATH, BODY)
        assert reply.status == 429 and error(reply)["param"] == "rate_limit_rps" and "retry-after" in reply.headers


def test_a_step_that_fails_is_500_for_those_in_it_and_the_server_goes_on() -> None:
    async def scenario(served: Served) -> None:
        executor = served.engine.executor
        executor.gate.clear()
        calls = [asyncio.create_task(call(served.app, PATH, {**BODY, "stream": stream})) for stream in (False, True)]
        await until(executor.in_step.is_set)
        executor.fail = RuntimeError("out of luck")
        executor.gate.set()
        for reply in [await task for task in calls]:
            assert reply.status == 500 and "out of luck" in error(reply)["message"]
        executor.fail = None
        assert served.engine.pool.num_used == 0
        assert (await call(served.app, PATH, BODY)).json["choices"][0]["text"] == answer(4)
        assert (await call(served.app, "/health")).status == 200

    with serving() as served:
        asyncio.run(scenario(served))
        events = [fields for event, fields in served.log if event == "step_failed"]
        assert events and "out of luck" in events[0]["error"] and "Traceback" in events[0]["traceback"]
        assert served.metric("vllm:request_success_total", finished_reason="error") == 2


def test_a_stream_that_has_begun_ends_with_the_error_and_without_done() -> None:
    async def scenario(served: Served) -> None:
        executor = served.engine.executor
        request = Call(served.app, PATH, {**BODY, "max_tokens": 3000, "stream": True})
        running = asyncio.create_task(request.run())
        await until(request.wrote.is_set)
        executor.fail = RuntimeError("out of luck")
        reply = await asyncio.wait_for(running, 30)
        assert reply.status == 200 and "out of luck" in reply.events[-1]["error"]["message"]

    with serving() as served:
        asyncio.run(scenario(served))


def test_an_engine_that_fails_again_and_again_is_unhealthy_and_says_so() -> None:
    with serving() as served:
        served.engine.executor.fail = RuntimeError("broken for good")
        statuses = [ask(served.app, PATH, BODY).status for _ in range(engine_thread.FAILURES + 1)]
        assert statuses == [500] * engine_thread.FAILURES + [503]
        health = ask(served.app, "/health")
        assert health.status == 503 and "broken for good" in health.json["reason"]


def test_a_fault_of_the_thread_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise AssertionError("a bug")

    with serving() as served:
        monkeypatch.setattr(engine_thread.Arm, "look", broken)
        assert ask(served.app, PATH, BODY).status == 500
        assert ask(served.app, PATH, BODY).status == 500
        assert ask(served.app, "/health").status == 503
        assert any(event == "engine_thread_failed" for event, _ in served.log)


def test_a_fault_of_counting_keeps_no_answer_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as served:
        monkeypatch.setattr(served.service, "_emitted", None)
        assert ask(served.app, PATH, BODY).json["choices"][0]["text"] == answer(4)
        assert any(event == "count_failed" for event, _ in served.log)


def test_an_engine_that_cannot_be_made_is_told_where_it_was_asked_for() -> None:
    def make() -> list[Any]:
        raise CannotRunError("no model")

    with pytest.raises(CannotRunError, match="no model"), serving(make=make):
        pass


def test_what_is_left_when_the_server_stops_is_503() -> None:
    async def scenario(served: Served) -> None:
        executor = served.engine.executor
        executor.gate.clear()
        calls = [asyncio.create_task(call(served.app, PATH, {**BODY, "stream": stream})) for stream in (False, True)]
        await until(executor.in_step.is_set)
        served.service.fail_in_flight("the server is stopping")
        assert [(await task).status for task in calls] == [503, 503]  # though the step does not end
        executor.gate.set()
        await until(lambda: served.engine.pool.num_used == 0 and not served.engine.has_unfinished())
        served.service.stopping = True
        assert (await call(served.app, PATH, BODY)).status == 503
        assert (await call(served.app, "/health")).json["status"] == "stopping"

    with serving() as served:
        asyncio.run(scenario(served))


def test_static_batching_starts_without_a_full_batch_after_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_thread, "STATIC_WAIT_NS", 300_000_000)
    sizes: list[int] = []
    with serving({"batching": "static", "max_num_seqs": 3}) as served:
        execute = served.engine.executor.execute

        def counted(plan: StepPlan) -> Any:
            sizes.append(len(plan.rows))
            return execute(plan)

        served.engine.executor.execute = counted

        async def batch(count: int) -> None:
            await asyncio.gather(*(call(served.app, PATH, BODY) for _ in range(count)))

        asyncio.run(batch(2))
        assert set(sizes) == {2}  # nobody began before the other had come
        steps = served.engine.trace.num_steps
        asyncio.run(batch(3))
        assert served.engine.trace.num_steps > steps and sizes[-1] == 3
        assert "1 s" in ask(served.app, "/health").json["batch_starts"]


def test_dynamic_batching_starts_after_its_own_wait() -> None:
    with serving({"batching": "dynamic", "max_num_seqs": 3, "max_wait_ms": 20}) as served:
        assert ask(served.app, PATH, BODY).json["choices"][0]["text"] == answer(4)


def test_an_idle_thread_takes_no_steps_and_no_time() -> None:
    with serving() as served:
        ask(served.app, PATH, BODY)
        takes = []
        original = served.service.thread._take_commands

        def counted() -> bool:
            takes.append(1)
            return original()

        served.service.thread._take_commands = counted  # type: ignore[method-assign]
        ask(served.app, PATH, BODY)
        asyncio.run(asyncio.sleep(0.2))  # the answer is there before the thread has looked for more once
        count = len(takes)
        asyncio.run(asyncio.sleep(0.2))
        assert len(takes) == count


def test_metrics_of_known_requests() -> None:
    with serving() as served:
        for _ in range(3):
            ask(served.app, PATH, BODY)
        ask(served.app, PATH, {**BODY, "n": 2, "temperature": 1})
        text = ask(served.app, "/metrics").body.decode()
        assert served.metric("vllm:prompt_tokens_total") == 5 * 3
        assert served.metric("vllm:generation_tokens_total") == 5 * 4
        assert served.metric("vllm:request_success_total", finished_reason="length") == 5
        assert served.metric("vllm:time_to_first_token_seconds_count") == 5
        assert served.metric("vllm:inter_token_latency_seconds_count") == 5 * 3
        assert served.metric("vllm:request_time_per_output_token_seconds_count") == 5
        assert served.metric("vllm:e2e_request_latency_seconds_count") == 5
        assert served.metric("vllm:request_queue_time_seconds_count") == 5
        assert served.metric("vllm:num_requests_running") == served.metric("vllm:num_requests_waiting") == 0
        assert served.metric("vllm:kv_cache_usage_perc") == 0
        assert served.metric("vllm:prefix_cache_queries_total") == 15
        assert served.metric("vllm:iteration_tokens_total_sum") == 5 * (3 + 3)  # a prompt and all answers but the last
        for name in ("vllm:num_preemptions_total", "vllm:spec_decode_num_draft_tokens_total", "trilemma:step_seconds"):
            assert name in text
        assert 'model_name="fake"' in text and 'engine="0"' in text


def test_preemptions_are_counted_beyond_what_the_engine_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_thread, "HISTORY_STEPS", 8)
    with serving({"kv_memory_mib": 1, "block_size": 16, "kv_watermark": 0.0, "prefix_cache": "off"}) as served:
        # A pool of 64 tokens: two samples of 3 + 40 do not fit together, and they start together.
        ask(served.app, PATH, {**BODY, "max_tokens": 40, "n": 2, "temperature": 1.0, "seed": 1, "ignore_eos": True})
        assert served.metric("vllm:num_preemptions_total") >= 1
        assert len(served.engine.trace.steps) < 8 and len(served.engine.sessions.ended) <= 2


def test_the_log_of_events_has_each_request_with_its_sends(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = EventLog(str(path))
    with serving(events=events) as served:
        ask(served.app, PATH, {**BODY, "stream": True})
        ask(served.app, PATH, BODY)
        ask(served.app, PATH, {**BODY, "echo": True})
    events.close()
    streamed, whole, refused = (json.loads(line) for line in path.read_text().splitlines())
    assert streamed["status"] == 200 and sum(tokens for _, tokens in streamed["sends"]) == 4
    times = [streamed["received_ns"], *(at for at, _ in streamed["sends"]), streamed["ended_ns"]]
    assert times == sorted(times) and streamed["first_send_ns"] == times[1] and streamed["last_send_ns"] == times[-2]
    assert whole["completion_tokens"] == 4 and whole["prompt_tokens"] == 3 and not whole["stream"]
    assert refused["status"] == 400 and "echo" in refused["error"] and refused["sends"] == []
    with pytest.raises(InputError, match="--log-events"):
        EventLog(str(tmp_path / "no" / "such" / "folder"))


def canary_of(slo: str, **plan: Any) -> Any:
    values = {"share": 0.5, "window_s": 60.0, "min_count": 3, **plan}
    return lambda now, told: Canary(CanaryPlan(objectives=parse_slo(slo), **values), now, told)


def test_a_canary_takes_its_share_and_says_which_engine_answered() -> None:
    with serving({}, {"max_num_seqs": 2}, make_canary=canary_of("ttft_p95=100")) as served:
        arms = [ask(served.app, PATH, BODY).headers["x-trilemma-arm"] for _ in range(30)]
        assert set(arms) == {"A", "B"}
        status = ask(served.app, "/canary").json
        assert status["requests"] == {"A": arms.count("A"), "B": arms.count("B")} and status["state"] == "watching"
        assert served.metric("trilemma:canary_requests", arm="B") == arms.count("B")
        assert served.metric("vllm:request_success_total", engine="1", finished_reason="length") == arms.count("B")
        assert served.metric("trilemma:canary_share") == 0.5


def test_a_canary_that_fails_is_rolled_back_and_a_goes_on() -> None:
    with serving({}, {}, make_canary=canary_of("error_rate=0.2")) as served:
        served.service.thread.arms[1].engine.executor.fail = RuntimeError("the candidate is broken")
        statuses = [ask(served.app, PATH, BODY).status for _ in range(40)]
        assert statuses.count(500) == engine_thread.FAILURES and statuses[-20:] == [200] * 20
        status = ask(served.app, "/canary").json
        assert status["state"] == "rolled back" and status["share"] == 0
        assert served.metric("trilemma:canary_rolled_back") == 1
        assert served.metric("trilemma:canary_rollbacks_total") == 1
        assert any(event == "canary_rolled_back" for event, _ in served.log)
        assert ask(served.app, "/health").status == 200


def test_a_slow_canary_is_rolled_back_and_its_requests_end() -> None:
    """Judged on each arm's own time: A waits for B's steps too, and is not blamed for them."""
    clock = VirtualClock()
    config = EngineConfig.from_settings({})
    engines = [
        Engine(config, fake_loaded(), clock=clock, executor=FakeExecutor(clock, config, base_s=base_s, token_s=0))
        for base_s in (0.01, 0.1)
    ]

    async def scenario(served: Served) -> list[Any]:
        replies = []
        for _ in range(12):
            replies += await asyncio.gather(*(call(served.app, PATH, BODY) for _ in range(4)))
        return replies

    with serving(make=lambda: engines, make_canary=canary_of("itl_p95=0.03")) as served:
        replies = asyncio.run(scenario(served))
        assert [reply.status for reply in replies] == [200] * 48
        assert {reply.json["choices"][0]["text"] for reply in replies} == {answer(4)}
        assert served.service.canary is not None and served.service.canary.rolled_back is not None
        why = served.service.canary.rolled_back
        assert why["objective"] == "itl_p95"
        assert why["a"] == pytest.approx(0.01) and why["b"] == pytest.approx(0.1)
        assert replies[-1].headers["x-trilemma-arm"] == "A"
        # What the clients of A waited is another matter, and is what the metrics say.
        assert served.metric("vllm:inter_token_latency_seconds_sum", engine="0") > 36 * 0.01
