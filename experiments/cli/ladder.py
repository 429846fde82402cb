"""`trilemma ladder`: the roll-out ladder, or a recipe, climbed step by step on a workload and its objectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.groups import grouped
from experiments.cli.output import CANCELLED, DONE, Failed, note, print_json
from ledger.errors import InputError

NO_STEPS = "none"
Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME",
        help="rollout (the ladder), short-questions, long-documents, slow-tokens, single-card or jitter.",
    ),
]
Steps = Annotated[
    str | None,
    typer.Option("--steps", metavar="A,B,...", help="These steps of the playbook instead of the recipe's; or none."),
]
Own = Annotated[
    list[str] | None,
    typer.Option(
        "--step", metavar="[NAME:]VARIABLE=VALUE,...", help="A step of your own, after the others; repeatable."
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="foot|defaults",
        help="What --set is put over: static batching and contiguous KV, or the engine's defaults.",
    ),
]
Items = Annotated[
    str | None, typer.Option("--quality-items", metavar="N", help="Most items of each slice in the quality guard.")
]
Aim = Annotated[
    str | None,
    typer.Option("--aim", metavar="CURVE", help="Return is counted in it: goodput_rps (with --slo), else throughput."),
]


@dataclass(frozen=True)
class _Load(options.Load):
    workload: Annotated[
        str, typer.Option("--workload", metavar="NAME|FILE|TRACE", help="Instead of the recipe's, as in bench.")
    ] = ""


@grouped
def ladder(
    recipe: Recipe = None,
    load: _Load = _Load(),
    steps: Steps = None,
    own: Own = None,
    start: Start = None,
    repeats: Annotated[
        str | None, typer.Option("--repeats", metavar="N|auto", help="Pairs of runs of each step; auto: until decided.")
    ] = None,
    quality_items: Items = None,
    aim: Aim = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ID", help="Go on with a cancelled or failed ladder.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Try each step on the workload, adopt it only where the curves say so, and rank what it returned.

    Without --slo no curve may get worse at all; with objectives a latency may, as long as it meets them.
    """
    from experiments import jobs
    from experiments.cli.progress import follow, result_of
    from experiments.store import Store

    store = Store()
    given = (recipe, steps, own, start, repeats, quality_items, aim)
    if resume is not None:
        if load != _Load() or any(one is not None for one in given):
            raise InputError("--resume", resume, "no other option but --json: the ladder keeps what it was asked")
        jobs.resume(resume, store, kind="ladder", followed=True)
        run_id = resume
    else:
        chosen = {"recipe": recipe, "steps": _names(steps), "own": _own(own), "start": start, "repeats": repeats,
                  "quality_items": quality_items, "aim": aim}  # fmt: skip
        spec = {name: value for name, value in {**load.fields(), **chosen}.items() if value not in (None, "")}
        run_id = jobs.start("ladder", spec, store, followed=True)
    note(f"run {run_id}; after a cancel or a crash: trilemma ladder --resume {run_id}")
    run = follow(run_id, store, ["as it is", "with the step"])
    if run.state == "cancelled":
        raise Failed(f"cancelled; trilemma ladder --resume {run_id} goes on from here", CANCELLED)
    result = result_of(run)
    for warning in result["warnings"]:
        note(f"warning: {warning}")
    if as_json:
        print_json(result)
    else:
        print_ladder(result)
    return DONE


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text.strip() == NO_STEPS else [name.strip() for name in text.split(",") if name.strip()]


def _own(texts: list[str] | None) -> list[list[Any]] | None:
    from experiments.playbook.steps import parse_step

    return [list(parse_step(text)) for text in texts] if texts else None


def print_ladder(result: Mapping[str, Any]) -> None:
    """What came of it in words, step by step; then the whole, and the return on effort as a table."""
    from rich.markup import escape

    from experiments.cli.tables import console, number, plain_table
    from experiments.playbook.words import Says
    from experiments.report.words import signed_percent

    says, out = Says("en"), console()
    for paragraph in says.report(result):
        out.print(paragraph, markup=False)
        out.print()
    table = plain_table("#", "step", "outcome", f"{says.curve(result['aim'])}, measured", "kept", "hours", "% an hour",
                        "usual rank")  # fmt: skip
    for row in result["returns"]:
        table.add_row(
            str(row["place"]), escape(says.step(row["step"])), says.outcome(row["outcome"]),
            signed_percent(row["measured_pct"]), signed_percent(row["gain_pct"]), f"{row['hours']:g}",
            number(row["return_pct_per_hour"]),
            "–" if row["rank"] is None else str(row["rank"]),
        )  # fmt: skip
    if result["returns"]:
        out.print(table)
    out.print(f"gains measured, each on top of what was adopted before it; hours and the price of "
              f"{result['price_per_device_hour']:g} per device-hour assumed; run {result['run_id']}")  # fmt: skip
