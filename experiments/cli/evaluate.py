"""`trilemma eval`: quality of settings against a baseline, slice by slice."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.output import CANCELLED, DONE, Failed, note, print_json
from ledger.errors import InputError

Baseline = Annotated[
    list[str] | None,
    typer.Option("--baseline", metavar="NAME=VALUE", help="Set a variable of the baseline: by default, unquantized."),
]
Items = Annotated[
    list[str] | None,
    typer.Option("--items", metavar="FILE.jsonl", help="Items instead of the project's own, or none; repeatable."),
]
Texts = Annotated[
    list[str] | None,
    typer.Option("--texts", metavar="FILE", help="Texts instead of the project's own, or none; repeatable."),
]
Slices = Annotated[str | None, typer.Option("--slices", metavar="A,B", help="Only these slices of the items.")]
Vary = Annotated[str | None, typer.Option("--vary", metavar="NAME=A,B,C", help="One candidate for each of the values.")]
Candidates = Annotated[
    list[str] | None,
    typer.Option("--candidate", metavar="NAME=VALUE,...", help="A candidate with these settings; repeatable."),
]
Limit = Annotated[
    str | None, typer.Option("--limit", metavar="N", help="At most N items of each slice, spread evenly.")
]
Resume = Annotated[str | None, typer.Option("--resume", metavar="ID", help="Go on with a cancelled or failed run.")]


def evaluate(
    sets: options.Set = None,
    baseline: Baseline = None,
    items: Items = None,
    slices: Slices = None,
    texts: Texts = None,
    vary: Vary = None,
    candidate: Candidates = None,
    limit: Limit = None,
    resume: Resume = None,
    seed: Annotated[
        str,
        typer.Option(
            "--seed",
            metavar="N",
            help="Seed of the split into halves: a loss that a mean hides is sought in one and confirmed in the other.",
        ),
    ] = "0",
    speed: Annotated[
        bool, typer.Option("--speed", help="Time steps of every candidate beside the baseline's.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Measure perplexity, KL, agreement and accuracy by slice against the unquantized model."""
    from experiments import jobs
    from experiments.cli.progress import follow, result_of
    from experiments.quality.spec import EvalSpec
    from experiments.store import Store

    store = Store()
    asked = (sets, baseline, items, slices, texts, vary, candidate, limit)
    if resume is not None:
        if speed or any(one is not None for one in asked):
            raise InputError("--resume", resume, "no other option but --json: the run keeps what it was asked")
        jobs.resume(resume, store, kind="eval", followed=True)
        run_id = resume
    else:
        run_id = jobs.start("eval", {**_spec(*asked, seed), "speed": speed}, store, followed=True)
    labels = ["baseline", *EvalSpec.from_dict(store.get_run(run_id).spec).candidates()]
    note(f"run {run_id}; after a cancel or a crash: trilemma eval --resume {run_id}")
    run = follow(run_id, store, labels)
    if run.state == "cancelled":
        raise Failed(f"cancelled; trilemma eval --resume {run_id} goes on from here", CANCELLED)
    result = result_of(run)
    if as_json:
        print_json(result)
    else:
        from experiments.cli.quality_tables import print_evaluation

        print_evaluation(result)
    return DONE


def _spec(
    sets: list[str] | None,
    baseline: list[str] | None,
    items: list[str] | None,
    slices: str | None,
    texts: list[str] | None,
    vary: str | None,
    candidates: list[str] | None,
    limit: str | None,
    seed: str,
) -> dict[str, Any]:
    return {
        "settings": options.settings(sets),
        "baseline": options.settings(baseline),
        "vary": None if vary is None else _varied(vary),
        "arms": [options.settings(text.split(",")) for text in candidates or []],
        "items": items or [],
        "slices": [] if slices is None else [name.strip() for name in slices.split(",") if name.strip()],
        "texts": texts or [],
        "limit": limit,
        "seed": seed,
    }


def _varied(text: str) -> tuple[str, list[str]]:
    name, separator, values = text.partition("=")
    parts = [part.strip() for part in values.split(",")]
    if not separator or not all(parts):
        raise InputError("--vary", text, "NAME=A,B,...: one variable and its candidates' values")
    return name.strip(), parts
