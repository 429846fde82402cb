"""Runs a jitter experiment: every arm on the same drawn workload, forwards and backwards in turn.

The result: {"kind":"jitter","arms":[{"name","settings","figures":{NAME: median over the repeats},"repeats":[{NAME:
value}],"timeline":[{"t_s","itl_p50_s","itl_max_s","gaps","prompt_tokens"}] of the first repeat,"transfers": the metrics
key `disaggregation` or null,"threads","metrics": the metrics JSON, median over repeats,"provenance"}],"against_first":
{arm: {NAME: {"ratio","low","high"}}}: the ratio to the first arm over pairs of repeats with its 95 % interval, null
where it can't be told,"workload","repeats","settings","slo","environment","warnings","cancelled","run_id",
"provenance"}. NAME is one of experiments.jitter.figures.FIGURES. Threads in all are equal in every arm: a disaggregated
one splits them between its two processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from experiments.arms import Arms
from experiments.jitter.figures import FIGURES, figures_of, timeline
from experiments.jitter.spec import JitterSpec
from experiments.live import LiveReport
from experiments.loadgen import Cancelled
from experiments.rig import Rig, rig_or_own
from experiments.statistics import mean_interval
from experiments.store import Store
from experiments.summary import over_repeats

COMPARED = tuple(name for name in FIGURES if name.endswith("_s"))


def run_jitter(
    spec: JitterSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
) -> dict[str, Any]:
    """Measure all arms and return the JSON above; records go to `store` (None: nowhere).

    Raises Cancelled with what the finished repeats say, InputError or CannotRunError when an arm can't run.
    """
    checked = spec if isinstance(spec, JitterSpec) else JitterSpec.from_dict(spec)
    with rig_or_own(rig) as used:
        return _Jitter(checked, store, run_id, on_live, should_cancel, used).run()


class _Jitter:
    def __init__(
        self,
        spec: JitterSpec,
        store: Store | None,
        run_id: str,
        on_live: Callable[[dict[str, Any]], None],
        should_cancel: Callable[[], bool],
        rig: Rig,
    ) -> None:
        self.spec, self.run_id = spec, run_id
        self.live = LiveReport(on_live, arms=len(spec.arms), repeats=spec.repeats)
        self.arms = Arms(
            spec.specs(), spec.names(), rig=rig, store=store, run_id=run_id, live=self.live,
            should_cancel=should_cancel,
        )  # fmt: skip
        self.figures: list[list[dict[str, Any]]] = [[] for _ in spec.arms]

    def run(self) -> dict[str, Any]:
        try:
            self.arms.prepare()
            self.arms.expect([self.spec.repeats])
            for repeat in range(1, self.spec.repeats + 1):
                order = range(len(self.spec.arms))
                for arm in order if repeat % 2 else reversed(order):
                    self._measure(arm, repeat)
        except Cancelled:
            raise Cancelled(self._result(cancelled=True) if self.arms.repeats() else None) from None
        self.live.phase("done")
        return self._result()

    def _measure(self, arm: int, repeat: int) -> None:
        self.arms.check_cancel()
        measured = self.arms.measure(arm, repeat, self.arms.workloads[arm])
        self.arms.keep(arm, repeat, measured)
        self.figures[arm].append(figures_of(measured.record, measured.metrics))
        self.live.end_run(measured.metrics["output_tokens_per_s"])

    def _result(self, *, cancelled: bool = False) -> dict[str, Any]:
        spec = self.spec
        return {
            "kind": "jitter",
            "arms": [self._arm(arm) for arm in range(len(spec.arms))],
            "against_first": {name: self._against_first(arm) for arm, name in enumerate(spec.names()) if arm},
            "workload": self.arms.workloads[0].describe(),
            "repeats": self.arms.repeats(),
            "settings": dict(spec.settings),
            "slo": spec.slo,
            "price_per_device_hour": spec.price_per_device_hour,
            "environment": self.arms.first_records[0]["environment"],
            "warnings": self.arms.warnings(),
            "cancelled": cancelled,
            "run_id": self.run_id,
            "provenance": "measured",
        }

    def _arm(self, arm: int) -> dict[str, Any]:
        name, settings = self.spec.arms[arm]
        metrics, record = over_repeats(self.arms.metrics[arm]), self.arms.first_records[arm]
        return {
            "name": name,
            "settings": dict(settings),
            "figures": {name: _middle([one[name] for one in self.figures[arm]]) for name in FIGURES},
            "repeats": self.figures[arm],
            "timeline": timeline(record),
            "transfers": metrics.get("disaggregation"),
            "threads": record["environment"].get("threads"),
            "metrics": metrics,
            "provenance": "measured",
        }

    def _against_first(self, arm: int) -> dict[str, Any]:
        pairs = list(zip(self.figures[0], self.figures[arm], strict=False))
        return {name: ratio_of([(one[name], two[name]) for one, two in pairs]) for name in COMPARED}


def ratio_of(pairs: list[tuple[float | None, float | None]]) -> dict[str, float | None] | None:
    """The ratio of the second to the first over pairs: {"ratio","low","high"}, ends None from a single pair."""
    logs = [math.log(two / one) for one, two in pairs if one and two]
    if not logs:
        return None
    found = mean_interval(logs)
    if found is None:
        return {"ratio": math.exp(logs[0]), "low": None, "high": None}
    return {"ratio": math.exp(found.mean), "low": math.exp(found.low), "high": math.exp(found.high)}


def _middle(values: list[Any]) -> float | int | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
