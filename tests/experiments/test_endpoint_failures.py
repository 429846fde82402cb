"""A server as a target: every way in which a server can misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from aiohttp import web

from core_engine.config import EngineConfig
from experiments.loadgen import Cancelled
from experiments.metrics import compute_metrics
from experiments.spec import BenchSpec
from experiments.targets import EndpointTarget, measure, warnings_of
from ledger.errors import CannotRunError
from tests.experiments.endpoint_rig import Bytes, answering, endpoint, metrics_of, truncated
from tests.experiments.fakes import ByteTokenizer
from tests.experiments.mock_server import MockServer, Script, Turn, well_behaved, workload_of


async def _hang(turn: Turn) -> None:
    await turn.text(10, "a")
    await asyncio.sleep(2)


async def _garbage(turn: Turn) -> None:
    await turn.raw(b"<html>\n\n\n")


async def _half_json(turn: Turn) -> None:
    await turn.text(10, "a")
    await turn.raw(b'data: {"choices": [{"te\n\n')


async def _broken(turn: Turn) -> None:
    await turn.text(10, "a")
    assert turn.request.transport is not None
    turn.request.transport.abort()


async def _no_answer(turn: Turn) -> None:
    assert turn.request.transport is not None
    turn.request.transport.close()
    await asyncio.sleep(0.05)


async def _error_event(turn: Turn) -> None:
    await turn.text(10, "a")
    await turn.event({"error": {"message": "the engine died"}})


async def _aborted(turn: Turn) -> None:
    await turn.text(10, "a")
    await turn.end("abort", tokens=1)


async def _not_a_stream(turn: Turn) -> None:
    turn.response = web.StreamResponse(headers={"Content-Type": "text/html"})
    await turn.response.prepare(turn.request)


async def _too_many(turn: Turn) -> None:
    raise web.HTTPTooManyRequests(text=json.dumps({"error": {"message": "queue full"}}))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (_hang, "nothing came for 0.4 s"),
        (_garbage, "not an event stream: '<html>'"),
        (_half_json, "an event that is not JSON"),
        (truncated, "the stream ended before the answer did"),
        (_broken, "the connection broke in the middle of the answer"),
        (_no_answer, "the server closed the connection before it answered"),
        (_error_event, "the server says: the engine died"),
        (_aborted, "the server ended the answer: abort"),
        (_not_a_stream, "no stream but text/html"),
        (_too_many, "HTTP 429: queue full"),
    ],
)
def test_each_way_to_fail_is_a_failed_request_with_its_reason(script: Script, reason: str) -> None:
    with endpoint(script, fields={"timeout_s": 0.4}) as (_, target):
        record = target.run(workload_of((4, 4, 0.0)))
    (request,) = record["requests"]
    assert request["finish_reason"] == "error"
    assert request["error"].startswith(reason) and "\n" not in request["error"]
    assert compute_metrics(record)["completed"] == 0


def test_one_failure_leaves_the_others_alone() -> None:
    served = iter(range(3))

    async def script(turn: Turn) -> None:
        await (truncated(turn) if next(served) == 1 else answering(10)(turn))

    found = metrics_of(script, *((4, 1, 0.1 * number) for number in range(3)))
    assert (found["completed"], found["failed"]) == (2, 1)


def test_retries_are_off_unless_asked_and_then_marked() -> None:
    calls: list[int] = []

    async def script(turn: Turn) -> None:
        calls.append(1)
        await (_too_many(turn) if len(calls) == 1 else answering(10)(turn))

    assert metrics_of(script, (4, 1, 0.0))["failed"] == 1
    calls.clear()
    with endpoint(script, fields={"retries": 2}) as (_, target):
        record = target.run(workload_of((4, 1, 0.0)))
    assert record["requests"][0]["attempts"] == 2 and record["requests"][0]["error"] is None
    assert any("sent more than once" in line for line in warnings_of(record, "the run"))


def test_a_server_that_is_down_is_told_before_anything_is_counted() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    target = EndpointTarget(BenchSpec(endpoint=address), EngineConfig.from_settings({}), tokenizer=Bytes())
    with pytest.raises(CannotRunError, match="does not answer: no connection"):
        target.warm_up(workload_of((4, 1, 0.0)))


def test_a_server_that_answers_no_warm_up_is_told_too() -> None:
    calls: list[int] = []

    async def script(turn: Turn) -> None:
        calls.append(1)
        await (well_behaved(turn) if len(calls) == 1 else truncated(turn))

    with MockServer(script) as mock:
        spec = BenchSpec.from_dict({"endpoint": mock.url})
        target = EndpointTarget(spec, EngineConfig.from_settings({}), tokenizer=Bytes())
        with pytest.raises(CannotRunError, match="answered no request of the warm-up: the stream ended"):
            target.warm_up(workload_of((4, 1, 0.0)))


def test_cancel_ends_the_run_and_what_is_in_flight() -> None:
    with endpoint(_hang) as (_, target), pytest.raises(Cancelled):
        target.run(workload_of((4, 4, 0.0)), should_cancel=lambda: True)


def test_half_a_character_alone_spoils_no_run(tmp_path: Any) -> None:
    """JSON may escape half of a pair alone; nothing can be written in UTF-8 with it."""

    async def script(turn: Turn) -> None:
        await turn.text(100, "\ud83d")
        await turn.text(120, "\ude42 ok")
        await turn.end(tokens=7)

    with endpoint(script, tokenizer=Apart()) as (_, target):
        found = measure(BenchSpec(), target, workload_of((4, 7, 0.0)))
    assert found.metrics["completed"] == 1
    json.dumps(found.record, ensure_ascii=False).encode()


class Apart(ByteTokenizer):
    """Another tokenizer than the target's."""

    def encode(self, text: str) -> list[int]:
        return super().encode(text)[::-1]


def test_a_fault_while_a_request_is_worded_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its schedule would wait for that request for ever."""
    with endpoint() as (_, target):

        def broken(*_: Any, **__: Any) -> Any:
            raise KeyError("a fault")

        monkeypatch.setattr(target, "_worded", broken)
        with pytest.raises(KeyError):
            target.run(workload_of((4, 2, 0.0)))
