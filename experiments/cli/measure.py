"""`trilemma bench` and `trilemma compare`: jobs in their own process, followed to their end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.groups import grouped
from experiments.cli.output import CANCELLED, DONE, Failed, check_writable, note, print_json, write_file
from experiments.workloads.source import short_name
from ledger.errors import InputError

if TYPE_CHECKING:
    from experiments.spec import CompareSpec
    from experiments.store import Run


@grouped
def bench(
    load: options.Load = options.Load(),
    server: options.Server = options.Server(),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only draw the workload and print its summary; nothing is measured.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Run a workload once and print its metrics."""
    spec = load.fields() | server.one()
    if dry_run:
        return _dry_run(spec, as_json=as_json)
    run, result = run_job("bench", spec, [short_name(load.workload)])
    if as_json:
        print_json(result)
    else:
        from experiments.cli.tables import print_metrics

        print_metrics(result)
        note(f"run {run.id}")
    return DONE


@grouped
def compare(
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="NAME=A,B", help="The one variable and its two values; A is the baseline."),
    ] = None,
    load: options.Load = options.Load(),
    repeats: Annotated[
        str | None,
        typer.Option("--repeats", metavar="N|auto", help="Pairs of runs, 5; auto goes on until decided, or 20."),
    ] = None,
    server: options.Server = options.Server(),
    at: Annotated[
        str,
        typer.Option(
            "--measure",
            metavar="load|capacity",
            help="At equal load, or the highest rate of each that meets --slo, and the cost there.",
        ),
    ] = "load",
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help="Also write one self-contained HTML file.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ID", help="Go on with a cancelled or failed comparison.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Change one variable, measure both values in turn, and judge the five curves."""
    from experiments import jobs
    from experiments.cli.progress import follow
    from experiments.spec import DEFAULT_REPEATS, CompareSpec
    from experiments.store import Store

    if report is not None:
        check_writable(report)
    store = Store()
    if resume is not None:
        untouched = load == options.Load() and server == options.Server() and at == "load"
        if not untouched or vary is not None or repeats is not None:
            raise InputError("--resume", resume, "no other option but --report and --json: it keeps what it was asked")
        jobs.resume(resume, store, kind="compare", followed=True)
        run_id, spec = resume, CompareSpec.from_dict(store.get_run(resume).spec)
    else:
        spec = _asked(load, vary, DEFAULT_REPEATS if repeats is None else repeats, server, at)
        run_id = jobs.start("compare", spec.to_dict(), store, followed=True)
    go_on = f"trilemma compare --resume {run_id}"
    note(f"run {run_id}; after a cancel or a crash: {go_on}")
    run = follow(run_id, store, [str(value) for value in spec.values])
    if run.state == "cancelled" and run.result is None:
        raise Failed(f"cancelled before a pair was finished; {go_on} goes on from here", CANCELLED)
    if run.state == "failed" and (run.error or "").startswith(jobs.ENDED):
        note(f"finished pairs are kept: {go_on} goes on from here")
    result = _told(run)
    if run.state == "cancelled":
        note(f"stopped early, so this is what {result['repeats']} finished pairs say; {go_on} goes on from here")
    if report is not None:
        write_report(run.id, report)
        note(f"report: {report}")
    if as_json:
        print_json(result)
    else:
        from experiments.cli.tables import print_comparison

        print_comparison(result)
    return CANCELLED if run.state == "cancelled" else DONE


def _asked(
    load: options.Load, vary: list[str] | None, repeats: int | str, server: options.Server, at: str
) -> CompareSpec:
    """The comparison that the options ask for; what can be foreseen of it is said."""
    from experiments.foresight import foreseen
    from experiments.spec import CompareSpec, parse_vary

    measured = server.fields()
    if server.endpoint and "endpoints" not in measured:
        raise InputError("--endpoint", measured["endpoint"], "two servers, A=URL,B=URL; bench takes one")
    if server.endpoint and vary:
        raise InputError("--vary", " ".join(vary), "nothing beside two servers: the server is what is varied")
    varied = {} if server.endpoint else dict(zip(("variable", "values"), parse_vary(vary or []), strict=True))
    spec = CompareSpec.from_dict({**load.fields(), **measured, **varied, "repeats": repeats, "measure": at})
    for warning in foreseen(spec):
        note(f"before it runs: {warning}")
    return spec


def _dry_run(fields: dict[str, Any], *, as_json: bool) -> int:
    """Draw the workload with the model's tokenizer alone, and print what would be sent."""
    from core_engine.model.loader import open_model
    from experiments.cli.tables import print_workload
    from experiments.rig import draw_workload
    from experiments.spec import BenchSpec

    spec = BenchSpec.from_dict(fields)
    described = draw_workload(spec, open_model(spec.config(), note).tokenizer()).describe()
    if as_json:
        print_json({**described, "provenance": "computed"})
    else:
        print_workload(described)
    return DONE


def run_job(kind: str, spec: dict[str, Any], names: list[str]) -> tuple[Any, dict[str, Any]]:
    """Start a job, follow it and return (run, result); Failed carries a worker's line and exit code."""
    from experiments import jobs
    from experiments.cli.progress import follow
    from experiments.store import Store

    store = Store()
    run = follow(jobs.start(kind, spec, store, followed=True), store, names)
    return run, _told(run)


def _told(run: Run) -> dict[str, Any]:
    """The result of an ended run, its warnings told; Failed as `run_job`."""
    from experiments.cli.progress import result_of

    result = result_of(run)
    for warning in result.get("warnings", []):
        note(f"warning: {warning}")
    return result


def write_report(run_id: str, path: Path, lang: str = "en", form: str = "html") -> None:
    """Write the report of a run in a format; InputError for an unknown run or language, or an unwritable path."""
    from experiments.report import report_bytes
    from experiments.store import Store

    write_file(path, report_bytes(run_id, Store(), form, lang))
