"""`trilemma plan`: cards, split, formats and batching limits for a traffic under objectives, by simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.output import CANCELLED, DONE, Failed, note, print_json
from ledger.money import HOURS_A_MONTH

Listed = str | None


def plan(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="config.json, model directory or preset.")],
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="NAME[,NAME...]", help="Cards of the catalogue.")] = None,
    rate: Annotated[str | None, typer.Option("--rate", metavar="PER_S", help="Requests/s to serve.")] = None,
    input_tokens: Annotated[str | None, typer.Option("--input-tokens", metavar="N", help="Of every prompt.")] = None,
    output_tokens: Annotated[str | None, typer.Option("--output-tokens", metavar="N", help="Of every answer.")] = None,
    workload: Annotated[
        str | None, typer.Option("--workload", metavar="NAME|FILE|TRACE", help="Lengths of a workload instead.")
    ] = None,
    length_scale: options.LengthScale = "1",
    max_prompt: options.MaxPrompt = None,
    max_output: options.MaxOutput = None,
    slo: options.Slo = None,
    price: Annotated[
        list[str] | None, typer.Option("--price", metavar="NAME=PER_HOUR", help="Of one card; repeatable; 1 assumed.")
    ] = None,
    max_devices: Annotated[str | None, typer.Option("--max-devices", metavar="N", help="Cards in all.")] = None,
    weights: Annotated[Listed, typer.Option("--weights", metavar="A,B", help="Formats to try.")] = None,
    kv_dtype: Annotated[Listed, typer.Option("--kv-dtype", metavar="A,B", help="KV formats to try.")] = None,
    tp: Annotated[Listed, typer.Option("--tp", metavar="A,B", help="Tensor-parallel sizes; 1,2,4,8.")] = None,
    pp: Annotated[Listed, typer.Option("--pp", metavar="A,B", help="Pipeline stages; 1,2,4.")] = None,
    seqs: Annotated[Listed, typer.Option("--max-num-seqs", metavar="A,B", help="16,64,256,512.")] = None,
    batched: Annotated[Listed, typer.Option("--max-num-batched-tokens", metavar="A,B", help="2048,8192.")] = None,
    apart: Annotated[bool, typer.Option("--pd/--no-pd", help="Also prefill and decode on replicas apart.")] = True,
    headroom: Annotated[str | None, typer.Option("--headroom", metavar="SHARE", help="Of a limit kept free.")] = None,
    top: Annotated[str | None, typer.Option("--top", metavar="N", help="Plans to print; 5.")] = None,
    seed: options.Seed = "0",
    as_json: options.Json = False,
) -> int:
    """Search the cheapest deployment of a model for a traffic under objectives; everything in it is simulated."""
    from experiments import jobs
    from experiments.cli.progress import follow, result_of
    from experiments.planner.spec import PlanSpec, parse_prices
    from experiments.store import Store

    given = {
        "model": config, "gpus": _listed(gpu), "rate_rps": rate, "input_tokens": input_tokens,
        "output_tokens": output_tokens, "workload": workload, "slo": slo, "prices": parse_prices(price or ()),
        "length_scale": length_scale, "max_prompt_tokens": max_prompt, "max_tokens_cap": max_output,
        "max_devices": max_devices, "weights": _listed(weights), "kv_dtypes": _listed(kv_dtype), "tps": _listed(tp),
        "pps": _listed(pp), "seqs": _listed(seqs), "batched": _listed(batched), "disaggregation": apart,
        "headroom": headroom, "top": top, "seed": seed,
    }  # fmt: skip
    spec = PlanSpec.from_dict(given)
    store = Store()
    run_id = jobs.start("plan", spec.to_dict(), store, followed=True)
    note(f"run {run_id}")
    run = follow(run_id, store, [])
    if run.state == "cancelled":
        raise Failed("cancelled; nothing of a search is kept", CANCELLED)
    result = result_of(run)
    for warning in result["warnings"]:
        note(f"warning: {warning}")
    if as_json:
        print_json(result)
    else:
        print_plan(result)
    return DONE


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def print_plan(result: Mapping[str, Any]) -> None:
    """A row a plan, then of each what binds it and its launch lines, then what was pruned."""
    from experiments.cli.tables import console, number, plain_table

    table = plain_table("plan", "simulated", "replicas", "cards", "per M tokens", "per month", "tokens/s/user",
                        "tokens/s/card", "TTFT p95, s", "TPOT p95, ms", "front")  # fmt: skip
    for one in result["plans"]:
        tpot = one["tpot_s"]["p95"]
        table.add_row(
            str(one["id"]), one["label"], str(one["replicas"]), str(one["devices"]),
            number(one["cost_per_million_output_tokens"]), number(HOURS_A_MONTH * one["cost_per_hour"]),
            number(one["tokens_per_s_per_user"]), number(one["tokens_per_s_per_card"]), number(one["ttft_s"]["p95"]),
            number(None if tpot is None else 1e3 * tpot), "yes" if one["on_front"] else "",
        )  # fmt: skip
    out = console()
    if result["plans"]:
        out.print(table)
    for one in result["plans"]:
        out.print(f"plan {one['id']}, {one['label']}: bound by {one['binding']['text']}", highlight=False)
        if one["quality_risk"]:
            out.print(f"  {one['quality_risk']}")
    if result["plans"]:
        _print_launch(out, result["plans"][0])
    counts = result["counts"]
    out.print(f"{counts['candidates']:,} candidates, {counts['simulated']:,} simulated; left out:")
    for reason in result["pruned"]:
        out.print(f"  {reason['count']:,}: {reason['what']}", highlight=False)
    for card in result["cards"]:
        out.print(f"simulated: {card['label']}, {card['calibration']}, step times within about "
                  f"{card['error_band_pct']:.0f} %", highlight=False)  # fmt: skip
    assumed = result["prices_assumed"]
    out.print(f"prices: {', '.join(f'{name} {price:g}/h' for name, price in result['prices'].items())}"
              f"{' (assumed: ' + ', '.join(assumed) + ')' if assumed else ''}; {result['quality']}")  # fmt: skip


def _print_launch(out: Any, one: Mapping[str, Any]) -> None:
    out.print(f"plan {one['id']} started by:")
    for engine in one["launch"]:
        told = "; ".join(engine["notes"])
        if engine["lines"] is None:
            out.print(f"{engine['engine']}: {told}", highlight=False)
            continue
        memory = engine["memory"]
        out.print(f"{engine['engine']} ($MODEL: {engine['model']}; {memory['flag']} {memory['fraction']:g} "
                  f"{memory['rule']}){': ' + told if told else ''}", highlight=False)  # fmt: skip
        for line in engine["lines"]:
            out.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)
        for name, text in engine["files"].items():
            out.print(f"  {name}:", highlight=False)
            out.print("".join(f"    {line}\n" for line in text.splitlines()).rstrip(), highlight=False, markup=False)
