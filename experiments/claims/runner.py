"""Runs the check of a claim and says whether the claim holds here.

Knows which claims have a check and how to run a comparison for one; the judging itself lives with each check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.asked_to_stop import stoppable
from experiments.claims import (
    answer_caches,
    arithmetic,
    batching,
    both_knees,
    bounds,
    capped_batch,
    climbing,
    cost_levers,
    draft_exact,
    draft_forms,
    draft_passes,
    held_weights,
    hidden_loss,
    idle_slots,
    integer_products,
    kernel_options,
    kv_admission,
    kv_quality,
    larger_card,
    latency_parts,
    load_and_latency,
    long_documents,
    memory_accounts,
    monthly,
    paging,
    piled_up,
    prefix_reuse,
    ranks,
    separated,
    two_loads,
    weight_quality,
)
from experiments.claims.budget import steps_of
from experiments.claims.catalogue import get_claim
from experiments.claims.comparison import Compare, Factorial
from experiments.claims.draft_rows import Measure
from experiments.claims.quality_rows import Arms, Evaluate
from experiments.claims.sweep_rows import Sweep
from experiments.kinds import kind_of
from experiments.quality.evaluation import Evaluation
from experiments.quality.items import Item
from experiments.quality.texts import Text
from experiments.store import Store
from experiments.within import finished_run, run_kept
from ledger.errors import InputError

CHECKED_BY_FORMULA: dict[str, Callable[[], dict[str, Any]]] = {
    "C04": arithmetic.thirteen_billion,
    "C34": monthly.month_of_a_7b_model,
    "C45": arithmetic.seven_billion,
}
# Without a scheduled run: single steps, what is held, who is admitted.
CHECKED_BY_ENGINE: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "C02": bounds.check,
    "C05": kv_admission.check,
    "C19": kernel_options.fusion,
    "C20": kernel_options.one_call,
    "C21": kernel_options.split_kv,
    "C24": ranks.check,
    "C25": integer_products.check,
    "C27": held_weights.check,
}
# On hardware that is not here: the engine's scheduler over the simulator's step times.
CHECKED_BY_SIMULATION: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"C07": larger_card.check}
CHECKED_BY_EVALUATION: dict[str, Callable[[Mapping[str, Any], Evaluate], dict[str, Any]]] = {
    "C06": kv_quality.costs,
    "C26": weight_quality.check,
    "C38": hidden_loss.check,
    "C50": kv_quality.two_bits,
}
CHECKED_BY_COMPARISON: dict[str, Callable[[Mapping[str, Any], Compare], dict[str, Any]]] = {
    "C08": idle_slots.static_waits,
    "C09": idle_slots.dynamic_starts_early,
    "C10": batching.check,
    "C11": paging.waste,
    "C39": prefix_reuse.check,
    "C42": latency_parts.check,
    "C48": long_documents.check,
}
CHECKED_BY_FACTORIAL: dict[str, Callable[[Mapping[str, Any], Factorial], dict[str, Any]]] = {
    "C12": paging.together,
    "C30": piled_up.check,
}
CHECKED_BY_DRAFTS: dict[str, Callable[[Mapping[str, Any], Measure], dict[str, Any]]] = {
    "C13": draft_passes.passes,
    "C14": draft_exact.check,
    "C15": draft_passes.curve,
    "C16": draft_forms.reach,
    "C17": draft_forms.forms,
    "C18": draft_forms.losing,
    "C37": draft_passes.poor_draft,
}
CHECKED_BY_SWEEP: dict[str, Callable[[Mapping[str, Any], Sweep], dict[str, Any]]] = {
    "C01": load_and_latency.triangle,
    "C35": both_knees.check,
    "C36": load_and_latency.alone_and_loaded,
    "C44": capped_batch.check,
    "C46": two_loads.check,
}
CHECKED_BY_JITTER: dict[str, Callable[[Mapping[str, Any], separated.Jitter], dict[str, Any]]] = {
    "C22": separated.disturbed,
    "C23": separated.separated,
}
CHECKED_BY_CACHE: dict[str, Callable[[Mapping[str, Any], answer_caches.Cache], dict[str, Any]]] = {
    "C40": answer_caches.check,
}
CHECKED_BY_LADDER: dict[str, Callable[[Mapping[str, Any], climbing.Ladder], dict[str, Any]]] = {
    "C31": climbing.climbs,
    "C43": climbing.returns,
}
# Judge an experiment that another check runs too (C31's ladder), so a finished one is read and not run again.
READ_AGAIN = {"C43"}
CHECKED_BY_LEVERS: dict[str, Callable[[Mapping[str, Any], cost_levers.Levers], dict[str, Any]]] = {
    "C49": cost_levers.check,
}
# Those whose check runs experiments of a kind, which are kept as runs of their own.
CHECKED_BY_KIND: dict[str, Mapping[str, Callable[..., dict[str, Any]]]] = {
    "sweep": CHECKED_BY_SWEEP,
    "jitter": CHECKED_BY_JITTER,
    "cache": CHECKED_BY_CACHE,
    "ladder": CHECKED_BY_LADDER,
    "levers": CHECKED_BY_LEVERS,
    "compare": CHECKED_BY_COMPARISON,
    "factorial": CHECKED_BY_FACTORIAL,
}
# One run, not a comparison: a job with `bench`.
CHECKED_BY_RUN = {"C03": memory_accounts.check}
OPTIONS = ("num_requests", "repeats", "settings", "seed", "price_per_device_hour")


def run_claim(
    claim_id: str,
    *,
    store: Store | None = None,
    options: Mapping[str, Any] | None = None,
    compare: Compare | None = None,
    factorial: Factorial | None = None,
    bench: memory_accounts.Bench | None = None,
    evaluate: Evaluate | None = None,
    measure: Measure | None = None,
    sweep: Sweep | None = None,
    jitter: separated.Jitter | None = None,
    cache: answer_caches.Cache | None = None,
    ladder: climbing.Ladder | None = None,
    levers: cost_levers.Levers | None = None,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """{"id","statement","verdict","reason","evidence",...} of one claim.

    `verdict` is "holds", "holds with a limit", "does not hold here", "undecided", "lab" for a claim that a lab
    teaches, or "open" for one whose check waits for a later part of the workbench. `options` (num_requests, repeats,
    settings, seed, price_per_device_hour) go into every comparison it runs, over what the check has for itself; on_live
    and should_cancel are passed on to it, on_live as in_steps tells it.
    `compare` turns a comparison spec into its JSON; by default it runs on this machine and its runs are kept in
    `store`. `factorial` does the same for a 2 x 2 experiment, `bench` for a single run, which is not kept, `evaluate`
    for an evaluation, whose scores are kept, `measure` for forms of draft, `sweep` for a sweep, `jitter` for arms
    side by side and `ladder` for a ladder, whose runs are kept.
    Raises InputError for an unknown claim or option.
    """
    claim = get_claim(claim_id)
    for name in options or {}:
        if name not in OPTIONS:
            raise InputError("option", name, ", ".join(OPTIONS))
    on_live = in_steps(claim.id, on_live)
    found: dict[str, Any]
    if claim.id in CHECKED_BY_FORMULA:
        found = CHECKED_BY_FORMULA[claim.id]()
    elif claim.id in CHECKED_BY_ENGINE:
        with stoppable(should_cancel):
            found = CHECKED_BY_ENGINE[claim.id](options or {})
    elif claim.id in CHECKED_BY_SIMULATION:
        found = CHECKED_BY_SIMULATION[claim.id](options or {})
    elif claim.id in CHECKED_BY_EVALUATION:
        evaluate = evaluate or _kept_evaluation(store or Store(), on_live, should_cancel)
        found = CHECKED_BY_EVALUATION[claim.id](options or {}, evaluate)
    elif claim.id in CHECKED_BY_RUN:
        found = CHECKED_BY_RUN[claim.id](options or {}, bench or _one_run(on_live, should_cancel))
    elif claim.id in CHECKED_BY_DRAFTS:
        measure = measure or _stored_drafts(store or Store(), on_live, should_cancel)
        found = CHECKED_BY_DRAFTS[claim.id](options or {}, measure)
    elif (kind := next((name for name, by in CHECKED_BY_KIND.items() if claim.id in by), None)) is not None:
        given = {
            "sweep": sweep, "jitter": jitter, "cache": cache, "ladder": ladder, "levers": levers, "compare": compare,
            "factorial": factorial,
        }[kind]  # fmt: skip
        runs = given or _stored(kind, store or Store(), on_live, should_cancel, anew=claim.id not in READ_AGAIN)
        found = CHECKED_BY_KIND[kind][claim.id](options or {}, runs)
    elif claim.lab:
        found = {"verdict": "lab", "reason": f"a lab teaches it: trilemma lab show {claim.lab}", "evidence": []}
    else:
        found = {"verdict": "open", "reason": f"not checkable yet: it needs {claim.needs}", "evidence": []}
    shown = {key: value for key, value in claim.to_json().items() if key not in ("state", "needs")}
    return {**shown, **found}


def can_stop(claim_id: str) -> bool:
    """Whether the check asks, while it runs, if it should go on; formulas and simulations don't."""
    return not any(claim_id in by for by in (CHECKED_BY_FORMULA, CHECKED_BY_SIMULATION))


