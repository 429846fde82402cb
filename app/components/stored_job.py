"""What pages of a stored job share: choosing the run that is shown, and doing something with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app import own_jobs
from app.components.section import escape
from app.state import set_address, store, t, translated
from app.visitor import is_mine, may_change
from experiments import jobs
from experiments.kinds import resumable
from experiments.store import Run
from ledger.errors import CannotRunError, InputError

LISTED = 50


def shown_run(
    page: str, kind: str, caption: str, what: Callable[[Run], str], own: Callable[[Run], bool] = lambda run: True
) -> Run | None:
    """The run of the address, else the visitor's that runs, else the newest of its kind that has a result (the
    visitor's before others'); with the box to choose another. What others' runs are at is theirs to watch.

    what: a run's own words in that box, after its state and time; own: which runs of the kind the page is about.
    """
    asked = st.query_params.get("run")
    runs = [run for run in store().list_runs(kind=kind, limit=LISTED) if own(run)]
    runs = [run for run in runs if is_mine(run) or run.result is not None or run.id == asked]
    if asked and asked not in [run.id for run in runs]:
        try:
            found = store().get_run(asked)
            runs = [found, *runs] if found.kind == kind and own(found) else runs
        except InputError:
            st.warning(t("page.unknown_run", id=escape(asked)))
    if not runs:
        set_address(run=None)
        return None
    ids = [run.id for run in runs]
    running = next((run.id for run in runs if run.state in jobs.ACTIVE and is_mine(run)), None)
    finished = [run for run in runs if run.result is not None]
    newest = next((run.id for run in (*filter(is_mine, finished), *finished)), ids[0])
    first = asked if asked in ids else running or newest
    labels = {run.id: _label(run, what(run)) for run in runs}
    # A box keeps the words that it was first drawn with: another state is another box.
    key = f"{page}-run-{first}-{runs[ids.index(first)].state}"
    chosen = st.selectbox(caption, ids, index=ids.index(first), format_func=labels.__getitem__, key=key)
    set_address(run=chosen)
    try:
        return jobs.status(chosen, store())
    except InputError:  # deleted in between
        return None


def _label(run: Run, what: str) -> str:
    time = run.created_at[:16].replace("T", " ")
    return f"{t(f'runs.state_{run.state}')} · {time} UTC · {what} · {run.id}"


def must_predict(run: Run) -> bool:
    """Whether the reader has neither said what they expect nor skipped it."""
    return run.spec.get("predictions") is None and (run.state in jobs.ACTIVE or run.result is not None)


def tell(page: str, action: Callable[[], None]) -> None:
    """Do it; what was wrong with it is one line on the next draw (see `told`)."""
    try:
        action()
    except (InputError, CannotRunError) as error:
        st.session_state[f"{page}-error"] = str(error)


def told(page: str) -> None:
    """The line of the last action that went wrong."""
    error = st.session_state.pop(f"{page}-error", None)
    if error:
        st.error(t("failed.input_error", error=escape(translated(error))))


def start(page: str, kind: str, spec: Callable[[], dict[str, Any]]) -> None:
    """Start a job and show it."""
    tell(page, lambda: set_address(run=own_jobs.start(kind, spec())))


def cancel(page: str, run: Run | None) -> None:
    """Ask a run, if there is one, to stop; what it has finished is kept."""
    if run is not None:
        tell(page, lambda: own_jobs.cancel(run.id))


def resume(page: str, run: Run) -> None:
    """Start a stopped run again: the same one where its kind can go on and it is the visitor's, else a new one of the
    same spec."""
    if run.kind in resumable() and may_change(run):
        tell(page, lambda: own_jobs.resume(run.id))
    else:
        tell(page, lambda: set_address(run=own_jobs.restart(run.id)))


def resume_button(page: str, run: Run, label: str) -> None:
    """A button that starts a stopped run again."""
    st.button(label, icon=":material/resume:", on_click=lambda: resume(page, run), key="resume")
