"""C48: long documents. Chunked prefill is measured here, ring attention over several devices simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.claims.comparison import (
    FAILS,
    HOLDS,
    LIMITED,
    UNDECIDED,
    Compare,
    Verdict,
    curve,
    curve_row,
    spec_of,
)
from ledger.device_profile import device_profile, named_link
from ledger.model_spec import load_model_spec
from ledger.step_time import Split, StepTimes

MODEL, CARD, TOKENS = "llama-3.1-8b", "h100-sxm", 131_072
DEVICES = (1, 2, 4, 8)
LINKS = ("nvlink4", "infiniband-400", "ethernet-25")
WORTH = 0.5  # of the speed-up that the devices would give at best


def check(options: Mapping[str, Any], compare: Compare) -> dict[str, Any]:
    """Whole prompts against pieces of 256 tokens under two clients with long documents; a prompt of 131,072 tokens on 1
    to 8 devices over three links."""
    spec = spec_of(
        options,
        {"kv_memory_mib": 512},
        repeats="auto",
        concurrency=2,
        variable="max_num_batched_tokens",
        values=[2048, 256],
        workload="long-doc",
    )
    result = compare(spec)
    rings = [ring(devices, link) for link in LINKS for devices in DEVICES]
    verdict, reason = judge(str(curve(result, "itl_s")["verdict"]), rings)
    evidence = [curve_row("gaps", spec, result, "itl_s"), curve_row("first token", spec, result, "ttft_s"), *rings]
    return {"verdict": verdict, "reason": reason, "evidence": evidence}


def ring(devices: int, link: str) -> dict[str, Any]:
    """The time of one long prompt with its tokens spread over so many devices, keys and values going round."""
    spec, profile = load_model_spec(MODEL), device_profile(CARD)

    def prompt_s(cp: int) -> float:
        times = StepTimes(spec, profile, split=Split(cp=cp), link=named_link(link))
        return times.step_s(times.shape([(0, TOKENS, 1, True)]))

    took_s = prompt_s(devices)
    return {
        "part": "ring",
        "model": MODEL,
        "gpu": CARD,
        "link": named_link(link).label,
        "devices": devices,
        "prompt_tokens": TOKENS,
        "prefill_s": took_s,
        "speedup": prompt_s(1) / took_s,
        "error_band_pct": profile.error_band_pct,
        "provenance": "simulated",
    }


def judge(gaps: str, rings: list[dict[str, Any]]) -> Verdict:
    """From the verdict on ITL of pieces against whole prompts, and the simulated rings."""
    most = max(row["devices"] for row in rings)
    at_most = [row for row in rings if row["devices"] == most]
    fast, slow = max(at_most, key=_speedup), min(at_most, key=_speedup)
    found = (
        f"simulated, a prompt of {TOKENS:,} tokens on {most} devices is x{fast['speedup']:.1f} as fast over"
        f" {fast['link']} and x{slow['speedup']:.1f} over {slow['link']}"
    )
    pays = fast["speedup"] >= WORTH * most
    if gaps == "inconclusive":
        return UNDECIDED, f"whether pieces of prompts shorten the gaps takes more repeats; {found}"
    if gaps == "better" and pays:
        return HOLDS, f"pieces of prompts shorten the gaps of who decodes beside them; {found}"
    if gaps == "better" or pays:
        return LIMITED, f"pieces of prompts: {gaps} gaps; {found}"
    return FAILS, f"pieces of prompts: {gaps} gaps; {found}"


def _speedup(row: dict[str, Any]) -> float:
    return float(row["speedup"])
