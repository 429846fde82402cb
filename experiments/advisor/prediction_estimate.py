"""One source's word on one curve, and what the five curves are called. Pure data, shared by all sources."""

from __future__ import annotations

import math
from dataclasses import dataclass

BETTER, WORSE, NO_DIFFERENCE = "better", "worse", "no difference"
TIMED = ("ttft_s", "itl_s", "output_tokens_per_s", "cost_per_request")
QUALITY = "quality"
CURVES = (*TIMED, QUALITY)
LOWER_IS_BETTER = ("ttft_s", "itl_s", "cost_per_request")
# From which change on a comparison calls it one rather than none: between the equivalence margin of 5 % and what five
# pairs of a quiet machine detect (2 to 4 %). Pairs of quality are requests, whose floor is 1 %.
TURNS_AT = {**dict.fromkeys(TIMED, 0.04), QUALITY: 0.02}
# Sources, the most trusted first.
EARLIER, SIMULATOR, ARITHMETIC, OTHER_LOADS = "earlier runs", "simulator", "arithmetic", "other loads"
EVALUATION, FORMATS, IDENTITY = "evaluation", "formats", "identity"  # of quality alone


@dataclass(frozen=True)
class Estimate:
    """The change of a curve in ln of candidate / baseline: centre, and how far it may be off (one standard deviation).

    uncorrected: the centre before earlier errors were taken into account. exact: nothing can change by construction, so
    there is no band.
    """

    centre: float
    scale: float
    source: str
    provenance: str
    basis: str
    uncorrected: float | None = None
    exact: bool = False


def verdict_of(name: str, centre: float) -> str:
    """What a comparison with this change (ln of the ratio) would most likely call a curve."""
    if abs(centre) <= math.log1p(TURNS_AT[name]):
        return NO_DIFFERENCE
    return BETTER if (centre < 0) == (name in LOWER_IS_BETTER) else WORSE
