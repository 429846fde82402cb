"""`trilemma claims`: common statements about inference, and their checks on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from experiments.cli.options import Json, Set, settings
from experiments.cli.output import CANCELLED, DONE, print_json

REQUESTS = "Requests a run; where quality is asked for, items a slice and thousands of characters of each text."
ARMS = ["baseline", "candidate"]

app = typer.Typer(help="List claims about inference and check them here.", invoke_without_command=True)


@app.callback()
def list_claims(context: typer.Context, as_json: Json = False) -> None:
    """List every claim and whether it can be checked yet."""
    if context.invoked_subcommand is not None:
        return
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


@app.command("run")
def run(
    claim_id: Annotated[str, typer.Argument(metavar="ID", help="A claim, as C10.")],
    repeats: Annotated[str | None, typer.Option("--repeats", metavar="N|auto", help="Pairs of runs.")] = None,
    requests: Annotated[str | None, typer.Option("--requests", metavar="N", help=REQUESTS)] = None,
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
    run = follow(jobs.start("claim", {"claim": claim_id, "options": options}, store), store, ARMS)
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
