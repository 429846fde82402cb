"""The sections of the trace page, for one record or for the two arms of a comparison side by side on shared axes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import block_map, block_timeline, kinds_chart, waterfall_chart
from app.charts.kv_trace import kinds_in
from app.components.host_share import host_share
from app.components.live import request_letter
from app.components.section import escape, first_rows, section_head
from app.state import badge, draw, mode, sentences, t, words
from experiments.kv_trace import blocks_at
from experiments.metrics.kv import EXTERNAL, KINDS
from experiments.report.words import MISSING, number, percent
from experiments.store import Run
from experiments.trace_export import chrome_trace
from experiments.trace_view import Blocks, TraceView, step_of, waste_rows

MIB = 2**20
ONE_STEP = "trace-one-step"  # the box with all blocks of one step
WASTE_KINDS = (*KINDS, EXTERNAL, "wasted")


@dataclass(frozen=True)
class Side:
    """One record on the page: which arm it is, what that arm is called, and what is drawn of it."""

    arm: int
    name: str
    record: dict[str, Any]
    view: TraceView

    @property
    def blocks(self) -> Blocks:
        """The KV pool; only for sides that have it."""
        if self.view.blocks is None:
            raise ValueError("this record has no KV by kind")
        return self.view.blocks


@contextmanager
def _named(side: Side, sides: Sequence[Side]) -> Iterator[None]:
    """The arm's name above what is drawn of it, where two stand side by side."""
    if len(sides) > 1:
        st.markdown(f"**{escape(side.name)}**")
    yield


def side_by_side(sides: Sequence[Side], show: Callable[[Side], None]) -> None:
    """Each side in a column of its own, named where there are two."""
    for column, side in zip(st.columns(len(sides)), sides, strict=True):
        with column, _named(side, sides):
            show(side)


def of_arms(rows: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]) -> pd.DataFrame:
    """(arm's name, its rows) of each arm as one table with the arm in the first column."""
    arm = t("chart.arm")
    return pd.DataFrame([{arm: name, **row} for name, own in rows for row in own])


def blocks(sides: Sequence[Side]) -> None:
    """The block map over time, and all blocks of one step."""
    with st.container(border=True):
        cells = {side.arm: [vars(cell) for cell in side.blocks.grid.cells] for side in sides}
        frame = of_arms((side.name, cells[side.arm]) for side in sides)
        first = sides[0].blocks
        group = max(side.blocks.grid.group for side in sides)
        top = max(side.blocks.grid.top for side in sides)
        told = [t("trace.blocks_caption", blocks=first.num_blocks, size=first.block_size)]
        if group > 1:
            told.append(t("trace.blocks_grouped", n=group))
        if top < max(side.blocks.num_blocks for side in sides):
            told.append(t("trace.blocks_never", n=top))
        section_head(f"{t('trace.blocks')} {badge('measured')}", sentences(told), frame, "blocks")
        end_s = max(side.blocks.end_s for side in sides)

        states = {cell.state for side in sides for cell in side.blocks.grid.cells}

        def show(side: Side) -> None:
            chart = block_timeline(cells[side.arm], top, end_s, mode(), words("chart."), states)
            draw(chart, t("alt.block_timeline", arm=side.name))

        side_by_side(sides, show)
        box = st.expander(t("trace.one_step"), key=ONE_STEP, on_change="rerun")
        if box.open:  # thousands of blocks
            with box:
                one_step(sides)


@st.fragment
def one_step(sides: Sequence[Side]) -> None:
    """All blocks while one step executed; a fragment of its own, so that the slider moves nothing else."""
    share = st.slider(t("trace.moment"), 0, 100, 50, format="%d %%", key="trace-moment")

    def show(side: Side) -> None:
        place = step_of(side.record, share / 100)
        found = blocks_at(side.record, place)
        step = side.record["steps"][place]
        when = number(step["execute_start_ns"] / 1e9, 4)
        numbers = {"step": found["step"], "time": when, "used": found["used"], "total": found["total"]}
        st.caption(t("trace.step_caption", rows=len(step["rows"]), **numbers))
        draw(block_map(found, request_letter, mode(), words("chart.")), t("alt.block_map"))

    side_by_side(sides, show)


def kinds(sides: Sequence[Side]) -> None:
    """KV by kind over time, and the waste table with its arithmetic."""
    with st.container(border=True):
        frame = of_arms((side.name, waste_rows(side.blocks.waste)) for side in sides)
        section_head(f"{t('trace.kinds')} {badge('measured')}", t("trace.kinds_caption"), frame, "kv")
        end_s = max(side.blocks.end_s for side in sides)
        pool = max(side.blocks.pool_bytes for side in sides)

        named = {kind for side in sides for kind in kinds_in(side.blocks.series)}

        def show(side: Side) -> None:
            chart = kinds_chart(side.blocks.series, pool, end_s, mode(), words("chart."), named)
            draw(chart, t("alt.kinds", arm=side.name))

        side_by_side(sides, show)
        st.markdown(f"**{t('trace.waste')}**")
        st.caption(t("trace.waste_caption"))
        st.dataframe(pd.DataFrame([_waste_row(kind, sides) for kind in WASTE_KINDS]), hide_index=True)
        with st.expander(t("trace.arithmetic")):
            for side in sides:
                with _named(side, sides):
                    st.markdown("\n".join(f"- {_arithmetic(row, side)}" for row in waste_rows(side.blocks.waste)))
        _fullness(sides)


