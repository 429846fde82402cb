"""The result of a run of drafts: verdict, the table of forms, break-even, batches, arithmetic, why and trap, export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import batch_chart, break_even_chart
from app.components.calculator import files, link
from app.components.quantization_words import share
from app.components.report_files import report_files
from app.components.section import escape, section_head
from app.components.speculation_words import (
    advice_badge,
    form_name,
    model_times,
    part_name,
    reason_text,
    row_name,
    times,
)
from app.state import badge, draw, mode, sentences, t, translated, words
from experiments.quantization_view import Interval
from experiments.report.words import MISSING, number
from experiments.speculation_view import (
    FormRow,
    TaskTable,
    arithmetic,
    batch_rows,
    batch_where_gain_ends,
    constructed_rows,
    curve_choices,
    curve_of,
    guesses,
    is_enlarged,
    paying,
    points_of,
    refused,
    speculation_command,
    task_tables,
    undecided,
)
from experiments.store import Run

MIB = 2**20
SAID = 3  # refusals in the verdict; the table has them all


def results(run: Run) -> None:
    """Draw everything below the box of stored runs."""
    result: Mapping[str, Any] = run.result or {}
    tables = task_tables(result)
    _verdict(tables, result)
    _forms(tables, result)
    _compared(tables, run.spec.get("predictions"))
    _break_even(result)
    _batches(result)
    _arithmetic(tables, result)
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"spec.{kind}"))
    _export(run, tables, result)


def _verdict(tables: Sequence[TaskTable], result: Mapping[str, Any]) -> None:
    """In words: where a form pays, then what the rule refuses and why."""
    pays, no, unsure = paying(tables), refused(tables), undecided(tables)
    with st.container(border=True, key="verdict"):
        none = bool(no) and not unsure
        colour, key = ("green", "spec.pays") if pays else ("orange", "spec.refused") if none else ("gray", "spec.open")
        enlarged = f" :gray-badge[{t('spec.enlarged')}]" if is_enlarged(result) else ""
        st.markdown(f":{colour}-badge[{t(key)}] {badge('measured')}{enlarged}")
        with st.container(key="verdict_sentence"):
            st.markdown(escape(_sentence(pays, len(no), unsure)))
        if len(pays) > 1:
            also = [t("spec.also", task=part_name(row.task), form=row_name(row), speedup=times(row.speedup))
                    for row in pays[1:]]  # fmt: skip
            st.markdown(escape(t("spec.also_pays", list=t("list_join").join(also))))
        for row in no[:SAID]:
            where = t("spec.on_task", form=row_name(row), task=part_name(row.task))
            st.markdown(f":orange[▼ {escape(where)}] {escape(reason_text(row))}")
        if len(no) > SAID:
            st.caption(t("spec.more_refused", count=len(no) - SAID))
        other = [row for table in tables for row in table.rows if not row.is_exact]
        st.caption(t("spec.all_exact") if not other else t("spec.not_exact", count=len(other)))
        cpu = (result.get("environment") or {}).get("cpu")
        st.caption(t("spec.basis", cpu=cpu or t("quant.this_machine"), repeats=result["repeats"]))
    for warning in result.get("warnings") or []:
        st.warning(escape(translated(warning)))


def _sentence(pays: Sequence[FormRow], no: int, unsure: int) -> str:
    if not pays:
        key = "spec.sentence_none" if no and not unsure else "spec.sentence_unsure" if unsure else "spec.sentence_open"
        return t(key, refused=no, count=unsure)
    row = pays[0]
    return t(
        "spec.sentence_pays",
        task=part_name(row.task),
        form=row_name(row),
        speedup=times(row.speedup),
        alpha=number(row.alpha),
        needed=number(row.needed_alpha),
    )


def _forms(tables: Sequence[TaskTable], result: Mapping[str, Any]) -> None:
    """The table of all forms by task, and every figure behind it."""
    with st.container(border=True):
        rows = [row for table in tables for row in table.rows]
        frame = pd.DataFrame([_exact(row) for row in rows])
        marks = f"{badge('measured')} {badge('computed')}"
        section_head(f"{t('spec.table')} {marks}", t("spec.table_caption"), frame, "forms")
        with st.container(key="forms_table"):
            st.table(pd.DataFrame([line for table in tables for line in _lines(table)]), hide_index=True)
        for one in result["unavailable"]:
            st.caption(escape(f"{form_name(one['form'])}{t('colon')}{translated(one['reason'])}"))
        if rows:
            with st.expander(t("quant.every_figure")):
                st.caption(t("spec.details_caption"))
                st.table(pd.DataFrame([_detail(row) for row in rows]), hide_index=True)


def _lines(table: TaskTable) -> list[dict[str, str]]:
    plain = _cells(part_name(table.task), form_name("off"), plain=table.plain_tokens_per_s)
    return [plain, *(_cells(part_name(row.task), row_name(row), row) for row in table.rows)]


def _cells(task: str, name: str, row: FormRow | None = None, plain: float | None = None) -> dict[str, str]:
    cells = {
        "task": task,
        "form": escape(name),
        "alpha": number(row.alpha if row else None),
        "per_pass": number(row.tokens_per_pass if row else 1.0),
        "v": number(row.v if row else None),
        "c": number(row.c if row else None),
        "speedup": t("quant.rate", value=number(plain)) if row is None else escape(times(row.speedup)),
        "model": model_times(row.predicted if row else None),
        "advice": advice_badge(row) if row else MISSING,
    }
    return {t(f"spec.col_{key}"): text for key, text in cells.items()}


def _detail(row: FormRow) -> dict[str, str]:
    held = row.held.get("weights_bytes")
    cells = {
        "task": part_name(row.task),
        "form": escape(row_name(row)),
        "by_position": " · ".join(number(alpha, 2) for alpha in row.alpha_by_position) or MISSING,
        "acceptance_rate": number(row.acceptance_rate),
        "drafted_share": share(row.drafted_share),
        "draft_time": share(row.draft_time_share),
        "needed": number(row.needed_alpha),
        "allowed": number(row.allowed_c),
        "draft_mib": MISSING if held is None else number(held / MIB),
        "training": _training(row),
        "identical": f"{row.identical} / {row.prompts}",
    }
    return {t(f"spec.col_{key}"): text for key, text in cells.items()}


def _training(row: FormRow) -> str:
    """What training the draft took: as it is written in its file."""
    seconds = (row.training or {}).get("seconds")
    return t("spec.trained", minutes=number(seconds / 60)) if seconds else t("spec.untrained")


def _exact(row: FormRow) -> dict[str, Any]:
    """Every figure of a row as a number, for the table and the file."""
    low, high = row.speedup.ci95 or (None, None)
    return {
        "task": row.task, "form": row.form, "k": row.k, "alpha": row.alpha,
        **{f"alpha_{place + 1}": alpha for place, alpha in enumerate(row.alpha_by_position)},
        "acceptance_rate": row.acceptance_rate, "tokens_per_pass": row.tokens_per_pass,
        "drafted_share": row.drafted_share, "draft_time_share": row.draft_time_share, "v": row.v, "c": row.c,
        "tokens_per_s": row.tokens_per_s, "speedup": row.speedup.value, "low": low, "high": high,
        "predicted_speedup": row.predicted, "break_even_alpha": row.needed_alpha, "break_even_c": row.allowed_c,
        "verdict": row.verdict, "advice": row.advice, "reason": row.reason, "identical": row.identical,
        "prompts": row.prompts,
    }  # fmt: skip


def _compared(tables: Sequence[TaskTable], predictions: Mapping[str, Any] | None) -> None:
    """Predictions beside measurements; one line where they were skipped."""
    found = guesses(tables, predictions or {})
    if not found:
        st.caption(t("quant.no_predictions"))
        return
    frame = pd.DataFrame(
        [
            {
                t("spec.col_form"): form_name(guess.label),
                t("quant.figure"): t(f"spec.expect_{guess.figure}"),
                t("quant.expected"): _guess(guess.figure, Interval(guess.expected)),
                t("quant.found"): _guess(guess.figure, guess.measured),
            }
            for guess in found
        ]
    )
    with st.container(border=True):
        section_head(f"{t('quant.compared')} {badge('measured')}", t("spec.compared_caption"), frame, "predictions")
        st.table(frame.map(escape), hide_index=True)


def _guess(figure: str, value: Interval) -> str:
    return times(value) if figure == "speedup" else number(value.value)


def _break_even(result: Mapping[str, Any]) -> None:
    """Speed-up against alpha at the costs of one form, with every measured point."""
    choices = curve_choices(result)
    if not choices:
        return
    with st.container(border=True):
        st.markdown(f"## {t('spec.break_even')} {badge('measured')} {badge('computed')}")
        st.caption(t("spec.break_even_caption"))
        place = st.segmented_control(
            t("spec.costs_of"), list(range(len(choices))), default=0, required=True, key="spec-curve",
            format_func=lambda index: row_name(choices[index]),
        )  # fmt: skip
        chosen = choices[place or 0]
        curve = curve_of(chosen)
        if curve is None:
            return
        marks = [_mark(row, chosen) for row in points_of(result)]
        draw(break_even_chart(curve.points, curve.needed, marks, mode(), words("chart.")), t("alt.break_even"))
        key = "spec.curve_costs" if curve.needed is not None else "spec.curve_never"
        st.caption(t(key, v=number(chosen.v), c=number(chosen.c), k=chosen.k, needed=number(curve.needed)))


def _mark(row: FormRow, chosen: FormRow) -> dict[str, Any]:
    kind = "constructed" if row.made is not None else "chosen" if row.form == chosen.form else "other"
    name = row_name(row) if row.made is not None else t("spec.on_task", form=row_name(row), task=part_name(row.task))
    return {
        "name": name, "alpha": row.alpha, "speedup": row.speedup.value, "ci95": row.speedup.ci95,
        "predicted": row.predicted, "kind": kind,
    }  # fmt: skip


def _batches(result: Mapping[str, Any]) -> None:
    """Where more sequences at once use up the gain."""
    rows = [(batch, row) for batch, row in batch_rows(result) if row.speedup.value is not None]
    if not rows:
        return
    with st.container(border=True):
        frame = pd.DataFrame([{"batch": batch, **_exact(row)} for batch, row in rows])
        section_head(f"{t('spec.batches')} {badge('measured')}", t("spec.batches_caption"), frame, "batches")
        shown = [
            {
                "name": row_name(row), "batch": batch, "speedup": row.speedup.value, "ci95": row.speedup.ci95,
                "alpha": row.alpha, "constructed": row.made is not None,
            }
            for batch, row in rows
        ]  # fmt: skip
        draw(batch_chart(shown, mode(), words("chart.")), t("alt.batches"))
        said = {row.form: row for _, row in rows}
        ends = [(row_name(row), batch_where_gain_ends(result, form)) for form, row in said.items()]
        lost = [t("spec.gain_ends", form=name, batch=end) for name, end in ends if end is not None]
        if lost:
            st.caption(sentences(lost))


def _arithmetic(tables: Sequence[TaskTable], result: Mapping[str, Any]) -> None:
    """The model with the measured numbers put in, for every row."""
    rows = [row for table in tables for row in table.rows] + constructed_rows(result)
    with st.expander(t("spec.arithmetic"), icon=":material/calculate:"):
        st.caption(t("spec.formula"))
        for row in rows:
            lines = arithmetic(row)
            if not lines:
                continue
            name = row_name(row) if row.made is not None else f"{row_name(row)}, {part_name(row.task)}"
            found = t("spec.beside", speedup=times(row.speedup))
            text = [f"**{escape(name)}**", *(f"{badge('computed')} `{translated(line)}`" for line in lines)]
            st.markdown("  \n".join([*text, f"{badge('measured')} {escape(found)}"]))


def _export(run: Run, tables: Sequence[TaskTable], result: Mapping[str, Any]) -> None:
    st.markdown(f"## {t('result.export')}")
    st.caption(t("result.export_caption"))
    rows = [row for table in tables for row in table.rows] + constructed_rows(result)
    report_files(run)
    files(f"trilemma-{run.id}", result, [_exact(row) for row in rows])
    st.code(speculation_command(run.spec), language="shell", wrap_lines=True)
    link()
