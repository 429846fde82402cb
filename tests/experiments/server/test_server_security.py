"""The server against hostile clients: bodies, headers, values that come back, and a key that is told to nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core_engine.config import EngineConfig
from experiments.server.app import MOST_TAGS_BYTES, Limits
from experiments.server.event_log import EventLog
from experiments.server.metrics import Metrics
from experiments.server.protocol import parse_body
from experiments.server.run import CONNECTIONS, MOST_HEADER_BYTES, ServeSpec, make_server
from ledger.errors import InputError
from tests.experiments.server.serving import Served, ask, serving

PATH = "/v1/completions"
KEY = "sk-correct-horse-battery"
BODY = {"prompt": "abc", "max_tokens": 4, "temperature": 0}
HOSTILE = 'x"} 1\n# HELP evil\nevil{a="</script><img src=x>'


@pytest.mark.parametrize("stated", [True, False])
def test_no_route_reads_a_body_without_a_bound(stated: bool) -> None:
    with serving() as served:
        body = b'{"tags": ["' + b"x" * MOST_TAGS_BYTES + b'"]}'
        headers = {"content_length": str(len(body))} if stated else {}
        reply = ask(served.app, "/invalidate_answers", body, method="POST", **headers)
        assert reply.status == 413 and "\n" not in reply.json["error"]["message"]
        for path in ("/reset_prefix_cache", "/v1/models", "/metrics", "/nowhere"):  # which read none at all
            assert ask(served.app, path, b"x" * 100_000, method="POST").status in (200, 404, 405)


def deep(what: str) -> bytes:
    return b'{"prompt": ' + what.encode() * 100_000 + b"}"


@pytest.mark.parametrize(
    "body",
    [
        deep("["), deep('{"a":'), b"{" * 1000, b"\xff\xfe", b"\x00", b"NaN", b'{"max_tokens": 1e999, "prompt": "a"}',
        b'{"max_tokens": ' + b"9" * 5000 + b', "prompt": "a"}', b'{"prompt": "\\ud800", "stop": ["\\ud800"], "n": -1}',
        b'{"prompt": [' + b"[1]," * 5000 + b"[1]]}", b'{"prompt": "a", "logit_bias": {"' + b"1" * 5000 + b'": 1}}',
        b'{"prompt": "a", "top_k": 9223372036854775808}', b'{"prompt": "a", "top_k": 2147483648}',
        b'{"prompt": "a", "cache": {"ttl_s": 1' + b"0" * 400 + b"}}",
        b'{"prompt": "a", "temperature": 1' + b"0" * 400 + b"}", b'{"prompt": "a", "max_tokens": 1' + b"0" * 30 + b"}",
        b'{"prompt": "a", "stop": ["' + b"a" * 5000 + b'"]}',
        b'{"prompt": "a", "stop_token_ids": [' + b"1," * 5000 + b"1]}",
        b'{"prompt": "a", "stop": [' + b'"a",' * 100_000 + b'"a"]}', b'{"prompt": [-1, 1e3]}',
    ],
)  # fmt: skip
def test_a_body_made_to_hurt_is_refused_in_one_short_line(body: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(InputError) as refused:
        parse_body("completion", body)
    assert time.monotonic() - began < 5
    with serving() as served:
        reply = ask(served.app, PATH, body, method="POST")
        said = reply.json["error"]
        assert reply.status == 400 and len(said["message"]) < 1000 and "Traceback" not in said["message"]
        assert "\n" not in said["message"] and str(refused.value)


def test_a_fault_tells_the_client_its_kind_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as served:

        async def broken(*_: Any) -> Any:
            raise ZeroDivisionError("division by zero")

        monkeypatch.setattr(served.service, "open", broken)
        reply = ask(served.app, PATH, BODY)
        assert reply.status == 500 and "Traceback" not in reply.body.decode() and ".py" not in reply.body.decode()
        assert any("Traceback" in str(values) for _, values in served.log)  # whoever runs the server sees it


def test_values_of_clients_and_names_of_models_tear_no_line_of_the_metrics() -> None:
    with serving(model_name=HOSTILE) as served:
        for path in (f"/{HOSTILE}", "/v1/<script>"):
            assert ask(served.app, path).status == 404
        text = ask(served.app, "/metrics").body.decode()
    assert "<script>" not in text and "\nevil" not in text and "\n# HELP evil" not in text
    for line in text.splitlines():
        assert re.fullmatch(r'#.*|[a-zA-Z_:][\w:]*(\{(\w+="([^"\\\n]|\\["\\n])*",?)*\})? \S+', line), line
    assert Metrics(HOSTILE, 1).text().count(b"# HELP evil\n") == 0


def test_the_key_is_in_no_answer_log_or_metric(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    with serving(limits=Limits(api_key=KEY), events=EventLog(str(log))) as served:
        headers = {"authorization": f"Bearer {KEY}"}
        asked = ((PATH, BODY), (PATH, {"prompt": 1}), ("/v1/models", None), ("/metrics", None), ("/nowhere", None))
        told = [ask(served.app, path, body, **headers).body.decode() for path, body in asked]
        told += [ask(served.app, PATH, BODY, authorization=f"Bearer {KEY}x").body.decode(), repr(served.log)]
        assert KEY not in "".join(told)
    assert log.read_text("utf-8") and KEY not in log.read_text("utf-8")
    for secret in (f"Bearer  {KEY}", f"bearer {KEY}"):
        with serving(limits=Limits(api_key=KEY)) as served:
            assert ask(served.app, "/v1/models", authorization=secret).status == 200


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """The server on a real socket."""
    with serving() as served, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = make_server(served.app, served.service, 1.0)
        running = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        running.start()
        deadline = time.monotonic() + 30
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.config.limit_concurrency == CONNECTIONS
        yield listener.getsockname()
        server.request_stop()
        running.join(30)


def exchange(address: tuple[str, int], sent: bytes, *, whole: bool = False) -> bytes:
    """What the server answers to these bytes; it may close its side at any moment, even while they are sent."""
    received = b""
    with socket.create_connection(address, timeout=20) as client:
        # A server that has closed shows as a reset, a broken pipe, or (on shutdown) as no connection at all.
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
        if not whole:  # a client that waits for an answer keeps its side open: an end would take the request back
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(65536):
                received += piece
    return received


def test_what_is_no_request_ends_its_connection_and_nothing_else(address: tuple[str, int]) -> None:
    good = json.dumps(BODY).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    long_header = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"a" * (2 * MOST_HEADER_BYTES) + b"\r\n\r\n"
    for hostile in (
        long_header,
        b"GET /" + b"a" * (2 * MOST_HEADER_BYTES) + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        head + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
        head + b"content-length: -1\r\n\r\n" + good,
        head + b"content-length: 5\r\ncontent-length: 500\r\n\r\n" + good,
    ):
        answer = exchange(address, hostile)
        assert b" 200 " not in answer and b"Traceback" not in answer
    stated = head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(good)
    answer = exchange(address, stated + good, whole=True)
    assert answer.startswith(b"HTTP/1.1 200") and b"server:" not in answer.lower()


def test_a_wider_address_needs_a_key() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(InputError, match="--api-key-env"):
            ServeSpec(EngineConfig(), host=host)
        assert ServeSpec(EngineConfig(), host=host, api_key=KEY).host == host


def test_without_a_key_a_page_of_elsewhere_can_not_call_the_server() -> None:
    limits = Limits(hosts=("127.0.0.1", "localhost"))
    with serving(limits=limits) as served:
        for headers in ({"host": "evil.example"}, {"host": "localhost", "origin": "http://evil.example"},
                        {"host": "localhost", "origin": "null"}):  # fmt: skip
            assert ask(served.app, PATH, BODY, **headers).status == 403
        _no_cross_origin(served)


def _no_cross_origin(served: Served) -> None:
    reply = ask(served.app, "/v1/models", host="localhost", origin="http://evil.example")
    assert not any(name.startswith("access-control") for name in reply.headers)
