"""The effects of a 2 x 2 experiment, judged by the rule of a comparison. Pure functions over the four arms' samples.

With y00 the baseline, y10 the first variable's candidate alone, y01 the second's and y11 both, all of one repeat:
- first alone y10 / y00, second alone y01 / y00, together y11 / y00;
- main effect of the first: sqrt(y10 y11 / (y00 y01)), over both values of the second; of the second alike;
- interaction: (y11 / y01) / (y10 / y00), what both give over what their gains multiplied would give. In ln units this
  is the interaction term of the two-way model, and 0 means that the two act independently.

Each is a ratio of two positive figures a repeat, so it goes through the same verdict as a comparison: interval, Holm's
correction over the five curves of that effect, noise floor (the arms' own, from all four), smallest detectable change.
Of the interaction "better" says more than the product, "worse" less: the two get in each other's way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from experiments.statistics import MIN_NOISE_FLOOR, CurveSamples, CurveVerdict, judge, noise_floor
from experiments.summary import performance_curves

Samples = Sequence[float | None]
Values = tuple[float, float, float, float]
# Arms in the order of FactorialSpec.arm_values: y00, y10, y01, y11.
Contrast = Callable[[Values], tuple[float, float]]
EFFECTS: dict[str, Contrast] = {
    "first_alone": lambda y: (y[0], y[1]),
    "second_alone": lambda y: (y[0], y[2]),
    "together": lambda y: (y[0], y[3]),
    "first": lambda y: (math.sqrt(y[0] * y[2]), math.sqrt(y[1] * y[3])),
    "second": lambda y: (math.sqrt(y[0] * y[1]), math.sqrt(y[2] * y[3])),
    "interaction": lambda y: (y[1] * y[2] / y[0], y[3]),
}
# What a 2 x 2 is run for; the others are read beside them.
ASKED = ("first", "second", "interaction")


def judge_effects(
    metrics: Sequence[Sequence[dict[str, Any]]], quality: Sequence[Samples], *, alpha: float
) -> dict[str, list[CurveVerdict]]:
    """Effect -> its five verdicts. metrics: [4 arms][repeats]; quality: [4 arms][requests], empty where unknown."""
    curves = {effect: _curves(metrics, quality, contrast) for effect, contrast in EFFECTS.items()}
    return {effect: judge(samples, alpha=alpha) for effect, samples in curves.items()}


def _curves(
    metrics: Sequence[Sequence[dict[str, Any]]], quality: Sequence[Samples], contrast: Contrast
) -> list[CurveSamples]:
    halves = zip(performance_curves(metrics[:2]), performance_curves(metrics[2:]), strict=True)
    found = []
    for low, high in halves:
        arms = (low.baseline, low.candidate, high.baseline, high.candidate)
        baseline, candidate = _contrasted(arms, contrast)
        found.append(
            CurveSamples(low.name, low.statistic, low.better, baseline, candidate, low.provenance, noise_floor(arms))
        )
    baseline, candidate = _contrasted(quality, contrast)
    return [*found, CurveSamples("quality", "mean", "higher", baseline, candidate, "measured", MIN_NOISE_FLOOR)]


def _contrasted(arms: Sequence[Samples], contrast: Contrast) -> tuple[list[float | None], list[float | None]]:
    """Both sides of a contrast for each repeat; None where an arm has no value."""
    pairs: list[tuple[float | None, float | None]] = []
    for y00, y10, y01, y11 in zip(*arms, strict=True):
        if not y00 or not y10 or not y01 or not y11:
            pairs.append((None, None))
        else:
            pairs.append(contrast((y00, y10, y01, y11)))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def readings(effects: dict[str, list[CurveVerdict]]) -> list[dict[str, Any]]:
    """One entry a curve: what each gives alone, what both give, and what their product would be (changes in %)."""
    found = []
    for place, together in enumerate(effects["together"]):
        first, second = effects["first_alone"][place], effects["second_alone"][place]
        interaction = effects["interaction"][place]
        found.append(
            {
                "curve": together.name,
                "better": together.better,
                "first_alone_pct": first.change_pct,
                "second_alone_pct": second.change_pct,
                "together_pct": together.change_pct,
                "product_pct": _product(first.change_pct, second.change_pct),
                "interaction_pct": interaction.change_pct,
                "interaction_ci95": None if interaction.ci95 is None else list(interaction.ci95),
                "verdict": interaction.verdict,
                "provenance": together.provenance,
            }
        )
    return found


def _product(first_pct: float | None, second_pct: float | None) -> float | None:
    if first_pct is None or second_pct is None:
        return None
    return 100 * ((1 + first_pct / 100) * (1 + second_pct / 100) - 1)
