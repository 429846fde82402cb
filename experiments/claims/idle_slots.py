"""C08 and C09: slots that finished requests keep under static and dynamic batching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.claims.comparison import (
    FAILS,
    FEW_REPEATS,
    HOLDS,
    LIMITED,
    UNDECIDED,
    Compare,
    Verdict,
    arms,
    curve,
    curve_row,
    row,
    spec_of,
)

# Below this share of all slot-steps the wait is there but hardly matters.
WORTH_NAMING = 0.05
# (part, requests/s): at the workload's own rate the queue fills every batch; at the calm one a batch is slow to fill.
LOADS = (("own_rate", None), ("calm", 1.0))


def static_waits(options: Mapping[str, Any], compare: Compare) -> dict[str, Any]:
    """C08: idle slot-steps of static batching on mixed lengths; continuous batching beside it."""
    spec = spec_of(options, repeats=FEW_REPEATS, variable="batching", values=["static", "continuous"], workload="mixed")
    result = compare(spec)
    shares = arms(result, "slots", "idle_share")
    evidence = row(
        "idle_slots",
        spec,
        result,
        idle_share=shares,
        idle_slot_steps=arms(result, "slots", "idle_slot_steps"),
        busy_slot_steps=arms(result, "slots", "busy_slot_steps"),
    )
    verdict, reason = judge_static(*shares)
    return {"verdict": verdict, "reason": reason, "evidence": [evidence]}


def judge_static(static: float | None, continuous: float | None) -> Verdict:
    """From the share of slot-steps that finished requests kept, 0..1, under either policy."""
    if static is None or continuous is None:
        return UNDECIDED, "no step was run"
    found = f"finished requests kept {static:.0%} of all slot-steps under static batching, {continuous:.0%} continuous"
    if static <= continuous:
        return FAILS, found
    return (HOLDS if static >= WORTH_NAMING else LIMITED), found


def dynamic_starts_early(options: Mapping[str, Any], compare: Compare) -> dict[str, Any]:
    """C09: first-token time and idle slot-steps of dynamic against static batching, at two loads."""
    evidence, verdicts, shares = [], {}, []
    for part, rate in LOADS:
        spec = spec_of(
            options,
            repeats="auto",
            rate_rps=rate,
            variable="batching",
            values=["static", "dynamic"],
            workload="mixed",
        )
        result = compare(spec)
        share = arms(result, "slots", "idle_share")
        verdicts[part] = curve(result, "ttft_s")["verdict"]
        shares.append(share[1])
        evidence.append({**curve_row(part, spec, result, "ttft_s"), "rate_rps": rate, "idle_share": share})
    verdict, reason = judge_dynamic(verdicts, shares)
    return {"verdict": verdict, "reason": reason, "evidence": evidence}


def judge_dynamic(ttft: Mapping[str, str], idle_shares: Sequence[float | None]) -> Verdict:
    """From the TTFT verdict at each of LOADS, and dynamic batching's share of idle slot-steps there."""
    known = [share for share in idle_shares if share is not None]
    if not known:
        return UNDECIDED, "no step was run"
    if max(known) == 0:
        return FAILS, "no finished request kept its slot under dynamic batching"
    held = f"finished requests kept up to {max(known):.0%} of the slot-steps under dynamic batching"
    if ttft["calm"] == "inconclusive":
        return UNDECIDED, f"{held}; whether the first token came sooner takes more repeats"
    if ttft["calm"] != "better":
        return FAILS, f"{held}, but the first token came no sooner than under static batching"
    if ttft["own_rate"] != "better":
        return (
            LIMITED,
            f"{held}; the first token came sooner only where a batch is slow to fill, not under a full queue",
        )
    return HOLDS, f"{held}, and the first token came sooner at both loads"
