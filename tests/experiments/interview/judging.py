"""A chat endpoint on loopback that judges as it is told to, and a judgement of an open question."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from experiments.interview.bank import OpenQuestion, bank

NAME = "f01_bottlenecks"


@contextmanager
def server(reply: Any, status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A chat endpoint on loopback that answers with a text; yields its address and the bodies that came."""
    seen: list[dict[str, Any]] = []
    loop, ready, address = asyncio.new_event_loop(), threading.Event(), []

    async def chat(request: web.Request) -> web.Response:
        seen.append(await request.json())
        return web.json_response({"choices": [{"message": {"content": reply}}]}, status=status)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "small-judge"}]})

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        app.router.add_get("/v1/models", models)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        ready.set()
        return runner

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(10)
    try:
        yield address[0], seen
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def verdict(**changed: Any) -> dict[str, Any]:
    one = bank()[NAME]
    assert isinstance(one, OpenQuestion)
    found = {"points": dict.fromkeys(one.rubric.points, True), "wrong": dict.fromkeys(one.rubric.wrong, False)}
    return found | changed
