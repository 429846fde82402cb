"""The live strip of a running comparison, redrawn once a second in a fragment of its own: more often would disturb what is measured."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.charts import block_map, ledger_chart, progress_chart, rate_chart
from app.components.picker import guess_text
from app.state import heading, mode, store, t, words
from experiments import jobs
from experiments.report.charts import ledger_accounts
from experiments.report.words import number, signed_percent
from experiments.store import Run


def request_letter(index: int) -> str:
    """a to z, then A to Z, then again: how a request is named in the block map."""
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return alphabet[index % len(alphabet)]


@st.fragment(run_every=1.0)
def live_panel(run_id: str) -> None:
    """Progress, gauges, blocks, requests, ledger. Redraws the whole page once the run has ended."""
    run = jobs.status(run_id, store())
    if run.state not in jobs.ACTIVE:
        st.rerun()
    live = jobs.live(run_id, store()) if run.state == "running" else None
    _progress(run, live)
    if live is None or live["snapshot"] is None:
        return
    names = tuple(str(value) for value in run.spec["values"])
    _gauges(live)
    wide, narrow = st.columns([2, 1])
    with wide, st.container(border=True):
        _blocks(live["snapshot"]["blocks"])
        _rates(live, names)
    with narrow, st.container(border=True):
        _requests(live["snapshot"])
    wide, narrow = st.columns([2, 1])
    with wide, st.container(border=True):
        _ledger(live, names)
    with narrow, st.container(border=True):
        _repeats(live, names)


def _progress(run: Run, live: dict[str, Any] | None) -> None:
    with st.container(border=True):
        if live is None:
            st.markdown(f"### {t('live.queued') if run.state == 'queued' else t('live.loading')}")
            return
        value = run.spec["values"][live["arm"]]
        left, right = st.columns([3, 1.4], vertical_alignment="bottom")
        left.markdown(f"### {_phase(live, value)}")
        right.markdown(_time_left(live))
        names = (str(run.spec["values"][0]), str(run.spec["values"][1]))
        st.altair_chart(progress_chart(live, names, mode(), words("chart.")), theme=None, width="stretch")
        guess = guess_text(run.spec.get("guess_pct"))
        st.caption(t("live.guess_locked", guess=guess) if guess else t("live.keeps"))


def _phase(live: dict[str, Any], value: object) -> str:
    if live["phase"] == "running":
        return t("live.repeat", repeat=live["repeat"], repeats=live["repeats"], value=value)
    key = live["phase"] if live["phase"] in ("loading", "warmup", "quality") else "quality"
    return t(f"live.{key}", value=value)


def _time_left(live: dict[str, Any]) -> str:
    percent = f"{100 * live['fraction']:.0f}"
    if live["eta_s"] is None:
        return t("live.percent", percent=percent)
    return t("live.left", percent=percent, time=duration(live["eta_s"]))


def duration(seconds: float) -> str:
    """A time to wait, in seconds below two minutes and in minutes above."""
    if seconds < 120:
        return t("live.seconds", n=f"{seconds:.0f}")
    return t("live.minutes", n=f"{seconds / 60:.0f}")


def _gauges(live: dict[str, Any]) -> None:
    now, series = live["snapshot"], live["series"]
    rates = series["output_tokens_per_s"]
    step_ms = [None if step is None else 1000 * step for step in series["step_s"]]
    gauges = [
        ("live.output", f"{number(rates[-1]) if rates else '–'} {t('live.tokens_s')}", rates),
        ("live.running", f"{now['running']} {t('live.of', n=now['max_num_seqs'])}", series["running"]),
        ("live.waiting", str(now["waiting"]), series["waiting"]),
        (
            "live.kv_blocks",
            f"{now['blocks']['used']} {t('live.of', n=now['blocks']['total'])}",
            series["kv_used_blocks"],
        ),
        ("live.step", f"{number(step_ms[-1] if step_ms else None)} ms", step_ms),
    ]
    with st.grid(5, min_column_width=165):
        for key, value, points in gauges:
            drawn = [point for point in points if point is not None]
            st.metric(
                f"{t(key)} · {t('measured')}",
                value,
                border=True,
                chart_data=drawn if len(drawn) > 1 else None,
                chart_type="area",
            )


def _blocks(blocks: dict[str, Any]) -> None:
    caption = t(
        "live.block_caption", total=blocks["total"], size=blocks["block_size"], used=blocks["used"], free=blocks["free"]
    )
    heading(t("live.block_map"), "measured", caption)
    st.altair_chart(block_map(blocks, request_letter, mode(), words("chart.")), theme=None, width="stretch")


def _rates(live: dict[str, Any], names: tuple[str, ...]) -> None:
    heading(t("live.tokens_per_second"), "measured", t("live.rate_caption"))
    arm = live["arm"]
    chart = rate_chart(
        live["series"], live["previous_series"], (names[arm], names[1 - arm]), arm == 1, mode(), words("chart.")
    )
    st.altair_chart(chart, theme=None, width="stretch")


def _requests(snapshot: dict[str, Any]) -> None:
    heading(t("live.requests"), "measured")
    rows = [
        {
            t("live.request"): f"{request_letter(request['letter'])} {request['id']}",
            t("live.state"): t(f"live.state_{request['state']}"),
            t("live.answer"): request["output_tokens"] / request["max_tokens"],
            t("live.blocks"): request["blocks"],
        }
        for request in snapshot["requests"]
    ]
    column = st.column_config.ProgressColumn(t("live.answer"), format="percent", min_value=0, max_value=1)
    st.dataframe(pd.DataFrame(rows), hide_index=True, column_config={t("live.answer"): column}, height=420)


def _ledger(live: dict[str, Any], names: tuple[str, ...]) -> None:
    heading(t("live.ledger"), "measured", t("live.ledger_caption"))
    now = live["snapshot"]["ledger"]
    accounts = ledger_accounts({**now, "kv_peak_used_bytes": now["kv_used_bytes"]})
    row = {
        "name": names[live["arm"]],
        "is_candidate": live["arm"] == 1,
        "segments": [{"account": name, "bytes": size} for name, size in accounts.items() if size is not None],
        "predicted_boundaries": [],
    }
    st.altair_chart(ledger_chart([row], mode(), words("chart.")), theme=None, width="stretch")


def _repeats(live: dict[str, Any], names: tuple[str, ...]) -> None:
    heading(t("live.so_far"), "measured", t("live.so_far_caption"))
    rows = [
        {
            t("live.col_repeat"): str(item["repeat"]),
            f"1 {names[0]}": number(item["values"][0]),
            f"2 {names[1]}": number(item["values"][1]),
            t("col_change"): signed_percent(item["change_pct"]) if item.get("change_pct") is not None else "–",
        }
        for item in live["repeats_so_far"]
    ]
    if rows:
        st.dataframe(pd.DataFrame(rows), hide_index=True)
