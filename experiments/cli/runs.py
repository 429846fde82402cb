"""`trilemma runs`: what is in the run store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli.options import Json
from experiments.cli.output import check_writable, note, print_json, write_json
from ledger.errors import InputError

app = typer.Typer(help="List, show, export and delete stored runs.", invoke_without_command=True, no_args_is_help=False)
ARMS = {"0": 0, "baseline": 0, "1": 1, "candidate": 1}
RunId = Annotated[str, typer.Argument(metavar="ID", help="A run's id.")]
Arm = Annotated[str, typer.Option("--arm", metavar="A", help="0 or baseline, 1 or candidate.")]
Repeat = Annotated[str, typer.Option("--repeat", metavar="N", help="Which repeat, from 1.")]


@app.callback()
def list_runs(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="How many, newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """List the newest runs."""
    if context.invoked_subcommand is not None:
        return
    from experiments import jobs
    from experiments.kinds import kind_of
    from experiments.store import Store

    store = Store()
    runs = [jobs.status(run.id, store) for run in store.list_runs(limit)]
    if as_json:
        print_json({"runs": [_brief(run) for run in runs]})
        return
    from experiments.cli.tables import console, plain_table

    table = plain_table("id", "created", "kind", "state", "what")
    table.columns[-1].justify = "left"
    for run in runs:
        created = run.created_at[:19].replace("T", " ")
        table.add_row(run.id, created, run.kind, run.state, kind_of(run.kind).says(run.spec))
    console().print(table if runs else "no runs yet")


@app.command("show")
def show(run_id: RunId, as_json: Json = False) -> None:
    """Show one run: what was asked, its state and its result."""
    from experiments import jobs
    from experiments.store import Store

    run = jobs.status(run_id, Store())
    if as_json:
        print_json(run.to_json())
        return
    from experiments.cli.shown import print_result
    from experiments.kinds import kind_of

    print(f"{run.id}  {run.kind}  {run.state}  {kind_of(run.kind).says(run.spec)}")
    if run.error:
        print(run.error)
    if run.result is not None:
        print_result(run.kind, run.result)


@app.command("export")
def export(
    run_id: RunId,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.trilemma.zip", help="The run with all its records.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="The report as self-contained HTML.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run as one file that another Trilemma can import, or its report."""
    from experiments.cli.measure import write_report
    from experiments.run_file import export_run
    from experiments.store import Store

    if out is None and html is None:
        raise InputError("--out", "", "FILE.trilemma.zip to write the run to (or --html FILE for its report)")
    written: dict[str, Any] = {"run_id": run_id}
    if html is not None:
        write_report(run_id, html)
        written["html"] = str(html)
    if out is not None:
        check_writable(out)
        manifest = export_run(run_id, Store(), out)
        written |= {"file": str(out), "records": len(manifest["records"]), "withheld": manifest["withheld"]}
        for path in manifest["withheld"]:
            note(f"withheld: {path}")
    if as_json:
        print_json(written)
    else:
        note(f"written: {', '.join(str(path) for path in (html, out) if path is not None)}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `runs export` wrote.")],
    as_json: Json = False,
) -> None:
    """Take in a run that another Trilemma exported, after checking all of it."""
    from experiments.run_file import import_run
    from experiments.store import Store

    run = import_run(file, Store())
    if as_json:
        print_json({"run_id": run.id, "kind": run.kind, "state": run.state})
    else:
        note(f"imported: run {run.id} ({run.kind}, {run.state})")


@app.command("trace")
def trace(
    run_id: RunId,
    arm: Arm = "0",
    repeat: Repeat = "1",
    form: Annotated[
        str, typer.Option("--format", metavar="json|chrome", help="The record, or a trace for Perfetto.")
    ] = "json",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write there instead of to stdout.")] = None,
    as_json: Json = False,
) -> None:
    """Export the events of one repeat: every step and every request."""
    from experiments.trace_export import chrome_trace

    if form not in ("json", "chrome"):
        raise InputError("--format", form, "json, chrome")
    place, record = _record(run_id, arm, repeat)
    content = chrome_trace(record) if form == "chrome" else record
    if out is None:
        print_json(content)
        return
    write_json(out, content)
    if as_json:
        print_json({"run_id": run_id, "arm": place[0], "repeat": place[1], "format": form, "file": str(out)})
    else:
        note(f"written: {out}")


@app.command("replay")
def replay(run_id: RunId, arm: Arm = "0", repeat: Repeat = "1", as_json: Json = False) -> None:
    """Let the scheduler plan one repeat again from its events, without a model, and compare every plan."""
    from core_engine.replay import ReplayMismatch
    from core_engine.replay import replay as replayed

    place, record = _record(run_id, arm, repeat)
    found: dict[str, Any] = {"run_id": run_id, "arm": place[0], "repeat": place[1], "steps": 0, "difference": None}
    try:
        for _ in replayed(record):
            found["steps"] += 1
    except ReplayMismatch as mismatch:
        found["difference"] = str(mismatch)
    if as_json:
        print_json(found)
    else:
        print(f"{found['steps']} steps planned again as they were; {found['difference'] or 'no difference'}")


def _record(run_id: str, arm: str, repeat: str) -> tuple[tuple[int, int], dict[str, Any]]:
    """(arm, repeat) and the record that the options name."""
    from experiments.kinds import kind_of
    from experiments.store import Store

    store = Store()
    run = store.get_run(run_id)
    if not kind_of(run.kind).has_events:
        raise InputError("run", run_id, "a run with a schedule: this kind keeps scores and sums instead of events")
    place = _place(store.record_keys(run.id), run_id, arm, repeat)
    return place, store.record(run_id, *place)


def _place(keys: list[tuple[int, int]], run_id: str, arm: str, repeat: str) -> tuple[int, int]:
    """(arm, repeat) as numbers; InputError names what is wrong and which ones there are."""
    from experiments.cli.numbers import whole

    if not keys:
        raise InputError("run", run_id, "a run with a finished repeat; a claim's repeats are in its comparisons' runs")
    there = sorted({one for one, _ in keys})
    if ARMS.get(arm) not in there:
        raise InputError("--arm", arm, ", ".join(name for name, number in ARMS.items() if number in there))
    found = (ARMS[arm], whole("--repeat", repeat) or 0)
    if found not in keys:
        raise InputError("--repeat", repeat, ", ".join(str(two) for one, two in keys if one == found[0]))
    return found


@app.command("delete")
def delete(run_id: RunId, as_json: Json = False) -> None:
    """Delete a run and its records."""
    from experiments import jobs
    from experiments.store import Store

    jobs.delete(run_id, Store())
    if as_json:
        print_json({"deleted": run_id})
    else:
        note(f"deleted: {run_id}")


def _brief(run: Any) -> dict[str, Any]:
    kept = ("id", "kind", "state", "created_at", "updated_at", "spec", "error")
    return {key: value for key, value in run.to_json().items() if key in kept}
