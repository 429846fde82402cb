"""`trilemma levers`: what each cost lever saves on one workload, and what all save together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.groups import grouped
from experiments.cli.measure import run_job
from experiments.cli.output import CANCELLED, DONE, print_json
from ledger.counted import counted


@grouped
def levers(
    chosen: Annotated[
        str | None,
        typer.Option(
            "--levers",
            metavar="NAME,NAME=VALUE,...",
            help="prefix_cache, answer_cache, semantic_cache, compression, routing, weights, kv, batching, "
            "concurrency; a value replaces what it goes to (weights=w8a8). Without: all but semantic_cache and kv.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="this|NAME", help="Simulate instead, on this calibrated machine or a card."),
    ] = None,
    load: options.Load = options.Load(workload="assistant"),
    repeats: Annotated[str, typer.Option("--repeats", metavar="N", help="Runs of each arm.")] = "3",
    as_json: options.Json = False,
) -> int:
    """Pull each cost lever alone and all together, and say what each saves, with its interval and its quality."""
    from experiments.levers.spec import LeversSpec, parse_levers

    spec = LeversSpec.from_dict({**load.fields(), "levers": parse_levers(chosen), "gpu": gpu, "repeats": repeats})
    run, result = run_job("levers", spec.to_dict(), spec.names())
    if as_json:
        print_json(result)
    else:
        print_levers(result)
    return CANCELLED if run.state == "cancelled" else DONE


def print_levers(result: Mapping[str, Any]) -> None:
    """A row a lever, one for all, and how they act on each other."""
    from experiments.cli.tables import console, plain_table
    from experiments.levers.words import attribution_sentence, change, quality_words, saving

    out = console()
    out.print(f"workload {result['workload']['name']}, {counted(result['repeats'], 'repeat')}, {result['provenance']}")
    table = plain_table("lever", "from", "to", "saved", "95 %", "verdict", "quality", "what it did")
    rows = [*result["levers"], *([{"name": "together", "from": "", "to": "", **result["together"]}]
                                 if result["together"] else [])]  # fmt: skip
    for row in rows:
        saved, interval = saving(row)
        table.add_row(
            row["name"], str(row["from"]), str(row["to"]), saved, interval, str(row["verdict"]), quality_words(row),
            change(row),
        )  # fmt: skip
    out.print(table)
    out.print(attribution_sentence(result))
    price = result["price_per_device_hour"]
    out.print(f"saved: of the cost of a request, at an assumed {price:g} per device-hour; run {result['run_id']}")
