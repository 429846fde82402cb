"""`trilemma ui`: checks what the workbench needs, starts it and says where it is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.numbers import whole
from experiments.cli.options import Json
from experiments.cli.output import DONE, note, print_json
from experiments.confined import environment
from experiments.server.access import LOOPBACK, PAGE_TOKEN_ENV, is_loopback, secret_from
from ledger.errors import CannotRunError, InputError

START_TIMEOUT_S = 60.0
LOOK_S = 0.02  # between two questions whether the page is up
LEAST_TOKEN = 16  # characters, so that it can't be guessed
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def ui(
    port_text: Annotated[str, typer.Option("--port", metavar="N", help="Port of the page.")] = "8501",
    host: Annotated[str, typer.Option("--host", help="Address; another than this machine's own needs a token.")] = (
        LOOPBACK[0]
    ),
    token_env: Annotated[
        str | None,
        typer.Option("--token-env", metavar="NAME", help="Environment variable with the token that the page asks for."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--files", metavar="DIR", help="Folder whose files the page may name; repeatable."),
    ] = None,
    key_envs: Annotated[
        list[str] | None,
        typer.Option("--key-env", metavar="NAME", help="Environment variable with a key that the page may use."),
    ] = None,
    shared_jobs: Annotated[
        bool, typer.Option("--shared-jobs", help="Any browser may cancel, resume and delete any run.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Start the workbench in the browser."""
    port = whole("--port", port_text) or 0
    if not 1 <= port <= 65535:
        raise InputError("--port", port, "a whole number from 1 to 65535")
    token = secret_from("--token-env", token_env, "a token", LEAST_TOKEN)
    if token is None and not is_loopback(host):
        raise InputError(
            "--host", host,
            f"{', '.join(LOOPBACK)}, or another one together with --token-env NAME: without a token anyone who reaches "
            "the port could use the page",
        )  # fmt: skip
    page = Path(__file__).resolve().parents[2] / "app" / "main.py"
    if not page.is_file():
        raise CannotRunError(f"ui: {page} is missing; install the whole checkout")
    require_free_port(port, host)
    confined = environment(_folders(files, host), key_envs or [])
    _prepare_model()
    command = [sys.executable, "-m", "app.server", "--host", host, "--port", str(port), "--end-with-stdin"]
    # Streamlit reads its theme from .streamlit/ in the working directory. A session of its own, since systems that
    # share cores between sessions know no other priority for it (experiments/yielding.py).
    output = subprocess.DEVNULL if as_json else sys.stderr
    secret = {} if token is None else {PAGE_TOKEN_ENV: token}  # not an argument, which others can read
    shared = {"TRILEMMA_SHARED_JOBS": "1"} if shared_jobs else {}  # app/visitor.py
    with suppress(ValueError):  # not in the main thread
        for name in ("SIGTERM", "SIGHUP"):  # or the server would outlive this process and keep the port
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), _terminate)
    server = None
    try:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, cwd=page.parents[1], start_new_session=True,
            env={**os.environ, **confined, **secret, **shared},
        )  # fmt: skip
        _wait_until_ready(server, _url(WILDCARDS.get(host, host), port))
        url = _url(host, port)
        if as_json:
            print_json({"url": url, "pid": server.pid})
        else:
            asks = "" if token is None else f"; it asks for the token in ${token_env}"
            print(f"Trilemma is at {url}{asks} (Ctrl-C stops it)", flush=True)
        code = server.wait()
    except _Terminated:
        return DONE
    finally:
        if server is not None:
            _stop(server)
    if code:
        raise CannotRunError(f"ui: the page's server ended with exit code {code}")
    return DONE


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _folders(files: list[Path] | None, host: str) -> list[Path]:
    """Those that were named; else, for a page of this machine alone, the home and the working directory."""
    for folder in files or ():
        if not folder.is_dir():
            raise InputError("--files", str(folder), "an existing folder")
    return files or ([Path.home(), Path.cwd()] if is_loopback(host) else [])


class _Terminated(BaseException):
    """SIGTERM or SIGHUP: the ordinary end. Ctrl-C is KeyboardInterrupt, with its own exit code."""


def _terminate(*_: object) -> None:
    raise _Terminated


def require_free_port(port: int, host: str = LOOPBACK[0]) -> None:
    """CannotRunError when another program listens on the port, or it may not be used."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        reason = error.strerror or error
        line = f"ui: port {port} on {host} can't be used ({reason}); stop what uses it or pass --port N"
        raise CannotRunError(line) from None


def _prepare_model() -> None:
    """Convert the embedded model once. Without it the page still serves the user's own models, so it only says so."""
    from core_engine.model.embedded import ensure_embedded

    try:
        ensure_embedded(note)
    except CannotRunError as error:
        note(f"warning: {error}")


def _wait_until_ready(server: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise CannotRunError(f"ui: the page's server ended with exit code {server.returncode} before it was ready")
        with suppress(OSError), urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as reply:
            if reply.status == 200:
                return
        time.sleep(LOOK_S)
    raise CannotRunError(f"ui: the page's server was not ready within {START_TIMEOUT_S:.0f} s")


def _stop(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        server.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                server.wait(timeout=5)
        finally:  # also when interrupted once more
            server.kill()
