"""The result of a run of forms of draft as figures to show: rows, curves, the batch sweep, arithmetic, guesses.

Owns which figures stand beside each other; what is computed here comes from ledger/speculation.py with measured figures
put in. Knows no page and no language.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.advisor.speculation import PAYS, REFUSES
from experiments.quantization_view import Guess, Interval
from experiments.speculation.expected import EXPECTED
from experiments.speculation.spec import SpeculationSpec
from experiments.speculation.tasks import TASKS
from ledger.speculation import Costs, break_even_alpha, speedup, tokens_per_cycle

STEPS = 50  # of a curve over alpha
ENLARGED = "embedded-wide"


@dataclass(frozen=True)
class FormRow:
    """A form of draft on a task (or a batch size), or why it is not there.

    speedup is measured, in pairs; predicted is the model's with the measured alpha, v and c. made: (alpha, k, c) of a
    constructed draft. verdict: of the timed comparison; advice: pays, refuses or unknown, with its reason.
    """

    task: str
    form: str
    k: int
    alpha: float | None
    alpha_by_position: tuple[float | None, ...]
    acceptance_rate: float | None
    tokens_per_pass: float | None
    draft_time_share: float | None
    drafted_share: float | None
    v: float | None
    c: float | None
    parallel: bool
    tokens_per_s: float | None
    speedup: Interval
    predicted: float | None
    needed_alpha: float | None
    allowed_c: float | None
    verdict: str
    advice: str
    reason: str
    identical: int
    prompts: int
    held: Mapping[str, Any]
    training: Mapping[str, Any] | None
    made: tuple[float, int, float] | None = None

    @property
    def costs(self) -> Costs | None:
        """v, c and how often there is a draft at all; None where no pass had one."""
        if self.v is None or self.c is None or not self.drafted_share:
            return None
        return Costs(self.v, self.c, self.parallel, self.drafted_share)

    @property
    def is_exact(self) -> bool:
        """Whether every answer is the one without drafts."""
        return self.identical == self.prompts


@dataclass(frozen=True)
class TaskTable:
    """Plain decoding of a task's prompts, and a row a form."""

    task: str
    plain_tokens_per_s: float | None
    prompts: int
    rows: tuple[FormRow, ...]


def task_tables(result: Mapping[str, Any]) -> list[TaskTable]:
    """The tasks, each with its forms."""
    return [
        TaskTable(part["name"], part["plain"]["tokens_per_s"], part["plain"]["prompts"], tuple(_rows(part)))
        for part in result["tasks"]
    ]


def constructed_rows(result: Mapping[str, Any]) -> list[FormRow]:
    """The constructed drafts of the length asked for, by acceptance and then by cost."""
    part, k = result["constructed"], result["num_draft_tokens"]
    rows = [] if part is None else [row for row in _rows(part) if row.made is not None and row.made[1] == k]
    return sorted(rows, key=lambda row: (row.made or (0, 0, 0))[::2])


def _rows(part: Mapping[str, Any]) -> list[FormRow]:
    return [_row(part["name"], row, part["made"].get(row["form"])) for row in part["rows"]]


def _row(task: str, row: Mapping[str, Any], made: Mapping[str, Any] | None) -> FormRow:
    ends, advice = row["speedup_ci95"], row["advice"]
    same = ("form", "k", "alpha", "acceptance_rate", "tokens_per_pass", "draft_time_share", "drafted_share", "v", "c",
            "parallel", "tokens_per_s", "verdict", "identical", "prompts", "held", "training")  # fmt: skip
    return FormRow(
        task=task,
        **{name: row[name] for name in same},
        alpha_by_position=tuple(row["alpha_by_position"]),
        speedup=Interval(row["speedup"], None if ends is None else (ends[0], ends[1])),
        predicted=row["predicted"]["speedup"],
        needed_alpha=advice["needed_alpha"],
        allowed_c=advice["allowed_c"],
        advice=advice["verdict"],
        reason=advice["reason"],
        made=None if made is None else (made["alpha"], made["k"], made["c"]),
    )


def best_by_task(tables: Sequence[TaskTable]) -> list[FormRow]:
    """On every task the form with the largest measured speed-up, those of all tasks in order of it."""
    found = [
        max(known, key=lambda row: row.speedup.value or 0)
        for table in tables
        if (known := [row for row in table.rows if row.speedup.value is not None])
    ]
    return sorted(found, key=lambda row: -(row.speedup.value or 0))


def paying(tables: Sequence[TaskTable]) -> list[FormRow]:
    """The best form of every task on which one pays, largest gain first."""
    return [row for row in best_by_task(tables) if row.advice == PAYS]


def refused(tables: Sequence[TaskTable]) -> list[FormRow]:
    """Every form and task that the rule refuses, the largest loss first."""
    rows = [row for table in tables for row in table.rows if row.advice == REFUSES]
    return sorted(rows, key=lambda row: row.speedup.value or 0)


def undecided(tables: Sequence[TaskTable]) -> int:
    """Rows of which neither the break-even nor the timed comparison says enough."""
    return sum(row.advice not in (PAYS, REFUSES) for table in tables for row in table.rows)


@dataclass(frozen=True)
class Curve:
    """Speed-up by alpha at the measured costs of a form, by the model. needed: where it crosses 1, None if nowhere."""

    row: FormRow
    points: tuple[tuple[float, float], ...]
    needed: float | None