def in_steps(claim_id: str, on_live: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """Live objects of a check's experiments as those of the whole check, with its fraction and `experiment` of
    `experiments`.

    An experiment begins where the fraction falls back.
    """
    steps, step, last = steps_of(claim_id), 1, 0.0

    def tell(live: dict[str, Any]) -> None:
        nonlocal step, last
        fraction = float(live.get("fraction") or 0.0)
        step = min(steps, step + (fraction < last))
        last = fraction
        on_live({**live, "experiment": step, "experiments": steps, "fraction": min(1.0, (step - 1 + fraction) / steps)})

    return tell


def _one_run(on_live: Callable[[dict[str, Any]], None], should_cancel: Callable[[], bool]) -> memory_accounts.Bench:
    """Runs a bench in this process; the claim's own evidence holds its figures."""

    def bench(spec: Mapping[str, Any]) -> Mapping[str, Any]:
        from experiments.bench import run_bench

        return run_bench(spec, None, "", on_live, should_cancel)

    return bench


def _kept_evaluation(
    store: Store, on_live: Callable[[dict[str, Any]], None], should_cancel: Callable[[], bool]
) -> Evaluate:
    """Evaluates in this process and keeps every score in the store, so that checks of the same formats share them."""

    def evaluate(arms: Arms, baseline: Mapping[str, Any], items: Sequence[Item], texts: Sequence[Text]) -> Evaluation:
        from experiments.quality.arms import Progress
        from experiments.quality.evaluation import evaluate as run

        return run(arms, baseline, items, texts, Progress(on_live, should_cancel), kept=store)

    return evaluate


def _stored_drafts(
    store: Store, on_live: Callable[[dict[str, Any]], None], should_cancel: Callable[[], bool]
) -> Measure:
    """Measures forms of draft in this process and keeps the run, so that the evidence can be opened."""

    def measure(spec: dict[str, Any]) -> Mapping[str, Any]:
        from experiments.speculation.run import run_speculation
        from experiments.speculation.spec import SpeculationSpec

        checked = SpeculationSpec.from_dict(spec)
        return run_kept(
            store,
            "speculation",
            {**checked.to_dict(), "predictions": {}},  # nobody is asked: the figures stand in the claim
            lambda run_id: run_speculation(checked, store, run_id, on_live, should_cancel),
        )

    return measure


def _stored(
    kind: str,
    store: Store,
    on_live: Callable[[dict[str, Any]], None],
    should_cancel: Callable[[], bool],
    *,
    anew: bool,
) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """Runs an experiment of a kind in this process and keeps it as a run of its own: the evidence can be opened.

    anew: without it a finished run of the same spec, code, models and machine is taken, with its date as `ran_at`.
    """

    def measure(spec: dict[str, Any]) -> Mapping[str, Any]:
        found = kind_of(kind)
        checked = found.check(spec)
        if not anew and (kept := finished_run(store, kind, checked)) is not None:
            return {**(kept.result or {}), "ran_at": kept.updated_at}
        return run_kept(
            store,
            kind,
            checked,
            lambda run_id: found.run(store.get_run(run_id), store, on_live, should_cancel),
        )

    return measure
