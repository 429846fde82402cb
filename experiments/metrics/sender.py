"""Did the load generator keep its schedule? Latency counts from the schedule either way; a late sender is shown."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from experiments.metrics.events import NS_PER_S, Record, summary

# Below this share of the scheduled rate the run is at another load than the one asked for.
KEPT_SHARE = 0.95


def offered_load(record: Record) -> dict[str, Any]:
    """{"offered_rps","achieved_rps","lateness_s":{...},"warning"}: scheduled against real sending.

    Rates are (n - 1) / (last - first) in requests/s, None for a burst. Lateness = send - arrival, in s. `warning` is
    one line when the sender fell behind, else None.
    """
    requests = [request for request in record["requests"] if request.get("send_ns") is not None]
    offered = _rate([request["arrival_ns"] for request in requests])
    achieved = None if offered is None else _rate([request["send_ns"] for request in requests])
    late = summary([(request["send_ns"] - request["arrival_ns"]) / NS_PER_S for request in requests])
    warning = None
    if offered is not None and achieved is not None and achieved < KEPT_SHARE * offered:
        warning = f"the sender kept {achieved:.3g} of the {offered:.3g} requests/s that were scheduled"
    return {"offered_rps": offered, "achieved_rps": achieved, "lateness_s": late, "warning": warning}


def in_flight(record: Record) -> dict[str, float | int | None]:
    """{"mean","peak"} of the requests that were sent and not ended, as the sender sees them; the mean is over time.

    None without a request that was sent. Whether the server ran them or let them wait, it does not say.
    """
    spans = [
        (request["send_ns"], request["finish_ns"])
        for request in record["requests"]
        if request.get("send_ns") is not None and request.get("finish_ns") is not None
    ]
    if not spans:
        return {"mean": None, "peak": None}
    # At one moment ends come before starts: a client that sends its next request has one in flight, not two.
    changes = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    whole = changes[-1][0] - changes[0][0]
    area = sum(end - start for start, end in spans)
    return {"mean": area / whole if whole else None, "peak": max(accumulate(step for _, step in changes))}


def _rate(times_ns: list[int]) -> float | None:
    if len(times_ns) < 2 or max(times_ns) == min(times_ns):
        return None
    return (len(times_ns) - 1) * NS_PER_S / (max(times_ns) - min(times_ns))
