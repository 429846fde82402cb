"""How forms, tasks and figures of the Speculation page are called. Formatting only."""

from __future__ import annotations

from app.components.quantization_words import ratio
from app.i18n import catalogue
from app.state import language, t
from experiments.quantization_view import Interval
from experiments.report.words import MISSING, number
from experiments.speculation.spec import FORMS, OFF
from experiments.speculation.tasks import TASKS
from experiments.speculation_view import FormRow


def form_name(form: str) -> str:
    """A form of draft, by its own name where the catalogue has none; a constructed one by what it was made to be."""
    if form not in (OFF, *FORMS):
        return t("spec.form_constructed")
    key = f"spec.form_{form}"
    return t(key) if key in catalogue(language()) else form


def row_name(row: FormRow) -> str:
    """The form of a row; a constructed draft with its acceptance, and its cost where it has one."""
    if row.made is None:
        return form_name(row.form)
    alpha, _, cost = row.made
    key = "spec.made_costly" if cost else "spec.made_free"
    return t(key, alpha=f"{alpha:g}", cost=f"{cost:g}")


def part_name(part: str) -> str:
    """A task, the constructed drafts, or so many sequences at once."""
    if part.isdigit():
        return t("spec.batch_of", count=part)
    return t(f"spec.task_{part}") if part in TASKS else t("spec.constructed")


def times(found: Interval) -> str:
    """1.85× [1.80, 1.91]."""
    return ratio(found)


def model_times(value: float | None) -> str:
    """The model's speed-up."""
    return MISSING if value is None else f"{number(value)}×"


def advice_badge(row: FormRow) -> str:
    """pays, refused or undecided, as markdown with a sign that is not the colour alone."""
    colour, mark = {"pays": ("green", "▲"), "refuses": ("orange", "▼")}.get(row.advice, ("gray", "–"))
    return f":{colour}-badge[{mark} {t(f'spec.advice_{row.advice}')}]"


def reason_text(row: FormRow) -> str:
    """Why the rule refuses, with the figures."""
    return t(
        f"spec.reason_{row.reason}",
        alpha=number(row.alpha),
        needed=MISSING if row.needed_alpha is None else number(row.needed_alpha),
        v=number(row.v),
        c=number(row.c),
        allowed=number(row.allowed_c),
        k=row.k,
        most=row.k + 1,
        speedup=model_times(row.speedup.value),
        model=model_times(row.predicted),
    )
