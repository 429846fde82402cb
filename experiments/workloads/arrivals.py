"""Arrival schedules: integer ns from the start of the run, computed before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from experiments.workloads.fields import kind_of, made, number, one_of, whole

NS_PER_S = 1_000_000_000


class Arrivals(Protocol):
    """How requests come. The first is at 0, times never decrease.

    One generator draws the whole schedule. Several senders must share one schedule: with a copy of the seed in each,
    their arrivals coincide and the load is bursts, not a Poisson process.
    """

    @property
    def mean_rps(self) -> float | None:
        """Requests/s over the whole run; None when they come all at once."""

    def at_rate(self, rate_rps: float) -> Arrivals:
        """The same pattern with another mean rate; only where mean_rps is not None."""

    def draw_ns(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` arrivals in ns."""


@dataclass(frozen=True)
class Poisson:
    """Independent exponential gaps: who comes next knows nothing of who came before."""

    rate: float

    def __post_init__(self) -> None:
        number("rate", self.rate, unit="requests/s")

    @property
    def mean_rps(self) -> float:
        """The rate."""
        return self.rate

    def at_rate(self, rate_rps: float) -> Poisson:
        """With another rate."""
        return Poisson(rate_rps)

    def draw_ns(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` arrivals in ns."""
        return poisson_arrivals_ns(self.rate, count, rng)


@dataclass(frozen=True)
class Gamma:
    """Independent gamma gaps with coefficient of variation `cv`: 1 is Poisson, above 1 bursts, below 1 regular.

    The gamma's shape, which others call burstiness, is 1 / cv ** 2.
    """

    rate: float
    cv: float

    def __post_init__(self) -> None:
        number("rate", self.rate, unit="requests/s")
        number("cv", self.cv)

    @property
    def mean_rps(self) -> float:
        """The rate."""
        return self.rate

    def at_rate(self, rate_rps: float) -> Gamma:
        """With another rate, as bursty."""
        return replace(self, rate=rate_rps)

    def draw_ns(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` arrivals in ns."""
        shape = 1 / self.cv**2
        return _from_gaps_s(rng.gamma(shape, 1 / (shape * self.rate), size=count))


@dataclass(frozen=True)
class Constant:
    """Equal gaps."""

    rate: float

    def __post_init__(self) -> None:
        number("rate", self.rate, unit="requests/s")

    @property
    def mean_rps(self) -> float:
        """The rate."""
        return self.rate

    def at_rate(self, rate_rps: float) -> Constant:
        """With another rate."""
        return Constant(rate_rps)

    def draw_ns(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` arrivals in ns."""
        return [round(number * NS_PER_S / self.rate) for number in range(count)]


@dataclass(frozen=True)
class Burst:
    """`size` requests at once, the next `size` after `every_s`, and so on; size 0 is all at once."""

    size: int = 0
    every_s: float = 1.0

    def __post_init__(self) -> None:
        whole("size", self.size, 0, 1_000_000)
        number("every_s", self.every_s, unit="s")

    @property
    def mean_rps(self) -> float | None:
        """Requests/s over whole periods; None when all come at once."""
        return self.size / self.every_s if self.size else None

    def at_rate(self, rate_rps: float) -> Burst:
        """As large bursts, closer together or further apart."""
        return replace(self, every_s=self.size / rate_rps)

    def draw_ns(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` arrivals in ns."""
        return [round((i // self.size if self.size else 0) * self.every_s * NS_PER_S) for i in range(count)]


@dataclass(frozen=True)
class Ramp:
    """A Poisson process whose rate goes in a straight line from `rate` to `end_rate` over the expected run."""

    rate: float
    end_rate: float

    def __post_init__(self) -> None:
        number("rate", self.rate, unit="requests/s")
        number("end_rate", self.end_rate, unit="requests/s")

    @property
    def mean_rps(self) -> float:
        """The mean of both ends."""
        return (self.rate + self.end_rate) / 2

    def at_rate(self, rate_rps: float) -> Ramp:
        """As steep, with another mean."""
        factor = rate_rps / self.mean_rps
        return Ramp(self.rate * factor, self.end_rate * factor)

    def draw_ns(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` arrivals in ns: a Poisson process of rate 1, bent by the inverse of the expected count.

        The expected count after t is rate t + slope t^2 / 2 up to the end of the ramp, from where end_rate stays.
        """
        expected = np.concatenate([[0.0], np.cumsum(rng.exponential(1.0, size=max(0, count - 1)))])[:count]
        last_s = count / self.mean_rps
        slope = (self.end_rate - self.rate) / last_s
        inside = np.minimum(expected, count)
        # The stable form of the root; it needs no case of its own where the slope is 0.
        times_s = 2 * inside / (self.rate + np.sqrt(np.maximum(self.rate**2 + 2 * slope * inside, 0)))
        times_s += (expected - inside) / self.end_rate
        return [int(t) for t in np.rint(times_s * NS_PER_S)]


KINDS: dict[str, type[Any]] = {
    "poisson": Poisson,
    "gamma": Gamma,
    "constant": Constant,
    "burst": Burst,
    "ramp": Ramp,
}


def parse_arrivals(field: str, value: Any) -> Arrivals:
    """Arrivals as a user writes them: a table with a kind. InputError names the field's path."""
    return kind_of(field, value, KINDS)


def kind_name(arrivals: Arrivals) -> str:
    """The name under which a workload file asks for these."""
    return next(name for name, cls in KINDS.items() if isinstance(arrivals, cls))


@dataclass(frozen=True)
class Think:
    """A pause of a client between an answer and its next request: always `mean` s, or exponential around it."""

    mean: float
    kind: str = "constant"

    def __post_init__(self) -> None:
        one_of("kind", self.kind, ("constant", "exponential"))
        number("mean", self.mean, inclusive=True, unit="s")

    def draw_ns(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` pauses in ns."""
        if self.kind == "constant":
            return [round(self.mean * NS_PER_S)] * count
        return [int(t) for t in np.rint(rng.exponential(self.mean, size=count) * NS_PER_S)]


def parse_think(field: str, value: Any) -> Think:
    """A number of s, or {kind = "constant" | "exponential", mean = s}. InputError names the field's path."""
    if isinstance(value, dict):
        return made(Think, field, value)
    return Think(number(field, value, inclusive=True, unit="s"))


def poisson_arrivals_ns(rate_rps: float, count: int, rng: np.random.Generator) -> list[int]:
    """`count` arrivals of a Poisson process with `rate_rps` requests/s; the first is at 0. Non-decreasing, in ns."""
    if rate_rps <= 0:
        raise ValueError(f"rate_rps must be above 0, got {rate_rps}")
    return _from_gaps_s(rng.exponential(1 / rate_rps, size=count))


def burst_arrivals_ns(count: int) -> list[int]:
    """All `count` arrivals at 0."""
    return [0] * count


def _from_gaps_s(gaps_s: np.ndarray) -> list[int]:
    gaps_s[:1] = 0.0
    return [int(t) for t in np.rint(np.cumsum(gaps_s) * NS_PER_S)]
