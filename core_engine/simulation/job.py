"""A request as a simulation is told it, and what is known of it at its end: lengths and shared prefixes, no texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OWN_TOKENS = 1 << 40  # tokens that only one request has: beyond every vocabulary and every hash id


@dataclass(frozen=True, slots=True)
class Job:
    """A request. prefix_ids stand for `prefix_tokens` prompt tokens each (hash ids of a trace): equal ids in equal
    places are equal tokens; what they don't cover is the request's own. token_ids, where known, replace all that.

    max_tokens is what the engine is told, output_tokens where the answer ends.
    """

    index: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    prefix_ids: tuple[int, ...] = ()
    prefix_tokens: int = 512
    token_ids: Sequence[int] | None = None

    def tokens(self) -> list[int]:
        """Prompt tokens that the prefix cache tells apart as the real ones would be."""
        if self.token_ids is not None:
            return list(self.token_ids)
        found: list[int] = []
        for name in self.prefix_ids:
            found += [name] * self.prefix_tokens
        found += [OWN_TOKENS + self.index] * (self.prompt_tokens - len(found))
        return found[: self.prompt_tokens]


@dataclass(frozen=True, slots=True)
class Ended:
    """What happened to a job; times in ns, None where it never came to that. first_tokens: of the first emission.

    queue_ns: waiting in all; late_queue_ns: that part of it which came after the first token, by preemption or before a
    decode replica. emissions: (time, tokens) of each, only where events are kept; else empty. reason: stop, length or
    refused.
    """

    job: Job
    replica: int
    reason: str
    admit_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    first_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    queue_ns: int = 0
    late_queue_ns: int = 0
    prefix_hit_tokens: int = 0
    emissions: tuple[tuple[int, int], ...] = ()
