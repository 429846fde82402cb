"""The noise of repeated equal runs as a model to draw from: spread, correlation, autocorrelation, drift, tails.

Owns the estimate and the drawing. Knows no engine; takes the curves' values in the order in which the runs were made.

Of run t and curve c, ln(value) = level_c + drift_c (t - middle) + r_ct, with r_ct = phi_c r_c(t-1) + e_ct. Drift is the
least-squares line, phi the lag-1 autocorrelation of what is left, corrected for its bias with n values and a fitted
line (Kendall 1954: about -(1 + 4 phi) / n). The innovations e are kept as they were measured, one vector a run, and
drawn with replacement: so the tails and what the curves of one run share are those of the machine, not of a normal law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

# What varies independently; cost per request is throughput's, by its formula.
CURVES = ("ttft_s", "itl_s", "output_tokens_per_s")
MOST_PHI = 0.95  # nearer to 1 a series of some dozen runs can't tell autocorrelation from drift
FEWEST_RUNS = 12


@dataclass(frozen=True)
class NoiseModel:
    """Noise of a run in ln units, per curve of CURVES in that order.

    log_sd: of all runs about their mean, drift included. lag1: phi. drift_share: part of the variance that a line over
    the run order explains (0 to 1); drift_per_run: its slope; both 0 where the line may be chance. correlation: of the
    innovations. kurtosis: theirs, 3 for a normal law.
    innovations: [runs - 1][curves], centred.
    """

    runs: int
    log_sd: tuple[float, ...]
    lag1: tuple[float, ...]
    drift_share: tuple[float, ...]
    drift_per_run: tuple[float, ...]
    correlation: tuple[tuple[float, ...], ...]
    kurtosis: tuple[float, ...]
    innovations: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, runs: Sequence[Mapping[str, float]]) -> NoiseModel:
        """Estimate from runs in their order, each {curve: value above 0}; ValueError below FEWEST_RUNS."""
        if len(runs) < FEWEST_RUNS:
            raise ValueError(f"{len(runs)} runs are too few for a noise model; at least {FEWEST_RUNS}")
        logs = np.log(np.array([[run[name] for name in CURVES] for run in runs]))
        logs -= logs.mean(axis=0)
        order = np.arange(len(runs)) - (len(runs) - 1) / 2
        slope = order @ logs / (order @ order)
        rest = logs - np.outer(order, slope)
        raw = (rest[1:] * rest[:-1]).sum(axis=0) / (rest**2).sum(axis=0)
        phi = np.clip(raw + (1 + 4 * raw) / len(runs), 0.0, MOST_PHI)
        innovations = rest[1:] - phi * rest[:-1]
        innovations -= innovations.mean(axis=0)
        explained = 1 - rest.var(axis=0) / logs.var(axis=0)
        drifts = explained > 4 / (len(runs) + 2)  # F above 4: about 5 % of series without a drift pass for one with
        moments = (innovations**4).mean(axis=0) / (innovations**2).mean(axis=0) ** 2
        return cls(
            runs=len(runs),
            log_sd=_floats(logs.std(axis=0, ddof=1)),
            lag1=_floats(phi),
            drift_share=_floats(np.where(drifts, explained, 0.0)),
            drift_per_run=_floats(np.where(drifts, slope, 0.0)),
            correlation=tuple(_floats(row) for row in np.corrcoef(innovations.T)),
            kurtosis=_floats(moments),
            innovations=tuple(_floats(row) for row in innovations),
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NoiseModel:
        """The inverse of to_json."""
        return cls(**{name: _tuples(data[name]) for name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Any]:
        """Every field as JSON."""
        return asdict(self)

    def series(self, rng: np.random.Generator, scale: float = 1.0) -> Iterator[dict[str, float]]:
        """An endless series of runs: {curve: factor its value is multiplied with}, 1 in the middle.

        The first run stands where the autoregression has settled; drift begins there, upwards or downwards by chance.
        `scale` multiplies every deviation.
        """
        phi, innovations = np.array(self.lag1), np.array(self.innovations)
        drift = np.array(self.drift_per_run) * rng.choice((-1.0, 1.0))
        # Drawing e with replacement keeps its variance; r then has var(e) / (1 - phi^2), as the runs had.
        settle = math.ceil(math.log(1e-3) / math.log(max(0.05, float(phi.max()))))
        state = np.zeros(len(CURVES))
        for _ in range(settle):
            state = phi * state + innovations[rng.integers(len(innovations))]
        number = 0
        while True:
            state = phi * state + innovations[rng.integers(len(innovations))]
            yield dict(zip(CURVES, np.exp(scale * (state + drift * number)).tolist(), strict=True))
            number += 1


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in values)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
