"""Token lengths drawn for a workload: distributions as small frozen dataclasses, each with `draw`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from experiments.bounded import read_text
from experiments.workloads.fields import MOST_TOKENS, kind_of, number, whole
from ledger.errors import CannotRunError, InputError


class Lengths(Protocol):
    """A distribution of lengths in tokens."""

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` lengths, each at least 1."""


@dataclass(frozen=True)
class Fixed:
    """Every length is `tokens`."""

    tokens: int

    def __post_init__(self) -> None:
        whole("tokens", self.tokens, 1, MOST_TOKENS)

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` times the same."""
        return [self.tokens] * count


@dataclass(frozen=True)
class Uniform:
    """Every length from `low` to `high` is as likely; both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """Independent draws."""
        return [int(n) for n in rng.integers(self.low, self.high + 1, size=count)]


@dataclass(frozen=True)
class LogUniform:
    """Log-uniform from `low` to `high`, both included: many short, few long. Stratified, see log_uniform_lengths."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """Stratified draws in random order."""
        return log_uniform_lengths(self.low, self.high, count, rng)


@dataclass(frozen=True)
class LongTailed:
    """Log-uniform in `body`, of which `share` (at least one) are log-uniform in `tail` instead. Ranges in tokens."""

    body: tuple[int, int]
    tail: tuple[int, int]
    share: float

    def __post_init__(self) -> None:
        for name, pair in (("body", self.body), ("tail", self.tail)):
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise InputError(name, pair, "two lengths, [low, high]")
            _check_range(*pair, name=f"{name}.")
        if number("share", self.share) > 1:
            raise InputError("share", self.share, "a number above 0, at most 1")

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """Stratified draws in random order."""
        return long_tailed_lengths(tuple(self.body), tuple(self.tail), self.share, count, rng)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Lognormal:
    """exp(N(ln median, sigma)), rounded; the mean is median * exp(sigma^2 / 2). Not bounded: a workload's limits clip
    it, and what they clipped is counted."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        number("median", self.median, low=1, inclusive=True, unit="tokens")
        number("sigma", self.sigma)
        if self.sigma > 5:
            raise InputError("sigma", self.sigma, "a number above 0, at most 5")

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """Independent draws, at least 1 and at most MOST_TOKENS."""
        drawn = np.rint(np.exp(math.log(self.median) + self.sigma * rng.standard_normal(count)))
        return [int(n) for n in np.clip(drawn, 1, MOST_TOKENS)]


@dataclass(frozen=True)
class Zipf:
    """P(length = n) is proportional to n ** -exponent for n from `low` to `high`, both included."""

    exponent: float
    low: int
    high: int

    def __post_init__(self) -> None:
        number("exponent", self.exponent, inclusive=True)
        _check_range(self.low, self.high)

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """Independent draws, by inverting the distribution function."""
        lengths = np.arange(self.low, self.high + 1)
        # In logarithms: 100,000 ** -50 is not a number of double precision.
        weights = np.exp(-self.exponent * (np.log(lengths) - math.log(self.low)))
        return [int(n) for n in lengths[ranks_of(weights, count, rng)]]


@dataclass(frozen=True)
class Empirical:
    """Lengths drawn with replacement from a list of `values`, or from a `file` with one length a line."""

    values: tuple[int, ...] = ()
    file: str = ""

    def __post_init__(self) -> None:
        if bool(self.file) == bool(self.values):
            raise InputError("values", self.values, "a list of lengths, or file = a path; one of the two")
        given = _lengths_in(Path(self.file)) if self.file else self.values
        if not isinstance(given, list | tuple):
            raise InputError("values", given, "a list of lengths")
        values = tuple(whole("file" if self.file else "values", n, 1, MOST_TOKENS) for n in given)
        object.__setattr__(self, "values", values)

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """Independent draws with replacement."""
        return [self.values[i] for i in rng.integers(0, len(self.values), size=count)]


KINDS: dict[str, type[Any]] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "log-uniform": LogUniform,
    "long-tailed": LongTailed,
    "lognormal": Lognormal,
    "zipf": Zipf,
    "empirical": Empirical,
}


def parse_lengths(field: str, value: Any, folder: Path | None = None) -> Lengths:
    """Lengths as a user writes them: a number (fixed), a list (empirical), or a table with a kind.

    A relative `file` is taken from `folder`. InputError names the field's path.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return Fixed(whole(field, value, 1, MOST_TOKENS))
    if isinstance(value, list):
        value = {"kind": "empirical", "values": value}
    if isinstance(value, dict) and folder is not None and isinstance(value.get("file"), str):
        value = {**value, "file": str(folder / value["file"])}
    return kind_of(field, value, KINDS)


def ranks_of(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` places of `weights`, each drawn with a probability proportional to its weight."""
    shares = np.cumsum(weights)
    return np.searchsorted(shares, rng.random(count) * shares[-1], side="right").clip(max=len(weights) - 1)


def log_uniform_lengths(low: int, high: int, count: int, rng: np.random.Generator) -> list[int]:
    """`count` lengths between `low` and `high` tokens, both included, log-uniform: many short, few long, random order.

    Stratified: one draw from each of `count` equal parts of the log range. Plain draws of 24 lengths from 8 to 256 vary
    by about a quarter in their sum from seed to seed; these keep the amount of work, and the spread, nearly the same.
    """
    if not 1 <= low <= high:
        raise ValueError(f"need 1 <= low <= high, got {low} and {high}")
    if low == high:
        return [low] * count
    position = (np.arange(count) + rng.random(count)) / count
    rng.shuffle(position)
    # Half a token is added on both sides, so that the end values are as likely as their neighbours.
    start, stop = math.log(low - 0.5), math.log(high + 0.5)
    lengths = np.rint(np.exp(start + position * (stop - start)))
    return [int(n) for n in np.clip(lengths, low, high)]


def long_tailed_lengths(
    body: tuple[int, int], tail: tuple[int, int], tail_share: float, count: int, rng: np.random.Generator
) -> list[int]:
    """`count` lengths, log-uniform in `body`, of which `tail_share` (at least one) are log-uniform in `tail` instead.

    Ranges are inclusive, in tokens. The share is exact up to rounding, so that every seed has its long answers.
    """
    num_tail = min(count, max(1, round(tail_share * count)))
    lengths = log_uniform_lengths(*body, count, rng)
    for place, length in zip(
        rng.choice(count, size=num_tail, replace=False), log_uniform_lengths(*tail, num_tail, rng), strict=True
    ):
        lengths[int(place)] = length
    return lengths


def _check_range(low: int, high: int, name: str = "") -> None:
    whole(f"{name}low", low, 1, MOST_TOKENS)
    if whole(f"{name}high", high, 1, MOST_TOKENS) < low:
        raise InputError(f"{name}high", high, f"a whole number from low ({low}) on")


def _lengths_in(path: Path) -> list[int]:
    try:
        lines = read_text("file", path).split()
    except OSError as error:
        raise CannotRunError(f"file: {path} can't be read: {error.strerror}") from None
    if not lines or not all(line.isdigit() for line in lines):
        wrong = next((line for line in lines if not line.isdigit()), "nothing")
        raise InputError("file", wrong, "one whole number a line")
    return [int(line) for line in lines]
