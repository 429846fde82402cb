"""C11 and C12: contiguous against paged KV at equal memory, alone and together with the batching policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.claims.comparison import (
    FAILS,
    HOLDS,
    LIMITED,
    UNDECIDED,
    Compare,
    Factorial,
    Verdict,
    arms,
    curve_row,
    effect_curve,
    effect_rows,
    factorial_spec,
    row,
    spec_of,
)

WORKLOAD = "long-tail"
# A pool that holds two or three contiguous reservations of this workload in fp32 (46,080 B a token, about 550 tokens
# each): with room for all requests no layout could matter. Seats must not be the limit either.
SETTINGS = {"kv_memory_mib": 64, "max_num_seqs": 16}
KINDS = ("internal", "reserved_unused", "external", "wasted")
MUCH_LESS = 0.5
RATE = "output_tokens_per_s"


def waste(options: Mapping[str, Any], compare: Compare) -> dict[str, Any]:
    """C11: wasted KV by kind and admitted requests of both layouts."""
    spec = spec_of(
        options, SETTINGS, repeats=3, variable="kv_layout", values=["contiguous", "paged"], workload=WORKLOAD
    )
    result = compare(spec)
    wasted = arms(result, "kv_waste", "wasted", "bytes")
    concurrency = arms(result, "concurrency", "mean")
    evidence = row(
        "waste",
        spec,
        result,
        kv_memory_mib=spec["settings"]["kv_memory_mib"],
        **{f"{kind}_bytes": arms(result, "kv_waste", kind, "bytes") for kind in KINDS},
        mean_running=concurrency,
        peak_running=arms(result, "concurrency", "peak"),
    )
    verdict, reason = judge_waste(wasted, concurrency)
    return {"verdict": verdict, "reason": reason, "evidence": [evidence, curve_row("rate", spec, result, RATE)]}


def judge_waste(wasted: Sequence[float | None], running: Sequence[float | None]) -> Verdict:
    """From mean wasted bytes and mean running requests, contiguous first."""
    contiguous, paged = wasted
    before, after = running
    if contiguous is None or paged is None or before is None or after is None:
        return UNDECIDED, "the run has no KV by kind"
    found = (
        f"contiguous reservations wasted {contiguous / 2**20:,.1f} MiB on average, pages {paged / 2**20:,.1f} MiB; "
        f"{before:.1f} and {after:.1f} requests ran at once"
    )
    if paged > MUCH_LESS * contiguous:
        return FAILS, found
    if after <= before:
        return LIMITED, f"{found}: memory was not what limited the batch"
    return HOLDS, found


def together(options: Mapping[str, Any], factorial: Factorial) -> dict[str, Any]:
    """C12: all four pairings; does paging gain more under continuous batching than under static?"""
    spec = factorial_spec(
        options,
        SETTINGS,
        repeats=5,
        factors=[["kv_layout", ["contiguous", "paged"]], ["batching", ["static", "continuous"]]],
        workload=WORKLOAD,
    )
    result = factorial(spec)
    found = effect_curve(result, "interaction", RATE)
    verdict, reason = judge_together(found, effect_curve(result, "first_alone", RATE)["verdict"])
    running = arms(result, "concurrency", "mean")
    if None not in running:
        names = (" with ".join(map(str, arm["values"].values())) for arm in result["arms"])
        shown = "; ".join(f"{name} {count:.1f}" for name, count in zip(names, running, strict=True))
        reason += f". Requests running at once: {shown}"
    interaction = None if found["ci95"] is None else [found["change_pct"], *found["ci95"]]
    evidence = effect_rows(spec, result, RATE)
    return {"verdict": verdict, "reason": reason, "evidence": evidence, "interaction_pct": interaction}


def judge_together(interaction: Mapping[str, Any], paging_under_static: str) -> Verdict:
    """From the interaction's curve, and whether paging gains under static batching."""
    if interaction["ci95"] is None:
        return UNDECIDED, "it takes at least two repeats"
    low, high = (1 + bound / 100 for bound in interaction["ci95"])
    text = (
        f"under continuous batching paging multiplies throughput by {1 + interaction['change_pct'] / 100:.2f} as much"
    )
    text += f" as under static [{low:.2f}, {high:.2f}]"
    if interaction["verdict"] == "better":
        if paging_under_static == "better":
            return LIMITED, f"{text}; it gains under static batching too, so each also stands alone"
        return HOLDS, text
    if interaction["verdict"] in ("worse", "no difference"):
        return FAILS, f"{text}: neither needs the other here"
    return UNDECIDED, f"{text}; more repeats would decide it"
