"""A warm endpoint target on a scripted server, and answers to script it with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from core_engine.config import EngineConfig
from experiments.metrics import compute_metrics
from experiments.spec import BenchSpec
from experiments.targets import EndpointTarget
from tests.experiments.fakes import ByteTokenizer
from tests.experiments.mock_server import MockServer, Script, ScriptClock, Turn, well_behaved, workload_of


class Bytes(ByteTokenizer):
    """One token a byte, which knows its tokens' bytes."""

    token_bytes = [bytes([byte]) for byte in range(256)]  # noqa: RUF012


@contextmanager
def endpoint(
    script: Script = well_behaved,
    *,
    clock: ScriptClock | None = None,
    fields: dict[str, Any] | None = None,
    **server: Any,
) -> Iterator[tuple[MockServer, EndpointTarget]]:
    """A warm target on a mock server that follows `script` from then on."""
    clock = clock or ScriptClock()
    with MockServer(clock=clock, tokenizer=server.pop("tokenizer", ByteTokenizer()), **server) as mock:
        spec = BenchSpec.from_dict({"endpoint": mock.url, **(fields or {})})
        target = EndpointTarget(spec, EngineConfig.from_settings({}), clock=clock, tokenizer=Bytes())
        mock.watch(target)
        target.warm_up(workload_of((4, 2, 0.0)))
        mock.script, mock.bodies = script, []
        yield mock, target


def metrics_of(script: Script, *requests: tuple[int, int, float], **options: Any) -> dict[str, Any]:
    """Metrics of one run of scripted answers."""
    with endpoint(script, **options) as (_, target):
        return compute_metrics(target.run(workload_of(*requests)))


def answering(*times_ms: float, first: str = "a", **end: Any) -> Script:
    """Tokens of one letter at these times."""

    async def script(turn: Turn) -> None:
        for place, ms in enumerate(times_ms):
            await turn.text(ms, first if place == 0 else "a")
        await turn.end(**({"tokens": len(times_ms)} | end))

    return script


async def truncated(turn: Turn) -> None:
    """One token, and the end of the stream without the end of the answer."""
    await turn.text(10, "a")
