"""`trilemma report`: any run as one self-contained HTML file, or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import Json
from experiments.cli.output import DONE, note, print_json, write_json
from ledger.errors import InputError


def report(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="A run's id.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.html|.json", help="Where to write it; by default trilemma-ID.html here."),
    ] = None,
    lang: Annotated[str, typer.Option("--lang", metavar="en|zh", help="Language of the words.")] = "en",
    as_json: Json = False,
) -> int:
    """Write the report of a run: verdict, curves, settings, environment, what the figures mean, how to run it again."""
    from experiments.cli.measure import check_writable, write_report
    from experiments.report import report_json
    from experiments.store import Store

    if out is not None and out.suffix not in (".html", ".json"):
        raise InputError("--out", str(out), "a file that ends in .html or .json")
    found = report_json(run_id, Store(), lang)
    if as_json:
        print_json(found)
        if out is None:
            return DONE
    path = out or Path(f"trilemma-{run_id}.html")
    if path.suffix == ".json":
        check_writable(path)
        write_json(path, found)
    else:
        write_report(run_id, path, lang)
    note(f"written: {path}")
    return DONE
