"""A finished comparison: verdict in words, five curves, memory, where requests spent their time, why and trap."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import Stack, change_strip, curve_card, guess_chart, ledger_chart, timeline_chart
from app.components.accounts import accounts_section
from app.components.arms import arm_names
from app.components.host_share import host_share
from app.components.kernels import ran_with
from app.components.section import NO_BREAK, escape, section_head
from app.components.warned import warned
from app.state import badge, draw, language, mode, sentences, t, translated, words
from experiments.memory_view import ArmMemory, arm_memory
from experiments.quality.agreement import quality_missing
from experiments.report import headline, verdict_sentence
from experiments.report.verdict import ordered_curves
from experiments.report.words import interval, latency_unit, number, percent, signed_percent
from experiments.spec import ENDPOINT
from experiments.store import Run
from experiments.timeline import ArmTimeline

VERDICT_COLOURS = {"better": "green", "worse": "orange", "no difference": "gray", "inconclusive": "gray"}
VERDICT_MARKS = {"better": "▲", "worse": "▼", "no difference": "=", "inconclusive": "?"}
MOST_TOLD_PCT = 200  # a change that a run of two repeats could have seen is beyond any; the table has the figure
HEADLINE_COLOURS = {"pays": "green", "pays_price": "green", "mixed_undecided": "green", "costs": "orange"}


def results(run: Run, timelines: Callable[[], Sequence[ArmTimeline]]) -> None:
    """Draw everything below the picker for a run that has a result; timelines are asked for where they are drawn."""
    result = run.result or {}
    names = arm_names([arm["value"] for arm in result["arms"]])
    verdict(result)
    curves(result, names)
    if result["variable"] != ENDPOINT:  # of a server nothing inside is seen: no accounts, no steps
        memory(result, names)
        timeline(timelines(), names)
    explanation(result)
    ran_with(result, names)
    figures(result, names)


def verdict(result: Mapping[str, Any]) -> None:
    """The verdict first, in words."""
    key, text = headline(result, language())
    with st.container(border=True, key="verdict"):
        left, right = st.columns([1.62, 1])
        with left:
            st.markdown(f":{HEADLINE_COLOURS.get(key, 'gray')}-badge[{text}] {badge('measured')}")
            with st.container(key="verdict_sentence"):
                st.markdown(_figures_bold(escape(verdict_sentence(result, language()))))
            floor = _curve(result, "output_tokens_per_s")["noise_floor_pct"]
            st.caption(t("basis", repeats=result["repeats"], curves=len(result["curves"]), floor=percent(floor)))
            if result.get("cancelled"):
                st.caption(t("cancelled"))
            quality_sentence(result)
        with right:
            guessed = result.get("guess_pct") is not None
            st.markdown(f"**{t('result.guess_title') if guessed else t('output_tokens_per_s')}**")
            chart = guess_chart(result.get("guess_pct"), _curve(result, "output_tokens_per_s"), mode(), words("chart."))
            draw(chart, t("alt.guess"))
    warned(result["warnings"])


def quality_sentence(result: Mapping[str, Any]) -> None:
    """In red where a comparison that can change outputs has no quality: a verdict without it is half a verdict."""
    reason = quality_missing(result)
    if reason is not None:
        variable = t(f"var.{result['variable']}")
        st.markdown(f":red[{escape(t('quality_missing', reason=translated(reason), variable=variable))}]")


def _figures_bold(text: str) -> str:
    """Changes in semibold."""
    return re.sub(rf"[+−][\d,.]+{NO_BREAK}%", r"**\g<0>**", _unbroken(text))


def _unbroken(text: str) -> str:
    """No interval, and no figure before its unit, falls over two lines."""
    return re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", NO_BREAK), text).replace(" %", f"{NO_BREAK}%")


def _curve(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next(curve for curve in result["curves"] if curve["name"] == name)


def curves(result: Mapping[str, Any], names: tuple[str, str]) -> None:
    """The five curves as small multiples, with table and CSV once for all of them."""
    frame = pd.DataFrame([_curve_row(curve) for curve in ordered_curves(result)])
    section_head(t("five_curves"), t("five_caption"), frame, "curves")
    with st.grid(5, min_column_width=165, border=True):
        for curve in ordered_curves(result):
            with st.container(gap="xsmall"):
                _card(curve, result, names)


def _card(curve: Mapping[str, Any], result: Mapping[str, Any], names: tuple[str, str]) -> None:
    st.markdown(f"**{t('card.' + curve['name'])}** {badge(curve['provenance'])}")
    unit, scale = _unit(curve)
    with st.container(key=f"unit_{curve['name']}"):
        st.caption(unit)
    colour, mark = VERDICT_COLOURS[curve["verdict"]], VERDICT_MARKS[curve["verdict"]]
    st.markdown(f"#### {signed_percent(curve['change_pct'])}\n:{colour}[{mark} {t(curve['verdict'])}]")
    if curve["ci95"] is None:
        st.caption(t("no_interval"))
    else:
        text = t("interval_line", interval=interval(curve["ci95"]), floor=percent(curve["noise_floor_pct"]))
        open_or_same = curve["verdict"] in ("no difference", "inconclusive")  # what would have been seen counts there
        seen_from = curve.get("min_detectable_pct")
        if open_or_same and seen_from is not None and seen_from <= MOST_TOLD_PCT:
            text += " · " + t("detectable_line", change=percent(seen_from))
        with st.container(key=f"interval_{curve['name']}"):
            st.caption(escape(_unbroken(text)), help=sentences([t("how_floor"), t("how_detectable")]))
    if curve["baseline"] is None:
        return
    texts = words("chart.")
    bars, change = curve_card(dict(curve), names, mode(), texts, scale=scale), change_strip(dict(curve), mode(), texts)
    said = (t(key, curve=t(curve["name"])) for key in ("alt.curve", "alt.change"))
    draw(Stack((bars, change)), sentences(said))
    share = (result.get("quality") or {}).get("same_token_ids_share")
    if curve["name"] == "quality" and share is not None:
        st.caption(t("result.same_ids", share=percent(100 * share)))


def _unit(curve: Mapping[str, Any]) -> tuple[str, float]:
    """The caption of a card, and what its values are multiplied with to be in that unit."""
    name = curve["name"]
    if name in ("ttft_s", "itl_s"):
        values = [value for value in (curve["baseline"], curve["candidate"]) if value is not None]
        unit = latency_unit(*([max(values)] if values else []))
        return t("unit_latency", statistic=curve["statistic"], unit=unit), 1000.0 if unit == "ms" else 1.0
    return t(f"unit_{name}"), {"cost_per_request": 1000.0, "quality": 1.0}.get(name, 1.0)


def _curve_row(curve: Mapping[str, Any]) -> dict[str, Any]:
    return {
        t("col_curve"): f"{t(curve['name'])}, {curve['statistic']} [{curve['name']}]",
        t("col_baseline"): curve["baseline"],
        t("col_candidate"): curve["candidate"],
        t("col_change"): signed_percent(curve["change_pct"]),
        t("col_interval"): interval(curve["ci95"]),
        t("col_floor"): percent(curve["noise_floor_pct"]),
        t("col_detectable"): percent(curve.get("min_detectable_pct")),
        t("col_pairs"): curve["pairs"],
        t("col_verdict"): t(curve["verdict"]),
        t("col_method"): curve["method"],
    }


def memory(result: Mapping[str, Any], names: tuple[str, str]) -> None:
    """The ledger of both arms, what was predicted, and the arithmetic."""
    arms = [arm_memory(result, arm) for arm in (0, 1)]
    with st.container(border=True):
        rows: list[dict[str, Any]] = [
            {
                "name": name,
                "is_candidate": place == 1,
                "segments": [{"account": a, "bytes": size} for a, size in arm.accounts.items() if size is not None],
                "predicted_boundaries": list(arm.boundaries),
            }
            for place, (arm, name) in enumerate(zip(arms, names, strict=True))
        ]
        frame = pd.DataFrame(
            [{"": row["name"], **{t(f"chart.{s['account']}"): s["bytes"] for s in row["segments"]}} for row in rows]
        )
        section_head(f"{t('memory')} {badge('measured')}", t("result.memory_caption"), frame, "memory")
        draw(ledger_chart(rows, mode(), words("chart.")), t("alt.ledger"))
        accounts_section({name: arm["metrics"]["memory"] for arm, name in zip(result["arms"], names, strict=True)},
                         "accounts", folded=True)  # fmt: skip
        with st.expander(t("result.how_accounts")):
            for arm, name in zip(arms, names, strict=True):
                st.markdown(f"**{name}** {badge('computed')}")
                _arithmetic(arm)


def _arithmetic(arm: ArmMemory) -> None:
    if arm.not_predicted:
        st.caption(t("result.no_prediction", reason=arm.not_predicted))
        return
    for account in arm.predicted:
        st.markdown(f"{t(f'accounts.{account.name}')}{t('colon')}{escape(translated(account.how))}")
    line = t(
        "result.kv_used_line",
        formula=arm.kv_formula,
        tokens=f"{arm.kv_tokens:,}",
        value=arm.value,
        total=f"{arm.kv_used_bytes:,}",
        mib=number(arm.kv_used_bytes / 2**20),
    )
    st.markdown(f"{t('result.kv_used')}{t('colon')}{escape(line)}")


def timeline(found: Sequence[ArmTimeline], names: tuple[str, str]) -> None:
    """Where each request of repeat 1 spent its time, both arms on one axis."""
    if len(found) < 2:
        return
    with st.container(border=True):
        arms: list[dict[str, Any]] = [
            {"name": names[one.arm], "segments": one.segments, "last_token_s": one.last_token_s} for one in found
        ]
        frame = pd.DataFrame([{"arm": arm["name"], **segment} for arm in arms for segment in arm["segments"]])
        caption = t("timeline_caption", repeat=found[0].repeat)
        section_head(f"{t('timeline')} {badge('measured')}", caption, frame, "timeline")
        draw(timeline_chart(arms, mode(), words("chart.")), t("alt.timeline"))
        for one in found:
            host_share(one.host, names[one.arm])


def explanation(result: Mapping[str, Any]) -> None:
    """Why it works, and when it does not pay, with equal weight."""
    name = result["variable"]
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"{kind}.{name}"))
    if result["derived"]:
        st.caption(
            t("result.derived", variable=t(f"var.{name}"))
            + ": "
            + ", ".join(f"{key} {number(old, 6)} → {number(new, 6)}" for key, (old, new) in result["derived"].items())
        )


def figures(result: Mapping[str, Any], names: tuple[str, str]) -> None:
    """Every raw number within two clicks."""
    with st.expander(t("result.details")):
        flat = [dict(_flat(arm["metrics"])) for arm in result["arms"]]
        keys = [key for key in flat[0] if not key.startswith(("config.", "environment."))]
        st.dataframe(
            pd.DataFrame(
                [
                    {
                        t("result.metric"): key,
                        names[0]: _cell(flat[0][key]),
                        names[1]: _cell(flat[1].get(key)),
                    }
                    for key in keys
                ]
            ),
            hide_index=True,
        )


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            pairs += _flat(item, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", item))
    return pairs


def _cell(value: Any) -> str:
    return (
        number(value, 4)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else str(value if value is not None else "–")
    )
