"""`trilemma simulate`: a workload on hardware that is not here, under the engine's own scheduler."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.groups import grouped
from experiments.cli.output import note, print_json


@grouped
def simulate(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="config.json, model directory or preset; the embedded model.")
    ] = "embedded",
    gpu: Annotated[
        str, typer.Option("--gpu", metavar="NAME", help="Card of the catalogue, or this (calibrate --simulator).")
    ] = "this",
    load: options.Load = options.Load(),
    weights: Annotated[str, typer.Option("--weights", metavar="FORMAT", help="Of a card's weights.")] = "bf16",
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", metavar="TYPE", help="Format of KV elements.")] = "auto",
    tp: Annotated[str, typer.Option("--tp", metavar="N", help="Tensor-parallel ranks.")] = "1",
    pp: Annotated[str, typer.Option("--pp", metavar="N", help="Pipeline stages.")] = "1",
    cp: Annotated[str, typer.Option("--cp", metavar="N", help="Context-parallel devices (ring prefill).")] = "1",
    replicas: Annotated[str, typer.Option("--replicas", metavar="N", help="Replicas, or decode replicas.")] = "1",
    prefill_replicas: Annotated[
        str, typer.Option("--prefill-replicas", metavar="N", help="Replicas for prompts alone; the others decode.")
    ] = "0",
    router: Annotated[
        str, typer.Option("--router", metavar="NAME", help="least-loaded, round-robin or prefix-aware.")
    ] = "least-loaded",
    link: Annotated[
        str | None, typer.Option("--link", metavar="NAME", help="Between devices, instead of the card's own.")
    ] = None,
    acceptance: Annotated[
        str | None, typer.Option("--acceptance", metavar="A", help="Of drafts, as measured; with --set speculation=...")
    ] = None,
    draft_ms: Annotated[str, typer.Option("--draft-ms", metavar="MS", help="Of a draft token, a whole batch's.")] = "0",
    as_json: options.Json = False,
) -> None:
    """Simulate a workload on a card and print its metrics, labelled simulated."""
    from experiments.simulator.run import simulate as run

    spec = load.fields() | {
        "model": config, "gpu": gpu, "weights": weights, "kv_dtype": kv_dtype, "tp": tp, "pp": pp, "cp": cp,
        "replicas": replicas, "prefill_replicas": prefill_replicas, "router": router, "link": link,
        "acceptance": acceptance, "draft_ms": draft_ms,
    }  # fmt: skip
    result = run(spec)
    for warning in result["warnings"]:
        note(f"warning: {warning}")
    if as_json:
        print_json(result)
    else:
        _print(result)


def _print(result: dict[str, Any]) -> None:
    from experiments.cli.tables import console, number, plain_table

    out, on = console(), result["simulated"]
    table = plain_table("simulated", "mean", "p50", "p95", "p99", "n")
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        cells = [number(result[name][key], " s") for key in ("mean", "p50", "p95", "p99")]
        table.add_row(name.removesuffix("_s").upper(), *cells, str(result[name]["n"]))
    out.print(table)
    rates = plain_table("simulated", "")
    for label, key in (
        ("output tokens/s", "output_tokens_per_s"),
        ("requests/s", "requests_per_s"),
        ("goodput, requests/s", "goodput_rps"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("cost per million output tokens (price assumed)", "cost_per_million_output_tokens"),
    ):
        rates.add_row(label, number(result[key]))
    out.print(rates)
    out.print(f"simulated: {on['model']} ({on['weights']}, KV {on['kv_dtype']}) on {on['devices']} x {on['label']}, "
              f"{on['calibration']}, step times within about {on['error_band_pct']:.0f} %")  # fmt: skip
