"""One-variable comparison: interleaved repeats of two arms, the five curves and their verdicts.

Owns the order of runs and when to stop. Statistics, metrics and engines are others' work.

- Every repeat runs the same drawn workload in both arms, in the order A B, B A, A B, ... so that a slow drift of the
  machine falls on both alike.
- Both arms are warmed up before anything is counted; every run has a fresh engine with an empty pool.
- With repeats "auto" the curves are judged after 3, 5, 8, 12 and 20 repeats; the comparison stops at the first look
  at which none that repeats can change is inconclusive. Alpha is spent over the looks (see experiments.statistics).
- Quality is deterministic (greedy), so it is measured once, after the first look; its pairs are requests.
- With measure "capacity" a run is a search for the highest rate that meets the objectives (equal_objective.py).
- One that was stopped has the verdicts of its whole pairs and goes on after the last of them; half a pair is measured
  anew, since its arms have to meet the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.arms import Arms, KeepsRecords
from experiments.equal_objective import EXPECTED_PROBES, CapacitySearch
from experiments.foresight import foreseen
from experiments.live import LiveReport
from experiments.loadgen import Cancelled
from experiments.metrics import parse_slo
from experiments.metrics.objectives import check
from experiments.quality.agreement import unknown
from experiments.rig import Rig, rig_or_own
from experiments.spec import CompareSpec, parse_vary
from experiments.statistics import MIN_NOISE_FLOOR, CurveSamples, CurveVerdict, alpha_of, decided, judge
from experiments.store import Store
from experiments.summary import over_repeats, performance_curves
from experiments.targets import Target

__all__ = ["CompareSpec", "ComparisonCancelled", "parse_vary", "run_comparison"]

KERNELS_TOLD = ("kernels", "kernels_reason", "vector_bits", "instructions", "captured")  # what an arm ran with
BASELINE, CANDIDATE = 0, 1
OTHER_CODE = "some pairs were measured before the comparison was resumed, by another version of the code"


class ComparisonCancelled(Cancelled):
    """Cancelled by the user; `result` is the comparison of the finished pairs, None without one."""


def kept_pairs(store: Store, run_id: str) -> dict[tuple[int, int], dict[str, Any]]:
    """The records of an earlier start of a comparison by (arm, repeat), of whole pairs."""
    found = store.intact_records(run_id, (BASELINE, CANDIDATE))
    return {(arm, repeat): record for (arm, repeat), record in found.items() if (1 - arm, repeat) in found}


def run_comparison(
    spec: CompareSpec | Mapping[str, Any],
    store: KeepsRecords | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
    kept: Mapping[tuple[int, int], dict[str, Any]] | None = None,
    targets: Sequence[Target] | None = None,
) -> dict[str, Any]:
    """Measure a comparison and return its JSON (design, section 5). Records go to `store` (None: nowhere) as they come.

    on_live gets the live object at most 4 times a second. kept: records of an earlier start by (arm, repeat), which are
    taken instead of measured; of no use with measure "capacity", whose repeats are searches. targets: one an arm,
    instead of those that the spec asks for. Raises ComparisonCancelled with what is there, and InputError or
    CannotRunError when the engine refuses the settings.
    """
    checked = spec if isinstance(spec, CompareSpec) else CompareSpec.from_dict(spec)
    with rig_or_own(rig) as used:
        return _Comparison(checked, store, run_id, on_live, should_cancel, used, kept or {}, targets).run()


class _Comparison:
    def __init__(
        self,
        spec: CompareSpec,
        store: KeepsRecords | None,
        run_id: str,
        on_live: Callable[[dict[str, Any]], None],
        should_cancel: Callable[[], bool],
        rig: Rig,
        kept: Mapping[tuple[int, int], dict[str, Any]],
        targets: Sequence[Target] | None,
    ) -> None:
        self.spec = spec
        self.kept = kept
        self.run_id = run_id
        self.live = LiveReport(on_live, arms=2, repeats=spec.looks()[0], extra_units=1)
        self.arms = Arms(
            spec.arms(), spec.values, rig=rig, store=store, run_id=run_id, live=self.live,
            should_cancel=should_cancel, targets=targets,
        )  # fmt: skip
        self.search = CapacitySearch(self.arms) if spec.measure == "capacity" else None
        self.quality = unknown("not measured yet")

    def run(self) -> dict[str, Any]:
        try:
            self.arms.prepare()
            taken = 0 if self.search else len(self.kept) // 2
            looks = [max(0, look - taken) for look in self.spec.looks()]
            self.arms.expect(looks, EXPECTED_PROBES if self.search else 1)
            verdicts = self._repeat_until_decided()
        except Cancelled:
            raise ComparisonCancelled(self._result(self._judge(), cancelled=True) if self._pairs() else None) from None
        self.live.phase("done")
        return self._result(verdicts)

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
        return self.arms.repeats()

    def _repeat(self, repeat: int) -> None:
        for arm in (BASELINE, CANDIDATE) if repeat % 2 else (CANDIDATE, BASELINE):
            record = None if self.search else self.kept.get((arm, repeat))
            if record is None:
                (self.search or self.arms).run(arm, repeat)
            else:
                self.arms.take(arm, repeat, record)

    def _measure_quality(self) -> None:
        self.quality = self.arms.agreement(CANDIDATE, self._on_quality)
        self.live.unit_done()

    def _on_quality(self, arm: int, fraction: float) -> None:
        if fraction == 0:
            self.live.phase("quality", arm=arm)
            return
        self.live.unit_part((arm + fraction) / 2)
        self.arms.check_cancel()

    # -- result --------------------------------------------------------------------------------------------------

    def _judge(self) -> list[CurveVerdict]:
        return judge(self._curves(self._pairs()), alpha=self._alpha())

    def _alpha(self) -> float:
        """The family-wise false-alarm rate of the curves as they stand."""
        return alpha_of(self.spec.repeats, self._pairs())

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
        if self.search is not None:
            return [*self.search.curves(pairs), quality]
        measured = [arm[:pairs] for arm in self.arms.metrics]
        return [*performance_curves(measured, self.spec.more_curves()), quality]

    def _result(self, verdicts: list[CurveVerdict], *, cancelled: bool = False) -> dict[str, Any]:
        pairs = self._pairs()
        samples = {curve.name: curve for curve in self._curves(pairs)}
        spec = self.spec
        return {
            "variable": spec.variable,
            "derived": self.arms.derived(spec.derives()),
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
            "measure": spec.measure,
            "capacity": None if self.search is None else self.search.to_json(spec.slo),
            "quality": self.quality.to_json(),
            "repeats": pairs,
            "repeats_asked": "auto" if spec.repeats is None else spec.repeats,
            "alpha": self._alpha(),
            "run_id": self.run_id,
            "cancelled": cancelled,
            "workload": self.arms.workloads[BASELINE].describe(),
            "held_equal": spec.held_equal(),
            "held_because": spec.held_because(),
            "price_per_device_hour": spec.price_per_device_hour,
            "price_provenance": "assumed",
            "slo": spec.slo,
            "guess_pct": spec.guess_pct,
            "warm_up": [{"runs": done.runs, "stable": done.stable} for done in self.arms.warm_ups],
            "warnings": [*foreseen(spec), *self.arms.warnings(), *(self.search.warnings() if self.search else ())],
            "environment": self.arms.first_records[BASELINE]["environment"],
            "provenance": "measured",
        }  # fmt: skip

    def _arm(self, arm: int, pairs: int) -> dict[str, Any]:
        metrics = over_repeats(self.arms.metrics[arm][:pairs])
        metrics["objectives"] = check(metrics, parse_slo(self.spec.slo))
        record = self.arms.first_records[arm]
        return {
            "value": self.spec.values[arm],
            "metrics": {**metrics, "quality": self.quality.level(arm)},
            "derived": record.get("derived", {}),
            "kernels": {name: record["environment"].get(name) for name in KERNELS_TOLD},
        }
