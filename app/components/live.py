"""The live strip of a running comparison: a fragment of its own, redrawn every few seconds."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.charts import block_map, ledger_chart, progress_chart, rate_chart
from app.components.accounts import accounts_how, accounts_table
from app.components.arms import arm_names
from app.components.picker import guess_text
from app.state import badge, draw, heading, mode, store, t, words
from core_engine.cores import threads_found
from experiments import jobs
from experiments.lanes import ahead
from experiments.memory_view import account_rows, live_kv_bytes
from experiments.report.charts import ledger_accounts
from experiments.report.words import curve_value, number
from experiments.store import Run


def refresh_s(cores: int) -> float:
    """Seconds between redraws: one takes server and browser about 0.9 s of a core, and a ninth of all is enough."""
    return max(2.0, 8.0 / cores)


def request_letter(index: int) -> str:
    """a to z, then A to Z, then again: how a request is named in the block map."""
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return alphabet[index % len(alphabet)]


@st.fragment(run_every=refresh_s(threads_found()))
def live_panel(run_id: str) -> None:
    """Progress, gauges, blocks, requests, ledger. Redraws the whole page once the run has ended."""
    run = jobs.status(run_id, store())
    if run.state not in jobs.ACTIVE:
        st.rerun()
    live = jobs.live(run_id, store()) if run.state == "running" else None
    _progress(run, live)
    if live is None or live["snapshot"] is None:
        return
    names = arm_names(run.spec["values"])
    if live["phase"] != "running":
        with st.container(border=True):
            _repeats(live, names)
        return
    _gauges(live)
    wide, narrow = st.columns([1.8, 1])
    with wide, st.container(border=True):
        _blocks(live["snapshot"]["blocks"])
        _rates(live, names)
    with narrow, st.container(border=True):
        _requests(live["snapshot"])
    wide, narrow = st.columns([1.8, 1])
    with wide, st.container(border=True):
        _ledger(live, names)
    with narrow, st.container(border=True):
        _repeats(live, names)


def _progress(run: Run, live: dict[str, Any] | None) -> None:
    with st.container(border=True):
        if live is None:
            not_yet(run)
            return
        value = run.spec["values"][live["arm"]]
        left, right = st.columns([3, 1.4], vertical_alignment="center")
        left.markdown(f"## {_phase(live, value)}")
        with right, st.container(key="time_left"):
            st.markdown(_time_left(live))
        draw(progress_chart(live, arm_names(run.spec["values"]), mode(), words("chart.")), t("alt.progress"))
        _estimate(live)
        guess = guess_text(run.spec.get("guess_pct"))
        st.caption(t("live.guess_locked", guess=guess) if guess else t("live.keeps"))


def not_yet(run: Run) -> None:
    """What a run that tells nothing yet is at: how many are before it, that its process starts, or that the model is
    loaded."""
    before = ahead(run, store()) if run.state == "queued" else 0
    key = "loading" if run.state != "queued" else "queued" if before else "starting"
    st.markdown(f"## {t(f'live.{key}')}")
    if before:
        st.caption(t("live.ahead", n=before))


def _estimate(live: dict[str, Any]) -> None:
    """What the warm-up says of the time it takes, until a run has been measured."""
    estimate = live.get("estimate")
    if not estimate or live["repeats_so_far"]:
        return
    times = {"total": duration(estimate["total_s"]), "most": duration(estimate["most_s"])}
    key = "live.estimate" if estimate["most_repeats"] == estimate["repeats"] else "live.estimate_auto"
    st.caption(f"{t(key, **times, repeats=estimate['repeats'], limit=estimate['most_repeats'])} {badge('estimated')}")


def _phase(live: dict[str, Any], value: object) -> str:
    if live["phase"] == "running":
        return t("live.repeat", repeat=live["repeat"], repeats=live["repeats"], value=value)
    key = live["phase"] if live["phase"] in ("loading", "drawing", "warmup", "quality") else "quality"
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
    rates, steps_s = series["output_tokens_per_s"], series["step_s"]
    total = t("live.of", n=now["blocks"]["total"])
    gauges = [
        ("live.output", number(rates[-1] if rates else None), rates),
        ("live.running", f"{now['running']} {t('live.of', n=now['max_num_seqs'])}", series["running"]),
        ("live.waiting", str(now["waiting"]), series["waiting"]),
        ("live.kv_blocks", f"{now['blocks']['used']} {total}", series["kv_used_blocks"]),
        ("live.step", curve_value("itl_s", steps_s[-1] if steps_s else None), steps_s),
    ]
    with st.grid(5, min_column_width=165):
        for key, value, points in gauges:
            drawn = [point for point in points if point is not None]
            st.metric(
                f"{t(key)} {badge('measured')}",
                value,
                border=True,
                chart_data=drawn if len(drawn) > 1 else None,
                chart_type="area",
                delta_color="blue" if live["arm"] else "gray",
            )


def _blocks(blocks: dict[str, Any]) -> None:
    numbers = {name: blocks[name] for name in ("total", "used", "free")}
    cached = len(blocks.get("cached") or ())
    caption = t("live.block_caption", size=blocks["block_size"], cached=cached, **numbers)
    heading(t("live.block_map"), "measured", caption)
    draw(block_map(blocks, request_letter, mode(), words("chart.")), t("alt.block_map"))


def _rates(live: dict[str, Any], names: tuple[str, ...]) -> None:
    heading(t("live.tokens_per_second"), "measured", t("live.rate_caption"))
    arm = live["arm"]
    chart = rate_chart(
        live["series"], live["previous_series"], (names[arm], names[1 - arm]), arm == 1, mode(), words("chart.")
    )
    draw(chart, t("alt.rate"))


def _requests(snapshot: dict[str, Any]) -> None:
    seated = [request for request in snapshot["requests"] if request["state"] != "waiting"]
    waiting = [request for request in snapshot["requests"] if request["state"] == "waiting"]
    held = sum(request["state"] == "held" for request in seated)
    heading(t("live.requests"), "measured", t("live.requests_caption", running=len(seated) - held, held=held))
    longest = max((request.get("answer_tokens") or request["max_tokens"] for request in seated), default=1)
    answer = st.column_config.ProgressColumn(t("live.answer"), format="%d", min_value=0, max_value=longest, width=100)
    columns: dict[str, Any] = {
        t("live.request"): st.column_config.Column(width=92),
        t("live.prompt"): st.column_config.Column(width=52),
        t("live.answer"): answer,
        t("live.blocks"): st.column_config.Column(width=52),
    }
    rows = [
        {
            t("live.request"): f"{request_letter(request['letter'])} {request['id']}{_held_mark(request)}",
            t("live.prompt"): request["prompt_tokens"],
            t("live.answer"): request["output_tokens"],
            t("live.blocks"): request["blocks"],
        }
        for request in seated
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True, column_config=columns, alt=t("live.requests"))
    if waiting:
        st.markdown(f"**{t('live.waiting_by_arrival')}** :gray[{t('live.prompt_tokens')}]")
        st.markdown(" ".join(f":gray-badge[{request['id']} **{request['prompt_tokens']}**]" for request in waiting))


def _held_mark(request: dict[str, Any]) -> str:
    return f" ({t('live.state_held')})" if request["state"] == "held" else ""


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
    draw(ledger_chart([row], mode(), words("chart.")), t("alt.ledger"))
    rows = account_rows(now)
    if rows:
        with st.expander(t("accounts.title")):
            accounts_table(rows)
            accounts_how(rows)
    kinds = live_kv_bytes(live["snapshot"])
    if kinds:
        shown = " · ".join(f"{t(f'live.kind_{kind}')} {number(size / 2**20)}" for kind, size in kinds.items())
        st.caption(t("live.kv_kinds", kinds=shown))


def _repeats(live: dict[str, Any], names: tuple[str, ...]) -> None:
    heading(t("live.so_far"), "measured", t("live.so_far_caption"))
    rows = [
        {
            t("live.col_repeat"): str(item["repeat"]),
            names[0]: number(item["values"][0]),
            names[1]: number(item["values"][1]),
        }
        for item in live["repeats_so_far"]
    ]
    if rows:
        st.dataframe(pd.DataFrame(rows), hide_index=True)
