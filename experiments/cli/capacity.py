"""`trilemma capacity`: water lines, instances, a month's cost and the largest savings from a stored sweep."""

from __future__ import annotations

from typing import Annotated

import typer

from experiments.cli import options
from experiments.cli.output import DONE, print_json
from ledger.errors import InputError


def capacity(
    run_id: Annotated[str, typer.Argument(metavar="SWEEP", help="The id of a stored sweep.")],
    demand: Annotated[
        str | None, typer.Option("--demand", metavar="PER_S", help="Requests/s to serve; else that of the sweep.")
    ] = None,
    price: Annotated[
        str | None,
        typer.Option("--price-per-device-hour", metavar="PRICE", help="Assumed; else that of the sweep."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Where to add an instance, to be alarmed and to refuse; what a month costs; which levers save most."""
    from experiments.capacity_advice import advice_lines, advise_capacity
    from experiments.capacity_ledger import ledger_savings
    from experiments.cli.tables import console
    from experiments.store import Store

    store = Store()
    run = store.get_run(run_id)
    if run.kind != "sweep" or run.result is None:
        raise InputError("run", run_id, "the id of a sweep that has a result (trilemma runs list)")
    advice = advise_capacity(
        run.result, store.list_runs(kind="levers"),
        demand_rps=_number("--demand", demand), price_per_device_hour=_number("--price-per-device-hour", price),
        otherwise=ledger_savings,
    )  # fmt: skip
    if as_json:
        print_json({**advice, "run_id": run_id})
    else:
        out = console()
        for line in advice_lines(advice):
            out.print(line)
    return DONE


def _number(name: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InputError(name, text, "a number above 0") from None
