"""`trilemma calibrate`: measure what this machine can do at most, and keep it for the roofline."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli.measure import run_job
from experiments.cli.options import Json, Set, settings
from experiments.cli.output import note, print_json
from ledger.counted import counted


def calibrate(
    threads: Annotated[str, typer.Option("--threads", metavar="N", help="Threads; 0 = as the engine uses.")] = "0",
    simulator: Annotated[
        bool, typer.Option("--simulator", help="The second: fit the simulator to the engine of these settings.")
    ] = False,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """Measure this machine, with nothing else at work on it.

    Without an option its ceilings, memory bandwidth and matrix rates (20 s): for roofline and ledger (--gpu this). With
    --simulator how long the engine's steps take (2 min): for simulate, plan and what the advisor predicts.
    """
    from experiments.calibration_job import CEILINGS, SIMULATOR, CalibrationSpec

    what = SIMULATOR if simulator else CEILINGS
    spec = CalibrationSpec.from_dict({"what": what, "threads": threads, "settings": settings(sets)})
    _, result = run_job("calibrate", spec.to_dict(), [what])
    note(f"kept in {result['kept_in']}")
    if as_json:
        print_json(result["found"])
    else:
        print_calibration(result)


def print_calibration(result: dict[str, Any]) -> None:
    """The ceilings of every device, or the error of the fitted step times."""
    found = result["found"]
    (_print if "devices" in found else _print_fit)(found)


def _print_fit(entry: dict[str, Any]) -> None:
    from experiments.cli.tables import console, plain_table

    table = plain_table("error of step times", "mean", "p95", "max")
    for label, key in (("fitted", "fitted_error_pct"), ("cross-validated", "cross_validated_error_pct")):
        table.add_row(label, *(f"{entry['fit'][key][name]:.1f} %" for name in ("mean", "p95", "max")))
    out = console()
    out.print(table)
    out.print(f"{entry['fit']['observations']} steps in {entry['duration_s']:.0f} s, {entry['date']} (measured)")


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
    out.print(f"{result['date']}, {result['cpu']}, {counted(result['threads'], 'thread')} (measured)", highlight=False)
