"""Both arms of a comparison on the simulated engine, on the very requests that the comparison will send.

Owns which profile each arm runs on, and how far the outcome depends on what a profile may be off by: the arms are
simulated again on a machine that is faster or slower as a whole, on one whose large steps are cheaper or dearer, and
with the candidate's steps a little cheaper or dearer than the calibration says. The centre is the mean over these, so
that a queue that tips over by a hair does not decide; the scale is how far they lie apart, beside the noise of a
comparison.

An arm without a calibration of its own takes the baseline's efficiencies when the formats of weights or KV are all that
differs (`arithmetic`): bytes and operations then follow from the ledger, and how well its kernels do is a guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from core_engine.config import EngineConfig
from experiments.advisor.prediction_estimate import ARITHMETIC, SIMULATOR, TIMED, Estimate
from experiments.simulator.calibration import OF_A_STEP, profile_here
from experiments.simulator.deployment import Deployed, SimulateSpec, deployed
from experiments.spec import BenchSpec, CompareSpec
from experiments.summary import performance_curves
from experiments.targets.measure import measure
from experiments.targets.simulator import SimulatorTarget
from experiments.workloads import Workload
from ledger.device_profile import DeviceProfile, Efficiency
from ledger.errors import CannotRunError, InputError
from ledger.step_time import StepTimes

# How much faster or slower the machine may be than when it was calibrated, and how much cheaper or dearer steps of
# MANY_ROWS rows beside those of one: as much as the calibration is off by, within these.
LEAST_LEVEL, MOST_LEVEL = 0.10, 0.40
MANY_ROWS = 64
ONE_PROFILE_OFF, LEAST_OFF, MOST_OFF = 0.02, 0.05, 0.25  # of an arm against the other, as a share of a step's time
ARITHMETIC_OFF = 0.30
NOISE = {"ttft_s": 0.05, "itl_s": 0.04, "output_tokens_per_s": 0.02, "cost_per_request": 0.02}  # of five pairs
SIMULATED_SETTINGS = ("speculation", "tensor_parallel", "pipeline_parallel", "disaggregation")


@dataclass(frozen=True)
class Off:
    """A machine that is not quite as calibrated: all steps `level` times as long, large ones `tilt` times besides, and
    the candidate's `apart` times."""

    level: float = 1.0
    tilt: float = 1.0
    apart: float = 1.0


@dataclass(frozen=True)
class _Arm:
    spec: BenchSpec
    made: Deployed
    own: bool  # whether its calibration is its own


@dataclass(frozen=True)
class _Sent:
    """What both arms are sent, drawn once: the texts are the same, and cutting them takes longer than a simulation."""

    workload: Workload
    tokenizer: Any

    @classmethod
    def of(cls, arms: Sequence[_Arm], tokenizer: Any) -> _Sent:
        target = SimulatorTarget(arms[0].made, tokenizer)
        return cls(target.draw(arms[0].spec), tokenizer)


def simulated(spec: CompareSpec, tokenizer: Any = None) -> tuple[dict[str, Estimate], list[str]]:
    """(estimates of the timed curves, what a reader should know). CannotRunError where this machine is not calibrated
    for the baseline or the simulator has no model of what differs; InputError as the deployment."""
    _refuse_unknown(spec)
    arms = _arms(spec)
    sent = _Sent.of(arms, tokenizer or tokenizer_of(arms[0].spec.config()))
    ratios = [_ratios(arms, off, sent) for off in _machines(arms)]
    if any(ratio is None for ratio in ratios):
        raise CannotRunError("simulator: an arm answers no request")
    own = all(arm.own for arm in arms)
    source, provenance = (SIMULATOR, "simulated") if own else (ARITHMETIC, "computed")
    estimates = {}
    for name in TIMED:
        values = [ratio[name] for ratio in ratios if ratio is not None and name in ratio]
        if len(values) == len(ratios):
            basis = (
                f"both arms simulated on this machine's calibration, {len(values)} times with its times off a little"
            )
            scale = math.hypot(_spread(values), NOISE[name])
            estimates[name] = Estimate(fmean(values), scale, source, provenance, basis)
    return estimates, _told(arms)


def _refuse_unknown(spec: CompareSpec) -> None:
    """CannotRunError for what the simulator does not have on this machine."""
    for config in spec.configs():
        settings = config.settings()
        for name in SIMULATED_SETTINGS:
            usual = EngineConfig().settings()[name]
            if settings[name] != usual:
                raise CannotRunError(f"the simulator knows {name}={settings[name]} on this machine only when measured")


def _arms(spec: CompareSpec) -> tuple[_Arm, _Arm]:
    first, second = spec.arms()
    baseline = _deployed(first)
    try:
        return _Arm(first, baseline, True), _Arm(second, _deployed(second), True)
    except CannotRunError as error:
        borrowed = _borrowed(first, second, baseline)
        if borrowed is None:
            raise CannotRunError(str(error)) from None
        return _Arm(first, baseline, True), _Arm(second, borrowed, False)


def _deployed(spec: BenchSpec) -> Deployed:
    return deployed(SimulateSpec.from_dict({**_load(spec), "settings": spec.settings}))


def _load(spec: BenchSpec) -> dict[str, Any]:
    return {name: value for name, value in spec.to_dict().items() if name != "settings"}


# Settings of a step whose times follow from bytes and operations alone.
BY_BYTES = ("weights", "weight_group", "weight_symmetric", "head_weights", "kv_dtype", "kv_key_axis", "kv_protect",
            "block_size")  # fmt: skip


