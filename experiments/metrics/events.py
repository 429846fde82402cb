"""Reading a run record: which emissions count, which requests succeeded, and the window rates are taken over.

A record is the JSON object an engine run leaves; all its times are integer ns on one monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.statistics import percentile

Record = Mapping[str, Any]
Request = Mapping[str, Any]
NS_PER_S = 1e9


class _Emissions(list[tuple[int, int]]):
    """What `emissions` gives: it is not looked through again."""


def emissions(request: Request) -> list[tuple[int, int]]:
    """(time in ns, tokens) of the emissions that carry tokens, in order. A role-only or empty chunk is not a token."""
    found = request["emissions"]
    if isinstance(found, _Emissions):
        return found
    return _Emissions((int(at), int(tokens)) for at, tokens in found if tokens > 0)


def emissions_once(record: Record) -> Record:
    """The record for who asks for emissions again and again: those of its requests are looked through here."""
    return {**record, "requests": [{**request, "emissions": emissions(request)} for request in record["requests"]]}


def num_output_tokens(request: Request) -> int:
    """Tokens emitted, counted as tokens and not as chunks."""
    return sum(tokens for _, tokens in emissions(request))


def succeeded(request: Request) -> bool:
    """True for a request that ended by a stop or by its length limit, without an error."""
    return request.get("error") is None and request.get("finish_reason") in ("stop", "length")


def successes(record: Record) -> list[Request]:
    """The successful requests, in the record's order."""
    return [request for request in record["requests"] if succeeded(request)]


def failures(record: Record) -> list[dict[str, Any]]:
    """[{"error","count"}] of the requests that failed, the commonest reason first."""
    lines = Counter(str(r.get("error") or r.get("finish_reason")) for r in record["requests"] if not succeeded(r))
    return [{"error": line, "count": count} for line, count in lines.most_common()]


def window_ns(record: Record) -> tuple[int, int] | None:
    """(first arrival, last token) over all requests, the window of every rate; None without requests.

    When nobody got a token it ends at the last finish, so that a rate of 0 is a measured 0.
    """
    requests = record["requests"]
    if not requests:
        return None
    start = min(request["arrival_ns"] for request in requests)
    ends = [at for request in requests for at, _ in emissions(request)]
    ends = ends or [request["finish_ns"] for request in requests if request.get("finish_ns") is not None]
    return (start, max(ends)) if ends and max(ends) > start else None


def duration_s(record: Record) -> float | None:
    """Length of `window_ns` in s."""
    window = window_ns(record)
    return None if window is None else (window[1] - window[0]) / NS_PER_S


def summary(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """{"mean","p50","p95","p99","n"} of the values there are; all None, and n 0, when there are none."""
    present = [value for value in values if value is not None]
    return {
        "mean": fmean(present) if present else None,
        "p50": percentile(present, 50),
        "p95": percentile(present, 95),
        "p99": percentile(present, 99),
        "n": len(present),
    }
