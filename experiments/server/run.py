"""Starting and stopping the server: engines, socket, signals, and the grace in which requests under way may end.

SIGTERM or Ctrl-C closes the port at once. Requests under way go on for `grace_s`; what is left then is failed with a
503, or an error at the end of its stream, so that nobody is left without an answer. A second signal ends the grace.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import uvicorn

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from experiments.rig import Rig
from experiments.server.access import LOOPBACK, is_loopback
from experiments.server.app import Limits, make_app
from experiments.server.canary import Canary, CanaryPlan
from experiments.server.event_log import EventLog
from experiments.server.heads import PromptHeads
from experiments.server.service import Service
from ledger.errors import CannotRunError, InputError

KEEP_ALIVE_S = 75  # clients pool connections for about a minute; one closed under a request looks like a lost one
AFTER_GRACE_S = 5  # for clients that do not read: then their connections are cut
# A thread that computes gives up the interpreter this often when another wants it. Python's own 5 ms would let the
# event loop hold up a step, and a step the loop, for that long each time.
SWITCH_INTERVAL_S = 0.001
CONNECTIONS = 4096  # at once; file descriptors are asked for
MOST_HEADER_BYTES = 64 * 1024


@dataclass(frozen=True)
class ServeSpec:
    """What is served and how. canary_settings: those of the second engine that differ, with its plan."""

    config: EngineConfig
    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    max_body_bytes: int = 4 * 1024 * 1024
    model_name: str | None = None
    grace_s: float = 15.0
    log_events: str | None = None
    canary_settings: Mapping[str, Any] = field(default_factory=dict)
    canary: CanaryPlan | None = None

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.api_key is None:
            raise InputError(
                "--host", self.host,
                f"{', '.join(LOOPBACK)}, or another one together with --api-key-env NAME: without a key anyone who "
                "reaches the port could use the engine",
            )  # fmt: skip
        if not 0 <= self.port <= 65535:
            raise InputError("--port", self.port, "a whole number from 0 (any free one) to 65535")
        if self.max_body_bytes < 1:
            raise InputError("--max-body-bytes", self.max_body_bytes, "a whole number of bytes from 1 up")
        if self.grace_s < 0:
            raise InputError("--grace", self.grace_s, "a number of seconds from 0 up")
        if any(config.disaggregation == "on" for config in self.configs()):
            raise InputError(
                "disaggregation", "on",
                "off: the server steps engines of this process; bench and compare run prefill and decode apart",
            )  # fmt: skip
        if any(config.router == "small-first" for config in self.configs()):
            raise InputError("router", "small-first", "off: bench, compare and levers run two models; a server has one")
        if self.canary is not None and max(config.ranks for config in self.configs()) > 1:
            raise InputError(
                "--canary-set", "several ranks", "tensor_parallel=1 and pipeline_parallel=1 in both engines"
            )

    def configs(self) -> list[EngineConfig]:
        """Of the engines: one, or A's and B's."""
        if self.canary is None:
            return [self.config]
        return [self.config, EngineConfig.from_settings({**self.config.settings(), **self.canary_settings})]


def log_line(event: str, **fields: Any) -> None:
    """An event of the server as a JSON line on stderr."""
    values = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}
    print(json.dumps(values, default=str), file=sys.stderr, flush=True)


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket on the port, not listening yet; CannotRunError when it can't be had."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        reason = error.strerror or error
        line = f"serve: port {port} on {host} can't be used ({reason}); stop what uses it or pass --port N"
        raise CannotRunError(line) from None
    return found


class GracefulServer(uvicorn.Server):
    """uvicorn with our own end: the grace, then every request that is left is failed."""

    def __init__(self, config: uvicorn.Config, service: Service, grace_s: float) -> None:
        super().__init__(config)
        self._service, self._grace_s = service, grace_s
        self._enough: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.interrupted = False

    def request_stop(self, signal_number: int | None = None, _: Any = None) -> None:
        """Begin to stop; asked for again, end the grace. From any thread, and as a signal handler."""
        self.interrupted = self.interrupted or signal_number == signal.SIGINT
        if self.should_exit and self._loop is not None and self._enough is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._enough.set)
        self._service.stopping = True
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Ours instead of uvicorn's, which ends the process by the signal once more."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {name: signal.signal(name, self.request_stop) for name in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, let requests end within the grace, fail the rest."""
        self._service.stopping = True
        self._loop, self._enough = asyncio.get_running_loop(), asyncio.Event()
        grace = asyncio.create_task(self._end_grace(self._enough))
        try:
            await super().shutdown(sockets)
        finally:
            grace.cancel()

    async def _end_grace(self, enough: asyncio.Event) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(enough.wait(), self._grace_s)
        if left := self._service.in_flight():
            self._service.log("grace_over", failed_requests=left)
            self._service.fail_in_flight("the server is stopping")


def make_server(app: Any, service: Service, grace_s: float) -> GracefulServer:
    """The HTTP server, to be run on a socket of its own."""
    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, lifespan="off", ws="none", server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=int(grace_s) + AFTER_GRACE_S,
        limit_concurrency=CONNECTIONS, http=PromptHeads, h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )  # fmt: skip
    return GracefulServer(config, service, grace_s)


def serve(spec: ServeSpec, on_ready: Callable[[dict[str, Any]], None], report: Callable[[str], None]) -> None:
    """Serve until told to stop. on_ready gets {"url","model"} once requests are answered; report words of loading.

    KeyboardInterrupt, once all is ended in order, where it was Ctrl-C that stopped it.
    """
    configs = spec.configs()
    events = EventLog(spec.log_events)
    with bound_socket(spec.host, spec.port) as listener, closing(Rig(report)) as rig:
        service = _service(spec, configs, rig)
        hosts = () if spec.api_key is not None else tuple(dict.fromkeys((*LOOPBACK, spec.host)))
        app = make_app(service, Limits(spec.max_body_bytes, spec.api_key, hosts), events)
        server = make_server(app, service, spec.grace_s)
        _many_connections()
        gc.collect()
        gc.freeze()  # collections no longer look at the model's and the libraries' objects: tens of ms each
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            asyncio.run(_run(server, listener, on_ready, _url(listener, spec.host), service.model_name))
        finally:
            service.stop()
            events.close()
    service.log("stopped")
    if server.interrupted:
        raise KeyboardInterrupt


async def _run(
    server: GracefulServer, listener: socket.socket, on_ready: Callable[[dict[str, Any]], None], url: str, model: str
) -> None:
    running = asyncio.create_task(server.serve(sockets=[listener]))
    while not (server.started or running.done()):
        await asyncio.sleep(0.01)
    if server.started:
        on_ready({"url": url, "model": model})
    await running


def _service(spec: ServeSpec, configs: list[EngineConfig], rig: Rig) -> Service:
    def make() -> list[Any]:
        clock = MonotonicClock()
        return [rig.engine(config, clock=clock) for config in configs]

    plan = spec.canary
    make_canary = None if plan is None else lambda now, on_roll_back: Canary(plan, now, on_roll_back)
    return Service(make, log_line, model_name=spec.model_name, make_canary=make_canary)


def _url(listener: socket.socket, host: str) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _many_connections() -> None:
    """Ask for enough file descriptors, where the system has a limit that may be raised."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS if hard == resource.RLIM_INFINITY else min(CONNECTIONS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
