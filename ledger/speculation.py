"""When drafting tokens pays: the arithmetic of speculative decoding, in passes of the target model. Pure functions.

A cycle drafts k tokens and lets the target verify them in one pass. With a (alpha) the probability that a draft is
accepted where all before it were, it yields 1 + a + ... + a^k tokens, the last of which is the target's own (Leviathan
et al. 2023, "Fast Inference from Transformers via Speculative Decoding", section 3). Time is counted in passes that
compute one token: verifying takes v of them, a draft c. So a cycle is v + kc, and plain decoding takes one a token.

`drafted_share` is for a form that has a draft in some cycles only, as a look-up: the others are plain passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.errors import InputError

MOST_DRAFTS = 64
_HALVINGS = 60  # of the interval [0, 1]: beyond what a float can tell


@dataclass(frozen=True)
class Costs:
    """What a cycle takes, in one-token passes of the target: v = verifying k + 1 tokens, c = one draft.

    parallel: all k drafts come from one evaluation (heads), so that c is that of all together.
    """

    v: float = 1.0
    c: float = 0.0
    parallel: bool = False
    drafted_share: float = 1.0

    def __post_init__(self) -> None:
        if not self.v > 0:
            raise InputError("v", self.v, "a number above 0: verifying takes time")
        if not self.c >= 0:
            raise InputError("c", self.c, "a number from 0")
        if not 0 < self.drafted_share <= 1:
            raise InputError("drafted_share", self.drafted_share, "a number above 0, at most 1")

    def drafting(self, k: int) -> float:
        """Passes that the drafts of a cycle take."""
        return self.c if self.parallel else k * self.c

    def cycle(self, k: int) -> float:
        """Passes that a cycle takes, on average over those with and without drafts."""
        return self.drafted_share * (self.v + self.drafting(k)) + (1 - self.drafted_share)  # above 0, however small v


def tokens_per_cycle(alpha: float, k: int, drafted_share: float = 1.0) -> float:
    """Expected tokens of a cycle: (1 - a^(k+1)) / (1 - a), which is k + 1 at a = 1; one where nothing is drafted."""
    _checked(alpha, k)
    drafted = float(sum(alpha**place for place in range(k + 1)))  # the same series, without its pole at a = 1
    return drafted_share * drafted + 1 - drafted_share


def accepted_per_draft(alpha: float, k: int) -> float:
    """Accepted of all drafted tokens, the figure that logs report: below alpha, since a rejection ends the cycle."""
    return (tokens_per_cycle(alpha, k) - 1) / k


def speedup(alpha: float, k: int, costs: Costs) -> float:
    """Speed over that of plain decoding: tokens of a cycle over the passes that it takes."""
    return tokens_per_cycle(alpha, k, costs.drafted_share) / costs.cycle(k)


def break_even_cost(alpha: float, k: int, v: float = 1.0, *, parallel: bool = False) -> float:
    """The c at which drafting is neither faster nor slower; below 0 when it does not pay even for nothing."""
    return cost_at(1.0, alpha, k, v, parallel=parallel)


def cost_at(times: float, alpha: float, k: int, v: float = 1.0, *, parallel: bool = False) -> float:
    """The c at which decoding is `times` as fast as without drafts."""
    if not times > 0:
        raise InputError("times", times, "a number above 0")
    left = tokens_per_cycle(alpha, k) / times - v
    return left if parallel else left / k


def break_even_alpha(k: int, costs: Costs) -> float | None:
    """The alpha from which on drafting pays; None when it does not even at 1, 0 when it always does."""
    if speedup(1.0, k, costs) < 1:
        return None
    if speedup(0.0, k, costs) >= 1:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if speedup(middle, k, costs) >= 1 else (middle, high)
    return high


def best_length(alpha: float, v_by_k: Mapping[int, float], c: float, *, parallel: bool = False) -> tuple[int, float]:
    """(k, speed-up) of the best of the lengths whose verification cost is known; k = 0 and 1 when none pays."""
    found = {k: speedup(alpha, k, Costs(v, c, parallel)) for k, v in v_by_k.items()}
    best = max(found, key=found.__getitem__, default=0)
    return (best, found[best]) if best and found[best] > 1 else (0, 1.0)


def _checked(alpha: float, k: int) -> None:
    if not 0 <= alpha <= 1:
        raise InputError("alpha", alpha, "a number from 0 to 1")
    if not 1 <= k <= MOST_DRAFTS:
        raise InputError("k", k, f"a whole number from 1 to {MOST_DRAFTS}")
