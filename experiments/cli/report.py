"""`trilemma report`: any run as a file to read, print or compute with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import Json
from experiments.cli.output import DONE, note, print_json


def report(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="A run's id.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="html|md|json|csv|parquet|ipynb",
            help="A page, Markdown, JSON, all figures and events as a table, or a notebook; by default FILE's ending.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where to write it; by default trilemma-ID.FORMAT here."),
    ] = None,
    lang: Annotated[str, typer.Option("--lang", metavar="en|zh", help="Language of the words.")] = "en",
    as_json: Json = False,
) -> int:
    """Write the report of a run: question, answer, set-up, figures, what they mean, raw data, how to run it again."""
    from experiments.cli.measure import write_report
    from experiments.report import format_of, report_json
    from experiments.store import Store

    chosen = format_of(form, out)
    if as_json:
        print_json(report_json(run_id, Store(), lang))
        if out is None and form is None:
            return DONE
    path = out or Path(f"trilemma-{run_id}.{chosen}")
    write_report(run_id, path, lang, chosen)
    note(f"written: {path}")
    return DONE
