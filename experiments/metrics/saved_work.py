"""What shorter prompts and a small model in front saved in a run. Source: each request's `uncompressed_tokens` and
`router` entries (core_engine.request, core_engine.routing.told)."""

from __future__ import annotations

from typing import Any

from experiments.metrics.events import Record, Request, successes


def prompt_compression(record: Record) -> dict[str, Any]:
    """{"prompt_compression": {"requests","sent_tokens","computed_tokens","kept_share"}} of a run with it, else nothing.

    requests: successful ones whose prompt was shortened; sent_tokens: of all prompts as they came.
    """
    if record["config"].get("prompt_compression", "off") == "off":
        return {}
    good = successes(record)
    sent = sum(_sent(request) for request in good)
    computed = sum(request["prompt_tokens"] for request in good)
    return {
        "prompt_compression": {
            "requests": sum("uncompressed_tokens" in request for request in good),
            "sent_tokens": sent,
            "computed_tokens": computed,
            "kept_share": computed / sent if sent else None,
        }
    }


def _sent(request: Request) -> int:
    return int(request.get("uncompressed_tokens", request["prompt_tokens"]))


def routing(record: Record) -> dict[str, Any]:
    """{"router": {"decided","escalated","escalated_share","dropped_tokens","mean_logprob","small"}} of a run with a
    router, else nothing.

    dropped_tokens: those of probes that were computed and given to nobody; mean_logprob: over all probes.
    """
    if "router" not in record:
        return {}
    decisions = [request["router"] for request in successes(record) if "router" in request]
    up = [one for one in decisions if one["escalated"]]
    known = [one["mean_logprob"] for one in decisions if one["mean_logprob"] is not None]
    return {
        "router": {
            "decided": len(decisions),
            "escalated": len(up),
            "escalated_share": len(up) / len(decisions) if decisions else None,
            "dropped_tokens": sum(one["probe_tokens"] for one in up),
            "mean_logprob": sum(known) / len(known) if known else None,
            **record["router"],
        }
    }
