"""C31 and C43: the roll-out ladder climbed on a workload short of KV memory, and its return on effort against the
article's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.playbook.decide import FORBIDDING
from experiments.playbook.outcomes import ADOPTED, NOT_DECIDED
from experiments.playbook.roi import AGREES, CLOSE, DISAGREES
from experiments.playbook.steps import LADDER, STEPS
from experiments.playbook.words import Says

Ladder = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A spec of experiments.playbook -> its JSON; the run that holds it is named in `run_id`."""

WORKLOAD = "mixed"
# Of the embedded model's 32-bit KV some 1,100 tokens: short of what eight of these requests come to.
SETTINGS = {"kv_memory_mib": 48}
# Prompts are computed between the tokens of others: without an objective the gaps that this makes would forbid the
# first step, whatever it gains.
SLO = "ttft_p95=10,itl_p95=0.5"
REPEATS = 3
MINUTE = len("2026-01-01T00:00")
KEPT = ("change_pct", "ci95", "verdict")


def climbs(options: Mapping[str, Any], ladder: Ladder) -> dict[str, Any]:
    """C31: whether climbing in order, with the curves' consent, ends better than it began."""
    result = ladder(spec_of(options))
    return {**_judged(judge_climb, result), "evidence": [*step_rows(result), *whole_rows(result)]}


def returns(options: Mapping[str, Any], ladder: Ladder) -> dict[str, Any]:
    """C43: whether the measured return on effort has the article's order. A ladder of before has its date, `ran_at`."""
    result = ladder(spec_of(options))
    found = {**_judged(judge_order, result), "evidence": return_rows(result)}
    if (ran_at := result.get("ran_at")) is None:
        return found
    at = ran_at[:MINUTE].replace("T", " ")
    for lang in ("en", "zh"):
        says, name = Says(lang), "reason" if lang == "en" else "reason_zh"
        found[name] += says("gap") + says("claim_read_again", run_id=result["run_id"], at=at)
    return {**found, "ran_at": ran_at}


def _judged(judge: Callable[[Mapping[str, Any], str], Verdict], result: Mapping[str, Any]) -> dict[str, Any]:
    verdict, reason = judge(result, "en")
    return {"verdict": verdict, "reason": reason, "reason_zh": judge(result, "zh")[1]}


def judge_climb(result: Mapping[str, Any], lang: str = "en") -> Verdict:
    """Holds when the end is better than the start in a guarded curve and worse in none. With a limit when a step that
    its own curves had allowed had to be taken back at the end, or the whole is not decided."""
    says = Says(lang)
    steps, overall = result["steps"], result["overall"]
    found = says.headline(result)

    def told(*more: str) -> str:
        return says("gap").join(filter(None, (found, *more)))

    if overall is None:
        if any(row["outcome"] == NOT_DECIDED for row in steps):
            return UNDECIDED, told(says("claim_open"))
        return (FAILS if any(row["comparison"] for row in steps) else UNDECIDED), found
    if any(reason["code"] in FORBIDDING for reason in overall["reasons"]):
        return FAILS, told(*says.reasons(overall))
    if result["undone"]:
        undone = says("list").join(map(says.step, result["undone"]))
        return LIMITED, told(says("claim_undone", steps=undone))
    if overall["outcome"] != ADOPTED:
        return UNDECIDED, told(*says.reasons(overall))
    refused = [says.step(row["name"]) for row in steps if row["comparison"] and row["outcome"] != ADOPTED]
    return HOLDS, told(says("claim_refused", steps=says("list").join(refused)) if refused else "")


def judge_order(result: Mapping[str, Any], lang: str = "en") -> Verdict:
    """Holds when the returns have the article's order; with a limit when not all of its steps could be measured, or
    some that it ranks apart could not be told apart here."""
    order, says = result["order"], Says(lang)
    found, gap = says.order(result), says("gap")
    missing = [name for name in LADDER if STEPS[name].rank is not None and name not in order["measured"]]
    if order["verdict"] == DISAGREES:
        return FAILS, found
    if order["verdict"] != AGREES:
        return UNDECIDED, found
    if missing:
        return LIMITED, found + gap + says("claim_missing", steps=says("list").join(map(says.step, missing)))
    close = sum(pair["verdict"] == CLOSE for pair in order["pairs"])
    if close:
        return LIMITED, found + gap + says("claim_close", count=len(order["pairs"]), close=close)
    return HOLDS, found


def spec_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The ladder of both claims; the user's options win over the check's, the steps stay the check's."""
    given = {name: value for name, value in options.items() if name != "settings" and value}
    settings = {**SETTINGS, **(options.get("settings") or {})}
    return {"repeats": REPEATS, **given, "recipe": "rollout", "workload": WORKLOAD, "slo": SLO, "settings": settings}


def step_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An evidence row a step: what became of it, why, and its curve that counts."""
    says = Says("en")
    return [
        {
            "part": says.step(row["name"]),
            "changes": says.changes(row),
            "outcome": row["outcome"],
            "why": " ".join(says.reasons(row)),
            **_figures(row, result["aim"]),
            **_quality(row),
            "simulate": row["simulate"],
            "run_id": result["run_id"],
            "provenance": "measured",
        }
        for row in result["steps"]
    ]


def whole_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An evidence row a curve of the end against the start."""
    if result["overall"] is None:
        return []
    return [
        {"part": "end against start", "curve": curve["name"], "start": curve["baseline"], "end": curve["candidate"],
         **{name: curve[name] for name in KEPT}, "run_id": result["run_id"], "provenance": curve["provenance"]}
        for curve in result["overall"]["comparison"]["curves"]
    ]  # fmt: skip


def return_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An evidence row a step, by return; hours are assumed."""
    rows: Sequence[Mapping[str, Any]] = result["returns"]
    return [
        {"part": Says("en").step(row["step"]), **{name: row[name] for name in (
            "outcome", "measured_pct", "ci95", "gain_pct", "effort", "hours", "return_pct_per_hour", "place", "rank")},
         "run_id": result["run_id"], "provenance": "computed"}
        for row in rows
    ]  # fmt: skip


def _figures(row: Mapping[str, Any], aim: str) -> dict[str, Any]:
    curves = {curve["name"]: curve for curve in (row["comparison"] or {}).get("curves") or ()}
    if aim not in curves:
        return {}
    return {"curve": aim, **{name: curves[aim][name] for name in KEPT}, "repeats": row["comparison"]["repeats"]}


def _quality(row: Mapping[str, Any]) -> dict[str, Any]:
    found = row["quality"]
    return {} if found is None else {"quality": found["verdict"], "quality_drop": found["drop"]}
