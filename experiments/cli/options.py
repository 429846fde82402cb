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
        metavar="NAME|FILE|TRACE",
        help="Built-in: mixed, equal, chat, long-doc, long-prompts, long-tail, shared-prefix, code, copy, zh, "
        "repetitive, repetitive-zh, assistant. Or a workload file (.toml, .yaml), or a trace (.csv, .jsonl, .json, "
        "or trace:FORMAT:PATH).",
    ),
]
Requests = Annotated[
    str | None, typer.Option("--requests", metavar="N", help="Number of requests instead of the workload's own.")
]
Rate = Annotated[str | None, typer.Option("--rate", metavar="PER_S", help="Requests/s instead of the workload's own.")]
Concurrency = Annotated[
    str | None,
    typer.Option("--concurrency", metavar="N", help="Closed loop: N clients, each sends when its answer has ended."),
]
TimeScale = Annotated[
    str, typer.Option("--time-scale", metavar="X", help="Multiply the gaps between arrivals; 0.5 is twice as fast.")
]
LengthScale = Annotated[
    str, typer.Option("--length-scale", metavar="X", help="Multiply the lengths of prompts and answers.")
]
MaxPrompt = Annotated[
    str | None, typer.Option("--max-prompt", metavar="TOKENS", help="Clip longer prompts; how many is reported.")
]
MaxOutput = Annotated[
    str | None, typer.Option("--max-output", metavar="TOKENS", help="Clip longer answers; how many is reported.")
]
Seed = Annotated[str, typer.Option("--seed", metavar="N", help="Seed of the workload's lengths, texts and arrivals.")]
Slo = Annotated[
    str | None, typer.Option("--slo", metavar="NAME=LIMIT,...", help="Objectives, as ttft_p95=0.5,itl_p99=0.05.")
]
Price = Annotated[
    str, typer.Option("--price-per-device-hour", metavar="PRICE", help="Assumed price of one device for one hour.")
]


Endpoint = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        metavar="URL | A=URL,B=URL",
        help="Drive an OpenAI-compatible server instead of the engine; compare takes two.",
    ),
]
EndpointModel = Annotated[
    str | None, typer.Option("--endpoint-model", metavar="NAME", help="Model asked of the server; else its only one.")
]
EndpointApi = Annotated[str, typer.Option("--endpoint-api", metavar="NAME", help="auto, completions or chat.")]
KeyEnv = Annotated[
    str | None, typer.Option("--key-env", metavar="NAME", help="Environment variable that holds the server's key.")
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="S", help="How long a server may say nothing.")]
Retries = Annotated[str, typer.Option("--retries", metavar="N", help="Send a refused request again, so often at most.")]


# --endpoint-model, --endpoint-api, --key-env, --timeout, --retries as they were typed.
ServerOptions = tuple[str | None, str, str | None, str, str]
# --concurrency, --time-scale, --length-scale, --max-prompt, --max-output as they were typed.
LoadOptions = tuple[str | None, str, str, str | None, str | None]


def settings(texts: list[str] | None) -> dict[str, Any]:
    """The `--set` options as a dict; the last of a name wins. InputError for an unknown name or value."""
    from core_engine.variables import parse_setting

    return dict(parse_setting(text) for text in texts or [])


def server_fields(endpoint: list[str] | None, server: ServerOptions) -> dict[str, Any]:
    """The fields about servers: `endpoint` for one, `endpoints` for two. InputError for what is no address."""
    from experiments.endpoint_fields import parse_endpoints

    model, api, key_env, timeout, retries = server
    found = parse_endpoints(endpoint) if endpoint else {}
    return {
        "endpoint": next(iter(found.values())) if len(found) == 1 else None,
        "endpoint_model": model,
        "endpoint_api": api,
        "key_env": key_env,
        "timeout_s": timeout,
        "retries": retries,
        **({"endpoints": found} if len(found) == 2 else {}),
    }


def spec_fields(
    workload: str,
    requests: str | None,
    rate: str | None,
    seed: str,
    slo: str | None,
    price: str,
    sets: list[str] | None,
    load: LoadOptions,
) -> dict[str, Any]:
    """The fields that bench and compare share, still to be validated by their spec."""
    concurrency, time_scale, length_scale, max_prompt, max_output = load
    return {
        "workload": workload,
        "num_requests": requests,
        "rate_rps": rate,
        "concurrency": concurrency,
        "time_scale": time_scale,
        "length_scale": length_scale,
        "max_prompt_tokens": max_prompt,
        "max_tokens_cap": max_output,
        "seed": seed,
        "slo": slo,
        "price_per_device_hour": price,
        "settings": settings(sets),
    }
