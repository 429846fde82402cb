"""What a server's own /metrics (Prometheus text) says of a run: the difference of its counters before and after.

vLLM's names, which other servers use where they mean the same. A counter that is not there is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

HITS = ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")
QUERIES = ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")
PREEMPTIONS = ("vllm:num_preemptions",)
DRAFTED = ("vllm:spec_decode_num_draft_tokens",)
ACCEPTED = ("vllm:spec_decode_num_accepted_tokens",)
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"

Samples = Mapping[str, float]


def parse_metrics(text: str) -> dict[str, float]:
    """Name -> value, summed over labels. `_total` of counters is left out; lines that are no sample are passed over."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition("{")
        value = rest.rpartition("}")[2] if rest else line.partition(" ")[2]
        name = (name if rest else line.partition(" ")[0]).strip().removesuffix("_total")
        try:
            number = float(value.split()[0])
        except (ValueError, IndexError):
            continue
        if math.isfinite(number):
            found[name] = found.get(name, 0.0) + number
    return found


def counters(before: Samples | None, after: Samples | None) -> dict[str, Any]:
    """The counters of a run's record: preemptions, prefix_hit_rate, acceptance_rate; None where it is silent."""
    return {
        "preemptions": _whole(_rise(before, after, PREEMPTIONS)),
        "prefix_hit_rate": _ratio(_rise(before, after, HITS), _rise(before, after, QUERIES)),
        "alpha": None,
        "acceptance_rate": _ratio(_rise(before, after, ACCEPTED), _rise(before, after, DRAFTED)),
        "tokens_per_pass": None,
    }


def busy_requests(samples: Samples | None) -> int | None:
    """Requests that the server has of others; None where it does not say."""
    if samples is None or RUNNING not in samples:
        return None
    return int(samples[RUNNING] + samples.get(WAITING, 0.0))


def _rise(before: Samples | None, after: Samples | None, names: tuple[str, ...]) -> float | None:
    """How far a counter rose; None when it is not there, or fell because the server was started again."""
    for name in names:
        if before is not None and after is not None and name in before and name in after:
            return after[name] - before[name] if after[name] >= before[name] else None
    return None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
