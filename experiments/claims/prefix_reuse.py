"""C39: an exact prefix cache skips computing a common beginning and changes no text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Compare, Verdict, arms, curve_row, spec_of


def check(options: Mapping[str, Any], compare: Compare) -> dict[str, Any]:
    """Prefix cache off against on, where all requests begin with the same system prompt."""
    spec = spec_of(options, repeats="auto", variable="prefix_cache", values=["off", "on"], workload="shared-prefix")
    result = compare(spec)
    prefill = arms(result, "prefix", "prefill_tokens")
    same = (result.get("quality") or {}).get("same_token_ids_share")
    evidence = {
        **curve_row("ttft", spec, result, "ttft_s"),
        "prefill_tokens": prefill,
        "hit_rate": arms(result, "prefix", "hit_rate"),
        "same_token_ids_share": same,
    }
    verdict, reason = judge(evidence["verdict"], prefill, same)
    return {"verdict": verdict, "reason": reason, "evidence": [evidence]}


def judge(ttft: str, prefill_tokens: Sequence[float | None], same_ids: float | None) -> Verdict:
    """From the TTFT verdict, the prompt tokens computed without and with the cache, and the share of equal answers."""
    without, cached = prefill_tokens
    if without is None or cached is None or same_ids is None:
        return UNDECIDED, "the prompt tokens computed or the answers are not known"
    if same_ids < 1:
        return FAILS, f"only {same_ids:.0%} of the answers are the same, token for token"
    if cached >= without:
        return FAILS, f"as many prompt tokens were computed with the cache ({cached:,.0f}) as without ({without:,.0f})"
    found = f"{1 - cached / without:.0%} of the prompt tokens were not computed, and every answer is the same"
    if ttft == "inconclusive":
        return UNDECIDED, f"{found}; whether the first token came sooner takes more repeats"
    if ttft != "better":
        return LIMITED, f"{found}, but the first token came no sooner"
    return HOLDS, f"{found}; the first token came sooner"
