"""The verbs of the command line, each of a module of its own, wired into one application.

Importing it loads neither torch nor any page library; each verb imports what it needs when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from experiments.cli import (
    advise,
    cache,
    calibrate,
    capacity,
    claims,
    cost,
    doctor,
    evaluate,
    factorial,
    generate,
    interview,
    jitter,
    kv,
    lab,
    ladder,
    ledger,
    levers,
    measure,
    plan,
    profile,
    quantize,
    report,
    runs,
    serve,
    simulate,
    speculation,
    sweep,
    train_draft,
    ui,
)

app = typer.Typer(
    name="trilemma",
    help="Change one variable of an inference engine and see what it does to latency, throughput, cost and quality.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from experiments.version import version

        print(f"trilemma {version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


app.command("ui")(ui.ui)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("generate")(generate.generate)
app.command("bench")(measure.bench)
app.command("compare")(measure.compare)
app.command("factorial")(factorial.factorial)
app.command("sweep")(sweep.sweep)
app.command("capacity")(capacity.capacity)
app.command("jitter")(jitter.jitter)
app.command("cache")(cache.cache)
app.command("ladder")(ladder.ladder)
app.command("levers")(levers.levers)
app.command("eval")(evaluate.evaluate)
app.command("speculation")(speculation.speculation)
app.command("profile")(profile.profile)
app.command("kv")(kv.kv)
app.command("quantize")(quantize.quantize)
app.command("train-draft")(train_draft.train_draft)
app.command("report")(report.report)
app.command("calibrate")(calibrate.calibrate)
app.command("simulate")(simulate.simulate)
app.command("plan")(plan.plan)
app.command("advise")(advise.advise)
app.command("cost")(cost.cost)
app.command("ledger")(ledger.ledger)
app.add_typer(runs.app, name="runs")
app.add_typer(claims.app, name="claims")
app.add_typer(interview.app, name="interview")
app.add_typer(lab.app, name="lab")
