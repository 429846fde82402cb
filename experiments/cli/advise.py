"""`trilemma advise`: what limits a run or a server, and which one setting to change next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import numbers, options
from experiments.cli.output import print_json
from ledger.errors import CannotRunError, InputError

if TYPE_CHECKING:
    from experiments.advisor.advice import Advice
    from experiments.advisor.diagnose import Diagnosis
    from experiments.advisor.evidence import Evidence

MOST_LINES = 4  # of evidence of a finding that is not the first
SHORTEST_S, LONGEST_S = 1.0, 600.0


def advise(
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="A stored run.")] = None,
    arm: Annotated[str, typer.Option("--arm", metavar="A", help="Of a run: 0 is the baseline.")] = "0",
    metrics: Annotated[
        Path | None, typer.Option("--metrics", metavar="FILE", help="A /metrics page of vLLM or SGLang.")
    ] = None,
    later: Annotated[
        Path | None, typer.Option("--metrics-later", metavar="FILE", help="The same page some seconds later.")
    ] = None,
    seconds: Annotated[
        str | None, typer.Option("--seconds", metavar="S", help="Between the two pages, or to wait with --endpoint.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="A server whose /metrics is fetched twice.")
    ] = None,
    key_env: options.KeyEnv = None,
    numbers_file: Annotated[
        Path | None, typer.Option("--numbers", metavar="FILE", help="Numbers in a .json or .toml file.")
    ] = None,
    slo: options.Slo = None,
    sets: options.Set = None,
    score: Annotated[
        bool, typer.Option("--score", help="How often the advisor's predictions on this machine were right.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Name what limits a run or a server, and propose changes of one variable each."""
    from experiments.advisor.diagnose import diagnose

    if score:
        print_scores(as_json)
        return
    given = {"--run": run, "--metrics": metrics, "--endpoint": endpoint, "--numbers": numbers_file}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise InputError("advise", " ".join(named) or "nothing", f"one of {', '.join(given)}")
    if later is not None and metrics is None:
        raise InputError("--metrics-later", str(later), "a second page beside --metrics")
    settings = options.settings(sets)
    if settings and (run is not None or numbers_file is not None):
        raise InputError("--set", " ".join(sets or ()), "the settings of a server; a run and a file say their own")
    length = None if seconds is None else numbers.number("--seconds", seconds)
    if length is not None and not SHORTEST_S <= length <= LONGEST_S:
        raise InputError("--seconds", seconds, f"{SHORTEST_S:g} to {LONGEST_S:g}")
    if run is not None:
        evidence = _of_run(run, arm, slo)
    elif numbers_file is not None:
        from experiments.advisor.numbers_file import evidence_from_file

        evidence = evidence_from_file(numbers_file, slo)
    else:
        from experiments.advisor.metrics_page import evidence_from_pages

        if metrics is not None:
            first, second = _of_files(metrics, later)
        else:
            length = 10.0 if length is None else length
            first, second = fetch_pages(endpoint or "", length, key_env)
        evidence = evidence_from_pages(first, second, seconds=length, slo=slo, settings=settings)
    found = diagnose(evidence)
    next_change = None if run is None else _next_change(found, run, arm)
    if as_json:
        print_json({**found.to_json(), "advice": None if next_change is None else next_change.to_json()})
        return
    print_diagnosis(found)
    if next_change is not None:
        from experiments.advisor.advice_table import print_advice

        print_advice(next_change)


def _next_change(found: Diagnosis, run_id: str, arm: str) -> Advice | None:
    """The one next change against what limits a stored run, with its prediction."""
    from experiments.advisor.advice import advise as advised
    from experiments.advisor.advice import base_of
    from experiments.store import Store

    store = Store()
    return advised(found.findings, base_of(store.get_run(run_id), numbers.whole("--arm", arm) or 0), store)


def print_scores(as_json: bool) -> None:
    """The score of every stored prediction that has an outcome."""
    from experiments.advisor.record_score import score
    from experiments.advisor.record_table import print_score
    from experiments.store import Store

    found = score(Store())
    if as_json:
        print_json(found)
    else:
        print_score(found)


