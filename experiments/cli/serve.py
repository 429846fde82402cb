"""`trilemma serve`: the engine as an OpenAI-compatible server, in this process."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from experiments.cli.numbers import number, whole
from experiments.cli.options import Json, Set, Slo, settings
from experiments.cli.output import note, print_json
from ledger.errors import InputError


def serve(
    sets: Set = None,
    host: Annotated[str, typer.Option("--host", help="Address; another than this machine's own needs a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[str, typer.Option("--port", metavar="N", help="Port; 0 takes a free one.")] = "8000",
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key.")
    ] = None,
    max_body_bytes: Annotated[
        str, typer.Option("--max-body-bytes", metavar="N", help="Largest request; a larger one is refused with 413.")
    ] = str(4 * 1024 * 1024),
    max_queue: Annotated[
        str | None, typer.Option("--max-queue", metavar="N", help="Most that may wait, as --set max_queue=N.")
    ] = None,
    model_name: Annotated[
        str | None, typer.Option("--served-model-name", metavar="NAME", help="Instead of the model's own name.")
    ] = None,
    grace: Annotated[
        str, typer.Option("--grace", metavar="S", help="After SIGTERM or Ctrl-C, time for requests under way.")
    ] = "15",
    log_events: Annotated[
        str | None, typer.Option("--log-events", metavar="FILE", help="A JSON line a request: when its tokens left.")
    ] = None,
    canary_sets: Annotated[
        list[str] | None,
        typer.Option("--canary-set", metavar="NAME=VALUE", help="Of a second engine on the same cores; repeatable."),
    ] = None,
    canary_share: Annotated[
        str, typer.Option("--canary-share", metavar="SHARE", help="Of the requests that go to the second engine.")
    ] = "0.1",
    canary_window: Annotated[
        str, typer.Option("--canary-window", metavar="S", help="Objectives are judged over so many seconds.")
    ] = "60",
    canary_min: Annotated[
        str, typer.Option("--canary-min-requests", metavar="N", help="Samples of both engines before judging.")
    ] = "20",
    slo: Slo = None,
    as_json: Json = False,
) -> None:
    """Serve the engine on an OpenAI-compatible address until Ctrl-C."""
    values = settings(sets)
    if max_queue is not None:
        values |= settings([f"max_queue={max_queue}"])
    from core_engine.config import EngineConfig

    config = EngineConfig.from_settings(values)
    other = settings(canary_sets)
    if slo is not None and not other:
        raise InputError("--slo", slo, "only together with --canary-set: objectives are what a canary is judged by")
    from experiments.metrics.objectives import parse_slo
    from experiments.server.access import secret_from
    from experiments.server.canary import CanaryPlan
    from experiments.server.run import ServeSpec
    from experiments.server.run import serve as run

    plan = None
    if other:
        share, window = number("--canary-share", canary_share), number("--canary-window", canary_window)
        plan = CanaryPlan(share, parse_slo(slo), window, whole("--canary-min-requests", canary_min) or 0)
    spec = ServeSpec(
        config,
        host,
        whole("--port", port) or 0,
        secret_from("--api-key-env", api_key_env, "an API key"),
        whole("--max-body-bytes", max_body_bytes) or 0,
        model_name,
        number("--grace", grace),
        log_events,
        other,
        plan,
    )

    def ready(where: dict[str, Any]) -> None:
        if as_json:
            print_json({**where, "pid": os.getpid()})
        else:
            print(f"{where['model']} is served at {where['url']}/v1 (Ctrl-C stops it)", flush=True)

    run(spec, ready, note)
