"""`trilemma calibrate`: measure what this machine can do at most, and keep it for the roofline."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli.numbers import whole
from experiments.cli.options import Json, Set
from experiments.cli.output import note, print_json
from ledger.counted import counted
from ledger.errors import InputError


def calibrate(
    threads: Annotated[str, typer.Option("--threads", metavar="N", help="Threads; 0 = as the engine uses.")] = "0",
    simulator: Annotated[
        bool, typer.Option("--simulator", help="Fit the simulator to the engine of these settings (2 min) instead.")
    ] = False,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """Measure memory bandwidth and matrix rates of this machine (20 s); stop other work for good figures."""
    if simulator:
        _calibrate_simulator(threads, sets, as_json=as_json)
        return
    if sets:
        raise InputError("--set", sets[0], "--simulator beside it: ceilings depend on no setting")
    from experiments import calibrate as measuring

    count = whole("--threads", threads) or 0
    result = measuring.calibrate(count, on_progress=lambda what, _share: note(what))
    note(f"kept in {measuring.store(result)}")
    if as_json:
        print_json(result)
    else:
        _print(result)


def _calibrate_simulator(threads: str, sets: list[str] | None, *, as_json: bool) -> None:
    from experiments.cli.options import settings
    from experiments.simulator.calibration import calibrate_simulator, store

    chosen = settings(sets)
    if count := whole("--threads", threads):
        chosen["threads"] = count
    entry = calibrate_simulator(chosen, report=note)
    note(f"kept in {store(entry)}")
    if as_json:
        print_json(entry)
        return
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
