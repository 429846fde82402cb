"""Percentiles and the verdict rule of a comparison.

Owns: linear-interpolation percentiles, the paired log-ratio interval, Holm's correction and the four verdicts.
Must not know: the engine, the store, or where the samples came from.

The rule, per curve, on d_i = ln(candidate_i / baseline_i) over the pairs i:
- interval of mean(d): Student t up to 9 pairs; from 10 the percentile bootstrap, its tails widened for small samples
  (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", expanded percentile interval). The plain
  percentile interval at 10 pairs covers about 90 % instead of 95 %, which is too many false alarms.
- `better` / `worse`: Holm-adjusted p below alpha over all curves, and |median change| beyond the noise floor, in ln
  units: a halving is as large a change as a doubling;
- `no difference`: the 95 % interval lies inside +-max(noise floor, 5 %), but never wider than +-20 %: nobody takes a
  change of a third for no difference, however loud the machine;
- `inconclusive`: anything else, with an estimate of the repeats it would take.

Beside each verdict stands the smallest true change that would have been called in 8 of 10 such comparisons: the shift
at which the t test of the pairs, at alpha over the number of curves (Holm's hardest step), has power 0.8 by the
noncentral t distribution, or that at which the median passes the noise floor as often, whichever is more.

`--repeats auto` looks after 3, 5, 8, 12 and 20 pairs. Alpha is spent in proportion to the pairs seen (Lan and DeMets
1983, "Discrete Sequential Boundaries for Clinical Trials", their second function): 15, 25, 40, 60 and 100 % of it by
each look. AUTO_ALPHAS are the levels that spend so much of alpha / 5, times 5, for paired normal differences, rounded
down; at alpha / 5, since Holm begins there with five curves and the levels of a smaller alpha are smaller parts of it.
A test repeats that simulation. Equal parts of alpha would find 83 % of the changes of one standard deviation that this
finds 88 % of; O'Brien and Fleming's would find 93 %, but next to none within 5 pairs, however large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Any, TypeGuard

ALPHA = 0.05
MIN_NOISE_FLOOR = 0.01
EQUIVALENCE_MARGIN = 0.05
WIDEST_MARGIN = 0.20
POWER = 0.8
BOOTSTRAP_FROM = 10
BOOTSTRAP_RESAMPLES = 20_000
# Of so many values the two intervals agree, and resampling 1,000 of them would take 160 MB.
BOOTSTRAP_TO = 100
# Fewer resamples than this beyond zero are too few to read a tail probability from; the t tail stands in.
MIN_TAIL_COUNT = 10
MAX_REPEATS = 20
# `--repeats auto` looks at the data after these many repeats. Looking often and stopping at the first hit would raise
# the false-alarm rate (about 3 times at 16 looks), so each look has its own, smaller alpha; see above.
AUTO_LOOKS = (3, 5, 8, 12, 20)
AUTO_ALPHAS = (0.0075, 0.0050, 0.0080, 0.0120, 0.0225)
# Spread below this (in ln units) is float rounding, not measurement noise.
_ZERO_SPREAD = 1e-12
_MAX_ESTIMATED_REPEATS = 1000
_Z_POWER = 0.8416  # the normal quantile of POWER
_MEDIAN_ERROR = math.sqrt(math.pi / 2)


@dataclass(frozen=True)
class CurveSamples:
    """One curve's paired samples: `baseline[i]` and `candidate[i]` belong to the same repeat (or request).

    Values are positive numbers in one unit; None marks a missing value, whose pair is left out. `better` is "lower" or
    "higher". `noise_floor` (a fraction, 0.03 = 3 %) replaces the measured floor where successive samples are not
    repeats of one thing, as when the pairs are requests.
    """

    name: str
    statistic: str
    better: str
    baseline: Sequence[float | None]
    candidate: Sequence[float | None]
    provenance: str = "measured"
    noise_floor: float | None = None


@dataclass(frozen=True)
class CurveVerdict:
    """What the samples of one curve say. Percentages are changes of the candidate against the baseline.

    `baseline`, `candidate` are geometric means over the pairs used, so `change_pct` = candidate / baseline - 1 exactly.
    `p_adjusted` is Holm's over the curves judged together. `min_detectable_pct` is the smallest change upwards that
    would have been called with power 0.8. A figure that cannot be formed is None.
    """

    name: str
    statistic: str
    better: str
    baseline: float | None
    candidate: float | None
    change_pct: float | None
    median_change_pct: float | None
    ci95: tuple[float, float] | None
    baseline_ci95: tuple[float, float] | None
    candidate_ci95: tuple[float, float] | None
    noise_floor_pct: float | None
    min_detectable_pct: float | None
    verdict: str
    provenance: str
    pairs: int
    pairs_left_out: int
    method: str | None
    p_adjusted: float | None
    repeats_needed: int | None
    reason: str

    def to_json(self, **extra: Any) -> dict[str, Any]:
        """The curve as the `compare` JSON has it (intervals as two-element lists), with `extra` keys added."""
        data = dict(self.__dict__)
        for key in ("ci95", "baseline_ci95", "candidate_ci95"):
            data[key] = None if data[key] is None else list(data[key])
        return {**data, **extra}


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile (0 <= q <= 100) by linear interpolation between order statistics; None without values.

    Position (n - 1) q / 100, as numpy's default; clamped, so that rounding never leaves [min, max].
    """
    if not 0 <= q <= 100:
        raise ValueError(f"q must be within 0..100, got {q}")
    if not values:
        return None
    ordered = sorted(values)
    position = (len(ordered) - 1) * q / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    value = ordered[low] + (ordered[high] - ordered[low]) * (position - low)
    return min(max(value, ordered[low]), ordered[high])


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given; comparing them with alpha keeps the family-wise rate."""
    count = len(p_values)
    adjusted = [0.0] * count
    running = 0.0
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def noise_floor(arms: Sequence[Sequence[float | None]]) -> float | None:
    """Noise floor of a curve as a fraction: max(1 %, median |change| between successive repeats of the same arm).

    Changes are |ln(x[i+1] / x[i])| of every arm, pooled. None when no arm has two successive usable values.
    """
    changes = [
        abs(math.log(later / earlier))
        for arm in arms
        for earlier, later in pairwise(arm)
        if _usable(earlier) and _usable(later)
    ]
    return max(MIN_NOISE_FLOOR, math.expm1(median(changes))) if changes else None


def judge(curves: Sequence[CurveSamples], *, alpha: float = ALPHA) -> list[CurveVerdict]:
    """One verdict a curve, Holm-corrected over all `curves`; `alpha` is the family-wise false-alarm rate.

    Raises ValueError for arms of different length or an unknown `better`.
    """
    tests = [_Test.of(curve) for curve in curves]
    testable = [test for test in tests if test.p is not None]
    adjusted = dict(zip(map(id, testable), holm([test.p for test in testable if test.p is not None]), strict=True))
    return [test.verdict(adjusted.get(id(test)), alpha, len(testable)) for test in tests]


def alpha_at(pairs: int) -> float:
    """The family-wise alpha of a look of `--repeats auto` after so many pairs; between looks that of the one before.

    That of the first look below it, where only a cancelled comparison is judged.
    """
    passed = [alpha for look, alpha in zip(AUTO_LOOKS, AUTO_ALPHAS, strict=True) if look <= pairs]
    return passed[-1] if passed else AUTO_ALPHAS[0]


def alpha_of(repeats_asked: int | None, pairs: int) -> float:
    """The family-wise alpha of curves after so many pairs; repeats_asked None is "auto", which looks several times."""
    return alpha_at(pairs) if repeats_asked is None else ALPHA


def decided(verdicts: Sequence[CurveVerdict]) -> bool:
    """True when no curve is inconclusive, which is where `--repeats auto` stops."""
    return all(verdict.verdict != "inconclusive" for verdict in verdicts)


@dataclass(frozen=True)
class MeanInterval:
    """A mean, its 95 % interval and the two-sided p of "the mean is 0"; `method` names the interval."""

    mean: float
    low: float
    high: float
    p: float
    method: str


def mean_interval(values: Sequence[float]) -> MeanInterval | None:
    """Of paired differences, None below two: as curves have it, but Student t again from BOOTSTRAP_TO values on."""
    if len(values) < 2:
        return None
    found = _interval(values) if len(values) < BOOTSTRAP_TO else _t_interval(values)
    return MeanInterval(fmean(values), found.low, found.high, found.p, found.method)


def _usable(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and value > 0


def _percent(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)


def _t_quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


@lru_cache(maxsize=256)
def _detected(alpha: float, degrees: int) -> float:
    """Shift of the mean, in standard errors, that a two-sided t test at `alpha` finds with POWER."""
    from scipy.special import nctdtrinc

    return float(nctdtrinc(degrees, 1 - POWER, _t_quantile(1 - alpha / 2, degrees)))


def _t_two_sided(t: float, degrees: int) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -abs(t)))


@dataclass(frozen=True)
class _Interval:
    low: float
    high: float
    p: float
    method: str


def _t_interval(values: Sequence[float]) -> _Interval:
    """95 % Student interval of the mean, and the two-sided p of mean = 0; values in ln units, at least two."""
    centre, spread, n = fmean(values), stdev(values), len(values)
    if spread < _ZERO_SPREAD:
        return _Interval(centre, centre, 1.0 if abs(centre) < _ZERO_SPREAD else 0.0, "exact (no spread)")
    error = spread / math.sqrt(n)
    half = _t_quantile(0.975, n - 1) * error
    return _Interval(centre - half, centre + half, _t_two_sided(centre / error, n - 1), "Student t")


@lru_cache(maxsize=4)
def _resampling_weights(n: int) -> Any:
    """[BOOTSTRAP_RESAMPLES, n]: weight of each of n values in each resample's mean; seeded and kept (3 MB at 20)."""
    import numpy as np

    return np.random.default_rng(20_260_101).multinomial(n, [1 / n] * n, size=BOOTSTRAP_RESAMPLES) / n


