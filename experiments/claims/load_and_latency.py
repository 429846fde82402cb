"""C01 and C36: what more clients at once do to throughput and to each request's latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.sweep_rows import Change, Sweep, change, point_at, rows, spec_of

CLIENTS = (1, 2, 4, 8)
ALONE, AMONG = 1, (8, 16)
THROUGHPUT, ITL, LATENCY = "output_tokens_per_s", "itl_mean_s", "latency_per_token_s"
# So much longer under load, and the latency alone is no guide to it.
WORTH_NAMING = 1.5
SETTINGS = {"max_num_seqs": 8}


def triangle(options: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
    """C01: throughput and time between tokens of 1 to 8 clients, each request of 32 and 32 tokens."""
    spec = spec_of(options, SETTINGS, over="concurrency", values=list(CLIENTS), workload="equal")
    result = sweep(spec)
    points = [point_at(result, value) for value in CLIENTS]
    ends = {name: change(points[0], points[-1], name) for name in (THROUGHPUT, ITL)}
    steps = [change(one, two, THROUGHPUT) for one, two in pairwise(points)]
    verdict, reason = judge_triangle(ends[THROUGHPUT], ends[ITL], steps)
    return {"verdict": verdict, "reason": reason, "evidence": rows("clients", result)}


def judge_triangle(throughput: Change, itl: Change, steps: Sequence[Change]) -> Verdict:
    """From the change from one client to the most of tokens/s and ITL, and the steps of tokens/s between."""
    found = f"from {CLIENTS[0]} to {CLIENTS[-1]} clients tokens/s {throughput.text()}, ITL {itl.text()}"
    if throughput.rose is False or itl.rose is False:
        return FAILS, f"{found}: not both rose"
    if None in (throughput.rose, itl.rose):
        return UNDECIDED, f"{found}; more repeats would decide it"
    lost = [clients for clients, step in zip(CLIENTS[1:], steps, strict=True) if step.rose is False]
    if lost:
        return LIMITED, f"{found}; from {lost[0]} clients on throughput no longer rose, only latency"
    return HOLDS, f"{found}; a token costs less and comes later"


def alone_and_loaded(options: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
    """C36: the same requests alone, in a full batch, and with as many waiting."""
    spec = spec_of(options, SETTINGS, over="concurrency", values=[ALONE, *AMONG], workload="equal")
    result = sweep(spec)
    alone = point_at(result, ALONE)
    changes = {value: change(alone, point_at(result, value), LATENCY) for value in AMONG}
    verdict, reason = judge_alone(changes)
    return {"verdict": verdict, "reason": reason, "evidence": rows("clients", result)}


def judge_alone(changes: Mapping[int, Change]) -> Verdict:
    """From the change of end-to-end time a token against one request alone, by how many there are."""
    found = "against alone, end-to-end time a token was " + ", ".join(
        f"{one.text()} with {value} at once" for value, one in changes.items()
    )
    if all(one.rose is False for one in changes.values()):
        return FAILS, f"{found}: latency alone was latency under load"
    most = max((one for one in changes.values() if one.ratio is not None), key=lambda one: one.ratio or 0, default=None)
    if most is None or most.rose is None:
        return UNDECIDED, f"{found}; more repeats would decide it"
    if (most.ratio or 0) >= WORTH_NAMING:
        return HOLDS, found
    return LIMITED, f"{found}: longer, but by less than a half"
