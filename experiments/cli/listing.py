"""`trilemma variables` and `trilemma workloads`: what can be changed, and under which load."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.options import Json
from experiments.cli.output import print_json

if TYPE_CHECKING:
    from core_engine.variables import Variable
    from experiments.workloads.spec import WorkloadSpec


def variables(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them, with what it goes with and peers' flags.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List every variable of the engine: its values, its default and what it does."""
    from core_engine.variables import VARIABLES, variable

    shown = list(VARIABLES.values()) if name is None else [variable(name)]
    if as_json:
        print_json({"variables": [{**asdict(one), "accepted": one.accepted()} for one in shown]})
    elif name is None:
        _print_variables(shown)
    else:
        print("\n".join(_described(shown[0])))


def workloads(as_json: Json = False) -> None:
    """List the built-in workloads; `trilemma bench --workload NAME --dry-run` shows one in detail."""
    from experiments.workloads import WORKLOADS

    rows = [_workload(spec) for spec in WORKLOADS.values()]
    if as_json:
        print_json({"workloads": rows})
        return
    for row in rows:
        pace = "all at once" if row["rate_rps"] is None else f"{row['rate_rps']:g}/s"
        print(f"{row['name']:<14} {row['num_requests']} requests, {pace}. {row['description']}")


def _workload(spec: WorkloadSpec) -> dict[str, Any]:
    return {"name": spec.name, "num_requests": spec.num_requests, "rate_rps": spec.rate_rps,
            "max_tokens": spec.max_tokens, "description": spec.description}  # fmt: skip


def _print_variables(shown: list[Variable]) -> None:
    group = ""
    for one in shown:
        if one.group != group:
            group = one.group
            print(f"\n{group}" if one is not shown[0] else group)
        print(f"  {one.name} = {_default(one)}  ({one.accepted()})\n      {one.help}")


def _described(one: Variable) -> list[str]:
    """A line for everything that its entry says."""
    lines = [f"{one.name} = {_default(one)}", one.help, f"accepted: {one.accepted()}"]
    if one.moves:
        lines.append(f"should move: {', '.join(one.moves)}")
    for value, needed in one.requires.items():
        lines.append(f"{value} needs {' '.join(f'{other}={wanted}' for other, wanted in needed.items())}")
    for value in one.excludes:
        out = [f"{other}={','.join(map(str, values))}" for other, values in one.ruled_out(value).items()]
        lines.append(f"{value} can't go with {' '.join(out)}")
    for other, values in one.acts_with.items():
        lines.append(f"acts with {other}={','.join(map(str, values))}")
    return [*lines, *(f"{peer}: {flag}" for peer, flag in one.peers.items())]


def _default(one: Variable) -> str:
    """The default as a reader types it; a default that is empty shows as such."""
    text = f"{one.default:g}" if isinstance(one.default, float) else str(one.default)
    return text or '""'