def _bootstrap_interval(values: Sequence[float]) -> _Interval:
    """95 % expanded percentile bootstrap interval of the mean (seeded: a result can be recomputed), and its p."""
    import numpy as np
    from scipy.special import ndtr, ndtri

    student = _t_interval(values)
    if student.low == student.high:
        return student
    n = len(values)
    widen = math.sqrt(n / (n - 1))
    means = _resampling_weights(n) @ np.asarray(values)
    tail = float(ndtr(-widen * _t_quantile(0.975, n - 1)))
    low, high = (float(x) for x in np.quantile(means, [tail, 1 - tail]))
    beyond = int(min((means <= 0).sum(), (means >= 0).sum()))
    if beyond < MIN_TAIL_COUNT:
        p = student.p
    else:
        p = min(1.0, _t_two_sided(float(ndtri(min(0.5, beyond / BOOTSTRAP_RESAMPLES))) / widen, n - 1))
    return _Interval(low, high, p, "bootstrap")


def _interval(values: Sequence[float]) -> _Interval:
    return _bootstrap_interval(values) if len(values) >= BOOTSTRAP_FROM else _t_interval(values)


def _arm_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of an arm's geometric mean, in the curve's unit; None below two values."""
    if len(values) < 2:
        return None
    interval = _interval([math.log(value) for value in values])
    return math.exp(interval.low), math.exp(interval.high)


@dataclass(frozen=True, eq=False)
class _Test:
    """One curve's pairs with their interval, before the correction over curves."""

    curve: CurveSamples
    baseline: list[float]
    candidate: list[float]
    logs: list[float]
    interval: _Interval | None
    floor: float | None

    @classmethod
    def of(cls, curve: CurveSamples) -> _Test:
        if len(curve.baseline) != len(curve.candidate):
            sizes = f"{len(curve.baseline)} baseline and {len(curve.candidate)} candidate samples"
            raise ValueError(f"{curve.name}: {sizes}")
        if curve.better not in ("lower", "higher"):
            raise ValueError(f"{curve.name}: better must be 'lower' or 'higher', got {curve.better!r}")
        pairs = [(b, c) for b, c in zip(curve.baseline, curve.candidate, strict=True) if _usable(b) and _usable(c)]
        logs = [math.log(c / b) for b, c in pairs]
        floor = curve.noise_floor if curve.noise_floor is not None else noise_floor([curve.baseline, curve.candidate])
        interval = _interval(logs) if len(logs) >= 2 else None
        return cls(curve, [b for b, _ in pairs], [c for _, c in pairs], logs, interval, floor)

    @property
    def p(self) -> float | None:
        return None if self.interval is None else self.interval.p

    def verdict(self, p_adjusted: float | None, alpha: float, family: int) -> CurveVerdict:
        logs, interval = self.logs, self.interval
        word, reason = self._decide(p_adjusted, alpha)
        return CurveVerdict(
            name=self.curve.name,
            statistic=self.curve.statistic,
            better=self.curve.better,
            baseline=_geometric_mean(self.baseline),
            candidate=_geometric_mean(self.candidate),
            change_pct=_percent(fmean(logs)) if logs else None,
            median_change_pct=_percent(median(logs)) if logs else None,
            ci95=None if interval is None else (_percent(interval.low), _percent(interval.high)),
            baseline_ci95=_arm_interval(self.baseline),
            candidate_ci95=_arm_interval(self.candidate),
            noise_floor_pct=None if self.floor is None else 100 * self.floor,
            min_detectable_pct=self._min_detectable_pct(alpha, family),
            verdict=word,
            provenance=self.curve.provenance,
            pairs=len(logs),
            pairs_left_out=len(self.curve.baseline) - len(logs),
            method=None if interval is None else interval.method,
            p_adjusted=p_adjusted,
            repeats_needed=self._repeats_needed(alpha, family) if word == "inconclusive" else None,
            reason=reason,
        )

    def _decide(self, p_adjusted: float | None, alpha: float) -> tuple[str, str]:
        if self.interval is None or p_adjusted is None or self.floor is None:
            return "inconclusive", "fewer than two usable pairs"
        middle, margin_pct = median(self.logs), 100 * self._margin(self.floor)
        if p_adjusted < alpha and abs(middle) > math.log1p(self.floor):
            good = (middle < 0) == (self.curve.better == "lower")
            return ("better" if good else "worse"), "interval excludes 0 and the median is beyond the noise floor"
        if _percent(self.interval.low) >= -margin_pct and _percent(self.interval.high) <= margin_pct:
            return "no difference", f"interval inside +-{margin_pct:.3g} %"
        if self.floor > WIDEST_MARGIN:
            return "inconclusive", (
                f"repeats of one arm differ by {100 * self.floor:.3g} %, more than the {100 * WIDEST_MARGIN:.0f} % "
                "that could still be called no difference: the machine was too busy"
            )
        if p_adjusted < alpha:
            return "inconclusive", "interval excludes 0, but the median is within the noise floor"
        return "inconclusive", f"interval neither excludes 0 nor lies inside +-{margin_pct:.3g} %"

    @staticmethod
    def _margin(floor: float) -> float:
        """Half-width within which a change counts as none, as a fraction."""
        return min(WIDEST_MARGIN, max(floor, EQUIVALENCE_MARGIN))

    def _min_detectable_pct(self, alpha: float, family: int) -> float | None:
        """The smallest change called with POWER, in %; None below two pairs."""
        if self.interval is None or self.floor is None:
            return None
        n, spread = len(self.logs), stdev(self.logs)
        if spread < _ZERO_SPREAD:
            return 100 * self.floor
        error = spread / math.sqrt(n)
        to_be_significant = _detected(alpha / max(1, family), n - 1) * error
        # The median of n normal values has about 1.2533 times the standard error of their mean.
        to_pass_the_floor = math.log1p(self.floor) + _Z_POWER * _MEDIAN_ERROR * error
        return _percent(max(to_be_significant, to_pass_the_floor))

    def _repeats_needed(self, alpha: float, family: int) -> int | None:
        """Smallest number of pairs that would decide, if mean, median and spread stayed so; None if unknown."""
        if self.interval is None or self.floor is None:
            return None
        centre, spread, beyond = fmean(self.logs), stdev(self.logs), abs(median(self.logs)) > math.log1p(self.floor)
        margin = math.log1p(self._margin(self.floor))
        for n in range(len(self.logs) + 1, _MAX_ESTIMATED_REPEATS + 1):
            error = spread / math.sqrt(n)
            excludes = abs(centre) > _t_quantile(1 - alpha / family / 2, n - 1) * error
            inside = abs(centre) + _t_quantile(0.975, n - 1) * error <= margin
            if (excludes and beyond) or inside:
                return n
        return None


def _geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(fmean(math.log(value) for value in values)) if values else None
