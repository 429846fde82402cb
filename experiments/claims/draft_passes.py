"""C13, C15, C37: what a pass yields, whether the speed-up follows from acceptance, and the case that got slower.

On constructed drafts, which are right as often as the check wants: acceptance is then the only thing that differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.draft_rows import Measure, evidence, made_rows, rows_of, spec_of, times
from experiments.speculation.parts import ALPHAS, POOR, POOR_COST
from ledger.speculation import Costs, accepted_per_draft, break_even_cost, cost_at, speedup, tokens_per_cycle

K = 4
CLOSE = 0.10  # of the model's speed-up
CONSTRUCTED: dict[str, Any] = {"forms": [], "tasks": [], "batches": [], "num_draft_tokens": K}


def passes(options: Mapping[str, Any], measure: Measure) -> dict[str, Any]:
    """C13: drafts that are all right. Passes of the target against tokens.

    In float32: in 16 bits a near tie can be decided otherwise among several rows than alone, and from there on the
    constructed draft is wrong.
    """
    result = measure(spec_of(options, settings={"dtype": "fp32"}, **CONSTRUCTED))
    row = made_rows(result, alpha=1.0, k=K, c=0.0)[0]
    verdict, reason = judge_passes(row)
    return {"verdict": verdict, "reason": reason, "evidence": [evidence("all accepted", row, result)]}


def judge_passes(row: Mapping[str, Any]) -> Verdict:
    """With a limit: one pass does verify k drafts, and saves k passes rather than k - 1."""
    k, yielded = row["k"], row["tokens_per_pass"]
    found = f"with every draft right a pass of the target gave {yielded:.2f} tokens at k = {k}"
    if row["identical"] < row["prompts"]:
        return FAILS, f"{found}, but {row['prompts'] - row['identical']} answers differ from plain decoding"
    if yielded > k:
        return LIMITED, f"{found}: up to {k + 1}, the bonus token included, so it saves {k} passes and not {k - 1}"
    return (HOLDS if yielded > 1 else FAILS), found


def curve(options: Mapping[str, Any], measure: Measure) -> dict[str, Any]:
    """C15: constructed drafts over the whole range, and the real forms on every task, against the model."""
    result = measure(spec_of(options, batches=[], num_draft_tokens=K))
    made = [row for alpha in ALPHAS for row in made_rows(result, alpha=alpha, k=K, c=0.0)]
    real = [(task, row) for task, row in rows_of(result, "tasks")]
    verdict, reason = judge_curve(made, [row for _, row in real])
    rows = [evidence("constructed", row, result) for row in made]
    return {
        "verdict": verdict,
        "reason": reason,
        "evidence": [*rows, *(evidence(task, row, result) for task, row in real)],
    }


def judge_curve(made: Sequence[Mapping[str, Any]], real: Sequence[Mapping[str, Any]]) -> Verdict:
    """Holds when the speed-up rises with alpha and the model is within 10 % for most; real forms may stray further."""
    speeds = [row["speedup"] for row in sorted(made, key=lambda row: row["alpha"])]
    off = [_off(row) for row in made]
    strayed = [value for row in real if (value := _off(row)) is not None]
    known = [value for value in off if value is not None]
    if not known or any(speed is None for speed in speeds):
        return UNDECIDED, "too few passes with drafts to compare"
    text = f"constructed drafts: measured {', '.join(times(speed) for speed in speeds)} from alpha 0.3 to 1"
    text += f", the model's figures are off by {median(known):.0%} in the median and {max(known):.0%} at most"
    if strayed:
        text += f"; real forms: by {median(strayed):.0%} in the median and {max(strayed):.0%} at most"
    if any(later < earlier for earlier, later in pairwise(speeds)):
        return FAILS, f"{text}; it does not rise with alpha throughout"
    if median(known) > CLOSE:
        return LIMITED, f"{text}; it rises with alpha, but not as the model says"
    if strayed and max(strayed) > CLOSE:
        return LIMITED, f"{text}; acceptance that comes in runs, or a machine that is busy, moves a form off the curve"
    return HOLDS, text


def _off(row: Mapping[str, Any]) -> float | None:
    predicted, measured = row["predicted"]["speedup"], row["speedup"]
    return None if predicted is None or measured is None else abs(measured / predicted - 1)


def poor_draft(options: Mapping[str, Any], measure: Measure) -> dict[str, Any]:
    """C37: a draft that is right in three of ten, for nothing and at the cost of the case."""
    result = measure(spec_of(options, **CONSTRUCTED))
    free, costly = (made_rows(result, alpha=POOR, k=K, c=c)[0] for c in (0.0, POOR_COST))
    verdict, reason = judge_poor(free, costly)
    rows = [
        evidence("poor draft that costs nothing", free, result),
        evidence(f"poor draft at c = {POOR_COST}", costly, result),
        *_arithmetic(costly["v"]),
    ]
    return {"verdict": verdict, "reason": reason, "evidence": rows}


def judge_poor(free: Mapping[str, Any], costly: Mapping[str, Any]) -> Verdict:
    """Holds when serving gets slower with it; the figure itself depends on what verifying costs here."""
    change = None if costly["speedup"] is None else 100 * (costly["speedup"] - 1)
    if change is None or costly["v"] is None:
        return UNDECIDED, "too few passes with drafts to compare"
    text = (
        f"alpha {costly['alpha']:.2f}, which is {costly['acceptance_rate']:.3f} accepted per draft, at a draft cost of "
        f"{costly['c']:.3f}: throughput {change:+.1f} %. Verifying takes {costly['v']:.2f} passes here; the same draft "
        f"for nothing gives {times(free['speedup'])}, and at v = 1 the case's -15 % needs {POOR_COST}"
    )
    if costly["verdict"] == "worse":
        return HOLDS, text
    return (FAILS if costly["verdict"] in ("better", "no difference") else UNDECIDED), text


def _arithmetic(v: float | None) -> list[dict[str, Any]]:
    """The case's figures at v = 1, and what its draft may cost on this engine."""
    rows = [
        ("tokens of a cycle", tokens_per_cycle(POOR, K), "(1 - 0.3^5) / (1 - 0.3)"),
        ("accepted per draft", accepted_per_draft(POOR, K), "(1.4251 - 1) / 4"),
        ("break-even draft cost, v = 1", break_even_cost(POOR, K), "(1.4251 - 1) / 4"),
        ("draft cost for throughput -15 %, v = 1", cost_at(0.85, POOR, K), "(1.4251 / 0.85 - 1) / 4"),
        ("draft cost for latency +15 %, v = 1", cost_at(1 / 1.15, POOR, K), "(1.4251 x 1.15 - 1) / 4"),
        ("speed-up at the case's cost, v = 1", speedup(POOR, K, Costs(1.0, POOR_COST)), "1.4251 / (1 + 4 x 0.169)"),
    ]
    if v is not None:
        rows.append(("break-even draft cost here", break_even_cost(POOR, K, v), f"(1.4251 - {v:.3f}) / 4"))
        rows.append(
            ("draft cost for throughput -15 % here", cost_at(0.85, POOR, K, v), f"(1.4251 / 0.85 - {v:.3f}) / 4")
        )
    return [
        {"name": name, "value": value, "unit": "", "formula": formula, "provenance": "computed"}
        for name, value, formula in rows
    ]