def curve_of(row: FormRow) -> Curve | None:
    """None where the costs are not known. The curve is that of cycles with a draft: others are plain passes."""
    if row.costs is None:
        return None
    costs = Costs(row.costs.v, row.costs.c, row.parallel)
    alphas = [step / STEPS for step in range(STEPS + 1)]
    return Curve(row, tuple((a, speedup(a, row.k, costs)) for a in alphas), break_even_alpha(row.k, costs))


def curve_choices(result: Mapping[str, Any]) -> list[FormRow]:
    """A row a form whose costs are known (the task where its v was seen best: the largest share of drafted passes),
    then the constructed draft that costs nothing and the poor one."""
    by_form: dict[str, FormRow] = {}
    for row in (row for table in task_tables(result) for row in table.rows if row.costs is not None):
        if row.form not in by_form or (row.drafted_share or 0) > (by_form[row.form].drafted_share or 0):
            by_form[row.form] = row
    made = [row for row in constructed_rows(result) if row.costs is not None and row.made is not None]
    free = [row for row in made if row.made is not None and row.made[2] == 0][:1]
    costly = [row for row in made if row.made is not None and row.made[2] > 0][:1]
    return [*by_form.values(), *free, *costly]


def points_of(result: Mapping[str, Any]) -> list[FormRow]:
    """Every measured point of the break-even picture: forms on tasks, then constructed drafts."""
    rows = [row for table in task_tables(result) for row in table.rows]
    return [row for row in (*rows, *constructed_rows(result)) if row.alpha is not None and row.speedup.value]


def batch_rows(result: Mapping[str, Any]) -> list[tuple[int, FormRow]]:
    """(sequences at once, row), by form and then by batch."""
    found = [(part["batch"], row) for part in result["batches"] for row in _rows(part)]
    return sorted(found, key=lambda pair: (pair[1].made is not None, pair[1].form, pair[0]))


def batch_where_gain_ends(result: Mapping[str, Any], form: str) -> int | None:
    """The smallest batch at which a form that gained in a smaller one is no longer faster; None if it always is or
    never was."""
    gained = False
    for batch, row in batch_rows(result):
        if row.form != form or row.speedup.value is None:
            continue
        if row.speedup.value > 1:
            gained = True
        elif gained:
            return batch
    return None


def arithmetic(row: FormRow) -> list[str]:
    """The model with the numbers of a row put in, a line a step; empty without its figures."""
    if row.costs is None or row.alpha is None or row.predicted is None:
        return []
    k, a, costs = row.k, row.alpha, row.costs
    tokens, share = tokens_per_cycle(a, k), costs.drafted_share
    drafting = f"{costs.c:.4f}" if costs.parallel else f"{k} x {costs.c:.4f}"
    lines = [
        f"(1 - {a:.3f}^{k + 1}) / (1 - {a:.3f}) = {tokens:.3f} tokens" if a < 1 else f"{k} + 1 = {tokens:.3f} tokens",
        f"{costs.v:.3f} + {drafting} = {costs.v + costs.drafting(k):.3f} passes",
    ]
    if share < 1:
        yielded, spent = tokens_per_cycle(a, k, share), costs.cycle(k)
        lines.append(f"{share:.3f} x {tokens:.3f} + {1 - share:.3f} = {yielded:.3f} tokens")
        lines.append(f"{share:.3f} x {costs.v + costs.drafting(k):.3f} + {1 - share:.3f} = {spent:.3f} passes")
        tokens = yielded
    lines.append(f"{tokens:.3f} / {costs.cycle(k):.3f} = {row.predicted:.3f} x")
    return lines


def guesses(tables: Sequence[TaskTable], predictions: Mapping[str, Mapping[str, float | None]]) -> list[Guess]:
    """What was expected of each form beside what was found where it did best."""
    found = []
    best: dict[str, FormRow] = {}
    for row in (row for table in tables for row in table.rows if row.speedup.value is not None):
        if row.form not in best or (row.speedup.value or 0) > (best[row.form].speedup.value or 0):
            best[row.form] = row
    for form, figures in predictions.items():
        found_best = best.get(form)
        measured = {
            "alpha": Interval(found_best.alpha if found_best else None),
            "speedup": found_best.speedup if found_best else Interval(None),
        }
        for item in EXPECTED:
            expected = figures.get(item.name)
            if expected is not None:
                found.append(Guess(form, item.name, expected, measured[item.name]))
    return found


def is_enlarged(result: Mapping[str, Any]) -> bool:
    """Whether the target was the enlarged one, which every figure of it has to say."""
    return bool(result["settings"].get("model") == ENLARGED)


def speculation_command(spec: Mapping[str, Any]) -> str:
    """The command line that measures a spec again."""
    default = SpeculationSpec()
    parts = ["trilemma", "speculation"]
    parts += [word for name, value in spec["settings"].items() for word in ("--set", f"{name}={value}")]
    for name, known in (("forms", default.forms), ("tasks", TASKS), ("batches", default.batches)):
        if tuple(spec[name]) != tuple(known):
            parts += [f"--{name}", ",".join(map(str, spec[name])) or "none"]
    for name, option in (("num_draft_tokens", "drafts"), ("prompts", "prompts"), ("max_tokens", "max-tokens"),
                         ("repeats", "repeats"), ("seed", "seed")):  # fmt: skip
        if spec[name] != getattr(default, name):
            parts += [f"--{option}", str(spec[name])]
    return shlex.join([*parts, *([] if spec["constructed"] else ["--no-constructed"])])
