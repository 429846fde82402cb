"""C11 and C12: contiguous against paged KV at equal memory, alone and together with the batching policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, variance
from typing import Any

from experiments.claims.comparison import (
    FAILS,
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

WORKLOAD = "long-tail"
# A pool that holds two or three contiguous reservations of this workload in fp32 (46,080 B a token, about 550 tokens
# each): with room for all requests no layout could matter. Seats must not be the limit either.
SETTINGS = {"kv_memory_mib": 64, "max_num_seqs": 16}
KINDS = ("internal", "reserved_unused", "external", "wasted")
MUCH_LESS = 0.5
SAME_WITHIN = 0.05
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


def together(options: Mapping[str, Any], compare: Compare) -> dict[str, Any]:
    """C12: all four pairings; does paging gain more under continuous batching than under static?"""
    evidence, gains, floors = [], [], []
    for policy in ("static", "continuous"):
        spec = spec_of(
            options,
            SETTINGS,
            repeats=5,
            variable="kv_layout",
            values=["contiguous", "paged"],
            workload=WORKLOAD,
        )
        spec["settings"]["batching"] = policy  # the second variable of the four pairings: not the user's to set
        result = compare(spec)
        rate = curve(result, RATE)
        gains.append(log_ratios(rate["samples"]))
        floors.append(rate["noise_floor_pct"])
        running = arms(result, "concurrency", "mean")
        evidence.append({**curve_row(policy, spec, result, RATE), "batching": policy, "mean_running": running,
                         "kv_memory_mib": spec["settings"]["kv_memory_mib"]})  # fmt: skip
    found = interaction(*gains)
    verdict, reason = judge_together(found, floors, evidence[0]["verdict"])
    shown = {} if found is None else {"interaction_pct": [100 * math.expm1(value) for value in found]}
    return {"verdict": verdict, "reason": reason, "evidence": evidence, **shown}


def log_ratios(samples: Mapping[str, Sequence[float | None]]) -> list[float]:
    """ln(candidate / baseline) of each pair of repeats that has both."""
    pairs = zip(samples["baseline"], samples["candidate"], strict=True)
    return [math.log(after / before) for before, after in pairs if before and after]


def interaction(static: Sequence[float], continuous: Sequence[float]) -> tuple[float, float, float] | None:
    """(mean, low, high) of how much more ln throughput paging gains under continuous batching, 95 % by Welch's t.

    None with fewer than two pairs on either side.
    """
    if min(len(static), len(continuous)) < 2:
        return None
    from scipy.special import stdtrit

    parts = [variance(values) / len(values) for values in (static, continuous)]
    mean, error = fmean(continuous) - fmean(static), math.sqrt(sum(parts))
    below = sum(part**2 / (len(v) - 1) for part, v in zip(parts, (static, continuous), strict=True))
    degrees = sum(parts) ** 2 / below if below else math.inf
    reach = error * (float(stdtrit(degrees, 0.975)) if math.isfinite(degrees) else 1.96)
    return mean, mean - reach, mean + reach


def judge_together(
    found: tuple[float, float, float] | None, floors_pct: Sequence[float | None], paging_under_static: str
) -> Verdict:
    """From the interaction (ln), the noise floors of both comparisons in %, and whether paging gains under static."""
    if found is None or any(floor is None for floor in floors_pct):
        return UNDECIDED, "it takes at least two pairs of repeats of each comparison"
    mean, low, high = found
    floor = math.log1p(max(floor for floor in floors_pct if floor is not None) / 100)
    text = f"under continuous batching paging multiplies throughput by {math.exp(mean):.2f} as much as under static"
    text += f" [{math.exp(low):.2f}, {math.exp(high):.2f}]"
    if low > 0 and mean > floor:
        if paging_under_static == "better":
            return LIMITED, f"{text}; it gains under static batching too, so each also stands alone"
        return HOLDS, text
    if (high < 0 and mean < -floor) or (abs(low) <= (near := max(floor, SAME_WITHIN)) and abs(high) <= near):
        return FAILS, f"{text}: neither needs the other here"
    return UNDECIDED, f"{text}; more repeats would decide it"
