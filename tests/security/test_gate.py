"""The gate in front of the page's server: who gets in, how, and that the token is nowhere to be seen afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.gate import COOKIE, MOST_FORM_BYTES, Gate
from experiments.server.access import LOOPBACK

TOKEN = "correct-horse-battery"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    closed: int | None = None

    @property
    def reached_the_page(self) -> bool:
        return self.body == "the page"


async def page(scope: Any, receive: Any, send: Any) -> None:
    """What lies behind the gate."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"the page"})


def ask(
    gate: Gate, path: str = "/", query: str = "", method: str = "GET", body: bytes = b"", kind: str = "http",
    **headers: str,
) -> Reply:  # fmt: skip
    scope = {
        "type": kind, "method": method, "path": path, "query_string": query.encode(), "scheme": "http",
        "headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()],
    }  # fmt: skip
    reply, parts = Reply(), [body[i : i + 1000] for i in range(0, len(body), 1000)] or [b""]

    async def receive() -> Mapping[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            reply.body += message["body"].decode()
        elif message["type"] == "websocket.close":
            reply.closed = message["code"]
        else:
            reply.body = "the page"

    asyncio.run(gate(scope, receive, send))
    return reply


@pytest.fixture
def locked() -> Gate:
    return Gate(page, token=TOKEN)


def let_in(gate: Gate) -> str:
    """A cookie that was got with the token."""
    return ask(gate, query=f"token={TOKEN}").headers["set-cookie"].partition(";")[0]


def test_without_the_token_nothing_of_the_page_is_answered_but_whether_it_is_up(locked: Gate) -> None:
    for path in ("/", "/runs", "/_stcore/host-config", "/_stcore/metrics", "/media/a.csv", "/static/js/index.js"):
        reply = ask(locked, path)
        assert reply.status == 403 and not reply.reached_the_page and 'name="token"' in reply.body
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert ask(locked, "/_stcore/upload_file/s/f", method=method).status == 403
    assert ask(locked, "/_stcore/health").reached_the_page
    for other in ("/_stcore/health/", "/_stcore/health/../stream", "//_stcore/health"):
        assert not ask(locked, other).reached_the_page
    assert not ask(locked, "/_stcore/health", method="POST").reached_the_page


def test_the_websocket_is_behind_the_gate(locked: Gate) -> None:
    assert ask(locked, "/_stcore/stream", kind="websocket").closed == 1008
    assert ask(locked, "/_stcore/stream", query=f"token={TOKEN}", kind="websocket").closed == 1008
    assert ask(locked, "/_stcore/stream", kind="websocket", cookie=let_in(locked)).reached_the_page


def test_the_token_in_the_address_lets_in_once_and_leaves_the_address(locked: Gate) -> None:
    reply = ask(locked, "/runs", query=f"lang=zh&token={TOKEN}&run=ab%20c")
    assert reply.status == 303 and reply.headers["location"] == "/runs?lang=zh&run=ab+c"
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and TOKEN not in str(reply)
    known = cookie.partition(";")[0]
    assert ask(locked, cookie=known).reached_the_page
    again = ask(locked, query=f"token={TOKEN}", cookie=f'a="b; {{"c":[1]}}; {known}')  # others' cookies, of any form
    assert again.status == 303 and again.headers["location"] == "/"


def test_the_form_lets_in_and_a_wrong_token_does_not(locked: Gate) -> None:
    reply = ask(locked, "/runs", query="lang=en", method="POST", body=f"token={TOKEN}".encode(), **FORM)
    assert (
        reply.status == 303 and reply.headers["location"] == "/runs?lang=en" and COOKIE in reply.headers["set-cookie"]
    )
    wrong: list[bytes] = [b"", b"token=", b"token=wrong", f"token={TOKEN}x".encode(), f"TOKEN={TOKEN}".encode(),
                          b"\xff\xfe", b"token=%ff", b"&" * 50, b"token=" + TOKEN.upper().encode()]  # fmt: skip
    for body in wrong:
        reply = ask(locked, method="POST", body=body, **FORM)
        assert reply.status == 403 and "set-cookie" not in reply.headers and TOKEN not in reply.body


def test_a_form_is_not_read_beyond_its_bound(locked: Gate) -> None:
    body = b"a=" + b"x" * (MOST_FORM_BYTES * 10) + f"&token={TOKEN}".encode()
    assert ask(locked, method="POST", body=body, **FORM).status == 403


@pytest.mark.parametrize("path", ["//evil.example/a", "/\\evil.example", "///evil.example", "\\/\\evil.example"])
def test_who_comes_in_is_sent_to_no_other_server(locked: Gate, path: str) -> None:
    location = ask(locked, path, query=f"token={TOKEN}").headers["location"]
    assert location.startswith("/") and not location.startswith(("//", "/\\"))


def test_a_header_can_not_be_smuggled_into_an_answer(locked: Gate) -> None:
    reply = ask(locked, "/a\r\nset-cookie: x=1", query=f"token={TOKEN}&a=%0d%0aset-cookie:%20x=1")
    assert "\r" not in reply.headers["location"] and "\n" not in reply.headers["location"]


def test_a_cookie_of_another_server_or_none_of_ours_is_worth_nothing(locked: Gate) -> None:
    for cookie in (let_in(Gate(page, token=TOKEN)), f"{COOKIE}={TOKEN}", f"{COOKIE}=", "\x00=;", f"x{COOKIE}=1"):
        assert not ask(locked, cookie=cookie).reached_the_page


def test_the_form_speaks_the_readers_language_and_shows_nothing_that_was_sent(locked: Gate) -> None:
    assert "访问令牌" in ask(locked, accept_language="zh-CN,en").body
    assert "Access token" in ask(locked, query="lang=en", accept_language="zh-CN").body
    hostile = ask(locked, "/<script>alert(1)</script>", query="lang=<script>&token=<script>alert(1)</script>")
    assert "<script" not in hostile.body and "default-src 'none'" in hostile.headers["content-security-policy"]
    assert hostile.headers["cache-control"] == "no-store"


def test_without_a_token_only_names_of_this_machine_are_answered() -> None:
    gate = Gate(page, token=None, hosts=LOOPBACK)
    for host in ("127.0.0.1:8501", "localhost", "[::1]:8501"):
        assert ask(gate, host=host).reached_the_page
        assert ask(gate, "/_stcore/stream", kind="websocket", host=host).reached_the_page
    for host in ("evil.example", "127.0.0.1.evil.example", "[bad", "", "localhost@evil.example"):
        assert ask(gate, host=host).status == 403
        assert ask(gate, "/_stcore/stream", kind="websocket", host=host).closed == 1008


def test_no_other_site_may_frame_the_page_or_guess_a_files_type() -> None:
    headers = ask(Gate(page, token=None)).headers
    assert headers["content-security-policy"] == "frame-ancestors 'self'"
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "same-origin"
