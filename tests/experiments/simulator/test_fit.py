"""The fit finds what steps were made of, and is not led astray by a disturbed machine."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import median

import pytest

from experiments.simulator.design import design
from experiments.simulator.fit import Observation, fit
from ledger.device_profile import DeviceProfile, Efficiency
from ledger.errors import InputError
from ledger.hardware import accelerator
from ledger.model_spec import load_model_spec
from ledger.step_time import StepTimes

TRUE = DeviceProfile(
    "true",
    accelerator("l4"),
    {
        "linear": Efficiency(slowdown=((1, 1.6), (8, 2.5), (32, 1.3), (256, 1.8))),
        "attention_decode": Efficiency(slowdown=((1, 2.2),)),
        "attention_prefill": Efficiency(slowdown=((1, 3.0),)),
        "elementwise": Efficiency(slowdown=((1, 1.5),)),
        "sampling": Efficiency(slowdown=((1, 5.0),)),
    },
    host_step_s=0.0004,
    host_row_s=0.00003,
)
STEPS = design(max_num_seqs=8, max_tokens=256, longest=1024, capacity=16_384, block_size=16)
# None of the design's sizes.
OTHERS = (
    [(700, 1, 1, False)] * 5,
    [(90, 1, 1, False)] * 3,
    [(0, 200, 1, True)],
    [(320, 100, 1, True), *[(250, 1, 1, False)] * 4],
)


def times_of(profile: DeviceProfile = TRUE) -> StepTimes:
    return StepTimes(load_model_spec("smollm2-135m"), profile)


def observed(noise: float, held_up: float = 0.0) -> list[Observation]:
    """What a machine would measure, the median of seven: each step's time times a noise; a share takes three times as
    long."""
    rnd, times, found = random.Random(1), times_of(), []
    for step in STEPS:
        shape = times.shape(step.rows)
        factors = [rnd.lognormvariate(0, noise) * (3.0 if rnd.random() < held_up else 1.0) for _ in range(7)]
        found.append(Observation(shape, times.step_s(shape) * median(factors), step.group))
    return found


def worst_error(profile: DeviceProfile) -> float:
    fitted, true = times_of(profile), times_of()
    return max(abs(fitted.step_s(fitted.shape(rows)) / true.step_s(true.shape(rows)) - 1) for rows in OTHERS)


def test_steps_of_other_sizes_are_predicted() -> None:
    found = fit(times_of(), observed(noise=0.0))
    assert worst_error(found.profile) < 0.04
    assert found.to_json()["fitted_error_pct"]["mean"] < 1


def test_noise_and_steps_that_were_held_up_do_little() -> None:
    found = fit(times_of(), observed(noise=0.03, held_up=0.08))
    assert worst_error(found.profile) < 0.08


def test_no_coefficient_is_negative_and_the_cross_validated_error_is_not_the_smaller_one() -> None:
    found = fit(times_of(), observed(noise=0.05))
    slowdowns = [value for kept in found.profile.efficiencies.values() for _, value in kept.slowdown]
    assert min(slowdowns) >= 0 and found.profile.host_step_s >= 0 and found.profile.host_row_s >= 0
    linear = [value for _, value in found.profile.efficiency("linear").slowdown]
    assert min(linear) > 0.5  # nodes between the sizes that were measured are not forgotten
    shown = found.to_json()
    assert shown["observations"] == len(STEPS)
    assert shown["cross_validated_error_pct"]["mean"] >= shown["fitted_error_pct"]["mean"]


def test_the_design_stays_within_what_the_settings_allow() -> None:
    for seqs, tokens, longest, capacity in ((1, 16, 64, 80), (8, 256, 1024, 4096), (64, 2048, 8192, 20_000)):
        steps = design(max_num_seqs=seqs, max_tokens=tokens, longest=longest, capacity=capacity, block_size=16)
        kinds = set()
        for step in steps:
            assert len(step.rows) <= seqs + 1 and sum(count for _, count, _, _ in step.rows) <= tokens
            assert sum(start + count for start, count, _, _ in step.rows) <= capacity
            for start, count, _, is_prefill in step.rows:
                assert start + count <= longest and (not is_prefill or start % 16 == 0)
                kinds.add(is_prefill)
        assert kinds == {True, False}


def test_too_few_observations_are_refused() -> None:
    with pytest.raises(InputError, match="observations"):
        fit(times_of(), observed(0.0)[:5])
    assert replace(TRUE).label == "NVIDIA L4 (uncalibrated)"
