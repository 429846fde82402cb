"""Shares of right answers: their interval, and two shares of the same items against each other.

Pure arithmetic. Sources: Wilson 1927 (interval of one share); McNemar 1947 in its exact, binomial form; Tango 1998,
"Equivalence test and confidence interval for the difference in proportions for the paired-sample design".
"""

from __future__ import annotations

import math
from collections.abc import Callable

Z95 = 1.959963984540054  # normal quantile of 0.975


def wilson_interval(correct: int, total: int, z: float = Z95) -> tuple[float, float]:
    """Interval of a share, 95 % unless told otherwise; ValueError without any trial."""
    if not 0 <= correct <= total or total < 1:
        raise ValueError(f"{correct} of {total} is no share")
    share, spread = correct / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    # The bounds of 0 and of all are 0 and 1 exactly, which rounding may miss.
    return (0.0 if correct == 0 else centre - half), (1.0 if correct == total else centre + half)


def binomial_tail(successes: int, trials: int) -> float:
    """Chance of at most `successes` heads in so many throws of a fair coin, exactly."""
    return sum(math.comb(trials, k) for k in range(successes + 1)) / 2**trials


def mcnemar_exact(lost: int, gained: int) -> float:
    """Two-sided p of "an item is as likely to be lost as to be gained", from the items whose outcome changed."""
    return min(1.0, 2 * binomial_tail(min(lost, gained), lost + gained))


def loss_p(lost: int, gained: int) -> float:
    """One-sided p against "no more items are lost than gained"."""
    return binomial_tail(gained, lost + gained)


def paired_difference_interval(lost: int, gained: int, total: int, z: float = Z95) -> tuple[float, float]:
    """Tango's score interval of (share now - share before) for `total` items answered twice, 95 % by default.

    Unlike an interval from the spread of the differences it keeps a width when no item changed: +-z^2 / (n + z^2).
    """
    if lost < 0 or gained < 0 or total < max(1, lost + gained):
        raise ValueError(f"{lost} lost and {gained} gained of {total} items")
    difference = (gained - lost) / total

    def score(delta: float) -> float:
        changed = lost + gained
        a, b, c = 2 * total, (2 * total + lost - gained) * delta - changed, -lost * delta * (1 - delta)
        # Share of lost items that is likeliest when the difference is `delta` (the larger root of a x^2 + b x + c).
        likeliest = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
        variance = total * (2 * likeliest + delta * (1 - delta))
        gap = gained - lost - total * delta
        return math.copysign(math.inf, gap) if variance <= 0 else gap / math.sqrt(variance)

    low = _where(lambda delta: score(delta) > z, -1.0, difference)
    high = _where(lambda delta: score(delta) >= -z, difference, 1.0)
    return low, high


def _where(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The point between low and high up to which a falling condition holds."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2
