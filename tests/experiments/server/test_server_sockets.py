"""The server on a real socket: the openai client unchanged, clients that hang up, many at once, and the end."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from serving import Served, serving, until

from experiments.cli import run
from experiments.server import heads
from experiments.server.access import is_loopback
from experiments.server.app import Limits
from experiments.server.run import GracefulServer, ServeSpec, bound_socket, make_server
from ledger.errors import CannotRunError, InputError
from tests.core_engine.conftest import make_llama


class Running:
    """A server in a thread with its own event loop."""

    def __init__(self, served: Served, grace_s: float) -> None:
        self.served = served
        self._socket = bound_socket("127.0.0.1", 0)
        self.port = self._socket.getsockname()[1]
        self.server: GracefulServer = make_server(served.app, served.service, grace_s)
        self._thread = threading.Thread(target=lambda: asyncio.run(self.server.serve(sockets=[self._socket])))
        self._thread.start()
        asyncio.run(until(lambda: self.server.started))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, body: dict[str, Any], path: str = "/v1/completions") -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def wait(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._socket.close()


@contextmanager
def running(*settings: dict[str, Any], grace_s: float = 20.0, **options: Any) -> Iterator[Running]:
    with serving(*settings, **options) as served:
        found = Running(served, grace_s)
        try:
            yield found
        finally:
            served.engine.executor.gate.set()
            found.server.request_stop()
            found.wait()


def test_the_openai_client_drives_it_unchanged() -> None:
    with running(limits=Limits(api_key="k"), model_name="fake") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
        assert [model.id for model in client.models.list()] == ["fake"]
        completion = client.completions.create(model="fake", prompt="abc", max_tokens=4, temperature=0)
        assert completion.choices[0].text == "DEFG" and completion.choices[0].finish_reason == "length"
        assert completion.usage is not None and completion.usage.completion_tokens == 4
        streamed = client.completions.create(
            model="fake", prompt="abc", max_tokens=4, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(streamed)
        assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "DEFG"
        assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 7
        messages: Any = [{"role": "user", "content": "abc"}]
        chat = client.chat.completions.create(model="fake", messages=messages, max_completion_tokens=3, n=2, seed=1)
        assert [choice.message.content for choice in chat.choices] == ["DEF", "DEF"]
        deltas = client.chat.completions.create(model="fake", messages=messages, max_tokens=3, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in deltas) == "DEF"
        with pytest.raises(openai.BadRequestError, match="tools"):
            client.chat.completions.create(model="fake", messages=messages, tools=[{"type": "function"}])  # type: ignore
        with pytest.raises(openai.NotFoundError, match="other"):
            client.completions.create(model="other", prompt="abc")
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0).models.list()
        server.served.engine.executor.fail = RuntimeError("out of luck")
        with pytest.raises(openai.InternalServerError, match="out of luck"):
            client.completions.create(model="fake", prompt="abc")


def test_an_error_inside_a_stream_reaches_the_openai_client() -> None:
    with running() as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
        stream = client.completions.create(model="fake", prompt="abc", max_tokens=4000, stream=True)
        next(stream)
        server.served.engine.executor.fail = RuntimeError("out of luck")
        with pytest.raises(openai.APIError, match="out of luck"):
            list(stream)


def test_a_connection_that_is_closed_frees_the_blocks() -> None:
    with running() as server:
        body = json.dumps({"prompt": "abc", "max_tokens": 4000, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        engine = server.served.engine
        asyncio.run(until(lambda: engine.pool.num_used == 0 and not engine.has_unfinished()))
        assert server.served.metric("trilemma:client_disconnects_total") == 1
        assert server.served.metric("vllm:request_success_total", finished_reason="abort") == 1


def test_many_streams_at_once_are_each_answered_whole() -> None:
    body = json.dumps({"prompt": "abc", "max_tokens": 5, "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"

    async def one(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        reply = await reader.read()
        writer.close()
        return reply

    async def scenario(port: int) -> list[bytes]:
        return await asyncio.gather(*(one(port) for _ in range(150)))

    with running({"max_num_seqs": 32}) as server:
        replies = asyncio.run(scenario(server.port))
        assert all(reply.startswith(b"HTTP/1.1 200") and b"data: [DONE]" in reply for reply in replies)
        assert server.served.service.in_flight() == 0


def test_stopping_lets_requests_under_way_end_and_frees_the_port() -> None:
    with running() as server:
        executor = server.served.engine.executor
        executor.gate.clear()
        replies: list[tuple[int, bytes]] = []
        clients = [
            threading.Thread(target=lambda: replies.append(server.post({"prompt": "abc", "max_tokens": 4})))
            for _ in range(3)
        ]
        for client in clients:
            client.start()
        asyncio.run(until(lambda: server.served.service.in_flight() == 3))
        server.server.request_stop()
        asyncio.run(until(lambda: not _accepts(server.port)))
        executor.gate.set()
        for client in clients:
            client.join(30)
        assert [status for status, _ in replies] == [200] * 3
        server.wait()
        bound_socket("127.0.0.1", server.port).close()


def test_what_does_not_end_within_the_grace_is_failed_with_a_status() -> None:
    with running(grace_s=0.05) as server:
        server.served.engine.executor.gate.clear()
        replies: list[tuple[int, bytes]] = []
        client = threading.Thread(target=lambda: replies.append(server.post({"prompt": "abc", "max_tokens": 4})))
        client.start()
        asyncio.run(until(lambda: server.served.service.in_flight() == 1))
        server.server.request_stop()
        client.join(30)
        assert replies[0][0] == 503 and b"stopping" in replies[0][1]
        server.wait()


def test_a_second_signal_ends_the_grace() -> None:
    with running(grace_s=600) as server:
        server.served.engine.executor.gate.clear()
        replies: list[tuple[int, bytes]] = []
        client = threading.Thread(target=lambda: replies.append(server.post({"prompt": "abc", "max_tokens": 4})))
        client.start()
        asyncio.run(until(lambda: server.served.service.in_flight() == 1))
        server.server.request_stop()
        asyncio.run(until(lambda: server.server._enough is not None))
        server.server.request_stop()
        client.join(30)
        assert replies[0][0] == 503
        server.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_only_this_machine_gets_in_without_a_key() -> None:
    from core_engine.config import EngineConfig

    config = EngineConfig()
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "example.org")] == (
        [True] * 3 + [False] * 3
    )
    with pytest.raises(InputError, match="without a key"):
        ServeSpec(config, host="0.0.0.0")
    ServeSpec(config, host="0.0.0.0", api_key="k")
    for changes in ({"port": 70000}, {"max_body_bytes": 0}, {"grace_s": -1.0}):
        with pytest.raises(InputError):
            ServeSpec(config, **changes)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"disaggregation.*compare"):
        ServeSpec(type(config).from_settings({"disaggregation": "on"}))


def test_a_port_that_is_taken_is_said_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with bound_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotRunError, match=f"port {port}"):
            bound_socket("127.0.0.1", port)
        assert run(["serve", "--port", str(port)]) == 3
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--host 0.0.0.0", "--host"),
        ("--port x", "--port"),
        ("--api-key-env NO_SUCH_VARIABLE", "--api-key-env"),
        ("--max-queue 0", "max_queue"),
        ("--slo ttft_p95=1", "--slo"),
        ("--canary-set max_num_seqs=4", "--slo"),
        ("--canary-set max_num_seqs=4 --slo ttft_p95=1 --canary-share 2", "--canary-share"),
        ("--canary-set tensor_parallel=2 --slo ttft_p95=1", "--canary-set"),
        ("--set nothing=1", "variable"),
        ("--log-events /no/such/folder/x", "--log-events"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    options: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--port", "0", *options.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and named in captured.err


@pytest.mark.slow
def test_sigterm_lets_a_request_end_and_the_process_with_0(tmp_path: Path) -> None:
    make_llama(tmp_path)
    options = [f"model={tmp_path}", "dtype=fp32", "device=cpu", "kernels=torch", "kv_memory_mib=4", "threads=1"]
    command = [sys.executable, "-m", "experiments.cli", "serve", "--port", "0", "--json"]
    command += [part for option in options for part in ("--set", option)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        ready = ""
        while not ready.rstrip().endswith("}"):
            line = server.stdout.readline()
            assert line, server.stderr.read()
            ready += line
        url = json.loads(ready)["url"]
        body = json.dumps({"prompt": "abc", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
        request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            assert reply.readline().startswith(b"data: ")
            server.send_signal(signal.SIGTERM)
            assert reply.read().endswith(b"data: [DONE]\n\n")
        assert server.wait(60) == 0
        assert '"event": "stopped"' in server.stderr.read()
    bound_socket("127.0.0.1", int(url.rsplit(":", 1)[1])).close()


def test_a_connection_whose_head_is_late_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_S", 0.3)
    begun = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
    with running() as server:
        for sent, told in ((b"", b""), (begun, b"HTTP/1.1 408 ")):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
                client.sendall(sent)
                received = b"".join(iter(lambda client=client: client.recv(1000), b""))
                assert received[: len(b"HTTP/1.1 408 ")] == told


def test_an_answer_and_a_kept_connection_may_take_longer_than_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_S", 0.3)
    with running() as server:
        server.served.engine.executor.gate.clear()
        opener = threading.Timer(0.6, server.served.engine.executor.gate.set)
        opener.start()
        assert server.post({"prompt": "abc", "max_tokens": 2})[0] == 200
        opener.join()
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as client:
            for _ in range(2):
                client.request("GET", "/health")
                opened, reply = client.sock, client.getresponse()
                assert reply.status == 200 and reply.read()
                time.sleep(0.5)  # idle between two requests, which is no head that is late
                assert client.sock is opened
