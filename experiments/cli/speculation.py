"""`trilemma speculation`: every form of draft on the same prompts, beside plain decoding and the break-even model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.output import CANCELLED, DONE, Failed, note, print_json
from ledger.errors import InputError

NONE = "none"
LEGEND = (
    "alpha: accepted of the positions tested; v: a pass over k + 1 rows by one over 1 row; c: a drafted token by the"
    " same; model: the speed-up that alpha, v and c predict"
)
Forms = Annotated[str | None, typer.Option("--forms", metavar="A,B", help="Forms of draft; all by default, or none.")]
Tasks = Annotated[
    str | None, typer.Option("--tasks", metavar="A,B", help="Kinds of task: chat, code, copy, open; or none.")
]
Batches = Annotated[
    str | None, typer.Option("--batches", metavar="N,M", help="Sequences at once, each 1 to 64; or none.")
]
Drafts = Annotated[str, typer.Option("--drafts", metavar="K", help="Tokens drafted at a time.")]
Prompts = Annotated[str | None, typer.Option("--prompts", metavar="N", help="So many prompts of each task, at most 4.")]


def speculation(
    sets: options.Set = None,
    forms: Forms = None,
    tasks: Tasks = None,
    drafts: Drafts = "4",
    prompts: Prompts = None,
    max_tokens: Annotated[str, typer.Option("--max-tokens", metavar="N", help="Most tokens of an answer.")] = "64",
    repeats: Annotated[
        str,
        typer.Option(
            "--repeats", metavar="N", help="So often everything, in turns; one repeat gives no interval and no verdict."
        ),
    ] = "5",
    batches: Batches = None,
    constructed: Annotated[
        bool, typer.Option("--constructed/--no-constructed", help="Drafts right as often as we want, for the curve.")
    ] = True,
    seed: Annotated[str, typer.Option("--seed", metavar="N", help="Of the constructed drafts' mistakes.")] = "0",
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ID", help="Go on with a cancelled or failed run.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Measure acceptance, costs and speed-up of every form of draft, and where it does not pay."""
    from experiments import jobs
    from experiments.cli.progress import follow, result_of
    from experiments.speculation.parts import arm_names
    from experiments.speculation.spec import SpeculationSpec
    from experiments.store import Store

    store = Store()
    if resume is not None:
        if any(one is not None for one in (sets, forms, tasks, prompts, batches)):
            raise InputError("--resume", resume, "no other option but --json: the run keeps what it was asked")
        jobs.resume(resume, store, kind="speculation", followed=True)
        run_id = resume
    else:
        spec = {
            "settings": options.settings(sets), "num_draft_tokens": drafts, "prompts": prompts,
            "max_tokens": max_tokens, "repeats": repeats, "constructed": constructed, "seed": seed,
            **_listed(forms=forms, tasks=tasks, batches=batches),
        }  # fmt: skip
        run_id = jobs.start("speculation", spec, store, followed=True)
    note(f"run {run_id}; after a cancel or a crash: trilemma speculation --resume {run_id}")
    run = follow(run_id, store, arm_names(SpeculationSpec.from_dict(store.get_run(run_id).spec)))
    if run.state == "cancelled":
        raise Failed(f"cancelled; trilemma speculation --resume {run_id} goes on from here", CANCELLED)
    result = result_of(run)
    if as_json:
        print_json(result)
    else:
        for warning in result["warnings"]:
            note(f"warning: {warning}")
        print_speculation(result)
    return DONE


def _listed(**given: str | None) -> dict[str, list[str]]:
    """The options that are lists, those that were given."""
    return {
        name: [] if text == NONE else [part.strip() for part in text.split(",") if part.strip()]
        for name, text in given.items()
        if text is not None
    }


def print_speculation(result: Mapping[str, Any]) -> None:
    """A table a task, the constructed drafts, the batches, and the forms that could not run."""
    from experiments.cli.tables import console

    out = console()
    for task in result["tasks"]:
        _print_part(out, f"{task['name']}: {_counted(task['plain']['prompts'], 'prompt')}, one at a time", task)
    if result["constructed"] is not None:
        _print_part(out, "constructed drafts (right as often as we want)", result["constructed"])
    for batch in result["batches"]:
        _print_part(out, f"{_counted(batch['batch'], 'sequence')} at once", batch)
    out.print(LEGEND, highlight=False)
    for one in result["unavailable"]:
        out.print(f"{one['form']}: {one['reason']}")
    out.print(
        f"k = {result['num_draft_tokens']}, {_counted(result['repeats'], 'repeat')}; run {result['run_id']}; measured"
    )


def _print_part(out: Any, title: str, part: Mapping[str, Any]) -> None:
    from experiments.cli.tables import number, plain_table

    table = plain_table("", "tokens/s", "alpha", "accepted/drafted", "tokens/pass", "v", "c", "draft time", "speed-up",
                        "95 %", "model", "verdict", "same ids")  # fmt: skip
    table.add_row("off", number(part["plain"]["tokens_per_s"]))
    for row in part["rows"]:
        table.add_row(
            row["form"], number(row["tokens_per_s"]), number(row["alpha"]), number(row["acceptance_rate"]),
            number(row["tokens_per_pass"]), number(row["v"]), number(row["c"]), number(row["draft_time_share"]),
            number(row["speedup"]), _ends(row["speedup_ci95"]), number(row["predicted"]["speedup"]), row["verdict"],
            f"{row['identical']}/{row['prompts']}",
        )  # fmt: skip
    out.print(title)
    out.print(table)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _ends(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
