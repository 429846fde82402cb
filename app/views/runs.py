"""Every run of this machine: find, open, compare, report, export, import, go on, delete."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import streamlit as st

from app import own_jobs
from app.components.empty import empty
from app.components.report_files import report_formats
from app.components.run_words import kind_words, run_words
from app.components.section import escape
from app.navigation import page_of
from app.state import error_text, language, set_address, store, t, translated
from app.views.trace import KINDS as TRACED
from app.visitor import may_change
from experiments import jobs
from experiments.kinds import KINDS, resumable
from experiments.report import answer_of, headline
from experiments.report.other_terms import metrics_in, other_terms_rows
from experiments.report.words import MISSING, Words
from experiments.run_file import SUFFIX, export_run, import_run
from experiments.runs_view import facts
from experiments.store import Run
from experiments.store.store import STATES
from experiments.workloads.source import short_name
from ledger.errors import CannotRunError, InputError

PAGE_SIZE = 25
MOST_COMPARED = 4
CLEARED = "runs-cleared"  # how often: part of the filters' keys, so that they begin anew
# Kind of run -> the page that shows it.
PAGES: dict[str, str] = {
    "compare": "workbench",
    "factorial": "factorial",
    "eval": "quantization",
    "speculation": "speculation",
    "profile": "kernels",
    "sweep": "load",
    "plan": "plan",
    "jitter": "parallel",
    "ladder": "playbook",
    "cache": "caching",
    "claims": "claims",
    "calibrate": "settings",
}


def page() -> None:
    """Draw the run of the address, if there is one, then the list, newest first."""
    st.title(t("runs.title"), anchor=False)
    st.caption(t("runs.caption"))
    if error := st.session_state.pop("runs_error", None):
        st.error(t("runs.not_done", error=escape(translated(error))))
    if done := st.session_state.pop("runs_done", None):
        st.success(done)
    if asked := st.query_params.get("run"):
        _details(asked)
    chosen = _filters()
    count = store().count_runs(**chosen)
    start = _first_shown(count)
    listed = [_as_it_is(run) for run in store().list_runs(PAGE_SIZE, offset=start, **chosen)]
    if not listed:
        if any(chosen.values()):
            empty(t("runs.none_found"), t("empty.clear_filter"), _clear_filters, "filter_alt_off")
        else:
            empty(t("runs.empty"), t("empty.to_workbench"), "workbench", "science")
        return
    _comparison(listed)
    for run in listed:
        _row(run)


def _as_it_is(run: Run) -> Run:
    return jobs.status(run.id, store()) if run.state in jobs.ACTIVE else run


# -- finding -----------------------------------------------------------------------------------------------------------


def _filters() -> dict[str, Any]:
    """The filter row; what is chosen stands in the address."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(
            t("runs.text"), st.query_params.get("text", ""), placeholder=t("runs.text_help"),
            key=f"runs-text-{st.session_state.get(CLEARED, 0)}",
        )  # fmt: skip
        options = {"kind": list(KINDS), "state": list(STATES), "workload": store().workloads()}
        labels: dict[str, Callable[[str], str]] = {
            "kind": kind_words, "state": lambda name: t(f"runs.state_{name}"), "workload": short_name,
        }  # fmt: skip
        chosen = {name: _choice(name, given, labels[name]) for name, given in options.items()}
        _import()
    set_address(text=text or None, **chosen)
    return {**chosen, "text": text or None}


def _choice(name: str, options: list[str], label: Callable[[str], str]) -> str | None:
    """A box with the options and "all"."""
    asked = st.query_params.get(name)
    index = options.index(asked) if asked in options else None
    key = f"runs-{name}-{st.session_state.get(CLEARED, 0)}"
    return st.selectbox(t(f"runs.{name}"), options, index, format_func=label, placeholder=t("runs.all"), key=key)


def _clear_filters() -> None:
    st.session_state[CLEARED] = st.session_state.get(CLEARED, 0) + 1
    set_address(text=None, kind=None, state=None, workload=None, part=None)


