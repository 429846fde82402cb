"""The verbs of the command line, wired into one application; a command line loads the module of its own verb alone.

None of them loads torch or a page library when it is imported; each verb imports what it needs when it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

HELP = "Change one variable of an inference engine and see what it does to latency, throughput, cost and quality."
# Verb -> the function that it calls, or the verbs under it, by module; in the order of the help.
VERBS = {
    "ui": "ui.ui",
    "serve": "serve.serve",
    "doctor": "doctor.doctor",
    "generate": "generate.generate",
    "variables": "listing.variables",
    "workloads": "listing.workloads",
    "bench": "measure.bench",
    "compare": "measure.compare",
    "factorial": "factorial.factorial",
    "sweep": "sweep.sweep",
    "capacity": "capacity.capacity",
    "jitter": "jitter.jitter",
    "cache": "cache.cache",
    "ladder": "ladder.ladder",
    "levers": "levers.levers",
    "eval": "evaluate.evaluate",
    "speculation": "speculation.speculation",
    "profile": "profile.profile",
    "kv": "kv.kv",
    "quantize": "quantize.quantize",
    "train-draft": "train_draft.train_draft",
    "report": "report.report",
    "calibrate": "calibrate.calibrate",
    "simulate": "simulate.simulate",
    "plan": "plan.plan",
    "advise": "advise.advise",
    "cost": "cost.cost",
    "ledger": "ledger.ledger",
    "runs": "runs.app",
    "claims": "claims.app",
    "interview": "interview.app",
    "lab": "lab.app",
}


def command_line(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """The application of these verbs, whose modules are imported."""
    app = typer.Typer(
        name="trilemma", help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    app.callback()(_root)
    for verb in verbs:
        module, _, name = VERBS[verb].partition(".")
        found = getattr(import_module(f"experiments.cli.{module}"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=verb)
        else:
            app.command(verb)(found)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from experiments.version import version

        print(f"trilemma {version()}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass
