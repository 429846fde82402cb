"""False alarms and power on a mock target with measured noise, through the whole of a comparison."""

from __future__ import annotations

import math

import numpy as np
import pytest
from noise_model import CURVES, NoiseModel

from experiments import loadgen
from experiments.statistics import AUTO_LOOKS
from tests.experiments.fakes import VirtualClock
from tests.experiments.noisy import THROUGHPUT, called, measured_noise, noisy_comparison

# 5 % can be told only where repeats of one arm differ by less: the noise floor is 0.95 standard deviations of a run.
LOUDEST_FOR_FIVE_PERCENT = 0.025


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    made = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)  # 0.1 s with torch loaded, thousands of runs
    return made


def made_runs(runs: int, *, phi: float, sd: float, drift: float, seed: int = 0) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    state, found = 0.0, []
    for number in range(runs):
        state = phi * state + rng.normal(0, sd)
        shared = state + drift * number
        found.append({name: math.exp(shared + rng.normal(0, sd / 10)) for name in CURVES})
    return found


def test_the_model_finds_the_noise_that_was_put_in():
    model = NoiseModel.of(made_runs(4000, phi=0.6, sd=0.03, drift=0.0))
    assert model.lag1 == pytest.approx([0.6] * 3, abs=0.05)
    assert model.log_sd == pytest.approx([0.03 / math.sqrt(1 - 0.36)] * 3, rel=0.05)
    assert model.drift_share == pytest.approx([0.0] * 3, abs=0.01)
    assert min(min(row) for row in model.correlation) > 0.95
    assert model.kurtosis == pytest.approx([3.0] * 3, abs=0.3)
    drifting = NoiseModel.of(made_runs(400, phi=0.0, sd=0.03, drift=0.001))
    assert drifting.drift_per_run == pytest.approx([0.001] * 3, rel=0.1)
    assert min(drifting.drift_share) > 0.8 and max(drifting.lag1) < 0.1


def test_what_is_drawn_has_the_noise_of_the_model():
    model = NoiseModel.of(made_runs(400, phi=0.5, sd=0.03, drift=0.0))
    for seed in range(3):
        series = model.series(np.random.default_rng(seed))
        again = NoiseModel.of([next(series) for _ in range(400)])
        assert again.lag1 == pytest.approx(model.lag1, abs=0.15)
        assert again.log_sd == pytest.approx(model.log_sd, rel=0.2)
        assert np.array(again.correlation) == pytest.approx(np.array(model.correlation), abs=0.05)
    assert NoiseModel.from_json(model.to_json()) == model
    with pytest.raises(ValueError, match="too few"):
        NoiseModel.of(made_runs(5, phi=0.0, sd=0.1, drift=0.0))


def test_the_mock_target_has_the_curves_that_it_is_told(clock):
    model, _ = measured_noise()
    series = model.series(np.random.default_rng(7))
    # Two warm-ups come first, one engine an arm; then A B.
    factors = [next(series) for _ in range(4)][2:]
    result = noisy_comparison(clock, model, 7, repeats=1, slower=1.2)
    for name in CURVES:
        curve = next(curve for curve in result["curves"] if curve["name"] == name)
        slower = 1 / 1.2 if name == THROUGHPUT else 1.2
        expected = factors[1][name] / factors[0][name] * slower
        assert 1 + curve["change_pct"] / 100 == pytest.approx(expected, rel=1e-3), name


def test_equal_arms_are_rarely_called_different_and_a_tenth_is_found(clock):
    """The slow test below in small: 20 comparisons each. Two of 20 is what 4 % false alarms pass in 95 of 100 draws."""
    model, _ = measured_noise()
    alarms = sum(called(noisy_comparison(clock, model, s, repeats=5), "better", "worse") for s in range(20))
    assert alarms <= 2
    scale = LOUDEST_FOR_FIVE_PERCENT / 2 / model.log_sd[CURVES.index(THROUGHPUT)]
    found = sum(
        called(noisy_comparison(clock, model, s, repeats=5, slower=1.10, scale=scale), "worse") for s in range(10)
    )
    assert found >= 9


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [5, "auto"])
def test_at_most_16_of_200_comparisons_of_equal_arms_call_a_curve_different(clock, repeats):
    model, _ = measured_noise()
    alarms = sum(called(noisy_comparison(clock, model, s, repeats=repeats), "better", "worse") for s in range(200))
    print(f"{alarms} of 200 with a better or worse curve, repeats {repeats}")
    assert alarms <= 16


@pytest.mark.slow
@pytest.mark.parametrize(("slower", "repeats"), [(1.05, "auto"), (1.10, 5)])
@pytest.mark.parametrize("noise", ["as measured", "measured, at 2.5 %"])
def test_a_planted_slowdown_is_found_nine_times_in_ten(clock, slower, repeats, noise):
    """At 2.5 % a run the noise is scaled, its tails, correlations and autocorrelation are those measured."""
    model, file = measured_noise()
    sd = model.log_sd[CURVES.index(THROUGHPUT)]
    scale = 1.0 if noise == "as measured" else LOUDEST_FOR_FIVE_PERCENT / sd
    if scale * sd > LOUDEST_FOR_FIVE_PERCENT * 1.001:
        pytest.skip(f"runs vary by {100 * sd:.1f} % ({file['note']}): no 5 % can be told within such a noise floor")
    results = [noisy_comparison(clock, model, s, repeats=repeats, slower=slower, scale=scale) for s in range(200)]
    found = sum(called(result, "worse") and not called(result, "better") for result in results)
    print(f"{found} of 200 found at {slower}, repeats {repeats}, noise {noise}")
    assert all(result["repeats"] <= AUTO_LOOKS[-1] for result in results)
    assert found >= 180
