"""The HTTP side: routes, limits, API key, and answers written as they come.

Owns status codes and connections; knows the engine only through Service. The two generating endpoints are plain ASGI
callables: an answer's status is decided by its first event, so that a request that fails before its first token gets
a status of its own, and a client that goes away is noticed while it waits.
"""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route

from experiments.server.access import digest, host_name, is_secret
from experiments.server.canary import ARMS
from experiments.server.errors import Refusal, refusal_of
from experiments.server.event_log import EventLog, RequestLines
from experiments.server.events import Emission, Failed, Rejected
from experiments.server.protocol import Asked, parse_body, tags_of
from experiments.server.replies import DONE, Choice, Wording, error_event
from experiments.server.service import Exchange, Gone, Service
from ledger.errors import InputError

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

BODY_TIMEOUT_S = 30.0
MOST_TAGS_BYTES = 64 * 1024  # of a body that names tags
OPEN_PATHS = ("/health",)  # without a key, for load balancers


@dataclass(frozen=True)
class Limits:
    """max_body_bytes: of a request; api_key: that every request has to bring, none without one.

    hosts: names under which a server without a key may be called, so that no web page reaches it under one of its own.
    """

    max_body_bytes: int = 4 * 1024 * 1024
    api_key: str | None = None
    hosts: tuple[str, ...] = ()