def _borrowed(first: BenchSpec, second: BenchSpec, baseline: Deployed) -> Deployed | None:
    """The second arm with the first one's efficiencies; None where anything but formats differs."""
    if not _differing(first.config(), second.config()) <= set(BY_BYTES):
        return None
    return _with_efficiencies_of(second, baseline)


def _differing(one: EngineConfig, other: EngineConfig) -> set[str]:
    """Settings that the time of a step depends on and the two don't share."""
    return {name for name in OF_A_STEP if one.settings()[name] != other.settings()[name]}


def _with_efficiencies_of(spec: BenchSpec, baseline: Deployed) -> Deployed:
    from core_engine.environment import dtype_name, resolve_device, resolve_dtype
    from experiments.simulator.calibration import formats_of
    from experiments.simulator.deployment import on_this_machine

    config = spec.config()
    dtype = dtype_name(resolve_dtype(config.dtype, resolve_device(config.device)))
    asked = SimulateSpec.from_dict({**_load(spec), "settings": spec.settings})
    return on_this_machine(asked, baseline.spec, config, baseline.profile, formats_of(config, dtype))


# -- machines that are not quite this one ------------------------------------------------------------------------


def _machines(arms: Sequence[_Arm]) -> list[Off]:
    off, level = _apart(arms), min(MOST_LEVEL, max(LEAST_LEVEL, _error(arms[0].spec.config())))
    return [
        Off(), Off(level=1 - level), Off(level=1 + level), Off(tilt=1 - level), Off(tilt=1 + level),
        Off(apart=1 - off), Off(apart=1 + off),
    ]  # fmt: skip


def _error(config: EngineConfig) -> float:
    """What the calibration of these settings is off by on steps that it did not see, as a share."""
    return float(profile_here(config)[1]["fit"]["cross_validated_error_pct"]["mean"]) / 100


def _apart(arms: Sequence[_Arm]) -> float:
    """By what share the candidate's step times may be off beside the baseline's."""
    one, other = (arm.spec.config() for arm in arms)
    if not all(arm.own for arm in arms):
        return ARITHMETIC_OFF if _differing(one, other) - {"block_size"} else LEAST_OFF
    if not _differing(one, other):
        return ONE_PROFILE_OFF
    return min(MOST_OFF, max(LEAST_OFF, _error(one), _error(other)))


def _spread(values: Sequence[float]) -> float:
    """Of the outcomes on machines that are off by about a standard deviation each, one way and the other: the root of
    the sum of what each pair moves."""
    pairs = [(values[place], values[place + 1]) for place in range(1, len(values) - 1, 2)]
    return math.hypot(*(max(abs(value - values[0]) for value in pair) for pair in pairs))


def scaled(profile: DeviceProfile, times: float, tilt: float) -> DeviceProfile:
    """The profile of a machine that takes so many times as long, and for MANY_ROWS rows `tilt` times that."""
    changed = {kind: _scaled(known, times, tilt) for kind, known in profile.efficiencies.items()}
    return replace(
        profile, efficiencies=changed, host_step_s=profile.host_step_s * times, host_row_s=profile.host_row_s * times
    )


def _scaled(known: Efficiency, times: float, tilt: float) -> Efficiency:
    slowdown = known.slowdown or ((1.0, 1.0), (8.0, 1.0), (float(MANY_ROWS), 1.0))
    tilted = tuple((rows, at * (1 + (tilt - 1) * _ramp(rows))) for rows, at in slowdown)
    return Efficiency(known.compute / times, known.memory / times, tilted)


def _ramp(rows: float) -> float:
    return min(1.0, math.log(max(1.0, rows)) / math.log(MANY_ROWS))


def _ratios(arms: Sequence[_Arm], off: Off, sent: _Sent) -> Mapping[str, float] | None:
    """ln of candidate / baseline of each curve on such a machine; None where an arm answers nothing."""
    baseline = _metrics(arms[0], off.level, off.tilt, sent)
    candidate = _metrics(arms[1], off.level * off.apart, off.tilt, sent)
    if not baseline["completed"] or not candidate["completed"]:
        return None
    pairs = {
        curve.name: (curve.baseline[0], curve.candidate[0]) for curve in performance_curves([[baseline], [candidate]])
    }
    return {name: math.log(new / old) for name, (old, new) in pairs.items() if old and new}


def _metrics(arm: _Arm, times: float, tilt: float, sent: _Sent) -> dict[str, Any]:
    made = arm.made
    profile = scaled(made.profile, times, tilt)
    steps = StepTimes(
        made.spec, profile, weights=made.times.weights, kv_dtype=made.times.kv_dtype, graph=made.times.graph,
        splits=made.times.splits, link=made.times.link,
    )  # fmt: skip
    target = SimulatorTarget(replace(made, profile=profile, times=steps), sent.tokenizer)
    return measure(arm.spec, target, sent.workload, around={}).metrics


def tokenizer_of(config: EngineConfig) -> Any:
    """The model's own tokenizer, its weights left where they are; None where the model can't be opened."""
    from core_engine.model.loader import open_model

    try:
        return open_model(config).tokenizer()
    except (CannotRunError, InputError):
        return None


def _told(arms: Sequence[_Arm]) -> list[str]:
    found = []
    if not all(arm.own for arm in arms):
        differing = " ".join(f"--set {name}={value}" for name, value in arms[1].spec.settings.items())
        found.append(
            "the candidate's efficiencies are taken to be the baseline's; "
            f"`trilemma calibrate --simulator {differing}` would measure them"
        )
    return found
