"""A service over engines without weights, or over a tiny model, and a client that speaks ASGI to it in one process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fakes import FakeExecutor, fake_loaded

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.plan import StepPlan, StepResult
from experiments.server.app import Limits, make_app
from experiments.server.service import Service


class RealClock(MonotonicClock):
    """Real time; steps of the fake executor take none."""

    def sleep(self, seconds: float) -> None:
        """Nothing."""


class Gated(FakeExecutor):
    """A step waits at `gate` while it is closed, and raises while `fail` is set."""

    def __init__(self, clock: Any, config: EngineConfig) -> None:
        super().__init__(clock, config)
        self.gate = threading.Event()
        self.gate.set()
        self.in_step = threading.Event()
        self.fail: Exception | None = None

    def execute(self, plan: StepPlan) -> StepResult:
        self.in_step.set()
        assert self.gate.wait(30)
        if self.fail is not None:
            raise self.fail
        return super().execute(plan)


def fake_engine(clock: Any, **settings: Any) -> Engine:
    """An engine whose answers are letters by position, with real time."""
    config = EngineConfig.from_settings(settings)
    return Engine(config, fake_loaded(), clock=clock, executor=Gated(clock, config))


@dataclass
class Served:
    """A service with its application and what it logged."""

    service: Service
    app: Any
    log: list[tuple[str, dict[str, Any]]]

    @property
    def engine(self) -> Any:
        return self.service.thread.arms[0].engine

    def metric(self, name: str, **labels: str) -> float:
        """A sample of /metrics whose labels include these."""
        found = [
            sample.value
            for family in self.service.metrics.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no {name} with {labels}"
        return sum(found)


@contextmanager
def serving(
    *settings: Mapping[str, Any],
    make: Callable[[], list[Any]] | None = None,
    limits: Limits | None = None,
    events: Any = None,
    **options: Any,
) -> Iterator[Served]:
    """A service over a fake engine for each of `settings`, or over what `make` gives."""
    log: list[tuple[str, dict[str, Any]]] = []

    def fakes() -> list[Any]:
        clock = RealClock()
        return [fake_engine(clock, **values) for values in settings or ({},)]

    service = Service(make or fakes, lambda event, **values: log.append((event, values)), **options)
    try:
        yield Served(service, make_app(service, limits or Limits(), events), log)
    finally:
        for arm in service.thread.arms:
            if isinstance(arm.engine.executor, Gated):
                arm.engine.executor.gate.set()
        service.stop()


@dataclass
class Reply:
    """A response as it came."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    writes: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of an event stream, [DONE] as text."""
        lines = [line[6:] for line in self.body.decode().split("\n\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


class Call:
    """One request to an ASGI application. on_write is told of each write; `hang_up` closes the connection."""

    def __init__(self, app: Any, path: str, body: Any = None, *, method: str | None = None, **headers: str) -> None:
        self._app, self._path = app, path
        self._body = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self._method = method or ("GET" if body is None else "POST")
        self._headers = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        self._gone = asyncio.Event()
        self._sent = False
        self.reply = Reply()
        self.wrote = asyncio.Event()

    def hang_up(self) -> None:
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.reply.status = message["status"]
            self.reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message.get("body"):
            self.reply.writes.append(message["body"])
            self.wrote.set()

    async def run(self) -> Reply:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": self._method,
            "path": self._path, "raw_path": self._path.encode(), "root_path": "", "scheme": "http",
            "query_string": b"", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
            "headers": [(name.encode(), value.encode()) for name, value in self._headers.items()],
        }  # fmt: skip
        await self._app(scope, self._receive, self._send)
        return self.reply


async def call(app: Any, path: str, body: Any = None, **options: Any) -> Reply:
    """The whole response to one request."""
    return await asyncio.wait_for(Call(app, path, body, **options).run(), 30)


def ask(app: Any, path: str, body: Any = None, **options: Any) -> Reply:
    """`call` with an event loop of its own."""
    return asyncio.run(call(app, path, body, **options))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about."""
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about")