def _waste_row(kind: str, sides: Sequence[Side]) -> dict[str, str]:
    shown = {t("trace.kind"): t(f"trace.kind_{kind}")}
    for side in sides:
        found = side.blocks.waste[kind]
        name = [side.name] if len(sides) > 1 else []
        shown[t("comma").join([*name, "MiB"])] = number(found["bytes"] / MIB)
        shown[t("comma").join([*name, t("trace.share")])] = percent(100 * found["share"])
    return shown


def _arithmetic(row: dict[str, Any], side: Side) -> str:
    line = t(
        "trace.arithmetic_line",
        tokens=number(row["tokens"], 5),
        each=_whole(side.blocks.waste["bytes_per_token"]),
        bytes=_whole(row["bytes"]),
        pool=_whole(side.blocks.waste["pool_bytes"]),
        share=percent(100 * row["share"]),
    )
    name = t(f"trace.kind_{row['kind']}")
    return f"{name}{t('colon')}{escape(line)}"


def _whole(value: float | None) -> str:
    """A count, thousands separated; a dash for none."""
    return MISSING if value is None else f"{value:,.0f}"


def _fullness(sides: Sequence[Side]) -> None:
    """How many requests ran at once, and slots that finished ones kept."""
    for side in sides:
        running, slots = side.view.concurrency, side.view.slots
        line = t(
            "trace.fullness",
            mean=number(running["mean"]),
            peak=running["peak"],
            idle=percent(None if slots["idle_share"] is None else 100 * slots["idle_share"]),
        )
        st.caption(f"{side.name}{t('colon')}{line}" if len(sides) > 1 else line)


def waterfalls(sides: Sequence[Side]) -> None:
    """Where each request's latency went, and how much of it no timer explains."""
    with st.container(border=True):
        frame = of_arms((side.name, side.view.waterfalls) for side in sides)
        section_head(f"{t('trace.waterfall')} {badge('measured')}", t("trace.waterfall_caption"), frame, "waterfall")
        end_s = max((row["e2e_s"] for side in sides for row in side.view.waterfalls), default=1.0)

        def show(side: Side) -> None:
            chart = waterfall_chart(side.view.waterfalls, end_s, mode(), words("chart."))
            draw(chart, t("alt.waterfall", arm=side.name))
            share = side.view.unexplained
            middle, far = (None if share[key] is None else 100 * share[key] for key in ("p50", "p99"))
            st.caption(t("trace.unexplained", p50=percent(middle), p99=percent(far), n=share["n"]))
            host_share(side.view.host, side.name)

        side_by_side(sides, show)


def prefix_and_preemptions(sides: Sequence[Side]) -> None:
    """What the prefix cache found for each request, and who was preempted."""
    left, right = st.columns(2, border=True)
    with left:
        st.markdown(f"## {t('trace.prefix')} {badge('measured')}")
        for side in sides:
            with _named(side, sides):
                _prefix(side)
    with right:
        st.markdown(f"## {t('trace.preemptions')} {badge('measured')}")
        for side in sides:
            with _named(side, sides):
                _preemptions(side)


def _prefix(side: Side) -> None:
    found = side.view.prefix
    if not side.view.prefix_on:
        st.caption(t("trace.prefix_off", prefill=_whole(found["prefill_tokens"])))
        return
    rate = None if found["hit_rate"] is None else 100 * found["hit_rate"]
    figures = {"rate": percent(rate), "hit": _whole(found["hit_tokens"])}
    st.caption(t("trace.prefix_caption", prefill=_whole(found["prefill_tokens"]), **figures))
    if not found["hit_tokens"]:
        return
    column = st.column_config.ProgressColumn(t("trace.hit_share"), min_value=0, max_value=1, format="percent")
    names = {"request": t("live.request"), "share": t("trace.hit_share"), "hit": t("trace.hit"),
             "asked": t("trace.asked")}  # fmt: skip
    rows = pd.DataFrame(side.view.prefix_rows, columns=list(names)).rename(columns=names)
    first_rows(rows, **{t("trace.hit_share"): column})


def _preemptions(side: Side) -> None:
    rows = side.view.preemptions
    if not rows:
        st.caption(t("trace.no_preemptions"))
        return
    st.caption(t("trace.preemptions_caption", n=len(rows)))
    names = {"request": t("live.request"), "out_s": t("trace.out"), "waited_s": t("trace.waited")}
    shown = [{**row, **{name: number(row[name], 4) for name in ("out_s", "waited_s")}} for row in rows]
    first_rows(pd.DataFrame(shown, columns=list(names)).rename(columns=names))


def downloads(run: Run, sides: Sequence[Side], repeat: int) -> None:
    """The record and its Chrome trace, made when asked for, and the command that does the same."""
    st.markdown(f"## {t('result.export')}")
    st.caption(t("trace.export_caption"))
    with st.container(horizontal=True):
        for side in sides:
            name = f"trilemma-{run.id}-{side.arm}-{repeat}"
            suffix = f" · {side.name}" if len(sides) > 1 else ""
            _download(f"{t('result.json')}{suffix}", side.record, f"{name}.json", ":material/data_object:")
            _download(f"{t('trace.chrome')}{suffix}", side, f"{name}.trace.json", ":material/timeline:")
    commands = [
        f"trilemma runs trace {run.id} --arm {side.arm} --repeat {repeat} --format chrome --out trace-{side.arm}.json"
        for side in sides
    ]
    st.code("\n".join(commands), language="shell", wrap_lines=True)


def _download(label: str, content: dict[str, Any] | Side, name: str, icon: str) -> None:
    def made() -> str:
        value = chrome_trace(content.record) if isinstance(content, Side) else content
        return json.dumps(value, separators=(",", ":"))

    st.download_button(label, made, name, "application/json", icon=icon, on_click="ignore", key=name)
