"""The score as text for a terminal, `trilemma advise --score`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MISSING = "-"


def print_score(score: Mapping[str, Any]) -> None:
    """The whole table: overall, by curve, by source, and the two rules that know nothing."""
    from experiments.cli.tables import console, plain_table

    out = console()
    if not score["comparisons"]:
        out.print("no comparison has been predicted yet: trilemma advise proposes one, and the page Advisor runs it")
        return
    out.print(
        f"{score['comparisons']} predicted comparisons, {score['curves']} curves: {score['unpredicted']} without a "
        f"prediction, {score['undecided']} undecided by the comparison"
    )
    table = plain_table("", "direction right", "in the 80 % band", "half-width, points", "error, points")
    parts = {"all curves": score["overall"], "timed curves": score["timed"], **score["by_curve"]}
    parts |= {f"by {name}": part for name, part in score["by_source"].items()}
    for name, part in parts.items():
        table.add_row(name, _share(part["direction"], "right"), _share(part["bands"], "covered"),
                      _points(part["half_width_points"]), _points(part["error_points"]))  # fmt: skip
    for name, part in score["baselines"].items():
        table.add_row(f"always: {name}", _share(part["direction"], "right"), MISSING, MISSING,
                      _points(part["error_points"]))  # fmt: skip
    out.print(table)
    goals = score["goals"]
    low, high = goals["coverage"]
    out.print(
        f"goals: direction {100 * goals['direction']:.0f} %, bands {100 * low:.0f} to {100 * high:.0f} %, half-width "
        f"at most {goals['half_width_points']:g} points; half-width and error are medians; curves whose outputs are "
        "the same by construction have no band"
    )


def _share(part: Mapping[str, Any], name: str) -> str:
    if not part["of"]:
        return MISSING
    low, high = part["ci95"]
    return f"{part[name]} of {part['of']}, {100 * part['share']:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def _points(value: float | None) -> str:
    return MISSING if value is None else f"{value:.1f}"
