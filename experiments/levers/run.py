"""Runs an experiment with levers: every arm on the same drawn workload, in turned orders, and what each one saved.

The result: {"kind":"levers","levers":[{"name","variable","from","to","works_on", **verdict of cost,"saved_pct",
"saved_ci95","saved_per_million_requests","figures","quality","same_answers_share","router","prompt_compression",
"answer_cache","metrics","provenance"}],"together": the same without a name, or null,"attribution": see
experiments.levers.attribution,"baseline": the metrics JSON,"order","repeats","workload","settings","held_equal",
"price_per_device_hour","price_provenance","slo","gpu","warnings","environment","cancelled","run_id","provenance"}.

quality: the verdict of experiments.levers.quality, null where answers are simulated. `figures` are medians over repeats
of what a lever is expected to move: tokens computed, throughput, TTFT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.arms import Arms
from experiments.levers.attribution import judge_costs, saved, together
from experiments.levers.quality import judge_quality, likelihoods, same_share
from experiments.levers.spec import LeversSpec
from experiments.live import LiveReport
from experiments.loadgen import Cancelled
from experiments.rig import Rig, rig_or_own
from experiments.statistics import CurveVerdict
from experiments.store import Store
from experiments.summary import over_repeats
from experiments.targets import Target

BASELINE = 0
MEASURED, SIMULATED = "measured", "simulated"
MILLION = 1_000_000
OF_WORK = ("router", "prompt_compression", "answer_cache")


def run_levers(
    spec: LeversSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
) -> dict[str, Any]:
    """Measure (or simulate) and return the JSON above; records go to `store` (None: nowhere).

    Raises Cancelled with what there is so far, InputError and CannotRunError as the engine does.
    """
    checked = spec if isinstance(spec, LeversSpec) else LeversSpec.from_dict(spec)
    with rig_or_own(rig) as used:
        return _Levers(checked, store, run_id, on_live, should_cancel, used).run()


def order(arms: int, repeat: int) -> list[int]:
    """Order of the arms in a repeat, from 1: each repeat begins with another arm, every second one goes backwards, so
    that neither a drift of the machine nor what ran before falls on one arm."""
    way = 1 if repeat % 2 else -1
    return [(repeat - 1 + way * place) % arms for place in range(arms)]


class _Levers:
    def __init__(
        self,
        spec: LeversSpec,
        store: Store | None,
        run_id: str,
        on_live: Callable[[dict[str, Any]], None],
        should_cancel: Callable[[], bool],
        rig: Rig,
    ) -> None:
        self.spec, self.run_id, self.rig = spec, run_id, rig
        specs = spec.specs()
        self.provenance = MEASURED if spec.gpu is None else SIMULATED
        units = len(specs) if spec.gpu is None else 0
        self.live = LiveReport(on_live, arms=len(specs), repeats=spec.repeats, extra_units=units)
        targets: Sequence[Target] | None = None
        self._warnings: list[str] = []
        if spec.gpu is not None:
            from experiments.levers.simulated import simulated_targets

            targets, self._warnings = simulated_targets(spec)
        self.arms = Arms(
            specs, spec.names(), rig=rig, store=store, run_id=run_id, live=self.live, should_cancel=should_cancel,
            targets=targets,
        )  # fmt: skip
        self.likelihoods: list[dict[int, float]] = []

    def run(self) -> dict[str, Any]:
        try:
            self.arms.prepare()
            self.arms.expect([self.spec.repeats])
            for repeat in range(1, self.spec.repeats + 1):
                for arm in order(len(self.arms.specs), repeat):
                    self.arms.run(arm, repeat)
            if self.provenance == MEASURED:
                self._read_answers()
        except Cancelled:
            raise Cancelled(self._result(cancelled=True) if self.arms.repeats() else None) from None
        self.live.phase("done")
        return self._result()

    def _read_answers(self) -> None:
        """Every arm's answers as the baseline finds them, by one engine of the baseline."""
        engine = self.rig.engine(self.arms.specs[BASELINE].config())
        for arm, workload in enumerate(self.arms.workloads):
            self.live.phase("quality", arm=arm)
            self.likelihoods.append(
                likelihoods(engine, workload, self.arms.first_records[arm], lambda _: self.arms.check_cancel())
            )
            self.live.unit_done()

    # -- result --------------------------------------------------------------------------------------------------

    def _costs(self) -> list[list[float | None]]:
        repeats = self.arms.repeats()
        return [[one["cost_per_request"] for one in arm[:repeats]] for arm in self.arms.metrics]

    def _result(self, *, cancelled: bool = False) -> dict[str, Any]:
        spec, costs = self.spec, self._costs()
        count = len(self.arms.specs)
        verdicts = judge_costs(costs, self.provenance)
        quality: list[CurveVerdict | None] = [None] * (count - 1)
        if len(self.likelihoods) == count:
            quality = [*judge_quality(self.likelihoods[BASELINE], self.likelihoods[1:])]
        rows = [self._row(arm, verdicts[arm - 1], quality[arm - 1]) for arm in range(1, count)]
        named = [
            {"name": lever.name, "variable": lever.variable, "from": lever.off, "to": value,
             "works_on": lever.works_on, **row}
            for lever, (_, value), row in zip(spec.pulled(), spec.levers, rows, strict=False)
        ]  # fmt: skip
        varied = spec.off()
        return {
            "kind": "levers",
            "levers": named,
            "together": rows[-1] if len(named) > 1 else None,
            "attribution": together(costs),
            "baseline": over_repeats(self.arms.metrics[BASELINE]),
            "order": [order(count, repeat + 1) for repeat in range(self.arms.repeats())],
            "repeats": self.arms.repeats(),
            "workload": self.arms.workloads[BASELINE].describe(),
            "settings": dict(spec.settings),
            "held_equal": {k: v for k, v in self.arms.specs[0].config().settings().items() if k not in varied},
            "price_per_device_hour": spec.price_per_device_hour,
            "price_provenance": "assumed",
            "slo": spec.slo,
            "gpu": spec.gpu,
            "warnings": [*self._warnings, *self._idle(), *self.arms.warnings()],
            "environment": self.arms.first_records[BASELINE]["environment"],
            "cancelled": cancelled,
            "run_id": self.run_id,
            "provenance": self.provenance,
        }

    def _row(self, arm: int, cost: CurveVerdict, quality: CurveVerdict | None) -> dict[str, Any]:
        metrics = over_repeats(self.arms.metrics[arm][: self.arms.repeats()])
        found = saved(cost)
        base, share = cost.baseline, found["saved_pct"]
        curve = {key: value for key, value in cost.to_json().items() if key not in ("name", "provenance")}
        return {
            **curve,
            **found,
            "saved_per_million_requests": None if base is None or share is None else MILLION * base * share / 100,
            "figures": {
                "prefill_tokens": metrics["prefix"]["prefill_tokens"],
                "output_tokens_per_s": metrics["output_tokens_per_s"],
                "ttft_p95_s": metrics["ttft_s"]["p95"],
                "itl_p95_s": metrics["itl_s"]["p95"],
            },
            "quality": None if quality is None else quality.to_json(),
            "same_answers_share": same_share(self.arms.first_records[BASELINE], self.arms.first_records[arm])
            if self.provenance == MEASURED
            else None,
            **{name: metrics.get(name) for name in OF_WORK},
            "metrics": metrics,
            "provenance": self.provenance,
        }

    def _idle(self) -> list[str]:
        """Where arrivals and not work decide how long a run takes, cost says nothing of a lever."""
        if self.spec.rate_rps is None and self.spec.concurrency is not None:
            return []
        return ["requests come by a rate: where the engine is idle between them cost per request is the time of the "
                "schedule, and no lever shows; --concurrency keeps it busy"]  # fmt: skip
