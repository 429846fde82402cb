"""Trace & memory: where the time of each request and the memory of the KV pool went, in one stored run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from app.components.accounts import accounts_section
from app.components.empty import empty
from app.components.run_words import run_words
from app.components.section import escape
from app.components.telemetry import telemetry
from app.components.trace_parts import Side, blocks, downloads, kinds, prefix_and_preemptions, waterfalls
from app.state import set_address, store, t
from experiments.store import Run
from experiments.trace_view import TraceView, arms_of, trace_view
from ledger.errors import InputError

KINDS = ("compare", "bench")
BOTH = "both"
LISTED = 50


def page() -> None:
    """Draw the page for the run, arm and repeat in the address, or the newest run."""
    st.title(t("trace.question"), anchor=False)
    run = _run()
    if run is None:
        return
    keys = store().record_keys(run.id)
    if not keys:
        st.info(t("trace.no_records"))
        return
    arm, repeat = _arm_and_repeat(run, keys)
    set_address(run=run.id, arm=arm, repeat=repeat)
    sides = _sides(run, [int(arm)] if arm != BOTH else [0, 1], repeat)
    if any(side.view.blocks is None for side in sides):
        st.info(t("trace.older"))
    with_blocks = [side for side in sides if side.view.blocks is not None]
    if with_blocks:
        blocks(with_blocks)
        kinds(with_blocks)
    with st.container(border=True):
        accounts_section({side.name: side.record["memory"] for side in sides}, "accounts")
    waterfalls(sides)
    telemetry(sides)
    prefix_and_preemptions(sides)
    downloads(run, sides, repeat)


def _run() -> Run | None:
    """The run to show: the address's, else the newest that has ended; None, and said, when there is none."""
    asked = st.query_params.get("run")
    runs = [run for run in store().list_runs(limit=4 * LISTED) if run.kind in KINDS and run.state not in ("queued",)]
    runs = runs[:LISTED]
    if asked and asked not in [run.id for run in runs]:
        try:
            found = store().get_run(asked)
            runs = [found, *runs] if found.kind in KINDS else runs
        except InputError:
            st.warning(t("page.unknown_run", id=escape(asked)))
            asked = None
    if not runs:
        empty(t("trace.no_runs"), t("empty.to_workbench"), "workbench", "science")
        return None
    ids = [run.id for run in runs]
    chosen = st.selectbox(
        t("trace.run"),
        ids,
        index=ids.index(asked) if asked in ids else 0,
        format_func={run.id: _label(run) for run in runs}.__getitem__,
        key=f"trace-run-{asked}",
    )
    if chosen != asked:
        set_address(run=chosen, arm=None, repeat=None)
    return next(run for run in runs if run.id == chosen)


def _label(run: Run) -> str:
    time = run.created_at[:16].replace("T", " ")
    return f"{run_words(run)} · {time} UTC · {run.id}"


def _arm_and_repeat(run: Run, keys: Sequence[tuple[int, int]]) -> tuple[str, int]:
    """The arm ("0", "1" or "both") and the repeat, from the address or the first there is."""
    names = arms_of(run)
    arms = sorted({arm for arm, _ in keys})
    paired = sorted({repeat for _, repeat in keys if all((arm, repeat) in keys for arm in arms)})
    choices = [str(arm) for arm in arms] + ([BOTH] if len(arms) > 1 and paired else [])
    asked = st.query_params.get("arm", choices[-1])
    left, right = st.columns([3, 1])
    arm = asked if asked in choices else choices[-1]
    if len(choices) > 1:
        with left:
            shown = {str(place): name for place, name in enumerate(names)} | {BOTH: t("trace.both")}
            arm = st.segmented_control(
                t("trace.arm"), choices, default=arm, format_func=shown.__getitem__, required=True, key=f"arm-{run.id}"
            )
    repeats = paired if arm == BOTH else sorted(repeat for one, repeat in keys if str(one) == arm)
    wanted = st.query_params.get("repeat", "")
    index = repeats.index(int(wanted)) if wanted.isdigit() and int(wanted) in repeats else 0
    if len(repeats) > 1:
        with right:
            return arm, st.selectbox(t("trace.repeat"), repeats, index=index, key=f"repeat-{run.id}-{arm}")
    return arm, repeats[index]


def _sides(run: Run, arms: list[int], repeat: int) -> list[Side]:
    names = arms_of(run)
    return [
        Side(arm, names[arm], _record(run.id, arm, repeat, run.updated_at), _view(run.id, arm, repeat, run.updated_at))
        for arm in arms
    ]


@st.cache_resource(max_entries=8, show_spinner=False)
def _record(run_id: str, arm: int, repeat: int, updated_at: str) -> dict[str, Any]:
    """Raw events; updated_at keys the cache, since a running job still adds repeats. Shared, not copied: a copy of a
    long run takes longer than the rest of the page, and nobody changes it."""
    return store().record(run_id, arm, repeat)


@st.cache_resource(max_entries=8, show_spinner=False)
def _view(run_id: str, arm: int, repeat: int, updated_at: str) -> TraceView:
    return trace_view(_record(run_id, arm, repeat, updated_at))
