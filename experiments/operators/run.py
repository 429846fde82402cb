"""One profile: the same step in every arm, in turns, and where its time goes by operator.

Owns the order of the work and the shape of the result. Steps come from step_probe, operators from
core_engine/operator_profile.py, the verdict on a step's time from statistics.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from core_engine.config import EngineConfig
from core_engine.environment import cpu_name, dtype_name, resolve_threads
from core_engine.kernels.options import StepOptions
from core_engine.operator_profile import (
    Lap,
    OperatorMeter,
    StepProfile,
    operator_meter,
    quicker_half,
    step_profile,
)
from core_engine.operator_sources import OPERATORS
from experiments.calibrate import summary
from experiments.live import LiveReport
from experiments.loadgen import Cancelled, no_garbage_collection
from experiments.operators.spec import ProfileSpec, parse_step
from experiments.rig import Rig, busy_warning, machine
from experiments.statistics import CurveSamples, judge
from experiments.step_probe import ProbedStep, seconds_in_turns
from experiments.store import Store

LONGEST_S = 30.0  # of the timed steps of one arm, but for three
PROFILED = 3  # steps, where being profiled makes them slower


def run_profile(
    spec: ProfileSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
) -> dict[str, Any]:
    """Profile what a spec asks and return its JSON; the laps of each arm go to `store` (None: nowhere).

    Raises Cancelled when the user asked to stop, InputError and CannotRunError as the engine does.
    """
    checked = spec if isinstance(spec, ProfileSpec) else ProfileSpec.from_dict(spec)
    return _Profiling(checked, store, run_id, on_live, should_cancel, rig or Rig()).run()


class _Profiling:
    def __init__(
        self,
        spec: ProfileSpec,
        store: Store | None,
        run_id: str,
        on_live: Callable[[dict[str, Any]], None],
        should_cancel: Callable[[], bool],
        rig: Rig,
    ) -> None:
        self.spec, self.store, self.run_id, self.should_cancel, self.rig = spec, store, run_id, should_cancel, rig
        self.step = parse_step(spec.step)
        self.configs = spec.configs()
        self.around = machine()
        self.live = LiveReport(on_live, arms=len(self.configs), repeats=spec.repeats)
        self.runs = 0

    def run(self) -> dict[str, Any]:
        self.live.phase("loading")
        arms = []
        for config in self.configs:
            self._check()
            arms.append((config, self.rig.loaded(config)))
        meters = [operator_meter(loaded.decoder, _one_call(config)) for config, loaded in arms]
        disturbed = [arm for arm, meter in enumerate(meters) if meter.disturbs]
        self.live.repeats += (PROFILED + 1) * bool(disturbed)
        with no_garbage_collection():
            seconds = self._turns(arms, range(len(arms)), self.spec.repeats,
                                  [nullcontext() if meter.disturbs else meter for meter in meters])  # fmt: skip
            if disturbed:
                self._turns(arms, disturbed, PROFILED + 1, meters)
                for arm in disturbed:
                    del meters[arm].laps[0]  # the profiler's own first start is in it
        if self.store is not None:
            for arm, meter in enumerate(meters):
                laps = [asdict(lap) for lap in meter.laps]
                self.store.add_record(self.run_id, arm, 1, {"step_s": seconds[arm], "laps": laps})
        self.live.phase("done")
        return self._result(arms, seconds, meters)

    def _check(self) -> None:
        if self.should_cancel():
            raise Cancelled

    def _turns(
        self,
        arms: Sequence[tuple[EngineConfig, Any]],
        chosen: Sequence[int],
        repeats: int,
        meters: Sequence[AbstractContextManager[Any]],
    ) -> list[list[float]]:
        """Seconds of the step in the chosen arms, each with its meter open around it."""

        @contextmanager
        def watched(place: int) -> Iterator[None]:
            import torch

            arm = chosen[place]
            threads = resolve_threads(arms[arm][0].threads)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            self.live.begin_run(arm, self.runs // len(arms) + 1)
            with meters[arm]:
                yield
            self.runs += 1
            self.live.unit_done()

        def one_step(_: ProbedStep) -> None:
            self._check()

        return seconds_in_turns(
            [self.step],
            [arms[arm] for arm in chosen],
            repeats,
            longest_s=LONGEST_S,
            check=self._check,
            ran=one_step,
            watch=watched,
        )[0]

    # -- result --------------------------------------------------------------------------------------------------

    def _result(
        self, arms: Sequence[tuple[EngineConfig, Any]], seconds: Sequence[list[float]], meters: Sequence[OperatorMeter]
    ) -> dict[str, Any]:
        first = arms[0][1]
        warning = busy_warning(self.around)
        shown = [
            {"value": value, **arm_json(seconds[arm], meters[arm]), "kernels": loaded.kernels.kernels}
            for arm, (value, (_, loaded)) in enumerate(zip(self.spec.values(), arms, strict=True))
        ]
        return {
            "step": {"text": self.spec.step, **asdict(self.step)},
            "variable": None if self.spec.vary is None else self.spec.vary[0],
            "arms": shown,
            "changes": changes_json(shown, seconds),
            "repeats": len(seconds[0]),
            "settings": self.configs[0].settings(),
            "run_id": self.run_id,
            "environment": {
                "cpu": cpu_name(), **self.around, "dtype": dtype_name(first.weights.dtype),
                "device": first.weights.device.type, "threads": resolve_threads(self.configs[0].threads),
            },
            "warnings": [warning] if warning else [],
            "provenance": "measured",
        }  # fmt: skip


def _one_call(config: EngineConfig) -> bool:
    return StepOptions.from_config(config).one_call


def arm_json(seconds: Sequence[float], meter: OperatorMeter) -> dict[str, Any]:
    """One arm: {"counts","launches","host_calls","step_s","operators_s","outside_s","operators"}.

    outside_s: of the step in no operator: on a CPU the host's work and calls, on CUDA the device waiting. None
    for torch's operators on a CPU, where the profiler's own time is in theirs.
    """
    found = step_profile(meter.laps)
    return {
        "counts": meter.counts,
        "launches": found.launches,
        "host_calls": found.host_calls,
        "step_s": summary(list(seconds)),
        "operators_s": found.seconds,
        "outside_s": None if meter.counts == OPERATORS else _outside_s(seconds, meter.laps, found),
        "operators": [
            {
                "name": one.name,
                "launches": one.launches,
                "seconds": one.seconds,
                "share": one.seconds / found.seconds if found.seconds else None,
            }
            for one in found.operators
        ],
    }


def _outside_s(seconds: Sequence[float], laps: Sequence[Lap], found: StepProfile) -> float:
    """Of the steps that the operators' times are from, where the laps are of the timed steps. Never below 0."""
    if len(laps) == len(seconds):
        outside = fmean(seconds[place] - sum(laps[place].seconds.values()) for place in quicker_half(laps))
    else:
        outside = median(seconds) - found.seconds
    return max(0.0, outside)


def changes_json(arms: Sequence[Mapping[str, Any]], seconds: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """What each arm changes against the first: {"value","launches","host_calls","step_s"}; step_s is a curve's JSON.

    launches and host_calls are differences; launches is None where the two arms do not count the same thing.
    """
    if len(arms) < 2:
        return []
    curves = [
        CurveSamples(name="step_s", statistic="mean", better="lower", baseline=seconds[0], candidate=own)
        for own in seconds[1:]
    ]
    base = arms[0]
    return [
        {
            "value": arm["value"],
            "launches": _difference(base, arm, "launches"),
            "host_calls": _difference(base, arm, "host_calls"),
            "step_s": verdict.to_json(),
        }
        for arm, verdict in zip(arms[1:], judge(curves), strict=True)
    ]


def _difference(base: Mapping[str, Any], arm: Mapping[str, Any], key: str) -> int | None:
    if base["counts"] != arm["counts"] or base[key] is None or arm[key] is None:
        return None
    return int(arm[key] - base[key])
