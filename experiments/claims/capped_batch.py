"""C44: does a full batch lengthen the first token's wait, so that a cap on concurrency serves more requests well?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.sweep_rows import Change, Sweep, change, point_at, rows, spec_of

CAPS = (1, 2, 4, 8, 16)
FULL = CAPS[-1]
WORKLOAD, CAP_TOKENS = "mixed", 48
BUSY = 0.7  # of what the engine serves flat out: high, but no queue that grows for ever with the full batch
# Objectives are multiples of a request alone, since a machine of another speed would need other seconds.
TTFT_TIMES, ITL_TIMES = 5.0, 3.0
TTFT, GOODPUT = "ttft_p95_s", "goodput_rps"


def check(options: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
    """One request alone and the engine flat out give the load and the objectives; then the caps, at that load."""
    common: dict[str, Any] = {"workload": WORKLOAD, "max_tokens_cap": CAP_TOKENS}
    once = {name: value for name, value in options.items() if name != "repeats"}
    first = sweep(
        spec_of(once, {"max_num_seqs": FULL}, over="concurrency", values=[1, FULL], repeats=1, find=False, **common)
    )
    alone, flat_out = point_at(first, 1), point_at(first, FULL)
    if alone is None or flat_out is None or not alone["ttft_p95_s"] or not alone["itl_p95_s"]:
        return {"verdict": UNDECIDED, "reason": "no request was answered", "evidence": rows("beforehand", first)}
    slo = f"ttft_p95={TTFT_TIMES * alone['ttft_p95_s']:.4g},itl_p95={ITL_TIMES * alone['itl_p95_s']:.4g}"
    rate = float(f"{BUSY * flat_out['requests_per_s']:.3g}")
    spec = spec_of(
        options, over="max_num_seqs", values=list(CAPS), rate_rps=rate, slo=slo, duration_s=15.0, **common
    )  # fmt: skip
    result = sweep(spec)
    full = point_at(result, FULL)
    others = [point for point in result["points"] if point["value"] != FULL]
    verdict, reason = judge(
        [(point["value"], change(point, full, TTFT)) for point in others],
        [(point["value"], change(full, point, GOODPUT)) for point in others],
    )
    told = f"{reason}; {rate:g} requests/s, objectives {slo}"
    return {"verdict": verdict, "reason": told, "evidence": [*rows("beforehand", first), *rows("cap", result)]}


def judge(ttft: Sequence[tuple[int, Change]], goodput: Sequence[tuple[int, Change]]) -> Verdict:
    """ttft: from each cap to the full batch; goodput: from the full batch to each cap."""
    longer = [(cap, one) for cap, one in ttft if one.rose]
    better = [(cap, one) for cap, one in goodput if one.rose]
    waits = "what waits outside the batch waits too"
    cap, most = max(better, key=lambda pair: pair[1].ratio or 0, default=(0, Change(None, None, None)))
    if longer:
        near, one = longer[-1]
        found = f"TTFT p95 with {FULL} slots is {one.text()} that with {near}"
        if better:
            return HOLDS, f"{found}, and {cap} slots give goodput {most.text()}"
        return LIMITED, f"{found}, but no smaller cap has more goodput"
    if better:
        return LIMITED, f"{cap} slots give goodput {most.text()}, though TTFT p95 is no shorter: {waits}"
    if any(one.rose is None for _, one in [*ttft, *goodput]):
        return UNDECIDED, "no cap is better beyond its interval; more repeats would decide it"
    return FAILS, f"no smaller cap has a shorter TTFT p95 or more goodput than {FULL} slots: {waits}"
