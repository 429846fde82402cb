"""The run record of a server's run, in the shape of the engine's: what a client can't see is None or absent, never 0.

There are no steps, no admissions and no memory, so every metric that needs them is None. Each request has besides:
first_event_ns (the first event, with text or not), done_ns (the end mark), end_ns, usage, attempts and status, from
which other tools' figures are computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.loadgen import SENDER_KINDS, request_id, shift_times
from experiments.metrics.events import summary
from experiments.targets.counting import emissions
from experiments.targets.drive import Driven, Sent
from experiments.targets.server_metrics import Samples, counters
from experiments.workloads import Workload

NO_TELEMETRY: dict[str, Any] = {
    "absent": "the device is the server's, and nothing reads it", "ended": None, "missing": {}, "t_ns": [],
}  # fmt: skip


def endpoint_record(driven: Driven, workload: Workload, *, tokenizer: Any = None) -> dict[str, Any]:
    """Everything of the record but its config, environment and counters. tokenizer: the model's, to count tokens by."""
    counted: Counter[str] = Counter()
    requests = [_request(sent, driven.start_ns, tokenizer, counted) for sent in driven.sent]
    record: dict[str, Any] = {
        "provenance": "measured",
        "steps": [],
        "requests": requests,
        "memory": {},
        "derived": {},
        "host_ns": [],
        "sender_ns": {kind: [] for kind in SENDER_KINDS},
        "telemetry": dict(NO_TELEMETRY),
        "tokens_counted": dict(counted),
        "client_lag_s": summary([lag / 1e9 for lag in driven.lag_ns]),
        "workload": workload.describe(),
    }
    shift_times(record, -driven.start_ns)
    return record


def counters_of(before: Samples | None, after: Samples | None, requests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record's counters: from the server's own /metrics, the prefix hits else from the answers' usage."""
    found = counters(before, after)
    if found["prefix_hit_rate"] is None:
        told = [(r["cached_tokens"], r["prompt_tokens"]) for r in requests if r["cached_tokens"] is not None]
        asked = sum(prompt for _, prompt in told)
        found["prefix_hit_rate"] = sum(cached for cached, _ in told) / asked if asked else None
    return found


def _request(sent: Sent, start_ns: int, tokenizer: Any, counted: Counter[str]) -> dict[str, Any]:
    """One request, its times still on the client's clock."""
    attempt = sent.attempt
    common = {
        "id": request_id(sent.number), "prompt_tokens": sent.prompt_tokens, "asked_prompt_tokens": sent.prompt_tokens,
        "max_tokens": sent.max_tokens, "arrival_ns": start_ns + sent.due_ns, "admit_ns": None, "steps": [],
        "preemptions": [], "output_token_ids": [],
    }  # fmt: skip
    if attempt is None:
        return {
            **common, "send_ns": None, "emissions": [], "finish_ns": None, "release_ns": None,
            "finish_reason": "error", "error": sent.error, "first_event_ns": None, "done_ns": None, "end_ns": None,
            "usage_tokens": None, "cached_tokens": None, "attempts": 0, "status": None,
        }  # fmt: skip
    answer = attempt.answer
    emitted, how = emissions(answer, tokenizer)
    if how is not None and attempt.error is None:
        counted[how] += 1
    told = answer.usage_count("prompt_tokens")
    return {
        **common,
        "prompt_tokens": sent.prompt_tokens if told is None else told,
        "send_ns": attempt.send_ns,
        "emissions": emitted,
        "finish_ns": attempt.end_ns,
        "release_ns": attempt.end_ns,
        "finish_reason": attempt.finish_reason if attempt.error is None else "error",
        "error": attempt.error,
        "first_event_ns": answer.first_event_ns,
        "done_ns": answer.done_ns,
        "end_ns": attempt.end_ns,
        "usage_tokens": answer.usage_count("completion_tokens"),
        "cached_tokens": answer.cached_tokens(),
        "attempts": attempt.attempts,
        "status": attempt.status,
    }
