"""C16, C17, C18: what the forms of draft reach, how they differ, and where speculation does not pay.

On the embedded model and on its enlarged form, whose tokens are the same at several times the work: a small target and
a large one that differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.advisor.speculation import REFUSES
from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.draft_rows import (
    TRAINED,
    WIDE,
    Measure,
    evidence,
    highest,
    missing,
    models,
    rows_of,
    spec_of,
    times,
)

CLAIMED_ALPHA, CLAIMED_SPEED = 0.7, 2.0
BATCHES = (1, 8, 32)
Found = tuple[str, str, Mapping[str, Any]]
"""(model, task, row)."""


def reach(options: Mapping[str, Any], measure: Measure) -> dict[str, Any]:
    """C16: trained drafts on every task and in batches, with a small target and a large one."""
    results = {model: measure(_spec(options, model, batches=list(BATCHES))) for model in models(options)}
    rows, batches = _rows(results, "tasks"), _rows(results, "batches")
    verdict, reason = judge_reach(rows, batches)
    return {"verdict": verdict, "reason": reason, "evidence": _evidence(results, [*rows, *batches])}


def judge_reach(rows: Sequence[Found], batches: Sequence[Found]) -> Verdict:
    """Holds when a trained form reaches both figures on every task, with a limit when it does on some."""
    trained = [found for found in rows if found[2]["form"] in TRAINED and found[2]["alpha"] is not None]
    if not trained:
        return UNDECIDED, "no trained draft can run here"
    reached = [
        found for found in trained if found[2]["alpha"] >= CLAIMED_ALPHA and (found[2]["speedup"] or 0) >= CLAIMED_SPEED
    ]
    best_alpha = max(trained, key=lambda found: found[2]["alpha"])
    best_speed = max(trained, key=lambda found: found[2]["speedup"] or 0)
    text = f"highest acceptance {_said(best_alpha)}; largest speed-up {_said(best_speed)}"
    largest = [found for found in batches if found[2]["form"] in TRAINED]
    if largest:
        size = max(int(task) for _, task, _ in largest)
        gains = highest([row["speedup"] for _, task, row in largest if int(task) == size])
        text += f"; in a batch of {size} the best of them gives {times(gains)}"
    if not reached:
        return FAILS, f"no form reaches {CLAIMED_ALPHA} and {CLAIMED_SPEED:.0f}x on any task: {text}"
    places = {(model, task) for model, task, _ in trained}
    if {(model, task) for model, task, _ in reached} == places:
        return HOLDS, text
    return LIMITED, f"reached in {len(reached)} of {len(trained)} cases: {text}"


def forms(options: Mapping[str, Any], measure: Measure) -> dict[str, Any]:
    """C17: one table over the same prompts."""
    model = models(options)[0]
    result = measure(_spec(options, model, batches=[], constructed=False))
    rows = _rows({model: result}, "tasks")
    verdict, reason = judge_forms(rows)
    return {"verdict": verdict, "reason": reason, "evidence": _evidence({model: result}, rows)}


def judge_forms(rows: Sequence[Found]) -> Verdict:
    """Holds when the separate model is accepted least of the trained forms, and EAGLE or the self-distilled most."""
    pooled = {form: alpha for form in TRAINED if (alpha := _pooled(rows, form)) is not None}
    if len(pooled) < len(TRAINED):
        absent = ", ".join(form for form in TRAINED if form not in pooled)
        said = ", ".join(f"{form} {alpha:.2f}" for form, alpha in pooled.items()) or "none"
        return UNDECIDED, f"not every form was measured ({absent} missing); acceptance: {said}"
    ordered = sorted(pooled, key=pooled.__getitem__, reverse=True)
    text = "acceptance over all tasks: " + ", ".join(f"{form} {pooled[form]:.2f}" for form in ordered)
    least, most = ordered[-1] == "draft", ordered[0] in ("eagle", "self")
    if least and most:
        return HOLDS, text
    return (LIMITED if least or most else FAILS), f"{text}; that is not the order of the claim"


def _pooled(rows: Sequence[Found], form: str) -> float | None:
    own = [row for _, _, row in rows if row["form"] == form]
    tested = sum(sum(row["tested"]) for row in own)
    return sum(sum(row["accepted"]) for row in own) / tested if tested else None


def losing(options: Mapping[str, Any], measure: Measure) -> dict[str, Any]:
    """C18: every form's point against the break-even, on the small target and on the large one."""
    results = {model: measure(_spec(options, model, batches=[])) for model in models(options)}
    rows = _rows(results, "tasks")
    verdict, reason = judge_losing(rows)
    return {"verdict": verdict, "reason": reason, "evidence": _evidence(results, rows)}


def judge_losing(rows: Sequence[Found]) -> Verdict:
    """Holds when what the break-even refuses was measured not to be faster, and nothing pays on the small target.

    With a limit when something pays there all the same; undecided while something seems to that nobody can tell yet.
    """
    refused = [found for found in rows if found[2]["advice"]["verdict"] == REFUSES]
    wrong = [found for found in refused if found[2]["verdict"] == "better"]
    small = [found for found in rows if found[0] != WIDE]
    paying = [found for found in small if found[2]["verdict"] == "better"]
    large = highest([row["speedup"] for model, _, row in rows if model == WIDE])
    if not refused and not paying:
        return UNDECIDED, "no form was measured well enough to say"
    text = f"the break-even refuses {len(refused)} of {len(rows)} cases"
    text += "" if large is None else f"; on the enlarged target the best form gives {times(large)}"
    if wrong:
        return FAILS, f"{text}; refused but faster: {'; '.join(map(_said, wrong))}"
    if paying:
        return LIMITED, f"{text}; on the small target it pays where acceptance is high: {'; '.join(map(_said, paying))}"
    seeming = [found for found in small if found[2]["verdict"] == "inconclusive" and (found[2]["speedup"] or 0) > 1]
    if seeming:
        most = max(seeming, key=lambda found: found[2]["speedup"])
        return UNDECIDED, f"{text}; {len(seeming)} cases on the small target need more repeats, above all {_said(most)}"
    return HOLDS, f"{text}; none pays on the small target"


def _spec(options: Mapping[str, Any], model: str, **fields: Any) -> dict[str, Any]:
    return spec_of(options, settings={"model": model}, **fields)


def _rows(results: Mapping[str, Mapping[str, Any]], part: str) -> list[Found]:
    return [
        (model, name, row)
        for model, result in results.items()
        for name, row in rows_of(result, part)
        if not row["form"].startswith("constructed")
    ]


def _said(found: Found) -> str:
    model, task, row = found
    return f"{row['form']} on {task} ({model}): alpha {row['alpha']:.2f}, {times(row['speedup'])}"


def _evidence(results: Mapping[str, Mapping[str, Any]], rows: Sequence[Found]) -> list[dict[str, Any]]:
    found = [
        evidence(task, row, results[model], model=model, target="enlarged target" if model == WIDE else "as it is",
                 alpha_by_position=row["alpha_by_position"], training=row.get("training"))
        for model, task, row in rows
    ]  # fmt: skip
    return [*found, *(row for result in results.values() for row in missing(result))]
