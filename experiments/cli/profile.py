"""`trilemma profile`: the operators of one step, their launches and time, and what one variable changes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.output import CANCELLED, DONE, Failed, note, print_json

Step = Annotated[
    str,
    typer.Option("--step", metavar="PHASE:NxT", help="decode:8x256, prefill:1x512: N sequences of T tokens each."),
]
Vary = Annotated[
    str | None,
    typer.Option("--vary", metavar="NAME=A,B,...", help="The same step under each value, in turns; first: baseline."),
]


def profile(
    step: Step = "decode:1x256",
    vary: Vary = None,
    sets: options.Set = None,
    repeats: Annotated[str, typer.Option("--repeats", metavar="N", help="Timed steps of each arm, 1 to 200.")] = "12",
    as_json: options.Json = False,
) -> int:
    """Show which operators one step launches, how often, and how long each takes."""
    from experiments import jobs
    from experiments.cli.progress import follow, result_of
    from experiments.operators.spec import ProfileSpec, parse_vary
    from experiments.store import Store

    store = Store()
    spec = {
        "step": step, "vary": None if vary is None else parse_vary(vary), "settings": options.settings(sets),
        "repeats": repeats,
    }  # fmt: skip
    names = ProfileSpec.from_dict(spec).names()
    run = follow(jobs.start("profile", spec, store, followed=True), store, names)
    if run.state == "cancelled":
        raise Failed(f"cancelled; a profile keeps nothing of run {run.id}", CANCELLED)
    result = result_of(run)
    if as_json:
        print_json(result)
    else:
        for warning in result["warnings"]:
            note(f"warning: {warning}")
        print_profile(result)
    return DONE


def print_profile(result: Mapping[str, Any]) -> None:
    """The arms side by side, then every operator with its launches and time in each."""
    from experiments.cli.tables import console, number, plain_table

    out = console()
    arms = result["arms"]
    names = [_name(result, arm) for arm in arms]
    whole = plain_table("", "launches", "host calls", "step, ms", "in operators, ms", "outside, ms", "kernels")
    for name, arm in zip(names, arms, strict=True):
        whole.add_row(
            name, f"{arm['launches']:,}", _count(arm["host_calls"]), number(1e3 * arm["step_s"]["median"]),
            number(1e3 * arm["operators_s"]), number(_ms(arm["outside_s"])), arm["kernels"],
        )  # fmt: skip
    out.print(f"{result['step']['text']}: one step, medians of {result['repeats']}; launches are {_counted(arms)}")
    out.print(whole)
    columns = [column for name in names for column in (f"{name}: launches", "ms", "share")]
    table = plain_table("operator", *columns)
    for operator in dict.fromkeys(one["name"] for arm in arms for one in arm["operators"]):
        cells = []
        for arm in arms:
            found = next((one for one in arm["operators"] if one["name"] == operator), None)
            cells += ["–"] * 3 if found is None else [
                f"{found['launches']:,}", number(1e3 * found["seconds"]), f"{found['share'] or 0:.1%}"
            ]  # fmt: skip
        table.add_row(operator, *cells)
    out.print(table)
    for change in result["changes"]:
        out.print(_change(result, change))
    out.print(f"run {result['run_id']}; measured")


def _name(result: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    return "step" if result["variable"] is None else f"{result['variable']}={arm['value']}"


def _counted(arms: list[dict[str, Any]]) -> str:
    return " / ".join(dict.fromkeys(arm["counts"] for arm in arms))


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def _change(result: Mapping[str, Any], change: Mapping[str, Any]) -> str:
    from experiments.cli.tables import change as percent
    from experiments.cli.tables import interval

    curve, name, base = change["step_s"], result["variable"], result["arms"][0]["value"]
    launches = "" if change["launches"] is None else f"{change['launches']:+,} launches, "
    calls = "" if change["host_calls"] is None else f"{change['host_calls']:+,} host calls, "
    time = f"step time {percent(curve['change_pct'])} {interval(curve['ci95'])}: {curve['verdict']}"
    return f"{name}={change['value']} against {base}: {launches}{calls}{time}".replace(" -", " −")
