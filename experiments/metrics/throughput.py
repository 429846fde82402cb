"""Rates over the window from the first arrival to the last token. Only successful requests count."""

from __future__ import annotations

import math

from experiments.metrics.events import NS_PER_S, Record, duration_s, emissions, num_output_tokens, successes, window_ns


def output_tokens_per_s(record: Record) -> float | None:
    """Tokens of successful requests / (last token - first arrival). Unit tokens/s. 0 when all failed."""
    duration = duration_s(record)
    return None if duration is None else sum(map(num_output_tokens, successes(record))) / duration


def requests_per_s(record: Record) -> float | None:
    """Successful requests / (last token - first arrival). Unit requests/s."""
    duration = duration_s(record)
    return None if duration is None else len(successes(record)) / duration


def peak_output_tokens_per_s(record: Record) -> float | None:
    """Largest number of successful requests' tokens in one slice of the window, per s. Unit tokens/s.

    The window is cut into equal slices of at least 1 s (one slice when it is shorter), so the peak is never under the
    mean. Tokens are counted, not chunks: a chunk of five is five.
    """
    window = window_ns(record)
    if window is None:
        return None
    start, end = window
    slices = max(1, math.floor((end - start) / NS_PER_S))
    counts = [0] * slices
    for request in successes(record):
        for at, tokens in emissions(request):
            counts[min(slices - 1, (at - start) * slices // (end - start))] += tokens
    return max(counts) / ((end - start) / NS_PER_S / slices)
