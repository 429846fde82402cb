"""C46: continuous batching against static at the same load, and against a server with little to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.sweep_rows import Change, Sweep, change, rows, spec_of

WORKLOAD, CAP_TOKENS = "mixed", 64
CLIENTS = 12  # more than the slots, so that both policies always have somebody waiting
THROUGHPUT, TTFT = "output_tokens_per_s", "ttft_p95_s"


def check(options: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
    """Both policies with 12 clients on 8 slots, and continuous batching with a single client."""
    common: dict[str, Any] = {"workload": WORKLOAD, "max_tokens_cap": CAP_TOKENS}
    both = sweep(spec_of(options, over="batching", values=["static", "continuous"], concurrency=CLIENTS, **common))
    options = {**options, "settings": {k: v for k, v in (options.get("settings") or {}).items() if k != "batching"}}
    calm = sweep(spec_of(options, over="concurrency", values=[1], **common))
    points = {point["value"]: point for point in both["points"]}
    static, continuous = points.get("static"), points.get("continuous")
    light = next(iter(calm["points"]), None)
    verdict, reason = judge(
        change(static, continuous, THROUGHPUT), change(static, continuous, TTFT), change(light, continuous, TTFT)
    )
    return {"verdict": verdict, "reason": reason, "evidence": [*rows("12 clients", both), *rows("calm", calm)]}


def judge(throughput: Change, ttft_static: Change, ttft_light: Change) -> Verdict:
    """Continuous against static in tokens/s and TTFT at one load, and its TTFT against a lightly loaded server."""
    found = (
        f"against static at the same load tokens/s {throughput.text()} and TTFT p95 {ttft_static.text()}; TTFT p95"
        f" {ttft_light.text()} against a server with one client"
    )
    if throughput.rose is False:
        return FAILS, f"{found}: throughput did not rise"
    if None in (throughput.rose, ttft_light.rose):
        return UNDECIDED, f"{found}; more repeats would decide it"
    if ttft_static.rose:
        return HOLDS, found
    if ttft_light.rose:
        return LIMITED, f"{found}: longer only than on a server with little to do"
    return LIMITED, f"{found}: throughput rose, and TTFT was longer than neither"
