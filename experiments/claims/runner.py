"""Runs the check of a claim and says whether the claim holds here.

Knows which claims have a check and how to run a comparison for one; the judging itself lives with each check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.claims import (
    arithmetic,
    batching,
    bounds,
    formats,
    idle_slots,
    latency_parts,
    memory_accounts,
    monthly,
    paging,
    prefix_reuse,
)
from experiments.claims.catalogue import get_claim
from experiments.claims.comparison import Compare
from experiments.store import Store
from ledger.errors import InputError

CHECKED_BY_FORMULA: dict[str, Callable[[], dict[str, Any]]] = {
    "C04": arithmetic.thirteen_billion,
    "C05": formats.kv_formats,
    "C27": formats.weight_formats,
    "C34": monthly.month_of_a_7b_model,
    "C45": arithmetic.seven_billion,
}
CHECKED_BY_STEPS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"C02": bounds.check}
CHECKED_BY_COMPARISON: dict[str, Callable[[Mapping[str, Any], Compare], dict[str, Any]]] = {
    "C08": idle_slots.static_waits,
    "C09": idle_slots.dynamic_starts_early,
    "C10": batching.check,
    "C11": paging.waste,
    "C12": paging.together,
    "C39": prefix_reuse.check,
    "C42": latency_parts.check,
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
    bench: memory_accounts.Bench | None = None,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """{"id","statement","verdict","reason","evidence",...} of one claim.

    `verdict` is "holds", "holds with a limit", "does not hold here", "undecided", or "open" for a claim whose check
    waits for a later part of the workbench. `options` (num_requests, repeats, settings, seed, price_per_device_hour)
    go into every comparison it runs, over what the check has for itself; on_live and should_cancel are passed on to it.
    `compare` turns a comparison spec into its JSON; by default it runs on this machine and its runs are kept in
    `store`. `bench` does the same for a single run, which is not kept. Raises InputError for an unknown claim or
    option.
    """
    claim = get_claim(claim_id)
    for name in options or {}:
        if name not in OPTIONS:
            raise InputError("option", name, ", ".join(OPTIONS))
    found: dict[str, Any]
    if claim.id in CHECKED_BY_FORMULA:
        found = CHECKED_BY_FORMULA[claim.id]()
    elif claim.id in CHECKED_BY_STEPS:
        found = CHECKED_BY_STEPS[claim.id](options or {})
    elif claim.id in CHECKED_BY_RUN:
        found = CHECKED_BY_RUN[claim.id](options or {}, bench or _one_run(on_live, should_cancel))
    elif claim.id in CHECKED_BY_COMPARISON:
        compare = compare or _stored_comparison(store or Store(), on_live, should_cancel)
        found = CHECKED_BY_COMPARISON[claim.id](options or {}, compare)
    else:
        found = {"verdict": "open", "reason": f"not checkable yet: it needs {claim.needs}", "evidence": []}
    shown = {key: value for key, value in claim.to_json().items() if key not in ("state", "needs")}
    return {**shown, **found}


def _one_run(on_live: Callable[[dict[str, Any]], None], should_cancel: Callable[[], bool]) -> memory_accounts.Bench:
    """Runs a bench in this process; the claim's own evidence holds its figures."""

    def bench(spec: Mapping[str, Any]) -> Mapping[str, Any]:
        from experiments.bench import run_bench

        return run_bench(spec, None, "", on_live, should_cancel)

    return bench


def _stored_comparison(
    store: Store, on_live: Callable[[dict[str, Any]], None], should_cancel: Callable[[], bool]
) -> Compare:
    """Runs a comparison in this process and keeps it as a run of its own, so that the evidence can be opened."""

    def compare(options: dict[str, Any]) -> Mapping[str, Any]:
        from experiments.compare import CompareSpec, ComparisonCancelled, run_comparison

        spec = CompareSpec.from_dict(options)
        run_id = store.create_run("compare", spec.to_dict())
        store.update_run(run_id, state="running")
        try:
            result = run_comparison(spec, store, run_id, on_live, should_cancel)
        except ComparisonCancelled as cancelled:
            store.update_run(run_id, state="cancelled", result=cancelled.result)
            raise
        except BaseException as error:
            store.update_run(run_id, state="failed", error=str(error) or type(error).__name__)
            raise
        store.update_run(run_id, state="done", result=result)
        return result

    return compare
