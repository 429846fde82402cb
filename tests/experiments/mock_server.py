"""An OpenAI-compatible server that says what a test tells it to, when the test's clock says so.

It runs in a thread on loopback. Scripted times are virtual: the script moves the clock, writes, and waits until the
client has read, so that what the client must have measured is known exactly, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from experiments.workloads import Workload, WorkloadRequest

NS = 1_000_000_000


class ScriptClock:
    """Stands still unless a script moves it, or its sleeper is alone: then nothing else can happen before it wakes."""

    def __init__(self, oversleep_s: float = 0.0) -> None:
        self.ns = 7 * NS
        self.idle: Callable[[], bool] = lambda: True
        self.oversleep_s = oversleep_s

    def now_ns(self) -> int:
        return self.ns

    async def sleep(self, seconds: float) -> None:
        until = self.ns + max(1, round(seconds * NS))
        alone = 0  # looks in a row: when an answer has just ended, whoever waits for it is about to go on
        while self.ns < until:
            alone = alone + 1 if self.idle() else 0
            if alone == 3:
                self.ns = until + round(self.oversleep_s * NS)
            await asyncio.sleep(0.0005)


class Turn:
    """One request being answered."""

    def __init__(self, server: MockServer, request: web.Request, body: dict[str, Any]) -> None:
        self.server, self.request, self.body = server, request, body
        self.start_ns = 0 if server.clock is None else server.clock.ns
        self.response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})

    async def at(self, ms: float) -> None:
        """Move the clock to so many ms after this request came."""
        if self.server.clock is not None:
            self.server.clock.ns = max(self.server.clock.ns, self.start_ns + round(ms * 1e6))

    async def raw(self, data: bytes) -> None:
        """Write bytes as they are, and wait until the client has taken what came of them."""
        if not self.response.prepared:
            await self.response.prepare(self.request)
        before = self.server.read()
        await self.response.write(data)
        for _ in range(400):
            if self.server.read() != before or not self.server.running():
                return
            await asyncio.sleep(0.0005)

    async def event(self, data: dict[str, Any] | str) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        await self.raw(f"data: {text}\n\n".encode())

    async def text(self, ms: float, text: str, *, total: int | None = None, **choice: Any) -> None:
        """A completion's chunk at so many ms; total: tokens so far, by usage."""
        await self.at(ms)
        usage = {} if total is None else {"usage": {"prompt_tokens": self.prompt_tokens, "completion_tokens": total}}
        await self.event({"choices": [{"index": 0, "text": text, "finish_reason": None, **choice}], **usage})

    async def end(self, reason: str = "length", *, tokens: int | None = None, **usage: Any) -> None:
        """The finish reason, the usage unless tokens is None, and the end mark."""
        await self.event({"choices": [{"index": 0, "text": "", "finish_reason": reason}]})
        if tokens is not None:
            told = {"prompt_tokens": self.prompt_tokens, "completion_tokens": tokens, **usage}
            await self.event({"choices": [], "usage": told})
        await self.event("[DONE]")

    @property
    def prompt_tokens(self) -> int:
        prompt = self.body.get("prompt")
        return len(prompt) if isinstance(prompt, list | str) else len(self.body["messages"][-1]["content"])


Script = Callable[[Turn], Awaitable[None]]


async def well_behaved(turn: Turn) -> None:
    """As many tokens of one letter as asked, 10 ms apart."""
    for number in range(turn.body["max_tokens"]):
        await turn.text(10 * (number + 1), "a")
    await turn.end(tokens=turn.body["max_tokens"])


class MockServer:
    """See the module. `script` answers; `refuse` are names of parameters that get a 400."""

    def __init__(
        self,
        script: Script = well_behaved,
        *,
        clock: ScriptClock | None = None,
        models: tuple[str, ...] = ("mock",),
        tokenizer: Any = None,
        resets: bool = False,
        refuse: tuple[str, ...] = (),
        completions: bool = True,
        key: str | None = None,
    ) -> None:
        self.script, self.clock, self.models, self.tokenizer = script, clock, models, tokenizer
        self.resets, self.refuse, self.completions, self.key = resets, refuse, completions, key
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.reset_calls = 0
        self.metrics: str | None = None
        self.read: Callable[[], int] = lambda: 0
        self.running: Callable[[], int] = lambda: 0

    def watch(self, target: Any) -> None:
        """Tell the script and the clock what the client has done."""
        self.read = lambda: target.snapshot()["output_tokens"]
        self.running = lambda: target.snapshot()["running"]
        if self.clock is not None:
            self.clock.idle = lambda: self.running() == 0

    def __enter__(self) -> MockServer:
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        ready.set()
        self._loop.run_forever()

    async def _start(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            said = f"Incorrect API key provided: {request.headers.get('Authorization')}"
            return web.json_response({"error": {"message": said}}, status=401)
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": name, "owned_by": "tests"} for name in self.models]})
        if request.path == "/metrics" and self.metrics is not None:
            return web.Response(text=self.metrics)
        if request.path == "/reset_prefix_cache" and self.resets:
            self.reset_calls += 1
            return web.Response()
        body = json.loads(await request.read() or b"{}")
        if request.path == "/tokenize" and self.tokenizer is not None:
            return web.json_response({"tokens": self.tokenizer.encode(body["prompt"])})
        asked = ["/v1/chat/completions"] + ["/v1/completions"] * self.completions
        if request.path not in asked:
            return web.json_response({"detail": "Not Found"}, status=404)
        return await self._answer(request, body)

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        named = {*body, *(body.get("stream_options") or {})}
        named |= {"prompt_token_ids"} if isinstance(body.get("prompt"), list) else set()
        for name in self.refuse:
            if name in named:
                return web.json_response({"error": {"message": f"{name} is not supported"}}, status=400)
        if not body.get("stream"):
            return web.json_response({"error": {"message": "this server only streams"}}, status=400)
        self.bodies.append(body)
        turn = Turn(self, request, body)
        await self.script(turn)
        if not turn.response.prepared:
            raise web.HTTPInternalServerError(text="the script wrote nothing")
        return turn.response


def workload_of(*requests: tuple[int, int, float], concurrency: int | None = None) -> Workload:
    """Requests as (prompt tokens, output tokens, arrival in s)."""
    made = tuple(
        WorkloadRequest(tuple(97 + (number + place) % 26 for place in range(prompt)), output, output, round(at_s * NS))
        for number, (prompt, output, at_s) in enumerate(requests)
    )
    return Workload("test", 0, made, None, "poisson", concurrency=concurrency)
