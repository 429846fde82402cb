"""Options that several verbs share. Values that a spec validates are taken as text: one place words the errors."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a variable of the engine; repeatable.")
]
Gpu = Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="Card of the catalogue, a .toml file, or this.")]
Plain = Annotated[
    bool, typer.Option("--plain-attention", help="Take an unknown architecture as full attention everywhere.")
]
Workload = Annotated[
    str,
    typer.Option(
        "--workload",
        metavar="NAME",
        help="Built-in workload: mixed, equal, chat, long-tail, shared-prefix, code, copy.",
    ),
]
Requests = Annotated[
    str | None, typer.Option("--requests", metavar="N", help="Number of requests instead of the workload's own.")
]
Rate = Annotated[str | None, typer.Option("--rate", metavar="PER_S", help="Requests/s instead of the workload's own.")]
Seed = Annotated[str, typer.Option("--seed", metavar="N", help="Seed of the workload's lengths, texts and arrivals.")]
Slo = Annotated[
    str | None, typer.Option("--slo", metavar="NAME=LIMIT,...", help="Objectives, as ttft_p95=0.5,itl_p99=0.05.")
]
Price = Annotated[
    str, typer.Option("--price-per-device-hour", metavar="PRICE", help="Assumed price of one device for one hour.")
]


def settings(texts: list[str] | None) -> dict[str, Any]:
    """The `--set` options as a dict; the last of a name wins. InputError for an unknown name or value."""
    from core_engine.variables import parse_setting

    return dict(parse_setting(text) for text in texts or [])


def spec_fields(
    workload: str,
    requests: str | None,
    rate: str | None,
    seed: str,
    slo: str | None,
    price: str,
    sets: list[str] | None,
) -> dict[str, Any]:
    """The fields that bench and compare share, still to be validated by their spec."""
    return {
        "workload": workload,
        "num_requests": requests,
        "rate_rps": rate,
        "seed": seed,
        "slo": slo,
        "price_per_device_hour": price,
        "settings": settings(sets),
    }