def _of_run(run_id: str, arm: str, slo: str | None) -> Evidence:
    from experiments.advisor.from_run import evidence_from_run
    from experiments.store import Store

    place = numbers.whole("--arm", arm)
    return evidence_from_run(run_id, Store(), arm=place or 0, slo=slo)


def _of_files(first: Path, later: Path | None) -> tuple[str, str | None]:
    from experiments.advisor.numbers_file import read_text

    return read_text("--metrics", first), None if later is None else read_text("--metrics-later", later)


def fetch_pages(address: str, seconds: float, key_env: str | None) -> tuple[str, str]:
    """Two /metrics pages of a server, so many seconds apart; CannotRunError where it does not give them."""
    import asyncio
    import os

    from experiments.endpoint_fields import checked_address, split_model
    from experiments.targets.client import Client, FailedRequestError

    base, _ = split_model(checked_address("--endpoint", address))
    key = None if key_env is None else os.environ.get(key_env)
    if key_env is not None and not key:
        raise CannotRunError(f"key_env: the environment variable {key_env} is not set")

    async def page(client: Client) -> str:
        try:
            status, body = await client.call("GET", "/metrics")
        except FailedRequestError as error:
            raise CannotRunError(f"{base}/metrics: {error}") from None
        if status != 200 or not isinstance(body, str):
            raise CannotRunError(f"{base}/metrics answered {status}: the server shows no metrics (SGLang needs "
                                 "--enable-metrics)")  # fmt: skip
        return body

    async def both() -> tuple[str, str]:
        async with Client(base, key=key, timeout_s=30.0) as client:
            first = await page(client)
            await asyncio.sleep(seconds)
            return first, await page(client)

    return asyncio.run(both())


def print_diagnosis(found: Diagnosis) -> None:
    """The causes with their evidence, the changes with their flags, and what is missing."""
    from experiments.advisor.diagnose import how_to_judge
    from experiments.cli.tables import console, plain_table

    out = console()
    out.print(f"{found.verdict}: {found.why} ({found.evidence.provenance}; from {found.evidence.source})", markup=False)
    for objective in found.unjudged:
        out.print(f"not judged: {objective.name}, of which nothing is known; measure {how_to_judge(objective)}",
                  markup=False)  # fmt: skip
    for place, finding in enumerate(found.findings):
        follows = f", follows from {finding.follows_from}" if finding.follows_from else ""
        out.print(f"\n{place + 1}. {finding.cause} (weight {finding.score:.2f}{follows})", markup=False)
        for line in finding.lines if place == 0 else finding.lines[:MOST_LINES]:
            out.print(f"   {line.text}", markup=False)
    if found.top is not None:
        _print_changes(found)
        out.print("\nwhere this holds")
        for bound in found.top.bounds:
            out.print(f"   {bound.claim}: {bound.text}", markup=False)
    if found.missing and not (found.findings and found.top is not None and found.top.score > 0.8):
        table = plain_table("not told", "measure")
        table.columns[1].justify = "left"
        for one in found.missing:
            table.add_row(one.cause, one.measures()[0])
        out.print()
        out.print(table)


def _print_changes(found: Diagnosis) -> None:
    """One row a change, first those of the first finding, each with the flag of the engine that is asked about."""
    from rich.markup import escape

    from experiments.cli.tables import console, plain_table

    engine = found.evidence.engine
    out = console()
    table = plain_table("change", "from", "to", "effort", "for", "flags")
    for column in table.columns:
        column.justify = "left"
    for finding, change in found.changes():
        flags = change.flags()
        named = {engine: flags[engine]} if engine in flags else flags
        table.add_row(
            change.variable,
            "–" if change.from_value is None else escape(str(change.from_value)),
            "–" if change.to_value is None else escape(str(change.to_value)),
            change.effort,
            finding.cause,
            escape("; ".join(f"{name} {flag}" for name, flag in named.items())) or "–",
        )
    out.print()
    out.print(table)
    first = found.changes()[0][1] if found.changes() else None
    if first is not None:
        out.print(f"\nfirst: {first.variable}: {first.why}; refuted if {first.refuted_by}", markup=False)
