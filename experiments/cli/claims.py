"""`trilemma claims`: common statements about inference, and their checks on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from experiments.cli.options import Json, Set, settings
from experiments.cli.output import CANCELLED, DONE, Failed, note, print_json
from ledger.errors import InputError

REQUESTS = "Requests a run; where quality is asked for, items a slice and thousands of characters of each text."
ARMS = ["baseline", "candidate"]
ALL = "Check every claim, one after another; each is a run of its own."
QUICK = "With --all: in under 15 minutes, shortest first; stored runs of the same code, model and machine are taken."
RESUME = "Go on with a cancelled or failed run of --all."
Repeats = Annotated[str | None, typer.Option("--repeats", metavar="N|auto", help="Pairs of runs.")]
Requests = Annotated[str | None, typer.Option("--requests", metavar="N", help=REQUESTS)]

app = typer.Typer(help="List claims about inference and check them here.", invoke_without_command=True)


@app.callback()
def list_claims(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help=ALL)] = False,
    quick: Annotated[bool, typer.Option("--quick", help=QUICK)] = False,
    resume: Annotated[str | None, typer.Option("--resume", metavar="ID", help=RESUME)] = None,
    repeats: Repeats = None,
    requests: Requests = None,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """List every claim and whether it can be checked yet; with --all, check them."""
    given = {"repeats": repeats, "num_requests": requests, "settings": settings(sets)}
    options = {name: value for name, value in given.items() if value}
    asked = {"--quick": quick, "--resume": resume, "--repeats or --requests or --set": options}
    if context.invoked_subcommand is not None:
        _refuse({"--all": every, **asked}, "none of it before a sub-command")
        return
    if resume is not None:
        _refuse({"--all": every, "--quick": quick, "options": options}, "nothing beside --resume but --json")
        _check_all(None, resume, as_json)
    elif every:
        _check_all({"quick": quick, "options": options}, None, as_json)
    else:
        _refuse(asked, "--all beside it")
        _list(as_json)


def _refuse(given: Mapping[str, Any], accepted: str) -> None:
    for name, value in given.items():
        if value:
            raise InputError(name, "given", accepted)


def _list(as_json: bool) -> None:
    from experiments.claims import load_claims

    claims = load_claims()
    if as_json:
        print_json({"claims": [claim.to_json() for claim in claims]})
        return
    from experiments.cli.tables import console, plain_table

    table = plain_table("id", "kind", "state", "claim")
    table.columns[-1].justify = "left"
    for claim in claims:
        table.add_row(claim.id, claim.kind, claim.state, claim.statement)
    console().print(table)


def _check_all(spec: dict[str, Any] | None, resumed: str | None, as_json: bool) -> None:
    """Run all rows as one job, or go on with one, and print a line a row."""
    from experiments import jobs
    from experiments.cli.progress import follow, result_of
    from experiments.store import Store

    store = Store()
    if resumed is not None:
        jobs.resume(resumed, store, kind="claims", followed=True)
    run_id = resumed or jobs.start("claims", spec or {}, store, followed=True)
    note(f"run {run_id}; after a cancel or a crash: trilemma claims --resume {run_id}")
    run = follow(run_id, store, [])
    if run.state == "cancelled":
        raise Failed(f"cancelled; trilemma claims --resume {run_id} goes on from here", CANCELLED)
    result = result_of(run)
    if as_json:
        print_json(result)
    else:
        _print_all(result)


def _print_all(result: Mapping[str, Any]) -> None:
    for row in result["rows"]:
        stored = row["how"] == "stored"
        dated = f" (run {row['run_id']} of {row['ran_at'][:16].replace('T', ' ')} UTC)" if stored else ""
        print(f"{row['id']} {row['verdict']}{dated}: {row['reason']}")
        if row["simulate"]:
            print(f"    {row['simulate']['provenance']} instead: {row['simulate']['command']}")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(result["counts"].items()))
    print(f"{counts}; {result['took_s']:,.0f} s")


@app.command("run")
def run(
    claim_id: Annotated[str, typer.Argument(metavar="ID", help="A claim, as C10.")],
    repeats: Repeats = None,
    requests: Requests = None,
    sets: Set = None,
    as_json: Json = False,
) -> int:
    """Check a claim on this machine."""
    from experiments.claims import get_claim, run_claim
    from experiments.claims.runner import CHECKED_BY_FORMULA

    claim = get_claim(claim_id)
    given = {"repeats": repeats, "num_requests": requests, "settings": settings(sets)}
    options = {name: value for name, value in given.items() if value}
    state = "done"
    if claim.state == "checkable" and claim.id not in CHECKED_BY_FORMULA:
        result, state = _as_job(claim.id, options)
    else:
        result = run_claim(claim.id, options=options)
    if as_json:
        print_json(result)
    else:
        print_outcome(result)
    return CANCELLED if state == "cancelled" else DONE


def _as_job(claim_id: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    from experiments import jobs
    from experiments.cli.progress import follow, result_of
    from experiments.store import Store

    store = Store()
    run = follow(jobs.start("claim", {"claim": claim_id, "options": options}, store, followed=True), store, ARMS)
    return result_of(run), run.state


def print_outcome(result: dict[str, Any]) -> None:
    """A claim's verdict, why, and the evidence."""
    print(f"{result['id']}: {result['statement']}")
    print(f"{result['verdict']}: {result['reason']}")
    if result.get("trap"):
        print(f"trap: {result['trap']}")
    for item in result.get("evidence", []):
        print("\n".join(_evidence(item)))


def _plain(key: str, value: Any) -> str:
    """A field for a reader: bytes in MiB, no more than four digits of a fraction."""
    if key.endswith("_bytes") and isinstance(value, int | float):
        return f"{key.removesuffix('_bytes').replace('_', ' ')} {value / 2**20:,.2f} MiB"
    if isinstance(value, float):
        value = f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    elif isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        value = f"of {len(value):,} points (--json has them)"
    return f"{key.replace('_', ' ')} {value}"


def _evidence(item: Mapping[str, Any]) -> list[str]:
    """A figure as its name, value and label, with the formula below; evidence of another form as its fields."""
    if not {"name", "value", "unit", "provenance"} <= item.keys():
        return ["  " + ", ".join(_plain(key, value) for key, value in item.items() if value is not None)]
    value, unit = item["value"], item["unit"]
    text = (
        "not measured"
        if value is None
        else f"{value:,}"
        if isinstance(value, int)
        else f"{value:,.0f}"
        if value >= 1e4
        else f"{value:.4g}"
    )
    if unit == "B" and value is not None:
        text = f"{text} B ({value / 1e9:,.2f} GB, {value / 2**30:,.2f} GiB)"
    elif value is not None:
        text = f"{text} {unit}"
    shown = {"name", "value", "unit", "provenance", "formula"}
    rest = [f"{key} {more}" for key, more in item.items() if key not in shown]
    lines = [f"  {', '.join([str(item['name']), *rest])}: {text} ({item['provenance']})"]
    return [*lines, f"      {item['formula']}"] if item.get("formula") else lines
