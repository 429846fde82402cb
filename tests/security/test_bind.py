"""Where `trilemma ui` and `trilemma serve` listen: this machine alone, or wider with a secret that they ask for."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from experiments.cli import run
from experiments.cli.serve import serve
from experiments.cli.ui import ui
from experiments.server.access import digest, is_loopback, is_secret

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "correct-horse-battery"


def test_both_listen_on_this_machine_alone_unless_told_otherwise() -> None:
    for command in (ui, serve):
        assert is_loopback(inspect.signature(command).parameters["host"].default)
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
    assert is_loopback(config["server"]["address"])  # whoever runs streamlit without `trilemma ui`


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org", "127.0.0.1.example.org", ""])
@pytest.mark.parametrize("command", ["ui", "serve"])
def test_wider_without_a_secret_is_refused_in_one_line(
    command: str, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--host", host]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "--host" in said.err and "-env NAME" in said.err


def test_the_pages_server_itself_refuses_too() -> None:
    done = subprocess.run([sys.executable, "-m", "app.server", "--host", "0.0.0.0"], cwd=ROOT, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--host" in done.stderr


@pytest.mark.parametrize(
    "value", [None, "", "short", "fifteen-chars-x", "with\nline ends, long enough", "ключ-достаточно-длинный"]
)
def test_a_token_that_can_be_guessed_or_is_not_there_is_refused(
    value: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PAGE_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("PAGE_TOKEN", value)
    assert run(["ui", "--host", "0.0.0.0", "--token-env", "PAGE_TOKEN"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "--token-env" in said and not (value and value in said)


def test_secrets_are_compared_by_their_digests() -> None:
    assert is_secret(TOKEN, digest(TOKEN))
    assert not any(is_secret(other, digest(TOKEN)) for other in ("", TOKEN + "x", TOKEN[:-1], "\udcff"))


def test_no_command_takes_a_secret_as_an_argument() -> None:
    """What a command line holds, every user of the machine can read."""
    for file in sorted((ROOT / "experiments" / "cli").glob("*.py")):
        options = re.findall(r'"(--[a-z-]*(?:key|token|password|secret)[a-z-]*)"', file.read_text("utf-8"))
        harmless = ("-env", "-axis")  # names of variables, and the axis of keys in the cache
        assert [name for name in options if not name.endswith(harmless) and "tokens" not in name] == [], file.name


@pytest.mark.slow
def test_a_page_for_others_asks_for_its_token_and_tells_nobody(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "experiments.cli", "ui", "--host", "0.0.0.0", "--port", str(port)]
    page = subprocess.Popen(
        [*command, "--token-env", "PAGE_TOKEN"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PAGE_TOKEN": TOKEN, "TRILEMMA_HOME": str(tmp_path)},
    )  # fmt: skip
    try:
        assert page.stdout is not None
        said = ""
        while "Trilemma is at" not in said:
            said += (line := page.stdout.readline())
            assert line, said
        address = f"http://127.0.0.1:{port}"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{address}/", timeout=10)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{address}/?token={TOKEN[:-1]}", timeout=10)
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(f"{address}/?token={TOKEN}", timeout=10) as reply:
            assert reply.status == 200 and reply.url == f"{address}/" and b"<noscript>" in reply.read()
        servers = [
            Path("/proc", name) for name in os.listdir("/proc")
            if name.isdigit() and str(port) in _command_line(Path("/proc", name))
        ]  # fmt: skip
        assert len(servers) >= 2 and not any(TOKEN in _command_line(process) for process in servers)
    finally:
        page.send_signal(signal.SIGINT)
        rest, _ = page.communicate(timeout=30)
    assert TOKEN not in said + rest


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text("utf-8", errors="replace")
    except OSError:
        return ""


@pytest.mark.slow
def test_a_page_of_this_machine_opens_without_a_token(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "experiments.cli", "ui", "--port", str(port), "--json"]
    page = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            env={**os.environ, "TRILEMMA_HOME": str(tmp_path)})  # fmt: skip
    try:
        assert page.stdout is not None
        url = json.loads("".join(page.stdout.readline() for _ in range(4)))["url"]
        with urllib.request.urlopen(url, timeout=10) as reply:
            assert reply.status == 200 and reply.headers["x-frame-options"] == "SAMEORIGIN"
        strange = urllib.request.Request(url, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(strange, timeout=10)
        _leads_nowhere_else(port)
        with socket.socket() as other:
            address = socket.gethostbyname(socket.gethostname())
            if not is_loopback(address):
                assert other.connect_ex((address, port)) != 0
    finally:
        page.send_signal(signal.SIGINT)
        page.communicate(timeout=30)


def _leads_nowhere_else(port: int) -> None:
    """No path gives a file of the machine or of the program, no stranger a session."""
    climb = "/".join([".."] * 8)
    for path in (
        f"/static/{climb}/etc/passwd", f"/media/{climb}/etc/passwd", f"/component/{climb}/etc/passwd", "//etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/static/..%2f..%2f..%2fetc/passwd", f"/_stcore/{climb}/etc/passwd",
        "/static/%5c..%5c..%5cetc%5cpasswd", "/app/static/main.py", "/app/main.py", "/main.py",
        "/.streamlit/config.toml",
    ):  # fmt: skip
        answer = _exchange(port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert "root:" not in answer and "import streamlit" not in answer and "[server]" not in answer, path
    upload = "PUT /_stcore/upload_file/nobody/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n"
    assert " 200 " not in _exchange(port, f"{upload}Connection: close\r\n\r\n").partition("\r\n")[0]
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    shake = f"Upgrade: websocket\r\nConnection: Upgrade\r\n{key}"
    for host, origin in (("127.0.0.1", "http://evil.example"), ("evil.example", "http://evil.example")):
        stream = f"GET /_stcore/stream HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {origin}\r\n{shake}\r\n"
        assert " 101 " not in _exchange(port, stream).partition("\r\n")[0]


def _exchange(port: int, sent: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(sent.encode())
        received = b""
        while piece := client.recv(65536):
            received += piece
        return received.decode(errors="replace")
