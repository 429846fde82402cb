"""What a server that is measured, or an address that somebody else wrote, can make the client do: nothing more."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from experiments.endpoint_fields import checked_address, endpoint_fields
from experiments.targets import client as client_module
from experiments.targets import resolver as resolver_module
from experiments.targets import stream
from experiments.targets.client import MOST_PLAIN_BYTES, Client, FailedRequestError
from experiments.targets.stream import BrokenStreamError, EventStream
from ledger.errors import InputError

KEY = "sk-correct-horse-battery"


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1", "data:text/plain,x", "unix:///run/docker.sock",
        "javascript:alert(1)", "//127.0.0.1", "/etc/passwd", "http://", "http:///x", "http://user:hunter2@127.0.0.1",
        "http://127.0.0.1?key=x", "http://169.254.169.254/latest", "http://[fe80::1]", "http://[::ffff:169.254.169.254]",
        "https://169.254.170.2", "http://[fe80::1%25eth0]",
    ],
)  # fmt: skip
def test_only_http_and_https_to_a_server_are_addresses(address: str) -> None:
    with pytest.raises(InputError) as refused:
        checked_address("endpoint", address)
    assert "\n" not in str(refused.value) and "hunter2" not in str(refused.value)


def test_a_spec_bounds_how_long_a_server_may_take() -> None:
    for field, value in (("timeout_s", 0), ("timeout_s", 1e9), ("timeout_s", "nan"), ("retries", 100)):
        with pytest.raises(InputError, match=field):
            endpoint_fields({"endpoint": "http://127.0.0.1", field: value})


@asynccontextmanager
async def served(*routes: web.RouteDef) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_and_the_key_goes_nowhere_else(status: int) -> None:
    async def told() -> tuple[int, list[str], str | None]:
        followed: list[str] = []

        async def elsewhere(request: web.Request) -> web.Response:
            followed.append(request.headers.get("Authorization", ""))
            return web.json_response({"data": []})

        async def away(request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": request.query_string or "file:///etc/passwd"})

        routes = (web.route("*", "/b", elsewhere), web.route("*", "/a", away))
        async with served(*routes) as address, Client(address, key=KEY, timeout_s=5) as client:
            found, _ = await client.call("GET", f"/a?{address}/b")
            await client.call("GET", "/a")
            attempt = await client.stream("/a", {})
        return found, followed, attempt.error

    found, followed, error = asyncio.run(told())
    assert found == status and followed == [] and error is not None and str(status) in error


def test_a_large_or_packed_answer_is_cut_off() -> None:
    async def told() -> tuple[int, str | None]:
        async def large(_: web.Request) -> web.Response:
            packed = gzip.compress(b"x" * (4 * MOST_PLAIN_BYTES))
            return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

        async def events(_: web.Request) -> web.Response:
            packed = gzip.compress(b": keep alive\n" * 100_000)
            return web.Response(body=packed, headers={"Content-Encoding": "gzip", "Content-Type": "text/event-stream"})

        routes = (web.get("/large", large), web.post("/events", events))
        async with served(*routes) as address, Client(address, key=None, timeout_s=5) as client:
            _, text = await client.call("GET", "/large")
            attempt = await client.stream("/events", {})
        return len(text), attempt.error

    before, stream.MOST_ANSWER_BYTES = stream.MOST_ANSWER_BYTES, 100_000
    try:
        size, error = asyncio.run(told())
    finally:
        stream.MOST_ANSWER_BYTES = before
    assert size <= 2 * MOST_PLAIN_BYTES and error is not None and "an answer of more than" in error


def test_a_line_or_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_LINE_BYTES", 1000)
    with pytest.raises(BrokenStreamError, match="a line of more than"):
        list(EventStream().feed(b"data: " + b"x" * 2000))
    monkeypatch.setattr(stream, "MOST_ANSWER_BYTES", 5000)
    events = EventStream()
    with pytest.raises(BrokenStreamError, match="an answer of more than"):
        for _ in range(1000):
            list(events.feed(b"data: x\n"))


@pytest.mark.parametrize("found", ["169.254.169.254", "fe80::1"])
def test_a_name_that_stands_for_an_address_of_a_link_is_not_connected_to(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(*_: object, **__: object) -> list[dict[str, object]]:
        return [
            {"hostname": "evil.example", "host": found, "port": 80, "family": socket.AF_INET, "proto": 0, "flags": 0}
        ]

    monkeypatch.setattr(resolver_module.ThreadedResolver, "resolve", answer)

    async def told() -> None:
        async with Client("http://evil.example", key=None, timeout_s=5) as client:
            await client.call("GET", "/")

    with pytest.raises(FailedRequestError, match="address of a link"):
        asyncio.run(told())


def test_a_key_that_a_server_repeats_is_shown_nowhere() -> None:
    async def told() -> str | None:
        async def refuse(request: web.Request) -> web.Response:
            return web.json_response({"error": {"message": f"bad {request.headers['Authorization']}"}}, status=401)

        async with served(web.post("/x", refuse)) as address, Client(address, key=KEY, timeout_s=5) as client:
            return (await client.stream("/x", {})).error

    error = asyncio.run(told())
    assert error is not None and "401" in error and KEY not in error


def test_the_client_uses_no_proxy_or_credentials_of_the_environment() -> None:
    """netrc and proxies of the environment are aiohttp's trust_env, which nothing here turns on."""
    assert "trust_env" not in Path(client_module.__file__).read_text("utf-8")
