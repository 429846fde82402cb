"""A profile of a step as figures to show: arms, operators beside each other, what the variable changed.

Knows no page and no language.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_engine.operator_sources import COMPILED
from experiments.operators.spec import DEFAULT_REPEATS
from experiments.report.words import MISSING

REST = "rest"
MOST_SHOWN = 24  # operators of a chart; the table has all
LONGEST_NAME = 44


@dataclass(frozen=True)
class ArmFigures:
    """One arm of a profile: its value as text ("" where nothing is varied), and the whole step's figures."""

    value: str
    launches: int
    host_calls: int | None
    step_s: float
    operators_s: float
    outside_s: float | None
    counts: str
    kernels: str


@dataclass(frozen=True)
class OperatorRow:
    """An operator in every arm, None where it is not in the step. name is its own, short what a chart has room for.

    is_compiled: whether it is one of the compiled step, whose names are words.
    """

    name: str
    short: str
    launches: tuple[int | None, ...]
    seconds: tuple[float | None, ...]
    shares: tuple[float | None, ...]
    is_compiled: bool
    is_rest: bool = False

    @property
    def longest_s(self) -> float:
        """In the arm where it takes longest."""
        return max((one for one in self.seconds if one is not None), default=0.0)


def arm_figures(result: Mapping[str, Any]) -> list[ArmFigures]:
    """The arms, the baseline first."""
    return [
        ArmFigures(
            "" if arm["value"] is None else str(arm["value"]), arm["launches"], arm["host_calls"],
            arm["step_s"]["median"], arm["operators_s"], arm["outside_s"], arm["counts"], arm["kernels"],
        )
        for arm in result["arms"]
    ]  # fmt: skip


def operator_rows(result: Mapping[str, Any]) -> list[OperatorRow]:
    """Every operator of any arm, the one that takes longest first."""
    found = [{one["name"]: one for one in arm["operators"]} for arm in result["arms"]]
    listed = [arm["operators"] for arm in result["arms"] if arm["counts"] == COMPILED]
    compiled = {one["name"] for operators in listed for one in operators}
    rows = [_row(name, found, name in compiled) for name in dict.fromkeys(name for own in found for name in own)]
    return sorted(rows, key=lambda row: -row.longest_s)


def _row(name: str, found: Sequence[Mapping[str, Any]], is_compiled: bool) -> OperatorRow:
    launches, seconds, shares = (
        tuple(own[name][key] if name in own else None for own in found) for key in ("launches", "seconds", "share")
    )
    return OperatorRow(name, short_name(name), launches, seconds, shares, is_compiled)


def shown_rows(rows: Sequence[OperatorRow], most: int = MOST_SHOWN) -> list[OperatorRow]:
    """The first rows, and the others together as one when there are more than `most`."""
    if len(rows) <= most:
        return list(rows)
    kept, others = rows[: most - 1], rows[most - 1 :]
    launches, seconds, shares = (
        tuple(_sum([getattr(row, key)[arm] for row in others]) for arm in range(len(rows[0].seconds)))
        for key in ("launches", "seconds", "shares")
    )
    return [*kept, OperatorRow(str(len(others)), REST, launches, seconds, shares, is_compiled=False, is_rest=True)]


def _sum(values: Sequence[float | None]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def short_name(name: str) -> str:
    """A kernel's name without its types and arguments: void at::native::copy_kernel<4, float>(...) is copy_kernel."""
    plain = re.sub(r"^(void|int|float) ", "", name.replace("(anonymous namespace)::", ""))
    plain = re.split(r"[<(]", plain, maxsplit=1)[0] or name if not name.startswith("(") else name
    plain = plain if plain.startswith("aten::") else plain.split("::")[-1] or plain
    return plain if len(plain) <= LONGEST_NAME else plain[: LONGEST_NAME - 1] + "…"


def flat_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row an operator and arm, every figure as a number, for a table and a file."""
    variable = result["variable"] or "settings"
    return [
        {
            variable: MISSING if arm["value"] is None else str(arm["value"]),
            "operator": one["name"], "launches": one["launches"], "seconds": one["seconds"], "share": one["share"],
            "counts": arm["counts"],
        }
        for arm in result["arms"]
        for one in arm["operators"]
    ]  # fmt: skip


def profile_command(spec: Mapping[str, Any]) -> str:
    """The command line that profiles a spec again."""
    parts = ["trilemma", "profile", "--step", spec["step"]]
    if spec["vary"] is not None:
        parts += ["--vary", f"{spec['vary'][0]}={','.join(map(str, spec['vary'][1]))}"]
    parts += [word for name, value in spec["settings"].items() for word in ("--set", f"{name}={value}")]
    if spec["repeats"] != DEFAULT_REPEATS:
        parts += ["--repeats", str(spec["repeats"])]
    return shlex.join(parts)
