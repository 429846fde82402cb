"""The result of an evaluation: verdict, the table of formats, quality against bits, arithmetic, why and trap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import quality_chart
from app.components.calculator import files, link
from app.components.format_names import format_name
from app.components.quantization_predictions import compared
from app.components.quantization_slices import overlooked, slice_name, slices
from app.components.quantization_words import change, points, ratio, share
from app.components.report_files import report_files
from app.components.section import escape, section_head
from app.state import badge, draw, mode, sentences, t, translated, words
from experiments.quantization_view import (
    UNDECIDED,
    FormatRow,
    Interval,
    best_of,
    eval_command,
    format_rows,
    slice_lines,
)
from experiments.report.words import MISSING, number
from experiments.store import Run

PREFILL, ONE, EIGHT = ("prefill", 1), ("decode", 1), ("decode", 8)
MEASURES = ("accuracy", "perplexity")


def results(run: Run) -> None:
    """Draw everything below the box of stored evaluations."""
    result: Mapping[str, Any] = run.result or {}
    rows, lines = format_rows(result), slice_lines(result)
    names = {row.label: format_name(row.changed, row.group, row.dtype) for row in rows}
    _verdict(rows, names, result)
    _formats(rows, names, result)
    compared(rows, run.spec.get("predictions"))
    if lines:
        slices(lines, names)
    _chart(rows, names)
    _arithmetic(result, rows, names)
    _why_and_trap()
    _export(run, rows, names)


def _verdict(rows: Sequence[FormatRow], names: Mapping[str, str], result: Mapping[str, Any]) -> None:
    """In words: the smallest format that lost nothing, then in red every slice and every text that one lost."""
    with st.container(border=True, key="verdict"):
        best = best_of(rows)
        decided = best is not None and best.mean_verdict != UNDECIDED
        colour, key = ("green" if decided else "gray", "quant.pays") if best else ("gray", "quant.undecided")
        st.markdown(f":{colour}-badge[{t(key)}] {badge('measured')}")
        with st.container(key="verdict_sentence"):
            st.markdown(escape(_best_sentence(best, names)))
        for row in rows:
            if row.lost:
                said = t("list_join").join(slice_name(name) for name in row.lost)
                hidden = t("quant.mean_still" if row.mean_verdict != "worse" else "quant.mean_too")
                st.markdown(f":red[▼ {escape(t('quant.lost', name=names[row.label], slices=said, mean=hidden))}]")
            if row.perplexity_lost:
                said = t("quant.lost_texts", name=names[row.label], change=change(row.perplexity_change_pct))
                st.markdown(f":red[▼ {escape(said)}]")
        overlooked(result.get("overlooked"), names)
        cpu = (result.get("environment") or {}).get("cpu")
        st.caption(t("quant.basis", cpu=cpu or t("quant.this_machine")))
    for warning in result.get("warnings") or []:
        st.warning(escape(translated(warning)))


def _best_sentence(best: FormatRow | None, names: Mapping[str, str]) -> str:
    if best is None:
        return t("quant.sentence_none")
    what = t("quant.of_kv" if best.is_kv else "quant.of_weights")
    key = "quant.sentence_best" if best.perplexity_change_pct.value is not None else "quant.sentence_best_slices"
    parts = [t(key, name=names[best.label], share=share(best.memory_share), what=what)]
    faster = best.speedup.get(ONE)
    if faster is not None:
        parts.append(t("quant.sentence_speed", ratio=ratio(Interval(faster.value))))
    parts.append(t("quant.sentence_accuracy", points=points(best.accuracy_points)))
    if best.undecided:
        parts.append(t("quant.sentence_open", count=len(best.undecided)))
    return sentences(parts)


def _formats(rows: Sequence[FormatRow], names: Mapping[str, str], result: Mapping[str, Any]) -> None:
    """The table of all formats, and every figure behind it."""
    with st.container(border=True):
        frame = pd.DataFrame([_exact(row, names[row.label]) for row in rows])
        marks = f"{badge('measured')} {badge('computed')}"
        section_head(f"{t('quant.formats')} {marks}", t("quant.formats_caption"), frame, "formats")
        with st.container(key="formats_table"):
            st.table(pd.DataFrame([_summary(row, names[row.label]) for row in rows]), hide_index=True)
        kv = (result["baseline"].get("held") or {}).get("kv") or {}
        with st.expander(t("quant.every_figure")):
            if kv:
                room = {"mib": number(kv["memory_bytes"] / 2**20), "tokens": f"{kv['sequence_tokens']:,}"}
                st.markdown(f"**{t('quant.holds')}** {badge('measured')} {badge('computed')}")
                st.caption(t("quant.holds_caption", **room))
                st.table(pd.DataFrame([_holds(row, names[row.label]) for row in rows]), hide_index=True)
            if rows[0].tokens_per_s:
                st.markdown(f"**{t('quant.speed')}** {badge('measured')}")
                st.caption(t("quant.speed_caption"))
                st.table(pd.DataFrame([_speed(row, names[row.label]) for row in rows]), hide_index=True)
            st.markdown(f"**{t('quant.quality')}** {badge('measured')}")
            st.caption(t("quant.quality_caption"))
            st.table(pd.DataFrame([_quality(row, names[row.label]) for row in rows]), hide_index=True)


def _summary(row: FormatRow, name: str) -> dict[str, str]:
    base = row.is_baseline
    lost = f":red-badge[▼ {len(row.lost)}]" if row.lost else MISSING if base else "0"
    cells = {
        "format": escape(name),
        "bits": number(row.bits),
        "memory": share(1.0 if base else row.memory_share),
        "prefill": _times(row, PREFILL),
        "decode_1": _times(row, ONE),
        "decode_8": _times(row, EIGHT),
        "accuracy": share(row.accuracy) if base else points(Interval(row.accuracy_points.value)),
        "perplexity": number(row.perplexity) if base else change(Interval(row.perplexity_change_pct.value)),
        "slices_lost": lost,
        "calibration": calibration_text(row),
        "fits": "  \n".join(t(f"quant.fits_{key}") for key in row.fits()),
    }
    return {t(f"quant.{key}"): text for key, text in cells.items()}


def _times(row: FormatRow, step: tuple[str, int]) -> str:
    """How many times as fast; of the baseline tokens/s."""
    if row.is_baseline:
        rate = row.tokens_per_s.get(step)
        return MISSING if rate is None else t("quant.rate", value=number(rate))
    return ratio(Interval(row.speedup.get(step, Interval(None)).value))


def calibration_text(row: FormatRow) -> str:
    """What making the weights took: time, and the tokens that it needed."""
    cost = row.calibration
    if cost is None:
        return t("quant.no_calibration")
    seconds = number(cost["seconds"])
    if not cost["calibration_tokens"]:
        return t("quant.rounded", seconds=seconds)
    return t("quant.calibrated", seconds=seconds, tokens=f"{cost['calibration_tokens']:,}")


def _holds(row: FormatRow, name: str) -> dict[str, str]:
    cells = {
        "format": escape(name),
        "bits_a_weight": number(row.bits_per_weight),
        "weights_mib": number(row.weights_mib, 4),
        "of_baseline": share(row.weights_share),
        "unquantized": share(row.unquantized_share),
        "bits_an_element": number(row.kv_bits),
        "kv_bytes": number(row.kv_bytes_per_token, 5),
        "sequences": MISSING if row.sequences is None else f"{row.sequences:,}",
    }
    return {t(f"quant.{key}"): text for key, text in cells.items()}


def _speed(row: FormatRow, name: str) -> dict[str, str]:
    cells = {t("quant.format"): escape(name)}
    for key, step in (("prefill", PREFILL), ("decode_1", ONE), ("decode_8", EIGHT)):
        cells[t("quant.column_rate", step=t(f"quant.{key}"))] = number(row.tokens_per_s.get(step))
        cells[t("quant.column_times", step=t(f"quant.{key}"))] = escape(ratio(row.speedup.get(step, Interval(None))))
    return cells


def _quality(row: FormatRow, name: str) -> dict[str, str]:
    reason = row.texts_reason and translated(row.texts_reason)
    cells = {
        "format": escape(name),
        "accuracy": share(row.accuracy),
        "accuracy_change": escape(points(row.accuracy_points)),
        "perplexity": number(row.perplexity, 4),
        "perplexity_change": escape(reason or change(row.perplexity_change_pct)),
        "kl": number(row.kl),
        "top1": share(row.top1),
    }
    return {t(f"quant.{key}"): text for key, text in cells.items()}


def _exact(row: FormatRow, name: str) -> dict[str, Any]:
    """Every figure of a row as a number, for the table and the file."""
    low, high = row.accuracy_points.ci95 or (None, None)
    speeds = {f"{phase}_{batch}_speedup": found.value for (phase, batch), found in row.speedup.items()}
    rates = {f"{phase}_{batch}_tokens_per_s": rate for (phase, batch), rate in row.tokens_per_s.items()}
    return {
        "format": name, "bits_per_weight": row.bits_per_weight, "weights_mib": row.weights_mib,
        "weights_share": row.weights_share, "unquantized_share": row.unquantized_share, "kv_bits": row.kv_bits,
        "kv_bytes_per_token": row.kv_bytes_per_token, "sequences": row.sequences, **rates, **speeds,
        "accuracy": row.accuracy, "accuracy_points": row.accuracy_points.value, "low": low, "high": high,
        "perplexity": row.perplexity, "perplexity_change_pct": row.perplexity_change_pct.value, "kl": row.kl,
        "top1_agreement": row.top1, "slices_lost": ", ".join(row.lost),
        "calibration_s": (row.calibration or {}).get("seconds"),
    }  # fmt: skip


def _chart(rows: Sequence[FormatRow], names: Mapping[str, str]) -> None:
    """The change of quality over the bits, weights and KV cache apart."""
    with st.container(border=True):
        st.markdown(f"## {t('quant.against_bits')} {badge('measured')}")
        measure = st.segmented_control(
            t("quant.measure"), MEASURES, default=MEASURES[0], required=True, key="quant-measure",
            format_func=lambda name: t(f"quant.measure_{name}"), label_visibility="collapsed",
        )  # fmt: skip
        drawn = False
        for is_kv in (False, True):
            points_of = [
                _point(row, names[row.label], measure, is_kv) for row in rows if row.is_baseline or row.is_kv is is_kv
            ]
            unit = t("quant.unit_points") if measure == MEASURES[0] else "%"
            chart = quality_chart(points_of, unit, mode(), words("chart."))
            if chart is not None:
                drawn = True
                title = t("quant.over_kv_bits" if is_kv else "quant.over_weight_bits")
                st.caption(title)
                draw(chart, t("alt.quality", title=title))
        if not drawn:
            st.caption(t("quant.no_chart"))


def _point(row: FormatRow, name: str, measure: str | None, is_kv: bool) -> dict[str, Any]:
    found = row.accuracy_points if measure == MEASURES[0] else row.perplexity_change_pct
    bits = row.kv_bits if is_kv else row.bits_per_weight
    return {"name": name, "bits": bits, "change": found.value, "ci95": found.ci95, "is_base": row.is_baseline}


def _arithmetic(result: Mapping[str, Any], rows: Sequence[FormatRow], names: Mapping[str, str]) -> None:
    """The ledger's sums with the numbers put in, beside the bytes held."""
    arms = [result["baseline"], *result["candidates"]]
    with st.expander(t("quant.arithmetic"), icon=":material/calculate:"):
        for row, arm in zip(rows, arms, strict=True):
            held = arm.get("held")
            if held is None:
                st.caption(t("quant.not_weighed", name=names[row.label]))
                continue
            whole = t("quant.held_line", bytes=f"{held['weights']['bytes']:,}",
                      parameters=f"{held['weights']['parameters']:,}", bits=number(row.bits_per_weight, 4))  # fmt: skip
            lines = [
                f"**{escape(names[row.label])}**",
                f"{badge('measured')} {whole}",
                f"{badge('computed')} {escape(translated(held['unquantized']['how']))}",
                f"{badge('computed')} KV: {escape(translated(held['kv']['how']))}",
            ]
            st.markdown("  \n".join(lines))


def _why_and_trap() -> None:
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"quant.{kind}"))


def _export(run: Run, rows: Sequence[FormatRow], names: Mapping[str, str]) -> None:
    st.markdown(f"## {t('result.export')}")
    st.caption(t("result.export_caption"))
    report_files(run)
    files(f"trilemma-{run.id}", run.result, [_exact(row, names[row.label]) for row in rows])
    st.code(eval_command(run.spec), language="shell", wrap_lines=True)
    link()
