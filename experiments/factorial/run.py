"""Runs a 2 x 2 experiment: four arms in a balanced order, the effects and their verdicts.

Owns the order of runs and when to stop. Arms, statistics and metrics are others' work.

The order of a repeat is a row of Williams' Latin square of four ("Experimental designs balanced for the estimation of
residual effects of treatments", 1949): over four repeats every arm runs once in every place, and once right after every
other arm, so that neither a slow drift of the machine nor what a run leaves behind falls on one arm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from core_engine.variables import variable
from experiments.arms import Arms
from experiments.factorial.effects import ASKED, judge_effects, readings
from experiments.factorial.spec import FactorialSpec
from experiments.live import LiveReport
from experiments.loadgen import Cancelled
from experiments.metrics import parse_slo
from experiments.metrics.objectives import check
from experiments.quality.agreement import Agreement
from experiments.rig import Rig, rig_or_own
from experiments.statistics import CurveVerdict, alpha_of, decided
from experiments.store import Store
from experiments.summary import over_repeats

ORDER = ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))
BASELINE, ARMS = 0, 4
# Beside the four curves that repeats measure; more repeats change nothing about it.
QUALITY = "quality"


class FactorialCancelled(Cancelled):
    """Cancelled by the user; `result` is what the finished repeats say, None with fewer than two."""


def run_factorial(
    spec: FactorialSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
) -> dict[str, Any]:
    """Measure a 2 x 2 experiment and return its JSON. Records go to `store` (None: nowhere), by arm 0 to 3.

    on_live gets the live object at most 4 times a second. Raises FactorialCancelled with what is there, and InputError
    or CannotRunError when the engine refuses the settings.
    """
    checked = spec if isinstance(spec, FactorialSpec) else FactorialSpec.from_dict(spec)
    with rig_or_own(rig) as used:
        return _Factorial(checked, store, run_id, on_live, should_cancel, used).run()


class _Factorial:
    def __init__(
        self,
        spec: FactorialSpec,
        store: Store | None,
        run_id: str,
        on_live: Callable[[dict[str, Any]], None],
        should_cancel: Callable[[], bool],
        rig: Rig,
    ) -> None:
        self.spec = spec
        self.run_id = run_id
        self.live = LiveReport(on_live, arms=ARMS, repeats=spec.looks()[0], extra_units=ARMS - 1)
        self.arms = Arms(
            spec.arms(), spec.arm_names(), rig=rig, store=store, run_id=run_id, live=self.live,
            should_cancel=should_cancel,
        )  # fmt: skip
        self.agreements: list[Agreement] = []

    def run(self) -> dict[str, Any]:
        try:
            self.arms.prepare()
            self.arms.expect(self.spec.looks())
            self._repeat_until_decided()
        except Cancelled:
            enough = self.arms.repeats() >= 2
            raise FactorialCancelled(self._result(cancelled=True) if enough else None) from None
        self.live.phase("done")
        return self._result()

    def _repeat_until_decided(self) -> None:
        for look in self.spec.looks():
            self.live.repeats = look
            while self.arms.repeats() < look:
                repeat = self.arms.repeats() + 1
                for arm in ORDER[(repeat - 1) % ARMS]:
                    self.arms.run(arm, repeat)
            if not self.agreements:
                self._measure_quality()
            effects = self._effects()
            asked = [verdict for effect in ASKED for verdict in effects[effect] if verdict.name != QUALITY]
            if decided(asked):
                return

    def _measure_quality(self) -> None:
        for candidate in range(1, ARMS):
            self.agreements.append(self.arms.agreement(candidate, self._on_quality))
            self.live.unit_done()

    def _on_quality(self, arm: int, fraction: float) -> None:
        if fraction == 0:
            self.live.phase("quality", arm=arm)
            return
        self.live.unit_part((fraction if arm == BASELINE else 1 + fraction) / 2)
        self.arms.check_cancel()

    # -- result --------------------------------------------------------------------------------------------------

    def _alpha(self) -> float:
        return alpha_of(self.spec.repeats, self.arms.repeats())

    def _effects(self) -> dict[str, list[CurveVerdict]]:
        pairs = self.arms.repeats()
        return judge_effects([arm[:pairs] for arm in self.arms.metrics], self._quality(), alpha=self._alpha())

    def _quality(self) -> list[list[float | None]]:
        """Probability a token of the baseline's text, by arm and request; empty before it is measured."""
        if len(self.agreements) < ARMS - 1:
            return [[] for _ in range(ARMS)]
        candidates = [list(agreement.probabilities(1)) for agreement in self.agreements]
        found = [list(self.agreements[0].probabilities(0)), *candidates]
        return found if len({len(values) for values in found}) == 1 else [[] for _ in range(ARMS)]

    def _result(self, *, cancelled: bool = False) -> dict[str, Any]:
        spec, pairs, effects = self.spec, self.arms.repeats(), self._effects()
        varied = [name for name, _ in spec.factors]
        return {
            "kind": "factorial",
            "factors": [{"variable": name, "values": list(values)} for name, values in spec.factors],
            "derived": self.arms.derived([name for one in varied for name in variable(one).derives]),
            "arms": [self._arm(arm, pairs) for arm in range(ARMS)],
            "effects": {name: [verdict.to_json() for verdict in found] for name, found in effects.items()},
            "readings": readings(effects),
            "quality": [agreement.to_json() for agreement in self.agreements],
            "order": [list(ORDER[repeat % ARMS]) for repeat in range(pairs)],
            "repeats": pairs,
            "repeats_asked": "auto" if spec.repeats is None else spec.repeats,
            "alpha": self._alpha(),
            "run_id": self.run_id,
            "cancelled": cancelled,
            "workload": self.arms.workloads[BASELINE].describe(),
            "held_equal": {k: v for k, v in spec.arms()[0].config().settings().items() if k not in varied},
            "held_because": spec.held_because(),
            "price_per_device_hour": spec.price_per_device_hour,
            "price_provenance": "assumed",
            "slo": spec.slo,
            "warm_up": [{"runs": done.runs, "stable": done.stable} for done in self.arms.warm_ups],
            "warnings": self.arms.warnings(),
            "environment": self.arms.first_records[BASELINE]["environment"],
            "provenance": "measured",
        }

    def _arm(self, arm: int, pairs: int) -> dict[str, Any]:
        metrics = over_repeats(self.arms.metrics[arm][:pairs])
        metrics["objectives"] = check(metrics, parse_slo(self.spec.slo))
        logprob = None
        if len(self.agreements) == ARMS - 1:
            agreement = self.agreements[max(0, arm - 1)]
            logprob = agreement.mean_logprob(0 if arm == BASELINE else 1)
        return {
            "values": self.spec.arm_values()[arm],
            "metrics": {**metrics, "quality": None if logprob is None else math.exp(logprob)},
            "derived": self.arms.first_records[arm].get("derived", {}),
        }
