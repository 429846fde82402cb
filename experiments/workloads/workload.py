"""The drawn workload: what every driver gets, whatever it drives. Plain data; knows no engine and no tokenizer.

How a driver must treat it. `schedule.Schedule` does the bookkeeping for any driver:

- A request without `parent` in an open loop (`concurrency` None) is due at `arrival_ns`, whatever became of the others.
- A request with a `parent` is the next turn of a conversation: due `think_ns` after the answer of its parent has ended.
  Its whole prompt is its parent's whole prompt, the parent's answer, then `prompt_token_ids`. When the parent failed it
  can't be sent, and is recorded as failed.
- With `concurrency` N, N clients take the conversations in order (`arrival_ns` is not used); a client takes the next
  one when its last answer has ended, and the request is due `think_ns` later. The first N are due at 0.
- Latency counts from the moment that a request was due. In a closed loop, and for later turns, that moment depends on
  answers: it is the scheduled arrival that the driver writes into its record.
- The server is told `max_tokens` and must be ready for it. With `ignore_eos` the answer ends after `output_tokens`
  whatever the model says (a driver that can't state that separately asks for `output_tokens` as the limit); without it
  the answer ends by itself, and both are limits.
- Who sends text sends `decode(prompt_token_ids)`; a seam between turns may then be tokenized differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class WorkloadRequest:
    """One request. Times in ns, from the start of the run.

    For a later turn `prompt_token_ids` is what comes new, `history_tokens` how many ids stand before it when every
    answer so far had its `output_tokens`, and `parent` the number of the turn before. `session` counts conversations;
    requests that begin with the same prefix have the same `prefix_group`. `question` is what is asked, a part of the
    prompt's text, of a request that may be given the answer to the same question in other words; requests with the same
    `answer_key` have the same right answer.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    output_tokens: int
    arrival_ns: int
    session: int | None = None
    parent: int | None = None
    think_ns: int = 0
    history_tokens: int = 0
    prefix_group: int | None = None
    question: str | None = None
    answer_key: str | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt, the conversation before it included."""
        return self.history_tokens + len(self.prompt_token_ids)


@dataclass(frozen=True)
class Made:
    """What was changed on the way from what was asked, or what a trace says, to what is sent.

    clipped: lengths that a limit shortened, by "prompt_tokens" and "output_tokens". dropped: requests left out, by
    reason. trace: which file, and which of its rows. file: the workload file.
    """

    clipped: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    time_scale: float = 1.0
    length_scale: float = 1.0
    trace: Mapping[str, Any] | None = None
    file: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workload:
    """A drawn workload; see the module for how to drive it.

    Requests are numbered by their place. A turn stands behind its parent, and conversations in order of arrival.
    """

    name: str
    seed: int
    requests: tuple[WorkloadRequest, ...]
    rate_rps: float | None
    arrivals: str
    ignore_eos: bool = True
    concurrency: int | None = None
    made: Made = field(default_factory=Made)

    def describe(self) -> dict[str, Any]:
        """The run record's `workload` entry: what was asked for and what came of it, without the texts.

        prompt_tokens and output_tokens are sums; their distributions are under `lengths`. realised_rps is of the
        arrivals that are known before the run, in requests/s.
        """
        prompts = [request.prompt_tokens for request in self.requests]
        outputs = [request.output_tokens for request in self.requests]
        made = self.made
        return {
            "name": self.name,
            "seed": self.seed,
            "num_requests": len(self.requests),
            "rate_rps": self.rate_rps,
            "arrivals": self.arrivals,
            "concurrency": self.concurrency,
            "ignore_eos": self.ignore_eos,
            "prompt_tokens": sum(prompts),
            "output_tokens": sum(outputs),
            "max_tokens": max((request.max_tokens for request in self.requests), default=0),
            "lengths": {"prompt_tokens": _spread(prompts), "output_tokens": _spread(outputs)},
            "realised_rps": None if self.concurrency else _rate(self.requests),
            "sessions": _sessions(self.requests),
            "prefix_groups": len({r.prefix_group for r in self.requests if r.prefix_group is not None}),
            "time_scale": made.time_scale,
            "length_scale": made.length_scale,
            "clipped": dict(made.clipped),
            "dropped": dict(made.dropped),
            "trace": None if made.trace is None else dict(made.trace),
            "file": None if made.file is None else dict(made.file),
            "notes": list(made.notes),
        }


def _spread(lengths: list[int]) -> dict[str, float | int | None]:
    """Mean, percentiles by linear interpolation, and the ends."""
    if not lengths:
        return dict.fromkeys(("mean", "min", "p50", "p90", "p99", "max"))
    p50, p90, p99 = (float(value) for value in np.percentile(lengths, [50, 90, 99]))
    mean = sum(lengths) / len(lengths)
    return {"mean": mean, "min": min(lengths), "p50": p50, "p90": p90, "p99": p99, "max": max(lengths)}


def _rate(requests: Iterable[WorkloadRequest]) -> float | None:
    times = [request.arrival_ns for request in requests if request.parent is None]
    if len(times) < 2 or times[-1] == times[0]:
        return None
    return (len(times) - 1) * NS_PER_S / (times[-1] - times[0])


def _sessions(requests: Iterable[WorkloadRequest]) -> dict[str, Any] | None:
    """How many conversations, and turns in the longest; None when every request stands alone."""
    turns: dict[int | None, int] = {}
    for request in requests:
        if request.session is not None:
            turns[request.session] = turns.get(request.session, 0) + 1
    if not turns:
        return None
    return {"count": len(turns), "mean_turns": sum(turns.values()) / len(turns), "most_turns": max(turns.values())}
