"""Options that several verbs share. Values that a spec validates are taken as text: one place words the errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ledger.errors import InputError

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


@dataclass(frozen=True)
class Load:
    """What a verb measures on, as it was typed: the workload, its changes, objectives, price, and the engine."""

    workload: Workload = "mixed"
    requests: Requests = None
    rate: Rate = None
    concurrency: Concurrency = None
    time_scale: TimeScale = "1"
    length_scale: LengthScale = "1"
    max_prompt: MaxPrompt = None
    max_output: MaxOutput = None
    seed: Seed = "0"
    slo: Slo = None
    price: Price = "1.0"
    sets: Set = None

    def fields(self) -> dict[str, Any]:
        """The fields of a spec, still to be validated by it; InputError for an unknown setting."""
        return {
            "workload": self.workload,
            "num_requests": self.requests,
            "rate_rps": self.rate,
            "concurrency": self.concurrency,
            "time_scale": self.time_scale,
            "length_scale": self.length_scale,
            "max_prompt_tokens": self.max_prompt,
            "max_tokens_cap": self.max_output,
            "seed": self.seed,
            "slo": self.slo,
            "price_per_device_hour": self.price,
            "settings": settings(self.sets),
        }


@dataclass(frozen=True)
class Server:
    """The server that is measured instead of the engine, as it was typed."""

    endpoint: Endpoint = None
    endpoint_model: EndpointModel = None
    endpoint_api: EndpointApi = "auto"
    key_env: KeyEnv = None
    timeout: Timeout = "60"
    retries: Retries = "0"

    def fields(self) -> dict[str, Any]:
        """The fields about servers: `endpoint` for one, `endpoints` for two. InputError for what is no address."""
        from experiments.endpoint_fields import parse_endpoints

        found = parse_endpoints(self.endpoint) if self.endpoint else {}
        return {
            "endpoint": next(iter(found.values())) if len(found) == 1 else None,
            "endpoint_model": self.endpoint_model,
            "endpoint_api": self.endpoint_api,
            "key_env": self.key_env,
            "timeout_s": self.timeout,
            "retries": self.retries,
            **({"endpoints": found} if len(found) == 2 else {}),
        }

    def one(self) -> dict[str, Any]:
        """`fields` of a verb that takes one server; InputError for two."""
        found = self.fields()
        if "endpoints" in found:
            raise InputError("--endpoint", ",".join(found["endpoints"]), "one server; compare takes two")
        return found


def settings(texts: list[str] | None) -> dict[str, Any]:
    """The `--set` options as a dict; the last of a name wins. InputError for an unknown name or value."""
    from core_engine.variables import parse_setting

    return dict(parse_setting(text) for text in texts or [])
