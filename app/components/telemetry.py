"""The device beside the latency on the trace page: small multiples of what NVML said, or why there are none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
import streamlit as st

from app.charts import telemetry_chart
from app.components.section import escape, section_head
from app.components.trace_parts import Side, side_by_side
from app.state import badge, draw, mode, t, words
from experiments.metrics.events import duration_s, window_ns
from experiments.report.words import number, percent
from experiments.telemetry_view import OLDER, ON_A_CPU, TelemetryView, telemetry_rows


def telemetry(sides: Sequence[Side]) -> None:
    """The section; one line where no side has readings."""
    told = [side for side in sides if side.view.telemetry.absent is None]
    if not told:
        st.caption(escape(_why_absent(sides[0].view.telemetry)))
        return
    with st.container(border=True):
        rows = [{t("chart.arm"): side.name, **row} for side in told for row in telemetry_rows(side.record)]
        first = told[0].view.telemetry
        caption = t("tele.caption", device=escape(first.device), rate=number(first.rate_per_s, 2))
        section_head(f"{t('tele.title')} {badge('measured')}", caption, pd.DataFrame(rows), "telemetry")
        end_s = max(_end_s(side) for side in told)
        side_by_side(told, lambda side: _panels(side, told, end_s))


def _end_s(side: Side) -> float:
    window = window_ns(side.record)
    return duration_s(side.record) or 1.0 if window is None else window[1] / 1e9


def _panels(side: Side, sides: Sequence[Side], end_s: float) -> None:
    view = side.view.telemetry
    st.caption(_energy(view))
    named = {**words("chart."), **words("tele.")}
    for panel in view.panels:
        st.markdown(f"**{t(f'tele.{panel.name}')}**")
        shared = [line for one in sides for other in one.view.telemetry.panels if other.name == panel.name
                  for line in other.lines.values()]  # fmt: skip
        top = max((value for line in shared for _, value in line if value is not None), default=None)
        lines = {name: [point for point in line if 0 <= point[0] <= end_s] for name, line in panel.lines.items()}
        chart = telemetry_chart(panel.name, lines, end_s, mode(), named, top)
        draw(chart, t("alt.telemetry", what=t(f"tele.{panel.name}"), arm=side.name))
    for line in _notes(view):
        st.caption(escape(line))


def _why_absent(view: TelemetryView) -> str:
    if view.absent in (OLDER, ON_A_CPU):
        return t(f"tele.absent_{view.absent}")
    return t("tele.absent", reason=view.absent)


def _energy(view: TelemetryView) -> str:
    found = view.energy
    if found["joules"] is None:
        return escape(t("tele.no_energy", reason=found["reason"]))
    return t(
        "tele.energy", joules=number(found["joules"], 4), per_joule=number(found["tokens_per_joule"]),
        power=number(found["mean_power_w"]), source=t(f"tele.{found['source']}"),
    )  # fmt: skip


def _notes(view: TelemetryView) -> Iterator[str]:
    """What kept clocks down, what the card does not report, and what ended the readings."""
    if view.held_share is not None:
        reasons = t("list_join").join(t(f"tele.{reason}") for reason in view.held_down)
        key = "tele.throttled" if view.held_down else "tele.not_throttled"
        yield t(key, share=percent(round(100 * view.held_share, 1)), reasons=reasons)
    if view.missing:
        yield t("tele.missing", fields=t("list_join").join(t(f"tele.{name}") for name in view.missing))
    if view.ended:
        yield t("tele.ended", reason=view.ended)
