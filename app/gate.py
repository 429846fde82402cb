"""In front of the page's server: who may see anything of it, and what every answer tells the browser.

Without a token the server answers under names of this machine only, so that no other web page reaches it under one of
its own. With one, whoever asks brings it once, in the address (?token=) or in a form; after that a cookie, worth
nothing once the server has ended, stands for it. Neither is ever logged or shown. The page's websocket, its uploads
and its files are behind the gate too, since it stands in front of the whole application.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from app.visitor_cookie import values_in
from experiments.server.access import digest, host_name, is_secret

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

COOKIE = "trilemma_access"
TOKEN = "token"
HEALTH = "/_stcore/health"  # says whether the server is up, which is all that may be known without a token
MOST_FORM_BYTES = 4096
POLICY_VIOLATION = 1008  # websocket
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "SAMEORIGIN",
    "content-security-policy": "frame-ancestors 'self'",
}
FORM_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
FORM = """<!doctype html><html lang="{lang}"><meta charset="utf-8"><title>Trilemma</title>
<style>body{{font:15px sans-serif;max-width:26rem;margin:15vh auto;padding:0 1rem}}
input,button{{font:inherit;padding:.5rem}}input{{width:100%;box-sizing:border-box;margin:.5rem 0}}</style>
<h1>Trilemma</h1><p role="alert">{said}</p><form method="post"><label>{label}
<input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button>{send}</button></form></html>"""


class Gate:
    """ASGI middleware. token: that everyone has to bring, None without one; hosts: the server's names, any without."""

    def __init__(self, app: Any, *, token: str | None, hosts: tuple[str, ...] = ()) -> None:
        self._app, self._hosts = app, hosts
        self._token = None if token is None else digest(token)
        self._session = secrets.token_urlsafe(32)
        self._known_session = digest(self._session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = host_name(headers.get("host", ""))
        if self._hosts and host not in self._hosts:
            line = f"host: {host!r} is not accepted; accepted: {', '.join(self._hosts)}"
            await _refuse(scope, send, 403, line, {"content-type": "text/plain; charset=utf-8"})
        elif self._token is None or self._is_open(scope) or self._has_cookie(headers):
            await self._pass(scope, receive, send)
        else:
            await self._ask(scope, headers, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        return scope["type"] == "http" and scope["path"] == HEALTH and scope["method"] in ("GET", "HEAD")

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        return any(is_secret(value, self._known_session) for value in values_in(headers.get("cookie", ""), COOKIE))

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """To the page; an address that still has a token in it is made one without."""
        rest = _without_token(scope)
        if scope["type"] == "http" and scope["method"] == "GET" and rest is not None and self._token is not None:
            await _answer(send, 303, "", {"location": _here(scope, rest), "cache-control": "no-store"})
            return

        async def marked(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                more = [pair for pair in _encoded(HEADERS) if pair[0] not in present]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, marked)

    async def _ask(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        """Let in who brings the token, ask everyone else for it."""
        given, query = None, _query(scope)
        if scope["type"] == "http":
            given = await _posted(receive) if scope["method"] == "POST" else dict(query).get(TOKEN)
        if self._token is not None and given is not None and is_secret(given, self._token):
            secure = "; Secure" if scope.get("scheme") == "https" else ""
            cookie = f"{COOKIE}={self._session}; Path=/; HttpOnly; SameSite=Lax{secure}"
            location = _here(scope, [pair for pair in query if pair[0] != TOKEN])
            await _answer(send, 303, "", {"location": location, "set-cookie": cookie, "cache-control": "no-store"})
            return
        form = _form(dict(query), headers, "access.asked" if given is None else "access.wrong")
        await _refuse(scope, send, 403, form, FORM_HEADERS)


def _query(scope: Scope) -> list[tuple[str, str]]:
    try:
        return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return []


def _without_token(scope: Scope) -> list[tuple[str, str]] | None:
    """The query without its token; None where it has none."""
    query = _query(scope)
    rest = [pair for pair in query if pair[0] != TOKEN]
    return None if len(rest) == len(query) else rest


def _here(scope: Scope, query: list[tuple[str, str]]) -> str:
    """The address of a request on this server, whatever its path begins with."""
    path = "/" + quote(scope["path"].lstrip("/\\"), safe="/")
    return f"{path}?{urlencode(query)}" if query else path


def _form(query: Mapping[str, str], headers: Mapping[str, str], key: str) -> str:
    """The page that asks for the token, in the language of the address or of the browser; key: what it says."""
    from app.i18n import LANGUAGE_NAMES, translate  # the server is up before the texts are read

    first = headers.get("accept-language", "").strip().lower()
    asked = query.get("lang", "zh" if first.startswith("zh") else "en")
    lang = asked if asked in LANGUAGE_NAMES else "en"
    texts = {name: escape(translate(lang, f"access.{name}")) for name in ("label", "send")}
    return FORM.format(lang=lang, said=escape(translate(lang, key)), **texts)


async def _posted(receive: Receive) -> str | None:
    """The token of a form, empty where it has none; what is larger than a form is not read."""
    body, more = b"", True
    while more and len(body) <= MOST_FORM_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    try:
        fields = parse_qsl(body[:MOST_FORM_BYTES].decode(), max_num_fields=10)
    except ValueError:
        return ""
    return dict(fields).get(TOKEN, "")


async def _refuse(scope: Scope, send: Send, status: int, text: str, headers: Mapping[str, str]) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
    else:
        await _answer(send, status, text, headers)


async def _answer(send: Send, status: int, text: str, headers: Mapping[str, str]) -> None:
    body = text.encode()
    fields = {**HEADERS, **headers, "content-length": str(len(body))}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(fields)})
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
