"""`trilemma calibrate`: measure what this machine can do at most, and keep it for the roofline."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli.numbers import whole
from experiments.cli.options import Json
from experiments.cli.output import note, print_json


def calibrate(
    threads: Annotated[str, typer.Option("--threads", metavar="N", help="Threads; 0 = as the engine uses.")] = "0",
    as_json: Json = False,
) -> None:
    """Measure memory bandwidth and matrix rates of this machine (20 s); stop other work for good figures."""
    from experiments import calibrate as measuring

    count = whole("--threads", threads) or 0
    result = measuring.calibrate(count, on_progress=lambda what, _share: note(what))
    note(f"kept in {measuring.store(result)}")
    if as_json:
        print_json(result)
    else:
        _print(result)


def _print(result: dict[str, Any]) -> None:
    from experiments.cli.tables import console, plain_table

    out = console()
    for device in result["devices"]:
        table = plain_table(device["name"], "median", "10 to 90 %", "repeats")
        rows = [(f"{what} bandwidth", item, 1e9, "GB/s") for what, item in device["bandwidth"].items()]
        rows += [(f"matrix rate, {dtype}", item, 1e9, "GFLOP/s") for dtype, item in device["gemm"].items()]
        for label, item, unit, name in rows:
            spread = f"{item['low'] / unit:,.4g} to {item['high'] / unit:,.4g}"
            table.add_row(label, f"{item['median'] / unit:,.4g} {name}", spread, str(item["repeats"]))
        out.print(table)
        memory = device["memory_bytes"]
        out.print(
            f"memory {memory:,} B = {memory / 1e9:,.1f} GB = {memory / 2**30:,.1f} GiB ({device['memory_source']})"
        )
    out.print(f"{result['date']}, {result['cpu']}, {result['threads']} threads (measured)", highlight=False)
