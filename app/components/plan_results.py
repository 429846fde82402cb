"""A finished plan: verdict, front, table of plans, each one's constraint and launch lines, what was pruned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import plan_chart
from app.components.calculator import files, link
from app.components.report_files import report_files
from app.components.section import escape, section_head
from app.components.simulator_trust import trust
from app.state import badge, draw, mode, sentences, t, translated, words
from experiments.planner_view import (
    best,
    cards_within_band,
    fastest,
    least_certain,
    marks,
    plan_command,
    times_the_cost,
)
from experiments.report.words import MISSING, number
from experiments.store import Run
from ledger.money import HOURS_A_MONTH

GIB = 2**30
Plan = Mapping[str, Any]


def results(run: Run) -> None:
    """Draw everything below the box of stored runs."""
    result: Mapping[str, Any] = run.result or {}
    _verdict(result, run.spec)
    if result["simulated"]:
        _front(result)
    if result["plans"]:
        _table(result)
        for plan in result["plans"]:
            _plan(plan, is_first=plan is result["plans"][0])
    _pruned(result)
    trust(least_certain(result))
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"plan.{kind}"))
    st.markdown(f"## {t('result.export')}")
    report_files(run)
    files(f"plan-{run.id}", result, [_row(plan) for plan in result["plans"]])
    st.code(plan_command(run.spec), language="shell", wrap_lines=True)
    link()


def _verdict(result: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    cheapest, quick = best(result), fastest(result)
    with st.container(border=True, key="verdict"):
        found = cheapest is not None
        label = t("plan.found" if found else "plan.none")
        st.markdown(f":{'green' if found else 'orange'}-badge[{label}] {badge('simulated')}")
        with st.container(key="verdict_sentence"):
            if cheapest is None:
                st.markdown(t("plan.sentence_none"))
            else:
                told = [_sentence(result, cheapest)]
                if quick is not None:
                    told.append(
                        t(
                            "plan.sentence_fast",
                            id=quick["id"],
                            user=number(quick["tokens_per_s_per_user"]),
                            times=number(times_the_cost(quick, cheapest)),
                        )
                    )
                st.markdown(escape(sentences(told)))
        if cheapest is not None:
            st.caption(escape(binding_text(cheapest["binding"])))
        card, band = _certainty(result, cheapest)
        st.caption(t("plan.band", card=escape(card), band=number(band)))
        if cheapest is not None:
            low, high = cards_within_band(cheapest, spec["rate_rps"], spec["headroom"])
            st.caption(t("plan.band_cards", low=low, high=high))
    for warning in result["warnings"]:
        st.warning(escape(translated(warning)))


def _certainty(result: Mapping[str, Any], plan: Plan | None) -> tuple[str, float]:
    """The card whose error band counts, and the band in %: the cheapest plan's, without a plan the widest."""
    if plan is not None:
        return plan["gpu_label"], plan["error_band_pct"]
    card = least_certain(result)
    return card["label"], card["error_band_pct"]


def _sentence(result: Mapping[str, Any], plan: Plan) -> str:
    return t(
        "plan.sentence",
        devices=plan["devices"],
        card=plan["gpu_label"],
        how=_how(plan),
        rate=number(result["traffic"]["requests_per_s"]),
        cost=number(plan["cost_per_million_output_tokens"]),
        month=number(HOURS_A_MONTH * plan["cost_per_hour"]),
        user=number(plan["tokens_per_s_per_user"]),
    )


def _how(plan: Plan) -> str:
    """Replicas, split and formats in a few words."""
    split = f"TP {plan['tp']}" + (f" × PP {plan['pp']}" if plan["pp"] > 1 else "")
    told = t("plan.how", count=plan["replicas"], split=split, weights=plan["weights"], kv=plan["kv_dtype"])
    if plan["disaggregation"]:
        sides = plan["disaggregation"]
        told += t("plan.apart", prefill=sides["prefill_replicas"], decode=sides["decode_replicas"])
    return told


def binding_text(found: Mapping[str, Any]) -> str:
    """What holds a plan back, in words."""
    resource = found["resource"]
    waits = t("plan.waits", rows=max(1, round(found["running"])), share=number(100 * found["parts"][resource]),
              on=t(f"plan.on_{resource}"))  # fmt: skip
    missed = t("list_join").join(f"{row['name']} {number(row['value'])} > {row['limit']:g}" for row in found["missed"])
    what = t(f"plan.bound_{found['constraint'].replace(' ', '_')}", rate=number(found["rate_rps"]), missed=missed)
    return t("plan.bound_by", what=what, waits=waits)


