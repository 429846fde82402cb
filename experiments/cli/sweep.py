"""`trilemma sweep`: one workload at many loads, both knees, the limit of an instance and when to add one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.groups import grouped
from experiments.cli.output import CANCELLED, DONE, Failed, note, print_json
from ledger.counted import counted
from ledger.errors import InputError

Over = Annotated[
    str | None,
    typer.Option(
        "--over",
        metavar="WHAT",
        help="concurrency=1,2,4 (clients), rate=0.5,1,2 (requests/s), auto, or VARIABLE=A,B,... at one load.",
    ),
]
Points = Annotated[str | None, typer.Option("--points", metavar="N", help="With auto: so many rates between.")]
Duration = Annotated[str | None, typer.Option("--duration", metavar="S", help="A rate lasts at least so long.")]
Arrivals = Annotated[
    str | None, typer.Option("--arrivals", metavar="KIND", help="Of a rate: poisson, constant, or own (stretched).")
]
Demand = Annotated[
    str | None, typer.Option("--demand", metavar="PER_S", help="Requests/s to serve: how many instances it takes.")
]
Ray = Annotated[
    str | None,
    typer.Option("--ray-address", metavar="ADDR|local", help="Points fan out on Ray, one engine a node at a time."),
]


@dataclass(frozen=True)
class _Load(options.Load):
    requests: Annotated[
        str | None,
        typer.Option("--requests", metavar="N", help="At least N requests a point, and four a client."),
    ] = None
    rate: Annotated[str | None, typer.Option("--rate", metavar="PER_S", help="The one load of a variable's sweep.")] = (
        None
    )


@grouped
def sweep(
    over: Over = None,
    load: _Load = _Load(),
    repeats: Annotated[str | None, typer.Option("--repeats", metavar="N", help="So often every point.")] = None,
    points: Points = None,
    duration: Duration = None,
    arrivals: Arrivals = None,
    find: Annotated[
        bool, typer.Option("--find/--no-find", help="With --slo: search the highest load between the points.")
    ] = True,
    headroom: Annotated[str | None, typer.Option("--headroom", metavar="SHARE", help="Of the limit kept free.")] = None,
    scale_out_at: Annotated[
        str | None, typer.Option("--scale-out-at", metavar="SHARE", help="Of the limit where one more is added.")
    ] = None,
    demand: Demand = None,
    server: options.Server = options.Server(),
    ray_address: Ray = None,
    per_node: Annotated[
        str | None, typer.Option("--per-node", metavar="N", help="Engines at a time on a node.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the points and the time; run nothing.")] = False,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ID", help="Go on with a cancelled or failed sweep.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Measure a curve over a load or a variable, and what follows from it."""
    from experiments import jobs
    from experiments.cli.progress import follow, result_of
    from experiments.store import Store
    from experiments.sweep.plan import foreseen
    from experiments.sweep.spec import SweepSpec, parse_over

    store = Store()
    if resume is not None:
        given = (
            over, repeats, points, duration, arrivals, headroom, scale_out_at, demand, ray_address, per_node,
        )  # fmt: skip
        untouched = find and load == _Load() and server == options.Server()
        if dry_run or not untouched or any(one is not None for one in given):
            raise InputError("--resume", resume, "no other option but --json: the sweep keeps what it was asked")
        jobs.resume(resume, store, kind="sweep", followed=True)
        run_id = resume
    else:
        name, values = parse_over(over) if over is not None else (None, ())
        given_fields = {
            "over": name, "values": list(values) or None, "repeats": repeats, "auto_points": points,
            "duration_s": duration, "arrivals": arrivals, "headroom": headroom,
            "scale_out_at": scale_out_at, "demand_rps": demand, "ray_address": ray_address, "per_node": per_node,
        }  # fmt: skip
        chosen = {key: value for key, value in given_fields.items() if value is not None}
        spec = SweepSpec.from_dict({**load.fields(), **server.one(), **chosen, "find": find})
        if dry_run:
            return _dry_run(spec, store, as_json)
        for warning in foreseen(spec):
            note(f"before it runs: {warning}")
        run_id = jobs.start("sweep", spec.to_dict(), store, followed=True)
    note(f"run {run_id}; after a cancel or a crash: trilemma sweep --resume {run_id}")
    run = follow(run_id, store, [])
    if run.state == "cancelled":
        raise Failed(f"cancelled; trilemma sweep --resume {run_id} goes on from here", CANCELLED)
    result = result_of(run)
    for warning in result["warnings"]:
        note(f"warning: {warning}")
    if as_json:
        print_json(result)
    else:
        print_sweep(result)
    return DONE


def _dry_run(spec: Any, store: Any, as_json: bool) -> int:
    from experiments.sweep.plan import plan

    found = plan(spec, store)
    if as_json:
        print_json(found)
        return DONE
    from experiments.cli.tables import console, number, plain_table

    table = plain_table("point", "requests", "about, s")
    for point in found["points"]:
        table.add_row(point["label"], str(point["requests"]), number(point["estimate_s"]))
    out = console()
    out.print(table)
    if found["later"]:
        out.print(f"then {found['later']} rates between what these two give, at least {spec.duration_s:g} s each")
    if found["searched"]:
        out.print("then the highest load that meets the objectives is searched between the points")
    out.print(f"{counted(found['repeats'], 'repeat')}; {_how_long(found)}; nothing was run")
    for warning in found["warnings"]:
        note(f"warning: {warning}")
    return DONE


def _how_long(found: Mapping[str, Any]) -> str:
    from experiments.cli.progress import duration

    if found["estimate_s"] is None:
        return f"how long is not known ({found['estimate_how']})"
    return f"{found['estimate_is']} {duration(found['estimate_s'])} in all (computed from {found['estimate_how']})"


def print_sweep(result: Mapping[str, Any]) -> None:
    """A row a point, then the knees and the limits in sentences."""
    from experiments.capacity_advice import advice_lines, advise_capacity
    from experiments.capacity_ledger import ledger_savings
    from experiments.cli.tables import console, number, plain_table
    from experiments.store import Store
    from experiments.sweep.words import sentences

    table = plain_table("point", "tokens/s", "requests/s", "TTFT p95, s", "ITL p95, s", "s a token", "goodput/s",
                        "met", "KV", "per M tokens", "n")  # fmt: skip
    for point in result["points"]:
        kv = point["kv"]["peak_share"]
        table.add_row(
            point["label"], number(point["output_tokens_per_s"]), number(point["requests_per_s"]),
            number(point["ttft_p95_s"]), number(point["itl_p95_s"]), number(point["latency_per_token_s"]),
            number(point["goodput_rps"]), {True: "yes", False: "no", None: "–"}[point["meets"]],
            "–" if kv is None else f"{kv:.0%}", number(point["cost_per_million_output_tokens"]),
            str(point["metrics"]["completed"]),
        )  # fmt: skip
    out = console()
    out.print(table)
    for one in result["unavailable"]:
        out.print(f"{one['label']}: {one['reason']}")
    for sentence in sentences(result):
        out.print(sentence)
    if result["limits"] is not None:
        for line in advice_lines(advise_capacity(result, Store().list_runs(kind="levers"), otherwise=ledger_savings)):
            out.print(line)
    out.print(f"price assumed: {result['price_per_device_hour']:g} per device-hour; run {result['run_id']}; "
              f"{result['provenance']}, limits computed")  # fmt: skip
