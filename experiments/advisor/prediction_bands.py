"""How wide an 80 % band has to be: by how far earlier predictions of the same source were off, in their own scales.

Split conformal prediction with scaled residuals (Lei et al. 2018, "Distribution-Free Predictive Inference for
Regression", section 5): the half-width is the scale times the 80th percentile of |outcome - centre| / scale over
earlier outcomes. Until there are enough of them ASSUMED residuals of a normal distribution stand beside them, so that
the first bands are those of the scale itself and every outcome moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

from experiments.advisor.prediction_estimate import QUALITY
from experiments.advisor.prediction_history import Past
from experiments.statistics import percentile

COVERAGE = 0.80
ASSUMED = 10  # residuals that stand for what is not measured yet
ENOUGH = 15  # outcomes of one curve, from which on it has a factor of its own
WIDEST = 6.0


def band_factor(source: str, curve: str, past: Sequence[Past]) -> float:
    """By how much a source's scale is to be multiplied so that the band holds 80 % of the outcomes of `curve`."""
    own = [z for one in past if (z := one.residual(curve, source)) is not None]
    measured = own if len(own) >= ENOUGH else _pooled(source, curve, past)
    known = [*measured, *assumed(ASSUMED)]
    found = percentile(known, min(100.0, 100 * COVERAGE * (len(known) + 1) / len(known)))
    assert found is not None
    return min(WIDEST, found)


def assumed(count: int) -> list[float]:
    """Evenly likely sizes of a normal residual, in standard deviations."""
    return [NormalDist().inv_cdf((1 + (place - 0.5) / count) / 2) for place in range(1, count + 1)]


def _pooled(source: str, curve: str, past: Sequence[Past]) -> list[float]:
    """Residuals of every curve of the kind: quality by itself. Cost is throughput again and would count twice."""
    names = (QUALITY,) if curve == QUALITY else ("ttft_s", "itl_s", "output_tokens_per_s")
    return [z for one in past for name in names if (z := one.residual(name, source)) is not None]