def make_app(service: Service, limits: Limits, events: EventLog | None = None) -> Callable[..., Awaitable[None]]:
    """The ASGI application."""
    app = FastAPI(title="Trilemma", docs_url=None, redoc_url=None, openapi_url=None)
    log = events or EventLog(None)
    for kind, path in (("completion", "/v1/completions"), ("chat", "/v1/chat/completions")):
        app.router.routes.append(Route(path, Generate(service, kind, limits, log), methods=["POST"]))

    @app.get("/v1/models")
    async def models() -> Response:
        entry = {
            "id": service.model_name, "object": "model", "created": service.started_at, "owned_by": "trilemma",
            "max_model_len": service.max_position,
        }  # fmt: skip
        return JSONResponse({"object": "list", "data": [entry]})

    @app.get("/health")
    async def health() -> Response:
        healthy, words = service.health()
        return JSONResponse(words, 200 if healthy else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.post("/reset_prefix_cache")
    async def reset_prefix_cache() -> Response:
        return JSONResponse({"blocks": await service.reset_prefix_cache()})

    @app.post("/invalidate_answers")
    async def invalidate_answers(request: Request) -> Response:
        try:
            most = min(limits.max_body_bytes, MOST_TAGS_BYTES)
            tags = tags_of(await _read_body(request.scope, request.receive, most, needs_kind=False))
        except (InputError, Refusal) as error:
            return _refused(refusal_of(error))
        except Gone:
            return Response()
        return JSONResponse({"answers": await service.invalidate_answers(tags)})

    @app.get("/canary")
    async def canary() -> Response:
        if service.canary is None:
            return _refused(Refusal(404, "there is no canary; start one with --canary-set NAME=VALUE --slo ..."))
        return JSONResponse(service.canary.status())

    @app.exception_handler(HTTPException)
    async def no_such_route(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        return _refused(Refusal(error.status_code, message))

    return Guard(app, service, limits)


def _refused(refusal: Refusal) -> Response:
    return JSONResponse(refusal.body(), refusal.status, refusal.headers())


class Guard:
    """In front of everything: API key, names of the server, and the count of responses."""

    def __init__(self, app: Any, service: Service, limits: Limits) -> None:
        self._app, self._service, self._limits = app, service, limits
        self._responses = service.metrics.http
        self._digest = None if limits.api_key is None else digest(limits.api_key)
        self._paths = {"/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/metrics", "/canary",
                       "/reset_prefix_cache", "/invalidate_answers"}  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self._paths else "other"

        async def counted(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._responses.labels(path=path, status=str(message["status"])).inc()
            await send(message)

        try:
            self._check(scope)
        except Refusal as refusal:
            await _refused(refusal)(scope, receive, counted)  # type: ignore[arg-type]
            return
        await self._app(scope, receive, counted)

    def _check(self, scope: Scope) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if self._digest is not None:
            kind, _, key = headers.get("authorization", "").partition(" ")
            known = kind.lower() == "bearer" and is_secret(key.strip(), self._digest)
            if not known and scope["path"] not in OPEN_PATHS:
                message = "authorization: no valid API key; send Authorization: Bearer KEY"
                raise Refusal(401, message, code="invalid_api_key")
            return
        host = host_name(headers.get("host", ""))
        if self._limits.hosts and host not in self._limits.hosts:
            raise Refusal(403, f"host: {host!r} is not accepted; accepted: {', '.join(self._limits.hosts)}")
        origin = headers.get("origin")
        if origin and scope["method"] != "GET" and origin.partition("//")[2] != headers.get("host"):
            raise Refusal(403, f"origin: {origin!r} is not accepted without an API key; accepted: no web page's")


class Generate:
    """POST of a completion or a chat."""

    def __init__(self, service: Service, kind: str, limits: Limits, log: EventLog) -> None:
        self._service, self._kind, self._limits, self._log = service, kind, limits, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lines = RequestLines(scope["path"], time.perf_counter_ns())
        arrival_ns = self._service.thread.now_ns()
        reply = _Reply(scope, receive, send, lines)
        exchange: Exchange | None = None
        gone = False
        try:
            body = await _read_body(scope, receive, self._limits.max_body_bytes)
            asked = parse_body(self._kind, body)
            lines.stream = asked.stream
            exchange = await self._service.open(asked, arrival_ns)
            await self._answer(asked, exchange, reply)
        except Gone:
            gone = True
            lines.error = "the client went away"
        except asyncio.CancelledError:
            gone = True
            raise
        except Exception as error:
            arm = 0 if exchange is None else exchange.job.arm
            refusal = refusal_of(error, retry_after_s=self._service.retry_after_s(arm))
            if refusal.code == "internal_error":
                self._service.log(
                    "request_failed", error=str(refusal), path=scope["path"], traceback=traceback.format_exc()
                )
            lines.error = str(refusal)
            with suppress(OSError):
                await reply.refuse(refusal)
        finally:
            if exchange is not None:
                self._service.close(exchange, gone=gone)
                lines.prompt_tokens = exchange.usage.prompt_tokens
                lines.completion_tokens = exchange.usage.completion_tokens
                lines.cache = exchange.cached
            lines.status = reply.status
            self._log.write(lines)

    async def _answer(self, asked: Asked, exchange: Exchange, reply: _Reply) -> None:
        job = exchange.job
        wording = Wording(
            asked.kind, job.id, int(time.time()), self._service.model_name,
            include_usage=asked.include_usage, each_usage=asked.continuous_usage,
        )  # fmt: skip
        reply.lines.id, reply.lines.arm = job.id, ARMS[job.arm]
        reply.headers["x-request-id"] = job.id
        if self._service.canary is not None:
            reply.headers["x-trilemma-arm"] = ARMS[job.arm]
        watch = asyncio.ensure_future(_disconnected(reply.receive))
        watch.add_done_callback(lambda _: _mark_gone(exchange))
        try:
            writer = _Streamed(asked, wording, exchange, reply, self._service) if asked.stream else None
            whole = writer or _Whole(asked, wording, exchange, reply, self._service)
            ended = 0
            while ended < exchange.num_choices:
                events = await exchange.take()
                ended += await whole.take([_emission(event) for event in events])
            await whole.end()
        finally:
            watch.cancel()


def _emission(event: Any) -> Emission:
    """The event if it brings tokens; else the refusal it stands for."""
    if isinstance(event, Emission):
        return event
    if isinstance(event, Rejected):
        raise event.error
    assert isinstance(event, Failed)  # who has aborted a request does not wait for its events
    raise Refusal(event.status, event.reason, code="engine_error" if event.status == 500 else "stopping")


class _Writer:
    """What both ways to answer share: the choices, and their log-probabilities."""

    def __init__(self, asked: Asked, wording: Wording, exchange: Exchange, reply: _Reply, service: Service) -> None:
        self.asked, self.wording, self.exchange, self.reply = asked, wording, exchange, reply
        self._texts = service.texts
        self._logprobs = exchange.job.params.logprobs is not None
        self.choices = [Choice(index) for index in range(exchange.num_choices)]

    def logprobs(self, emission: Emission) -> Any:
        if not self._logprobs:
            return None
        choice = self.choices[emission.choice]
        return choice.take_logprobs(self.asked.kind, emission.token_ids, emission.logprobs, self._texts)

    def finish(self, emission: Emission) -> int:
        if emission.finish_reason is None:
            return 0
        self.choices[emission.choice].finish_reason = emission.finish_reason
        self.reply.lines.finish_reasons.append(emission.finish_reason)
        return 1


class _Whole(_Writer):
    """One JSON object at the end."""

    async def take(self, emissions: list[Emission]) -> int:
        for emission in emissions:
            self.choices[emission.choice].texts.append(emission.text)
            self.logprobs(emission)
        return sum(map(self.finish, emissions))

    async def end(self) -> None:
        body = self.wording.whole(self.choices, self.exchange.usage)
        self.reply.lines.sent(self.exchange.usage.completion_tokens)
        await self.reply.json(200, body)


class _Streamed(_Writer):
    """An event stream, a chunk for each emission that has something to show; those of one moment are one write."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._opened: set[int] = set()
        self._unsent_tokens = 0

    async def take(self, emissions: list[Emission]) -> int:
        chunks, ended = [], 0
        for emission in emissions:
            index = emission.choice
            if self.wording.kind == "chat" and index not in self._opened:
                self._opened.add(index)
                chunks.append(self.wording.role(index))
            self._unsent_tokens += len(emission.token_ids)
            logprobs = self.logprobs(emission)
            ended += self.finish(emission)
            # Text that is held back (half a character, the beginning of a stop text) comes with a later token.
            if emission.text or logprobs or emission.finish_reason or self.wording.each_usage:
                usage = self.exchange.usage
                chunks.append(self.wording.chunk(index, emission.text, logprobs, emission.finish_reason, usage))
        if chunks:
            self.reply.lines.sent(self._unsent_tokens)
            self._unsent_tokens = 0
            await self.reply.stream("".join(chunks).encode())
        return ended

    async def end(self) -> None:
        last = self.wording.usage_chunk(self.exchange.usage).encode() if self.asked.include_usage else b""
        await self.reply.stream(last + DONE, more=False)


class _Reply:
    """The response of one request: nothing is sent before there is something to say."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, lines: RequestLines) -> None:
        self._scope, self.receive, self._send = scope, receive, send
        self.lines = lines
        self.headers: dict[str, str] = {}
        self.status = 0
        self._streams = False

    async def json(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        data = json.dumps(body, separators=(",", ":")).encode()
        fields = {"content-type": "application/json", "content-length": str(len(data)), **self.headers}
        fields |= headers or {}
        await self._start(fields)
        await self._send({"type": "http.response.body", "body": data})

    async def stream(self, data: bytes, *, more: bool = True) -> None:
        if not self._streams:
            self._streams, self.status = True, 200
            fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **self.headers}
            await self._start(fields)
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def refuse(self, refusal: Refusal) -> None:
        """The refusal as a response, or as the end of a stream that has begun."""
        if self._streams:
            await self.stream(error_event(refusal.body()), more=False)
        else:
            await self.json(refusal.status, refusal.body(), refusal.headers())

    async def _start(self, fields: Mapping[str, str]) -> None:
        headers = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": self.status, "headers": headers})


def _mark_gone(exchange: Exchange) -> None:
    exchange.gone = True
    exchange.wake()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(scope: Scope, receive: Receive, most: int, *, needs_kind: bool = True) -> bytes:
    """The whole body. Refusal when it is too large, too slow, or (with needs_kind) not said to be JSON."""
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if needs_kind and kind != "application/json":
        raise Refusal(415, f"content-type: {kind!r} is not accepted; accepted: application/json", param="content-type")
    stated = headers.get(b"content-length", b"")
    if stated.isdigit() and int(stated) > most:
        raise _too_large(int(stated), most)
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            parts, size, more = [], 0, True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise _too_large(size, most)
                more = message.get("more_body", False)
    except TimeoutError:
        raise Refusal(408, f"body: not received within {BODY_TIMEOUT_S:g} s") from None
    return b"".join(parts)


def _too_large(size: int, most: int) -> Refusal:
    message = f"body: {size} bytes are not accepted; accepted: at most {most} (--max-body-bytes)"
    return Refusal(413, message, param="body")
