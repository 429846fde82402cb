"""`trilemma claims`: common statements about inference, and their checks on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.options import Json, Set, settings
from experiments.cli.output import CANCELLED, DONE, Failed, note, print_json
from ledger.errors import InputError

if TYPE_CHECKING:
    from experiments.report.words import Words

REQUESTS = "Requests a run; where quality is asked for, items a slice and thousands of characters of each text."
ARMS = ["baseline", "candidate"]
ALL = "Check every claim, one after another; each is a run of its own."
QUICK = "With --all: in under 15 minutes, shortest first; stored runs of the same code, model and machine are taken."
LANG = "Language of what is said; --json stays as it is."
RESUME = "Go on with a cancelled or failed run of --all."
Repeats = Annotated[str | None, typer.Option("--repeats", metavar="N|auto", help="Pairs of runs.")]
Requests = Annotated[str | None, typer.Option("--requests", metavar="N", help=REQUESTS)]
Lang = Annotated[str, typer.Option("--lang", metavar="en|zh", help=LANG)]

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
    lang: Lang = "en",
    as_json: Json = False,
) -> None:
    """List every claim and whether it can be checked yet; with --all, check them."""
    words = _words(lang)
    given = {"repeats": repeats, "num_requests": requests, "settings": settings(sets)}
    options = {name: value for name, value in given.items() if value}
    asked = {"--quick": quick, "--resume": resume, "--repeats or --requests or --set": options}
    if context.invoked_subcommand is not None:
        _refuse({"--all": every, **asked}, "none of it before a sub-command")
        return
    if resume is not None:
        _refuse({"--all": every, "--quick": quick, "options": options}, "nothing beside --resume but --json")
        _check_all(None, resume, words, as_json)
    elif every:
        _check_all({"quick": quick, "options": options}, None, words, as_json)
    else:
        _refuse(asked, "--all beside it")
        _list(words, as_json)


def _refuse(given: Mapping[str, Any], accepted: str) -> None:
    for name, value in given.items():
        if value:
            raise InputError(name, "given", accepted)


def _words(lang: str) -> Words:
    from experiments.report.words import Words

    return Words(lang)


def _list(words: Words, as_json: bool) -> None:
    from experiments.claims import load_claims
    from experiments.claims.catalogue import claim_texts

    claims = load_claims()
    if as_json:
        print_json({"claims": [claim.to_json() for claim in claims]})
        return
    from experiments.cli.tables import console, plain_table

    texts = claim_texts(words.lang)
    table = plain_table("id", words("claim_kind"), words("claim_state"), words("claim"))
    table.columns[-1].justify = "left"
    for claim in claims:
        kind, state = words(f"claim_kind_{claim.kind}"), words(f"claim_state_{claim.state}")
        table.add_row(claim.id, kind, state, texts[claim.id].statement)
    console().print(table)


def _check_all(spec: dict[str, Any] | None, resumed: str | None, words: Words, as_json: bool) -> None:
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
        _print_all(result, words)


def print_claims(result: Mapping[str, Any]) -> None:
    """A line a row, in English."""
    _print_all(result, _words("en"))


def print_claim(result: dict[str, Any]) -> None:
    """A claim's outcome, in English."""
    print_outcome(result, _words("en"))


def _print_all(result: Mapping[str, Any], words: Words) -> None:
    from experiments.claims.reasons import result_in_language

    for row in (result_in_language(words.lang, row) for row in result["rows"]):
        stored = row["how"] == "stored"
        when = row["ran_at"][:16].replace("T", " ") if stored else ""
        dated = words("claim_stored", run=row["run_id"], when=when) if stored else ""
        print(f"{row['id']} {_verdict(row, words)}{dated}{words('colon')}{row['reason']}")
        if row["simulate"]:
            print(f"    {words('claim_simulate')}{words('colon')}{row['simulate']['command']}")
    counts = (f"{count} {words(f'v_{verdict}')}" for verdict, count in sorted(result["counts"].items()))
    print(f"{words.listed(list(counts))}; {result['took_s']:,.0f} s")


def _verdict(result: Mapping[str, Any], words: Words) -> str:
    return words(f"v_{result['verdict']}")


@app.command("run")
def run(
    claim_id: Annotated[str, typer.Argument(metavar="ID", help="A claim, as C10.")],
    repeats: Repeats = None,
    requests: Requests = None,
    sets: Set = None,
    lang: Lang = "en",
    as_json: Json = False,
) -> int:
    """Check a claim on this machine."""
    from experiments.claims import get_claim, run_claim
    from experiments.claims.runner import CHECKED_BY_FORMULA

    claim, words = get_claim(claim_id), _words(lang)
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
        print_outcome(result, words)
    return CANCELLED if state == "cancelled" else DONE


def _as_job(claim_id: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    from experiments import jobs
    from experiments.cli.progress import follow, result_of
    from experiments.store import Store

    store = Store()
    run = follow(jobs.start("claim", {"claim": claim_id, "options": options}, store, followed=True), store, ARMS)
    return result_of(run), run.state


def print_outcome(result: dict[str, Any], words: Words) -> None:
    """A claim's verdict, why, and the evidence."""
    from experiments.claims.reasons import result_in_language

    said, colon = result_in_language(words.lang, result), words("colon")
    print(f"{said['id']}{colon}{said['statement']}")
    print(f"{_verdict(said, words)}{colon}{said['reason']}")
    if said.get("trap"):
        print(f"{words('trap')}{colon}{said['trap']}")
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
