"""`trilemma ui`: checks what the workbench needs, starts it and says where it is."""

from __future__ import annotations

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
from ledger.errors import CannotRunError, InputError

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0


def ui(
    port_text: Annotated[str, typer.Option("--port", metavar="N", help="Port on 127.0.0.1.")] = "8501",
    as_json: Json = False,
) -> int:
    """Start the workbench in the browser."""
    port = whole("--port", port_text) or 0
    if not 1 <= port <= 65535:
        raise InputError("--port", port, "a whole number from 1 to 65535")
    page = Path(__file__).resolve().parents[2] / "app" / "main.py"
    if not page.is_file():
        raise CannotRunError(f"ui: {page} is missing; install the whole checkout")
    require_free_port(port)
    _prepare_model()
    command = [
        sys.executable, "-m", "app.server", "--server.address", HOST, "--server.port", str(port),
        "--server.headless", "true", "--browser.gatherUsageStats", "false",
    ]  # fmt: skip
    # Streamlit reads its theme from .streamlit/ beside the page's package or in the working directory. A session of its
    # own, since systems that share cores between sessions know no other priority for it (experiments/yielding.py).
    output = subprocess.DEVNULL if as_json else sys.stderr
    server = subprocess.Popen(command, stdout=output, cwd=page.parents[1], start_new_session=True)
    url = f"http://{HOST}:{port}"
    with suppress(ValueError):  # not in the main thread
        for name in ("SIGTERM", "SIGHUP"):  # or the server would outlive this process and keep the port
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), _interrupt)
    try:
        _wait_until_ready(server, url)
        if as_json:
            print_json({"url": url, "pid": server.pid})
        else:
            print(f"Trilemma is at {url} (Ctrl-C stops it)", flush=True)
        code = server.wait()
    except KeyboardInterrupt:
        return DONE
    finally:
        _stop(server)
    if code:
        raise CannotRunError(f"ui: the page's server ended with exit code {code}")
    return DONE


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def require_free_port(port: int) -> None:
    """CannotRunError when another program listens on the port, or it may not be used."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            reason = error.strerror or error
            line = f"ui: port {port} on {HOST} can't be used ({reason}); stop what uses it or pass --port N"
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
        time.sleep(0.1)
    raise CannotRunError(f"ui: the page's server was not ready within {START_TIMEOUT_S:.0f} s")


def _stop(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            server.kill()