def _first_shown(count: int) -> int:
    """The place of the first run of the chosen page of the list."""
    pages = max(1, -(-count // PAGE_SIZE))
    if pages == 1:
        return 0
    asked = st.query_params.get("part", "1")
    value = min(pages, max(1, int(asked))) if asked.isdecimal() else 1
    label = t("runs.page", count=f"{count:,}")
    number = int(st.number_input(label, 1, pages, value, width=200, key=f"page-{pages}"))
    set_address(part=None if number == 1 else number)
    return (number - 1) * PAGE_SIZE


# -- one run in the list -----------------------------------------------------------------------------------------------


def _row(run: Run) -> None:
    with st.container(border=True), st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{escape(run_words(run))}**  \n{_how_it_went(run)}", width="stretch")
        _links(run, details=True)
        _actions(run, "row")


def _links(run: Run, *, details: bool) -> None:
    address = {"run": run.id, "lang": language()}
    if run.kind in PAGES:
        link = page_of(PAGES[run.kind])
        st.page_link(link, label=t("runs.open"), icon=":material/open_in_new:", query_params=address)
    if run.kind in TRACED and store().record_keys(run.id):
        st.page_link(page_of("trace"), label=t("runs.trace"), icon=":material/stacked_bar_chart:", query_params=address)
    if details:
        st.button(t("runs.details"), f"details-{run.id}", icon=":material/info:", type="tertiary", on_click=set_address,
                  kwargs={"run": run.id})  # fmt: skip


def _actions(run: Run, where: str) -> None:
    """Files, going on, deleting. `where` keeps the keys of a run apart that is drawn twice."""

    def offer(name: str, act: Callable[[], None], *, disabled: bool = False) -> None:
        key = f"{where}-{name}-{run.id}"
        icon = f":material/{name}:"
        st.button(t(f"runs.{name}"), key, icon=icon, type="tertiary", disabled=disabled, on_click=_do, args=(act,),
                  help=t("page.not_yours") if others else None)  # fmt: skip

    others = not may_change(run)
    if run.kind in resumable() and run.state in ("cancelled", "failed"):
        offer("resume", lambda: own_jobs.resume(run.id), disabled=others)
    if run.state in jobs.ACTIVE:
        offer("cancel", lambda: own_jobs.cancel(run.id), disabled=others or run.cancel_requested)
        return
    _files(run, where)
    with st.popover(t("runs.delete"), type="tertiary", icon=":material/delete:"):
        st.markdown(t("page.not_yours") if others else t("runs.delete_sure", id=run.id))
        st.button(t("runs.delete"), key=f"{where}-delete-{run.id}", on_click=_delete, args=(run.id,), disabled=others)


def _files(run: Run, where: str) -> None:
    """The report in every format and the run file; each is made when it is asked for."""
    of_runs = store()

    def whole() -> bytes:
        made = BytesIO()
        export_run(run.id, of_runs, made)
        return made.getvalue()

    key = f"{where}-export-{run.id}"
    box = st.popover(t("runs.export"), type="tertiary", icon=":material/download:", key=key, on_change="rerun")
    if not box.open:  # eight buttons a run, for every run of the list
        return
    with box:
        report_formats(run, where)
        st.download_button(t("runs.run_file"), whole, f"trilemma-{run.id}{SUFFIX}", "application/zip",
                           on_click="ignore", key=f"{where}-run_file-{run.id}")  # fmt: skip
        st.caption(t("runs.export_help"))


def _how_it_went(run: Run) -> str:
    parts = [run.id, run.created_at[:16].replace("T", " ") + " UTC", t(f"runs.state_{run.state}")]
    if run.kind == "compare" and run.result is not None:
        parts.append(headline(run.result, language())[1])
    if run.error:
        parts.append(escape(error_text(run.error)))
    return " · ".join(parts)


# -- the run of the address, and runs beside each other ------------------------------------------------------------


def _details(run_id: str) -> None:
    """What one run was asked, what came out in words, and what can be done with it."""
    try:
        run = jobs.status(run_id, store())
    except InputError:
        st.warning(t("page.unknown_run", id=escape(run_id)))
        return
    with st.container(border=True):
        st.markdown(f"### {escape(run_words(run))}")
        st.caption(_how_it_went(run))
        st.markdown(escape(answer_of(run, language())))
        with st.container(horizontal=True, vertical_alignment="center"):
            _links(run, details=False)
            _actions(run, "one")
            st.button(t("runs.close"), icon=":material/close:", type="tertiary", on_click=_close)
        _other_terms(run)
        with st.expander(t("runs.facts")):
            st.table([{t("runs.fact"): fact.name, run.id: fact.values[0]} for fact in facts([run])])


def _other_terms(run: Run) -> None:
    """The run as other benchmarks would have told it."""
    header, rows = other_terms_rows(metrics_in(run.result or {}), Words(language()))
    if rows:
        with st.expander(t("runs.other_terms")):
            st.caption(t("runs.other_terms_help"))
            st.dataframe([dict(zip(header, row, strict=True)) for row in rows], hide_index=True)


def _comparison(listed: list[Run]) -> None:
    """Facts of chosen runs beside each other."""
    labels = {run.id: f"{run.id} · {escape(run_words(run))}" for run in listed}
    with st.expander(t("runs.beside"), icon=":material/compare_arrows:"):
        chosen = st.multiselect(
            t("runs.beside_choose"), list(labels), format_func=labels.__getitem__, max_selections=MOST_COMPARED
        )
        if len(chosen) < 2:
            st.caption(t("runs.beside_help"))
            return
        found = facts([run for run in listed if run.id in chosen])
        names = [run.id for run in listed if run.id in chosen]
        everything = st.toggle(t("runs.beside_all"))
        rows = [fact for fact in found if fact.differs or everything]
        st.dataframe(
            [{t("runs.fact"): fact.name, **dict(zip(names, fact.values, strict=True))} for fact in rows],
            hide_index=True,
        )
        same = sum(not fact.differs for fact in found)
        st.caption(t("runs.beside_same", same=same, missing=MISSING))


# -- doing ---------------------------------------------------------------------------------------------------------


def _import() -> None:
    """Take in a file; a new box after each, so that one file is taken once."""
    with st.popover(t("runs.import"), icon=":material/upload:"):
        st.caption(t("runs.import_help"))
        number = st.session_state.get("runs_imports", 0)
        file = st.file_uploader(t("runs.run_file"), type="zip", max_upload_size=200, key=f"import-{number}")
    if file is None:
        return
    st.session_state["runs_imports"] = number + 1
    try:
        run = import_run(file, store())
    except (InputError, CannotRunError) as error:
        st.session_state["runs_error"] = str(error)
    else:
        st.session_state["runs_done"] = t("runs.imported", id=run.id)
        set_address(run=run.id)
    st.rerun()


def _do(action: Callable[[], None]) -> None:
    """Do it; what was wrong with it is one line on the next draw."""
    try:
        action()
    except (InputError, CannotRunError) as error:
        st.session_state["runs_error"] = str(error)


def _delete(run_id: str) -> None:
    _do(lambda: own_jobs.delete(run_id))
    if st.query_params.get("run") == run_id:
        _close()


def _close() -> None:
    set_address(run=None)
