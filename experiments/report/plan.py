"""The report of a plan of a cluster: the plans by cost, the front, launch lines, and what was left out and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.planner_view import best, fastest, times_the_cost
from experiments.report import parts
from experiments.report.document import Block, Cell, Code, Findings, Heading, Note, Section, chart, section, table
from experiments.report.parts import count, figure, plain, yes_no
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import MISSING, Words, number
from experiments.store import Run

CANDIDATE = ("gpu", "weights", "kv_dtype", "tp", "pp", "max_num_seqs", "max_num_batched_tokens")


def of_plan(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """The cheapest plan, the fastest one, and all of them."""
    label, plans = label_of(result), list(result["plans"])
    sections = (
        _front(result, label, words),
        _plans(plans, label, words) if plans else None,
        *(_plan(plan, label, words) for plan in plans),
        _pruned(result, words),
        _cards(result, words),
    )
    assumed = result.get("prices_assumed") or []
    return Findings(
        title_of(run, words),
        words("q_plan", model=result["model"], rate=number(result["traffic"]["requests_per_s"]),
              slo=result.get("slo") or words("none")),
        _answer(result, words), sections,
        more=_more(result, words),
        caveats=(
            words("c_plan"),
            *((words("c_plan_prices", gpus=words.listed([str(gpu) for gpu in assumed])),) if assumed else ()),
            str(result.get("quality") or ""),
        ),
        defined=("ttft_s", "tpot_s", "itl_s", "e2e_s", "cost", "percentiles"),
    )  # fmt: skip


def _answer(result: Result, words: Words) -> str:
    cheapest = best(result)
    if cheapest is None:
        return words("plan_none")
    return words(
        "plan_best", plan=cheapest["label"], devices=cheapest["devices"],
        cost=number(cheapest["cost_per_million_output_tokens"]),
    )  # fmt: skip


def _more(result: Result, words: Words) -> tuple[str, ...]:
    cheapest = best(result)
    quick = None if cheapest is None else fastest(result)
    if cheapest is None or quick is None:
        return ()
    times = number(times_the_cost(quick, cheapest))
    user = number(quick["tokens_per_s_per_user"])
    return (words("plan_fastest", plan=quick["label"], user=user, times=times),)


def _front(result: Result, label: str, words: Words) -> Section | None:
    points = [one for one in result.get("simulated") or [] if one.get("tokens_per_s_per_user") is not None]
    if not points:
        return None
    rows = sorted(
        ({"name": str(one["label"]), "x": float(one["tokens_per_s_per_user"]), "y": one["tokens_per_s_per_card"],
          "low": None, "high": None} for one in points if one["on_front"]),
        key=lambda row: (row["x"], row["name"]),
    )  # fmt: skip
    header = [words("p_replica"), words("p_per_user"), words("p_per_card"), words("p_limit"), words("p_on_front")]
    told = [
        [str(one["label"]), figure(one["tokens_per_s_per_user"]), figure(one["tokens_per_s_per_card"]),
         figure(one["limit_rps"]), yes_no(one["on_front"], words)]
        for one in points
    ]  # fmt: skip
    title = words("p_front")
    return section(title, label, chart("xy", title, rows, x_label=words("p_per_user")),
                   table(header, told, (1, 2, 3)), caption=words("p_front_caption"))  # fmt: skip


def _plans(plans: list[Mapping[str, Any]], label: str, words: Words) -> Section:
    header = [words("p_plan"), words("p_deployment"), words("p_devices"), words("m_cost_per_million_output_tokens"),
              "TTFT p95, s", "ITL p95, s", words("p_per_user"), words("p_per_card"), words("p_load"),
              words("p_limit")]  # fmt: skip
    rows = [
        [str(plan["id"]), str(plan["label"]), count(plan["devices"]), figure(plan["cost_per_million_output_tokens"]),
         figure((plan.get("ttft_s") or {}).get("p95")), figure((plan.get("itl_s") or {}).get("p95")),
         figure(plan["tokens_per_s_per_user"]), figure(plan["tokens_per_s_per_card"]), figure(plan["load_rps"]),
         figure(plan["limit_rps"])]
        for plan in plans
    ]  # fmt: skip
    return section(words("p_plans"), label, table(header, rows, range(2, 10)))


def _plan(plan: Mapping[str, Any], label: str, words: Words) -> Section:
    facts: dict[str, Any] = {name: plan.get(name) for name in CANDIDATE}
    facts |= {words("p_replicas"): plan["replicas"], words("p_devices"): plan["devices"]}
    blocks: list[Block] = [parts.pairs(facts, words)]
    binding = plan.get("binding") or {}
    if binding.get("text"):
        blocks += [Heading(words("p_binding")), Note(str(binding["text"]))]
    objectives = [one for one in plan.get("objectives") or [] if isinstance(one, Mapping)]
    if objectives:
        blocks += [Heading(words("p_objectives")), *parts.anything(objectives, words)]
    for line in plan.get("launch") or []:
        blocks.append(Heading(words("of_what", what=words("p_launch"), of=line["engine"])))
        if line.get("lines"):
            blocks.append(Code("\n".join(str(text) for text in line["lines"])))
        for name, text in (line.get("files") or {}).items():
            blocks += [Note(str(name), "caption"), Code(str(text))]
        blocks += [Note(str(note), "caption") for note in line.get("notes") or []]
    title = words("p_title", id=plan["id"], label=plan["label"])
    band = plan.get("error_band_pct")
    caption = None if band is None else words("p_band", calibration=plain(plan.get("calibration")), band=number(band))
    return section(title, label, *blocks, caption=caption)


def _pruned(result: Result, words: Words) -> Section | None:
    left_out = result.get("pruned") or []
    rows = [[str(one["what"]), count(one["count"]), str(one.get("why") or MISSING)] for one in left_out]
    if not rows:
        return None
    return section(words("p_pruned"), "computed", table([words("reason"), "n", words("p_example")], rows, (1,)))


def _cards(result: Result, words: Words) -> Section | None:
    prices, assumed = result.get("prices") or {}, result.get("prices_assumed") or []
    if not prices:
        return None
    rows = [[str(gpu), figure(price), Cell("", None, "assumed" if gpu in assumed else "given")]
            for gpu, price in prices.items()]  # fmt: skip
    return section(words("p_prices"), None, table([words("p_gpu"), words("p_price"), words("label")], rows, (1,)))
