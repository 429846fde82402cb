"""`trilemma factorial`: two variables at once in four arms, and whether they act on each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.groups import grouped
from experiments.cli.measure import run_job, write_report
from experiments.cli.output import CANCELLED, DONE, check_writable, note, print_json
from ledger.counted import counted


@grouped
def factorial(
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="NAME=A,B", help="A variable and its two values, A the baseline; twice."),
    ] = None,
    load: options.Load = options.Load(),
    repeats: Annotated[
        str,
        typer.Option("--repeats", metavar="N|auto", help="Runs of each arm; auto goes on until decided, or 20."),
    ] = "5",
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help="Also write one self-contained HTML file.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Change two variables in all four combinations: what each gives, and whether both give their product."""
    from experiments.factorial import FactorialSpec, parse_factors

    spec = FactorialSpec.from_dict({**load.fields(), "factors": parse_factors(vary or []), "repeats": repeats})
    if report is not None:
        check_writable(report)
    run, result = run_job("factorial", spec.to_dict(), list(spec.arm_names()))
    if report is not None:
        write_report(run.id, report)
        note(f"report: {report}")
    if as_json:
        print_json(result)
    else:
        print_factorial(result)
    return CANCELLED if run.state == "cancelled" else DONE


def print_factorial(result: dict[str, Any]) -> None:
    """The effects of a 2 x 2 experiment curve by curve, and what they say."""
    from experiments.cli.tables import LABELS, change, console, interval, number, plain_table, verdict_text
    from experiments.report.factorial import EFFECTS, effect_name, ordered_readings, reading_sentence
    from experiments.report.words import Words

    out, words = console(), Words("en")
    names = " and ".join(f"{item['variable']}={','.join(map(str, item['values']))}" for item in result["factors"])
    out.print(f"{names}, workload {result['workload']['name']}, {counted(result['repeats'], 'repeat')} of four arms")
    for effect in EFFECTS:
        name = effect_name(effect, result, words)
        table = plain_table(name, "change", "95 %", "noise floor", "detectable from", "verdict", "label")
        for curve in result["effects"][effect]:
            pairs_are = "requests" if curve["name"] == "quality" else "repeats"
            table.add_row(
                LABELS[curve["name"]],
                change(curve["change_pct"]),
                interval(curve["ci95"]),
                number(curve["noise_floor_pct"], " %"),
                number(curve["min_detectable_pct"], " %"),
                verdict_text({**curve, "pairs_are": pairs_are}),
                curve["provenance"],
            )
        out.print(table)
    for reading in ordered_readings(result):
        out.print(reading_sentence(result, reading))
    for name, item in result["held_because"].items():
        out.print(f"held because {item['because']} needs it: {name}={item['value']}")
    out.print(f"price assumed: {result['price_per_device_hour']:g} per device-hour; run {result['run_id']}")
