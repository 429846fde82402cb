"""What keeps a plan from serving more: the constraint that gives way first beyond its limit, and what steps wait for.

The constraint is read off the simulation at the lowest rate that missed; what a step waits for follows from the
simulator's own step times at the batch that ran there.
"""

from __future__ import annotations

from typing import Any

from experiments.planner.candidates import Candidate
from experiments.planner.evaluate import At, Tried
from experiments.planner.traffic import PlanTraffic
from ledger.step_time import StepTimes

FULL = 0.97
A_LOT = 0.35  # of a step: then the link or the host is named, though memory or arithmetic may take more
RESOURCES = {
    "bandwidth": "reading weights and KV (memory bandwidth)",
    "compute": "arithmetic (compute)",
    "link": "waiting for the link between cards",
    "host": "launches and host work",
}


def binding(tried: Tried, times: StepTimes, traffic: PlanTraffic) -> dict[str, Any]:
    """{"constraint","resource","parts","text"}. constraint: demand, kv memory, slots, or the objective that is missed
    first (ttft, tpot, itl, e2e, backlog); parts: shares of a typical step's time by resource."""
    at = tried.beyond or tried.at_limit
    assert at is not None
    parts = step_parts(times, tried.candidate, at, traffic)
    resource = _resource(parts)
    if tried.beyond is None:
        constraint = "demand"
    elif at.preemptions or at.kv_peak >= FULL:
        constraint = "kv memory"
    elif at.running >= FULL * tried.candidate.max_num_seqs:
        constraint = "slots"
    else:
        constraint = _objective(at)
    return {
        "constraint": constraint,
        "resource": resource,
        "parts": parts,
        "rate_rps": at.rate,
        "running": at.running,
        "kv_peak_share": at.kv_peak,
        "preemptions": at.preemptions,
        "missed": [row for row in at.metrics["objectives"] if row["name"] in at.missed],
        "text": _text(constraint, tried.candidate, at, resource, parts[resource]),
        "provenance": "simulated",
    }


def step_parts(times: StepTimes, candidate: Candidate, at: At, traffic: PlanTraffic) -> dict[str, float]:
    """Shares of a step by what it waits for. A typical step: the sequences that decode, and the prompt tokens that
    come in its time."""
    rows = max(1, round(at.running))
    per_replica = at.rate / candidate.decode_replicas
    decode = [(traffic.mean_sequence, 1, 1, False)] * rows
    alone_s = times.step_s(times.shape(decode))
    tokens = 0 if candidate.is_apart else round(per_replica * traffic.mean_input * alone_s)
    tokens = min(tokens, max(0, candidate.max_num_batched_tokens - rows))
    shape = times.shape([*decode, (0, tokens, 1, True)] if tokens else decode)
    whole_s = times.step_s(shape)
    link_s = times.reduce_s(shape.tokens) + times.gather_s(shape.sampled) if times.split.tp > 1 else 0.0
    host_s = times.host_s(shape.rows)
    compute_s, bandwidth_s = _roof_parts(times, shape.tokens, shape.sampled)
    attention_s = times.decode_s(shape)
    prompts_s = times.prefill_s(shape)
    shares = {
        "bandwidth": (bandwidth_s + attention_s) / times.split.pp,
        "compute": (compute_s + prompts_s) / times.split.pp,
        "link": link_s,
        "host": host_s,
    }
    rest = whole_s - sum(shares.values())
    shares["host"] += max(0.0, rest) if times.split.pp == 1 else 0.0  # launches: what no operator accounts for
    total = sum(shares.values())
    return {name: seconds / total for name, seconds in shares.items()}


def _roof_parts(times: StepTimes, tokens: int, sampled: int) -> tuple[float, float]:
    """Seconds of operators that arithmetic bounds, and of those that memory bounds."""
    compute_s = bandwidth_s = 0.0
    device = times.profile.accelerator
    for operator in times.costs.of_tokens(tokens, max(1, sampled)):
        if operator.link_bytes:
            continue
        seconds = times.operator_s(operator, sampled if operator.part == "head" else tokens)
        kept = (
            times.profile.efficiency("linear", times.weights)
            if operator.linear
            else times.profile.efficiency("elementwise")
        )
        flops_s = operator.flops / (device.rate(operator.compute_dtype)[1] * kept.compute)
        if flops_s > operator.bytes / (device.bandwidth_bytes_per_s * kept.memory):
            compute_s += seconds
        else:
            bandwidth_s += seconds
    return compute_s, bandwidth_s


def _resource(parts: dict[str, float]) -> str:
    for name in ("link", "host"):
        if parts[name] >= A_LOT:
            return name
    return max(parts, key=lambda name: parts[name])


def _objective(at: At) -> str:
    """The first kind that is missed; a wait that grows is named when no objective says so."""
    names = [name.rsplit("_", 1)[0] if name not in ("backlog", "error_rate") else name for name in at.missed]
    return next((name for name in names if name != "backlog"), "backlog")


def _text(constraint: str, candidate: Candidate, at: At, resource: str, share: float) -> str:
    waits = f"a typical step of {max(1, round(at.running)):,} sequences spends {share:.0%} on {RESOURCES[resource]}"
    if constraint == "demand":
        return f"the demand itself: one {'group' if candidate.is_apart else 'replica'} serves all of it; {waits}"
    if constraint == "kv memory":
        full = f"the KV pool is full ({at.kv_peak:.0%}, {at.preemptions:,} preemptions)"
        return f"memory: {full}; {waits}"
    if constraint == "slots":
        return f"max_num_seqs: all {candidate.max_num_seqs:,} slots are taken; {waits}"
    if constraint == "backlog":
        return f"throughput: at {at.rate:.3g} requests/s the wait grows without end; {waits}"
    missed = [
        row for row in at.metrics["objectives"] if row["name"] in at.missed and row["name"].startswith(constraint)
    ]
    told = ", ".join(
        f"{row['name']} {'is unknown' if row['value'] is None else format(row['value'], '.3g')} over {row['limit']:g}"
        for row in missed
    )
    return f"the {constraint.upper()} objective: at {at.rate:.3g} requests/s {told}; {waits}"
