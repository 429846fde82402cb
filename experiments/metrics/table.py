"""The requests of a run as flat rows, for CSV files and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from experiments.metrics.waterfall import Waterfalls
from experiments.store import StoredRecord


def request_rows(records: Iterable[StoredRecord]) -> list[dict[str, Any]]:
    """One row a request: arm, repeat, lengths, arrival, first and last token and latency parts in s."""
    made = [(stored, Waterfalls(stored.record)) for stored in records]
    return [
        {
            "arm": stored.arm,
            "repeat": stored.repeat,
            "request": request["id"],
            "prompt_tokens": request["prompt_tokens"],
            "output_tokens": sum(tokens for _, tokens in request["emissions"]),
            "arrival_s": request["arrival_ns"] / 1e9,
            "first_token_s": request["emissions"][0][0] / 1e9 if request["emissions"] else None,
            "last_token_s": request["emissions"][-1][0] / 1e9 if request["emissions"] else None,
            "finish_reason": request["finish_reason"],
            "error": request["error"],
            **(of.of(request) or {}),
        }
        for stored, of in made
        for request in stored.record["requests"]
    ]
