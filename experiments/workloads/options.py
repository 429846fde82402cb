"""What a user changes of any workload: number, rate, limits, scales, clients. Checked once, here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.workloads.arrivals import NS_PER_S
from experiments.workloads.fields import MOST_TOKENS, number, whole
from experiments.workloads.spec import MOST_REQUESTS
from ledger.errors import InputError


@dataclass(frozen=True)
class Options:
    """None keeps the workload's own. `rate_rps` sets the mean rate, `concurrency` makes it a closed loop.

    `time_scale` multiplies every gap and pause, `length_scale` every length; then lengths above `max_prompt_tokens` and
    `max_tokens_cap` (of answers, and of the stated limit) are clipped.
    """

    num_requests: int | None = None
    rate_rps: float | None = None
    max_tokens_cap: int | None = None
    max_prompt_tokens: int | None = None
    concurrency: int | None = None
    time_scale: float = 1.0
    length_scale: float = 1.0

    def __post_init__(self) -> None:
        limits = {"num_requests": MOST_REQUESTS, "concurrency": MOST_REQUESTS}
        for name in ("num_requests", "concurrency", "max_tokens_cap", "max_prompt_tokens"):
            value = getattr(self, name)
            if value is not None:
                whole(name, value, 1, limits.get(name, MOST_TOKENS))
        if self.rate_rps is not None:
            number("rate_rps", self.rate_rps, unit="requests/s")
        number("time_scale", self.time_scale)
        number("length_scale", self.length_scale)
        if self.rate_rps is not None and self.concurrency is not None:
            raise InputError("rate_rps", self.rate_rps, "no rate beside concurrency: clients send as answers end")
        if self.rate_rps is not None and self.time_scale != 1:
            raise InputError("time_scale", self.time_scale, "1 beside rate_rps, which sets the times already")

    def scaled_ns(self, times_ns: Sequence[int]) -> list[int]:
        """Times with the time scale applied."""
        return [round(time_ns * self.time_scale) for time_ns in times_ns]

    def scaled_tokens(self, tokens: int) -> int:
        """A length with the length scale applied, at least 1."""
        return max(1, round(tokens * self.length_scale))


@dataclass
class Limits:
    """Scales and clips lengths, and counts what it clipped. `max_tokens` is the limit that every request states."""

    options: Options
    max_tokens: int | None = None
    clipped: dict[str, int] = field(default_factory=lambda: {"prompt_tokens": 0, "output_tokens": 0})

    def prompt(self, tokens: int) -> int:
        """The length of a prompt that is sent for one of `tokens`."""
        return self._within("prompt_tokens", tokens, self.options.max_prompt_tokens)

    def output(self, tokens: int) -> int:
        """The length of an answer that is asked for in the place of one of `tokens`."""
        return self._within("output_tokens", tokens, self.stated())

    def stated(self) -> int | None:
        """The limit that every request states; None when there is none."""
        scaled = None if self.max_tokens is None else self.options.scaled_tokens(self.max_tokens)
        return min(filter(None, (scaled, self.options.max_tokens_cap)), default=None)

    def _within(self, what: str, tokens: int, most: int | None) -> int:
        scaled = self.options.scaled_tokens(tokens)
        if most is None or scaled <= most:
            return scaled
        self.clipped[what] += 1
        return most


def at_rate(times_ns: Sequence[int], rate_rps: float) -> list[int]:
    """Times stretched so that (n - 1) / (last - first) is the rate; they must not all be the same."""
    factor = (len(times_ns) - 1) * NS_PER_S / rate_rps / (times_ns[-1] - times_ns[0])
    return [round((time_ns - times_ns[0]) * factor) for time_ns in times_ns]
