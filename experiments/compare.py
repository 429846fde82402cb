"""One-variable comparison: interleaved repeats of two arms, the five curves and their verdicts.

Owns the order of runs and when to stop. Statistics, metrics and engines are others' work.

- Every repeat runs the same drawn workload in both arms, in the order A B, B A, A B, ... so that a slow drift of the
  machine falls on both alike.
- Both arms are warmed up before anything is counted; every run has a fresh engine with an empty pool.
- With repeats "auto" the curves are judged after 3, 5, 8, 12 and 20 repeats; the comparison stops at the first look
  at which none that repeats can change is inconclusive. Alpha is spent over the looks (see experiments.statistics).
- Quality is deterministic (greedy), so it is measured once, after the first look; its pairs are requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from core_engine.variables import variable
from experiments.foresight import foreseen, never_drafted
from experiments.live import LiveReport
from experiments.loadgen import Cancelled
from experiments.quality.agreement import unknown
from experiments.rig import Rig, WarmUp, busy_warning, machine
from experiments.spec import CompareSpec, parse_vary
from experiments.statistics import ALPHA, MIN_NOISE_FLOOR, CurveSamples, CurveVerdict, alpha_at, decided, judge
from experiments.store import Store
from experiments.summary import over_repeats, performance_curves
from experiments.targets import measure, target_for
from experiments.workloads import Workload

__all__ = ["CompareSpec", "ComparisonCancelled", "parse_vary", "run_comparison"]

KERNELS_TOLD = ("kernels", "kernels_reason", "vector_bits", "instructions", "captured")  # what an arm ran with
BASELINE, CANDIDATE = 0, 1


class ComparisonCancelled(Cancelled):
    """Cancelled by the user; `result` is the comparison of the finished pairs, None with fewer than two."""


def run_comparison(
    spec: CompareSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
) -> dict[str, Any]:
    """Measure a comparison and return its JSON (design, section 5). Records go to `store` (None: nowhere) as they come.

    on_live gets the live object at most 4 times a second. Raises ComparisonCancelled with what is there, and InputError
    or CannotRunError when the engine refuses the settings.
    """
    checked = spec if isinstance(spec, CompareSpec) else CompareSpec.from_dict(spec)
    return _Comparison(checked, store, run_id, on_live, should_cancel, rig or Rig()).run()


class _Comparison:
    def __init__(
        self,
        spec: CompareSpec,
        store: Store | None,
        run_id: str,
        on_live: Callable[[dict[str, Any]], None],
        should_cancel: Callable[[], bool],
        rig: Rig,
    ) -> None:
        self.spec = spec
        self.store = store
        self.run_id = run_id
        self.should_cancel = should_cancel
        self.targets = tuple(target_for(arm, rig) for arm in spec.arms())
        self.live = LiveReport(on_live, arms=2, repeats=spec.looks()[0], extra_units=1)
        self.machine = machine()
        self.workloads: list[Workload] = []
        self.warm_ups: list[WarmUp] = []
        self.metrics: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
        self.first_records: dict[int, dict[str, Any]] = {}
        self.quality = unknown("not measured yet")

    def run(self) -> dict[str, Any]:
        try:
            self._prepare()
            verdicts = self._repeat_until_decided()
        except Cancelled:
            pairs = self._pairs()
            raise ComparisonCancelled(self._result(self._judge(), cancelled=True) if pairs >= 2 else None) from None
        self.live.phase("done")
        return self._result(verdicts)

    def _prepare(self) -> None:
        self.live.phase("loading")
        for target in self.targets:
            self._check_cancel()
            self.workloads.append(target.draw(self.spec))
        for arm, target in enumerate(self.targets):
            self.live.phase("warmup", arm=arm)
            self.warm_ups.append(target.warm_up(self.workloads[arm], self.should_cancel))

    def _check_cancel(self) -> None:
        if self.should_cancel():
            raise Cancelled

    def _repeat_until_decided(self) -> list[CurveVerdict]:
        verdicts: list[CurveVerdict] = []
        for look in self.spec.looks():
            self.live.repeats = look
            while self._pairs() < look:
                self._repeat(self._pairs() + 1)
            if not verdicts:
                self._measure_quality()
            verdicts = self._judge()
            # More repeats change nothing about quality: it neither prolongs nor ends a comparison.
            if decided([verdict for verdict in verdicts if verdict.name != "quality"]):
                break
        return verdicts

    def _pairs(self) -> int:
        return min(len(self.metrics[BASELINE]), len(self.metrics[CANDIDATE]))

    def _repeat(self, repeat: int) -> None:
        for arm in (BASELINE, CANDIDATE) if repeat % 2 else (CANDIDATE, BASELINE):
            self._check_cancel()
            self._run(arm, repeat)

    def _run(self, arm: int, repeat: int) -> None:
        target = self.targets[arm]
        measured = measure(
            self.spec,
            target,
            self.workloads[arm],
            around=self.machine,
            on_begin=lambda: self.live.begin_run(arm, repeat),
            on_progress=lambda progress: self.live.tick(target, progress),
            should_cancel=self.should_cancel,
        )
        if self.store is not None:
            self.store.add_record(self.run_id, arm, repeat, measured.record)
        self.first_records.setdefault(arm, measured.record)
        self.metrics[arm].append(measured.metrics)
        self.live.end_run(measured.metrics["output_tokens_per_s"])

    def _measure_quality(self) -> None:
        baseline, candidate = self.targets
        self.quality = baseline.agreement(
            candidate,
            (self.workloads[BASELINE], self.workloads[CANDIDATE]),
            (self.first_records[BASELINE], self.first_records[CANDIDATE]),
            self._on_quality,
        )
        self.live.unit_done()

    def _on_quality(self, arm: int, fraction: float) -> None:
        if fraction == 0:
            self.live.phase("quality", arm=arm)
            return
        self.live.unit_part((arm + fraction) / 2)
        self._check_cancel()

    # -- result --------------------------------------------------------------------------------------------------

    def _judge(self) -> list[CurveVerdict]:
        return judge(self._curves(self._pairs()), alpha=self._alpha())

    def _alpha(self) -> float:
        """The family-wise false-alarm rate of the curves as they stand."""
        return alpha_at(self._pairs()) if self.spec.repeats is None else ALPHA

    def _curves(self, pairs: int) -> list[CurveSamples]:
        quality = CurveSamples(
            name="quality",
            statistic="mean",
            better="higher",
            baseline=self.quality.probabilities(BASELINE),
            candidate=self.quality.probabilities(CANDIDATE),
            # Pairs are requests: their spread says nothing of noise, so the floor is the least one.
            noise_floor=MIN_NOISE_FLOOR,
        )
        return [*performance_curves([arm[:pairs] for arm in self.metrics]), quality]

    def _result(self, verdicts: list[CurveVerdict], *, cancelled: bool = False) -> dict[str, Any]:
        pairs = self._pairs()
        samples = {curve.name: curve for curve in self._curves(pairs)}
        spec = self.spec
        return {
            "variable": spec.variable,
            "derived": self._derived(),
            "arms": [self._arm(arm, pairs) for arm in (BASELINE, CANDIDATE)],
            "curves": [
                verdict.to_json(
                    candidate_value=spec.values[CANDIDATE],
                    samples={"baseline": list(samples[verdict.name].baseline),
                             "candidate": list(samples[verdict.name].candidate)},
                    pairs_are="requests" if verdict.name == "quality" else "repeats",
                )
                for verdict in verdicts
            ],
            "quality": self.quality.to_json(),
            "repeats": pairs,
            "repeats_asked": "auto" if spec.repeats is None else spec.repeats,
            "alpha": self._alpha(),
            "run_id": self.run_id,
            "cancelled": cancelled,
            "workload": self.workloads[BASELINE].describe(),
            "held_equal": {k: v for k, v in spec.configs()[0].settings().items() if k != spec.variable},
            "held_because": spec.held_because(),
            "price_per_device_hour": spec.price_per_device_hour,
            "price_provenance": "assumed",
            "slo": spec.slo,
            "guess_pct": spec.guess_pct,
            "warm_up": [{"runs": done.runs, "stable": done.stable} for done in self.warm_ups],
            "warnings": self._warnings(),
            "environment": self.first_records[BASELINE]["environment"],
            "provenance": "measured",
        }  # fmt: skip

    def _arm(self, arm: int, pairs: int) -> dict[str, Any]:
        metrics = over_repeats(self.metrics[arm][:pairs])
        logprob = self.quality.mean_logprob(arm)
        return {
            "value": self.spec.values[arm],
            "metrics": {**metrics, "quality": None if logprob is None else math.exp(logprob)},
            "derived": self.first_records[arm].get("derived", {}),
            "kernels": {name: self.first_records[arm]["environment"].get(name) for name in KERNELS_TOLD},
        }

    def _derived(self) -> dict[str, list[Any]]:
        """What the variable changed besides itself: name -> [baseline, candidate], only where they differ."""
        derived = [self.first_records[arm].get("derived", {}) for arm in (BASELINE, CANDIDATE)]
        return {
            name: [derived[0].get(name), derived[1].get(name)]
            for name in variable(self.spec.variable).derives
            if derived[0].get(name) != derived[1].get(name)
        }

    def _warnings(self) -> list[str]:
        found = [busy_warning(self.machine), *foreseen(self.spec)]
        for arm, warmed in enumerate(self.warm_ups):
            if not warmed.stable:
                value = self.spec.values[arm]
                found.append(f"warm-up of {value} did not settle within 10 % in {warmed.runs} runs")
        for arm in (BASELINE, CANDIDATE):
            found += sorted({metrics["offered_load"]["warning"] or "" for metrics in self.metrics[arm]})
            if all(never_drafted(metrics["counters"]) for metrics in self.metrics[arm]):
                found.append(
                    f"no token was ever drafted with {self.spec.values[arm]}: nothing of its effect could show"
                )
            failed = sum(metrics["failed"] for metrics in self.metrics[arm])
            if failed:
                found.append(f"{failed} requests of {self.spec.values[arm]} failed and are counted in no curve")
        return [warning for warning in found if warning]
