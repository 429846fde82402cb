"""A server that hangs, drips or never ends: a failed request with its reason, within the timeout that was asked for.

Garbage of other kinds (HTML, half an event, no JSON, a broken connection) is in
tests/experiments/test_endpoint_failures.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from experiments.targets import client as client_module
from experiments.targets.client import PATIENCE, Attempt, Client, FailedRequestError

TIMEOUT_S = 0.2
Write = Callable[[bytes], Awaitable[None]]
Script = Callable[[Write], Awaitable[None]]
HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
CHUNK = b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n'


async def headers_in_drips(write: Write) -> None:
    for byte in HEADERS * 100:
        await write(bytes([byte]))
        await asyncio.sleep(TIMEOUT_S / 10)


async def comments_for_ever(write: Write) -> None:
    await write(HEADERS)
    while True:
        await write(b": still at work\n\n")
        await asyncio.sleep(TIMEOUT_S / 10)


async def an_event_in_drips(write: Write) -> None:
    await write(HEADERS + CHUNK)
    while True:
        await write(b"data: x")
        await asyncio.sleep(TIMEOUT_S / 10)


async def chunks_for_ever(write: Write) -> None:
    await write(HEADERS)
    while True:
        await write(CHUNK * 50)


async def one_line_for_ever(write: Write) -> None:
    await write(HEADERS + b"data: ")
    while True:
        await write(b"x" * 65_536)


@asynccontextmanager
async def served(script: Script) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            await reader.readuntil(b"\r\n\r\n")
            await script(write)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def streamed(script: Script) -> tuple[Attempt, float]:
    """(what came of a request for 4 tokens, seconds it took)."""
    async with served(script) as address, Client(address, key=None, timeout_s=TIMEOUT_S) as client:
        began = time.monotonic()
        made = await client.stream("/v1/completions", {"prompt": "x", "max_tokens": 4})
        return made, time.monotonic() - began


LATE = f"bytes came, but no event and no end within {PATIENCE * TIMEOUT_S:g} s"


@pytest.mark.parametrize("script", [headers_in_drips, comments_for_ever, an_event_in_drips])
def test_a_server_that_drips_is_given_up(script: Script) -> None:
    made, took = asyncio.run(streamed(script))
    assert made.error == LATE and took < 20 * TIMEOUT_S


@pytest.mark.parametrize(
    ("script", "reason"), [(chunks_for_ever, "the answer does not end: "), (one_line_for_ever, "a line of more than ")]
)
def test_an_answer_without_an_end_is_cut(script: Script, reason: str) -> None:
    made, _ = asyncio.run(streamed(script))
    assert made.error is not None and made.error.startswith(reason) and "\n" not in made.error


def test_a_long_answer_in_large_chunks_is_cut_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MOST_ANSWER_BYTES", 100_000)
    monkeypatch.setattr(client_module, "SPARE_CHUNKS", 10**9)
    made, _ = asyncio.run(streamed(chunks_for_ever))
    assert made.error is not None and made.error.endswith(" B for 4 tokens asked")


def test_a_call_that_drips_is_given_up() -> None:
    async def called() -> Any:
        async with served(headers_in_drips) as address, Client(address, key=None, timeout_s=TIMEOUT_S) as client:
            return await client.call("GET", "/v1/models")

    with pytest.raises(FailedRequestError, match=LATE):
        asyncio.run(called())


def test_a_slow_but_steady_answer_is_no_failure() -> None:
    async def steady(write: Write) -> None:
        await write(HEADERS)
        for _ in range(8):
            await asyncio.sleep(TIMEOUT_S / 2)
            await write(CHUNK)
        await write(b"data: [DONE]\n\n")

    made, took = asyncio.run(streamed(steady))
    assert made.error is None and len(made.answer.chunks) == 8 and took > PATIENCE * TIMEOUT_S