def _front(result: Mapping[str, Any]) -> None:
    shown = marks(result)
    with st.container(border=True):
        frame = pd.DataFrame(shown)
        section_head(f"{t('plan.front')} {badge('simulated')}", t("plan.front_caption"), frame, "front")
        draw(plan_chart(shown, mode(), words("chart.")), t("plan.front_alt"))


def _table(result: Mapping[str, Any]) -> None:
    with st.container(border=True):
        frame = pd.DataFrame([_row(plan) for plan in result["plans"]])
        section_head(f"{t('plan.table')} {badge('simulated')}", t("plan.table_caption"), frame, "plans")
        with st.container(key="plans_table"):
            st.table(pd.DataFrame([_cells(plan) for plan in result["plans"]]), hide_index=True)


def _row(plan: Plan) -> dict[str, Any]:
    """The figures of a plan, for table and CSV."""
    names = ("id", "label", "replicas", "devices", "cost_per_million_output_tokens", "cost_per_hour",
             "tokens_per_s_per_user", "tokens_per_s_per_card", "limit_rps", "load_rps")  # fmt: skip
    latencies = {f"{name}_p95": plan[name]["p95"] for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s")}
    return {**{name: plan[name] for name in names}, **latencies, "bound_by": plan["binding"]["text"],
            "provenance": "simulated"}  # fmt: skip


def _cells(plan: Plan) -> dict[str, str]:
    tpot, itl = plan["tpot_s"]["p95"], plan["itl_s"]["p95"]
    cells = {
        "plan": f"{plan['id']}{' ◆' if plan['on_front'] else ''}",
        "deployment": escape(
            f"{plan['gpu_label']}, {_how(plan)}, {plan['max_num_seqs']} × {plan['max_num_batched_tokens']:,}"
        ),
        "devices": str(plan["devices"]),
        "cost": number(plan["cost_per_million_output_tokens"]),
        "user": number(plan["tokens_per_s_per_user"]),
        "card": number(plan["tokens_per_s_per_card"]),
        "ttft": number(plan["ttft_s"]["p95"]),
        "tpot": MISSING if tpot is None else number(1000 * tpot),
        "itl": MISSING if itl is None else number(1000 * itl),
        "bound": t(f"plan.short_{plan['binding']['constraint'].replace(' ', '_')}"),
    }
    return {t(f"plan.col_{name}"): text for name, text in cells.items()}


def _plan(plan: Plan, *, is_first: bool) -> None:
    """What binds a plan, what it may cost in quality, and how engines start it."""
    with st.expander(t("plan.one", id=plan["id"], how=f"{plan['gpu_label']}, {_how(plan)}"), expanded=is_first):
        st.markdown(f"{badge('simulated')} {escape(binding_text(plan['binding']))}")
        limits = t("plan.limits", seqs=plan["max_num_seqs"], tokens=plan["max_num_batched_tokens"])
        limit = t("plan.limit", limit=number(plan["limit_rps"]), load=number(plan["load_rps"]))
        st.caption(escape(sentences([limits, limit])))
        if plan["quality_risk"]:
            st.warning(t("plan.quality", formats=_quantized(plan)))
        for engine in plan["launch"]:
            _engine(engine)


def _quantized(plan: Plan) -> str:
    return f"{plan['weights']}, KV {plan['kv_dtype']}"


def _engine(engine: Mapping[str, Any]) -> None:
    st.markdown(f"**{escape(engine['engine'])}**")
    for note in engine["notes"]:
        st.caption(escape(translated(note)))
    if engine["lines"] is None:
        return
    memory = engine["memory"]
    st.caption(
        escape(
            t(
                "plan.memory",
                model=translated(engine["model"]),
                flag=memory["flag"],
                fraction=f"{memory['fraction']:g}",
                rule=translated(memory["rule"]),
                room=number(memory["kv_room_bytes"] / GIB),
            )
        )
    )
    st.code("\n".join(engine["lines"]), language="shell", wrap_lines=True)
    for name, content in engine["files"].items():
        st.caption(escape(name))
        st.code(content, language="yaml")


def _pruned(result: Mapping[str, Any]) -> None:
    counts = result["counts"]
    with st.expander(t("plan.pruned", candidates=counts["candidates"], simulated=counts["simulated"])):
        rows = [
            {t("plan.col_count"): row["count"], t("plan.col_why"): t(f"plan.pruned_{row['reason']}"),
             t("plan.col_example"): escape(row["why"])}
            for row in result["pruned"]
        ]  # fmt: skip
        if rows:
            st.table(pd.DataFrame(rows), hide_index=True)
        st.caption(t("plan.pruned_caption", requests=f"{counts['requests']:,}"))
