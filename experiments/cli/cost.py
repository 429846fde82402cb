"""`trilemma cost`: cards and money for a rate of requests, and what each way to pay less saves. Arithmetic only."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli.numbers import number, whole
from experiments.cli.options import Gpu, Json, Plain
from experiments.cli.output import note, print_json
from ledger.errors import InputError


def cost(
    config: Annotated[
        str | None, typer.Argument(metavar="[CONFIG]", help="config.json, model directory, preset, or - for stdin.")
    ] = None,
    rate: Annotated[str, typer.Option("--rate", metavar="PER_S", help="Requests a second, all month.")] = "10",
    input_tokens: Annotated[str, typer.Option("--input-tokens", metavar="N", help="Tokens of a prompt.")] = "500",
    output_tokens: Annotated[str, typer.Option("--output-tokens", metavar="N", help="Tokens of an answer.")] = "500",
    gpu: Gpu = None,
    price: Annotated[
        str | None, typer.Option("--price-per-device-hour", metavar="PRICE", help="1 is assumed when not given.")
    ] = None,
    tokens_per_s: Annotated[
        str | None,
        typer.Option("--tokens-per-s-per-device", metavar="T", help="Measured output tokens/s of one device."),
    ] = None,
    utilisation: Annotated[
        str, typer.Option("--utilisation", metavar="SHARE", help="How busy a device may be on average.")
    ] = "0.7",
    tpot_slo: Annotated[
        str | None, typer.Option("--tpot-slo", metavar="S", help="Longest mean time a token, s.")
    ] = None,
    weights: Annotated[str, typer.Option("--weights", metavar="FORMAT", help="Format of the weights.")] = "as-stored",
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", metavar="TYPE", help="Format of the KV cache.")] = "bf16",
    tp: Annotated[str, typer.Option("--tp", metavar="N", help="Devices that serve a request together.")] = "1",
    engine: Annotated[str, typer.Option("--engine", metavar="NAME", help="Whose memory rules.")] = "vllm",
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", metavar="N", help="At most so many requests at once.")
    ] = None,
    lever: Annotated[
        list[str] | None,
        typer.Option(
            "--lever",
            metavar="NAME=VALUE",
            help="What it would save: prefix_cache, shorter_prompts, shorter_answers, answer_cache, routing (shares), "
            "weights, kv_dtype (formats), concurrency; repeatable.",
        ),
    ] = None,
    small_model_cost: Annotated[
        str | None, typer.Option("--small-model-cost", metavar="SHARE", help="For routing: its cost by this model's.")
    ] = None,
    price_input: Annotated[
        str, typer.Option("--price-per-million-input", metavar="PRICE", help="What a vendor charges, if one does.")
    ] = "0",
    price_output: Annotated[
        str, typer.Option("--price-per-million-output", metavar="PRICE", help="What a vendor charges, if one does.")
    ] = "0",
    plain: Plain = False,
    as_json: Json = False,
) -> None:
    """Compute cards, device-hours and money for a month, at a measured throughput or at the bound of the roofline."""
    from ledger.cost import SMALL_MODEL_COST, Scenario, cost_report
    from ledger.serving import Traffic

    deployment, device = _served(config, gpu, weights, kv_dtype, tp, engine, plain)
    if deployment is None:
        _refuse_unused(
            {
                "--weights": (weights, "as-stored"),
                "--kv-dtype": (kv_dtype, "bf16"),
                "--tp": (tp, "1"),
                "--engine": (engine, "vllm"),
                "--tpot-slo": (tpot_slo, None),
                "--concurrency": (concurrency, None),
            }
        )
    scenario = Scenario(
        traffic=Traffic(
            number("--rate", rate),
            whole("--input-tokens", input_tokens) or 0,
            whole("--output-tokens", output_tokens) or 0,
        ),
        deployment=deployment,
        device=device,
        concurrency=whole("--concurrency", concurrency),
        tpot_slo_s=_number("--tpot-slo", tpot_slo),
        measured_tokens_per_s=_number("--tokens-per-s-per-device", tokens_per_s),
        utilisation=number("--utilisation", utilisation),
        price_per_device_hour=1.0 if price is None else number("--price-per-device-hour", price),
        small_model_cost=SMALL_MODEL_COST
        if small_model_cost is None
        else number("--small-model-cost", small_model_cost),
    )
    report = cost_report(
        scenario,
        _levers(lever or []),
        price_per_million_input=number("--price-per-million-input", price_input),
        price_per_million_output=number("--price-per-million-output", price_output),
        price_is_assumed=price is None,
    )
    if price is None:
        note("a device-hour is assumed to cost 1; --price-per-device-hour sets it")
    for warning in report["warnings"]:
        note(f"warning: {warning}")
    if as_json:
        print_json(report)
    else:
        _print(report)


def _served(
    config: str | None, gpu: str | None, weights: str, kv_dtype: str, tp: str, engine: str, plain: bool
) -> tuple[Any, Any]:
    """(deployment, device); both None when neither a model nor a card is named."""
    from experiments.calibrate import find_accelerator
    from ledger.capacity import Deployment
    from ledger.model_spec import load_model_spec

    if config is None or gpu is None:
        if config is not None or gpu is not None:
            missing = "--gpu" if gpu is None else "CONFIG"
            raise InputError(missing, "missing", "CONFIG and --gpu together, or neither")
        return None, None
    device = find_accelerator(gpu)
    where = "cpu" if device.memory_source == "system" else "cuda"
    spec = load_model_spec(config, plain_attention=plain)
    return Deployment(
        spec, weights=weights, kv_dtype=kv_dtype, tp=whole("--tp", tp) or 0, engine=engine, device=where
    ), device


def _refuse_unused(options: dict[str, tuple[str | None, str | None]]) -> None:
    """InputError for an option (its value, its default) that only says something about a model on a card."""
    for option, (value, default) in options.items():
        if value != default:
            raise InputError(option, value, "this option only with CONFIG and --gpu")


def _number(option: str, text: str | None) -> float | None:
    return None if text is None else number(option, text)


def _levers(texts: list[str]) -> dict[str, Any]:
    from ledger.cost import lever_value

    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError("--lever", text, "NAME=VALUE, such as prefix_cache=0.5")
        found[name.strip()] = lever_value(name.strip(), value.strip())
    return found


def _print(report: dict[str, Any]) -> None:
    from experiments.cli.tables import console, number, plain_table

    out = console()
    month, throughput = report["month"], report["throughput"]
    output = report["output_tokens_per_s"]
    out.print(
        f"{report['requests_per_s']:g} requests/s x {report['output_tokens']:,} output tokens = {output:,.6g} tokens/s",
        highlight=False,
    )
    bound = throughput["bound"]
    if bound is not None:
        out.print(f"at the roof: {bound['how']} ({bound['label']}; {bound['provenance']})", highlight=False)
    if month is None:
        out.print(f"cannot be served: {report['how']}", highlight=False)
        return
    table = plain_table("a month of 30 days", "", "label")
    rows = [
        ("output tokens", f"{month['output_tokens']:,.0f}", "computed"),
        ("output tokens/s of a device", number(throughput["tokens_per_s_per_device"]), throughput["provenance"]),
        ("devices", f"{report['cards']:,}", report["provenance"]),
        ("device-hours", _amount(month["device_hours"]), report["provenance"]),
        ("cost", _amount(month["cost"]), f"{report['provenance']}, price {report['price_label']}"),
        ("cost of a request", number(report["request"]["total"]), f"{report['provenance']}, {report['price_label']}"),
        ("cost of 1,000,000 output tokens", number(month["cost_per_million_output_tokens"]), report["provenance"]),
    ]
    for row in rows:
        table.add_row(*row)
    out.print(table)
    out.print(month["how"], highlight=False)
    out.print(report["request"]["how"], highlight=False)
    if report["levers"]["each"]:
        _print_levers(report["levers"], out)


def _print_levers(levers: dict[str, Any], out: Any) -> None:
    from experiments.cli.tables import plain_table

    table = plain_table("lever", "value", "devices", "cost", "saves", "label")
    for row in [*levers["each"], levers["together"] | {"name": "all together", "value": ""}]:
        saved = "–" if row["saved_pct"] is None else f"{row['saved_pct']:.1f} %"
        cards = "–" if row["cards"] is None else f"{row['cards']:,} ({row['devices_exact']:.2f})"
        table.add_row(row["name"], str(row["value"]), cards, _amount(row["cost"]), saved, row["provenance"])
    out.print(table)
    if levers["sum_of_each_pct"] is None:
        out.print("no lever leaves a service that can be served", highlight=False)
        return
    out.print(
        f"added up they would say {levers['sum_of_each_pct']:.1f} %, as independent ones"
        f" {levers['product_of_each_pct']:.1f} %: {levers['note']}",
        highlight=False,
    )


def _amount(value: float | None) -> str:
    """Hours or money: whole from 100 up, four digits below; a dash for a missing value."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"
