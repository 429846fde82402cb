"""One run in the words of other benchmarks: their names, by their formulas, from our raw events.

Owns the formulas of vLLM's `bench serve` (its source at 009e6d4), GuideLLM (ee7a774) and AIPerf (0176f59). A figure
that another tool would form differently from ours says why. Successful requests only, as
there. s = send (not the schedule), n = output tokens: the server's count where it gave one, else ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from experiments.metrics.events import NS_PER_S, Record, Request, emissions, num_output_tokens, successes
from experiments.statistics import percentile

FROM_SEND = "counts from the send; ours counts from the schedule, so that a late sender hides nothing"
ANY_CHUNK = "the first event counts, with text or not; ours is the first with text"
PER_CHUNK = "one sample a chunk, whatever its tokens, as ours"
WITH_TTFT = "time to first token included; ours leaves it out, so one slow prefill does not look like slow decoding"
BY_ALL = "divides by n - 1; ours by the tokens after the first chunk, the same where that has one token"
WEIGHTED = "one mean a request, weighted by n - 1; the longest gap of a request is lost in it, ours keeps every gap"
UNWEIGHTED = "one mean a request; the longest gap of a request is lost in it, ours keeps every gap"
WHOLE_RUN = "over the whole run; ours ends with the last token"
FIRST_SEND = "from the first send to the last answer; ours from the first arrival to the last token"
WITH_TAIL = "to the end of the stream, after the last token; ours to the last token"


@dataclass(frozen=True)
class _Seen:
    """One request as a client of another tool sees it; times in s."""

    sent: float
    first_event: float
    first: float
    last: float
    end: float
    tokens: int
    gaps: tuple[float, ...]

    @classmethod
    def of(cls, request: Request) -> _Seen | None:
        emitted = emissions(request)
        if not emitted or request.get("send_ns") is None:
            return None
        told = request.get("usage_tokens")
        first_event, end = request.get("first_event_ns"), request.get("end_ns")
        times = [at / NS_PER_S for at, _ in emitted]
        return cls(
            sent=request["send_ns"] / NS_PER_S,
            first_event=times[0] if first_event is None else first_event / NS_PER_S,
            first=times[0],
            last=times[-1],
            end=times[-1] if end is None else end / NS_PER_S,
            tokens=told or num_output_tokens(request),
            gaps=tuple(after - before for before, after in pairwise(times)),
        )


Row = dict[str, Any]


def in_other_terms(record: Record) -> dict[str, list[Row]]:
    """Tool -> [{"name","unit","mean","p50","p99","why"}]; rates have a mean alone. Empty lists without an answer.

    "ours" names our metric beside it, `why` says how theirs differs; None is the same formula.
    """
    seen = [found for found in map(_Seen.of, successes(record)) if found is not None]
    if not seen:
        return {"vllm": [], "guidellm": [], "aiperf": []}
    return {"vllm": _vllm(seen), "guidellm": _guidellm(seen), "aiperf": _aiperf(seen)}


def _vllm(seen: Sequence[_Seen]) -> list[Row]:
    """`vllm bench serve`: linear percentiles, milliseconds there and s here."""
    # Its clock runs from the first send to the moment when the last request has returned.
    duration = max(one.end for one in seen) - min(one.sent for one in seen)
    more = [one for one in seen if one.tokens > 1]
    ends = [one.last - one.sent for one in seen]
    return [
        _row("ttft", "ttft_s", [one.first_event - one.sent for one in seen], f"{FROM_SEND}; {ANY_CHUNK}"),
        _row("tpot", "tpot_s", [(one.last - one.first_event) / (one.tokens - 1) for one in more], BY_ALL),
        _row("itl", "itl_s", [gap for one in seen for gap in one.gaps], PER_CHUNK),
        _row("e2el", "e2e_s", ends, FROM_SEND),
        _rate("output_throughput", "output_tokens_per_s", sum(one.tokens for one in seen), duration, WHOLE_RUN),
        _rate("request_throughput", "requests_per_s", len(seen), duration, WHOLE_RUN, "requests/s"),
    ]


def _guidellm(seen: Sequence[_Seen]) -> list[Row]:
    """GuideLLM: nearest-rank percentiles on a weighted distribution."""
    more = [one for one in seen if one.tokens > 1]
    tpot = [((one.last - one.sent) / one.tokens, one.tokens) for one in seen]
    itl = [((one.last - one.first) / (one.tokens - 1), one.tokens - 1) for one in more]
    duration = max(one.end for one in seen) - min(one.sent for one in seen)
    return [
        _weighted("time_to_first_token", "ttft_s", [(one.first - one.sent, 1) for one in seen], FROM_SEND),
        _weighted("time_per_output_token", "tpot_s", tpot, WITH_TTFT),
        _weighted("inter_token_latency", "itl_s", itl, WEIGHTED),
        _weighted("request_latency", "e2e_s", [(one.end - one.sent, 1) for one in seen], f"{FROM_SEND}; {WITH_TAIL}"),
        _rate("requests_per_second", "requests_per_s", len(seen), duration, FIRST_SEND, "requests/s"),
    ]


def _aiperf(seen: Sequence[_Seen]) -> list[Row]:
    """AIPerf: linear percentiles."""
    more = [one for one in seen if one.tokens > 1]
    itl = [(one.last - one.first) / (one.tokens - 1) for one in more]
    duration = max(one.last for one in seen) - min(one.sent for one in seen)
    tokens = sum(one.tokens for one in seen)
    return [
        _row("time_to_first_token", "ttft_s", [one.first - one.sent for one in seen], FROM_SEND),
        _row("inter_token_latency", "itl_s", itl, UNWEIGHTED),
        _row("inter_chunk_latency", "itl_s", [gap for one in seen for gap in one.gaps], None),
        _row("request_latency", "e2e_s", [one.last - one.sent for one in seen], FROM_SEND),
        _rate("output_token_throughput", "output_tokens_per_s", tokens, duration, FIRST_SEND),
        _rate("request_throughput", "requests_per_s", len(seen), duration, FIRST_SEND, "requests/s"),
    ]


def _row(name: str, ours: str, values: Sequence[float], why: str | None) -> Row:
    return {
        "name": name,
        "ours": ours,
        "unit": "s",
        "mean": fmean(values) if values else None,
        "p50": percentile(values, 50),
        "p99": percentile(values, 99),
        "why": why,
    }


def _weighted(name: str, ours: str, values: Sequence[tuple[float, int]], why: str | None) -> Row:
    total = sum(weight for _, weight in values)
    mean = sum(value * weight for value, weight in values) / total if total else None
    p50, p99 = (nearest_rank(values, q) for q in (50, 99))
    return {"name": name, "ours": ours, "unit": "s", "mean": mean, "p50": p50, "p99": p99, "why": why}


def nearest_rank(values: Sequence[tuple[float, int]], q: float) -> float | None:
    """The smallest value at which the weights of (value, weight) reach q % of their sum; None without weight."""
    total = sum(weight for _, weight in values)
    reached = 0
    for value, weight in sorted(values):
        reached += weight
        if weight and 100 * reached >= q * total:
            return value
    return None


def _rate(name: str, ours: str, count: int, duration: float, why: str, unit: str = "tokens/s") -> Row:
    mean = count / duration if duration > 0 else None
    return {"name": name, "ours": ours, "unit": unit, "mean": mean, "p50": None, "p99": None, "why": why}
