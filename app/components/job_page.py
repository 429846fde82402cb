"""The frame of a page about stored jobs: question, setup, what runs now, the guess beforehand, results, going on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.components.failed import failed_run
from app.components.inputs import passed_over
from app.components.stored_job import cancel, must_predict, resume, resume_button, shown_run, start, tell, told
from app.components.undo import undo_button
from app.state import store, t
from app.visitor import is_mine, may_change
from experiments import jobs
from experiments.kinds import kind_of
from experiments.quality.predictions import Prediction
from experiments.store import Run, Store
from ledger.errors import CannotRunError, InputError


class Chosen(Protocol):
    """What the setup was left at."""

    def spec(self) -> dict[str, Any]:
        """The job's spec."""
        ...


class Setup(Protocol):
    """Draws the inputs and returns what they are left at; while a run of this visitor is active Cancel stands in the
    place of Run."""

    def __call__(
        self,
        page: str,
        *,
        active: bool,
        cancelling: bool,
        primary: bool,
        on_run: Callable[[Any], None],
        on_cancel: Callable[[], None],
    ) -> Chosen: ...


Guessed = Callable[[dict[str, Prediction]], None]


@dataclass(frozen=True)
class JobPage:
    """name: prefix of its words and keys; kind: of its runs. what: a run's own words in the box to choose one from.

    live: draws a run at work; results: a finished one. ask: asks for the guesses, which lock_in keeps, where a run's
    spec has anything to guess (asks); a page that asks nothing has neither. own: which runs of the kind are the page's.
    """

    name: str
    kind: str
    what: Callable[[Run], str]
    setup: Setup
    live: Callable[[str], None]
    results: Callable[[Run], None]
    ask: Callable[[Run, Guessed], None] | None = None
    lock_in: Callable[[str, dict[str, Prediction], Store], None] | None = None
    asks: Callable[[Run], bool] = lambda run: True
    own: Callable[[Run], bool] = lambda run: True


def question(name: str, above: DeltaGenerator | None = None) -> None:
    """A page's question and what it does; above: where it stands when something was drawn before it."""
    with above or st.container():
        st.title(t(f"{name}.question"), anchor=False)
        st.caption(t(f"{name}.caption"))


def job_page(page: JobPage, above: DeltaGenerator | None = None) -> None:
    """Draw it for the run in the address, or the newest one; above: where its question stands, if not here."""
    name = page.name
    question(name, above)
    run = shown_run(name, page.kind, t(f"{name}.stored"), page.what, page.own)
    active = run is not None and run.state in jobs.ACTIVE
    ask, lock_in = page.ask, page.lock_in
    asking = run is not None and ask is not None and is_mine(run) and must_predict(run) and page.asks(run)

    def begin(choice: Chosen) -> None:
        start(name, page.kind, choice.spec)

    left_at = page.setup(
        name,
        active=active and run is not None and may_change(run),
        cancelling=run is not None and run.cancel_requested,
        primary=not asking,
        on_run=begin,
        on_cancel=lambda: cancel(name, run),
    )
    passed_over(name)
    if not active:
        undo_button(name)
    told(name)
    if run is not None and not active and _differs(page.kind, left_at, run):
        st.info(t("page.differs"))
    if run is None:
        st.markdown(t(f"{name}.intro"))
        return
    if active:
        page.live(run.id)
    if asking and ask is not None and lock_in is not None:
        ask(run, lambda given: tell(name, lambda: lock_in(run.id, given, store())))
    elif run.result is not None and not active:
        page.results(run)
    else:
        _stopped(name, run)


def _differs(kind: str, left_at: Chosen, run: Run) -> bool:
    """Whether the inputs would start another run than the one shown; not of inputs that would start none."""
    try:
        return kind_of(kind).check(left_at.spec()) != run.spec
    except (InputError, CannotRunError):
        return False


def _stopped(name: str, run: Run) -> None:
    """What became of a run without a result, and the way to go on."""
    if run.state == "failed":
        failed_run(run, t(f"{name}.failed_next"), lambda: resume(name, run), t(f"{name}.resume"))
    elif run.state == "cancelled":
        st.info(t(f"{name}.cancelled"))
        resume_button(name, run, t(f"{name}.resume"))
