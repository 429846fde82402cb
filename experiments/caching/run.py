"""Runs an experiment with answer caches: pairs are judged, staleness is tried, and one traffic is run with and without.

The result: {"kind":"cache","pairs":[one a language: experiments.caching.evaluation.evaluate],"staleness":[rows of
experiments.caching.staleness],"fresh": whether no row is stale,"traffic":{"arms":[{"name","settings","cache": the
metrics key `answer_cache` or null,"metrics": the metrics JSON,"provenance"}],"against_first":{arm: {"ttft_s",
"tokens_per_s": {"ratio","low","high"} or null}},"workload","repeats"} or null,"encoder","threshold","half","warnings",
"environment","cancelled","run_id","provenance"}. Metrics are medians over repeats; counts of `cache` are those of the
first repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core_engine.answer_cache.embedder import Embedder
from core_engine.answer_cache.vector_index import MakeIndex
from experiments.arms import Arms
from experiments.caching.evaluation import evaluate
from experiments.caching.spec import ARMS, CacheSpec
from experiments.caching.staleness import is_fresh, staleness
from experiments.jitter.run import ratio_of
from experiments.live import LiveReport
from experiments.loadgen import Cancelled
from experiments.rig import Rig, rig_or_own
from experiments.store import Store
from experiments.summary import over_repeats


def run_cache(
    spec: CacheSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
    encoder: Embedder | None = None,
    make_index: MakeIndex | None = None,
) -> dict[str, Any]:
    """Measure and return the JSON above; records go to `store` (None: nowhere).

    Raises Cancelled with what there is so far, CannotRunError when the semantic cache's packages are missing.
    """
    checked = spec if isinstance(spec, CacheSpec) else CacheSpec.from_dict(spec)
    if encoder is None or make_index is None:
        from core_engine.answer_cache.e5 import load_e5
        from core_engine.answer_cache.vector_index import UsearchIndex

        encoder, make_index = load_e5(), UsearchIndex
        make_index(1)  # says at once that it is missing
    live = LiveReport(on_live, arms=len(ARMS), repeats=checked.repeats if checked.traffic else 0, extra_units=1)
    live.phase("quality")
    threshold = checked.threshold()
    found: dict[str, Any] = {"kind": "cache", "pairs": []}
    for place, language in enumerate(checked.languages):
        if should_cancel():
            raise Cancelled(None)
        found["pairs"].append(evaluate(encoder, language, checked.half, threshold))
        live.unit_part((place + 1) / len(checked.languages))
    live.unit_done()
    rows = staleness(encoder, make_index, threshold)
    found |= {
        "staleness": rows, "fresh": is_fresh(rows), "traffic": None, "encoder": encoder.name, "threshold": threshold,
        "half": checked.half, "settings": dict(checked.settings), "warnings": [], "environment": {},
        "cancelled": False, "run_id": run_id, "provenance": "measured",
    }  # fmt: skip
    if checked.traffic:
        with rig_or_own(rig) as used:
            _Traffic(checked, found, store, run_id, live, should_cancel, used).run()
    live.phase("done")
    return found


class _Traffic:
    """Every arm on the same drawn workload, forwards and backwards in turn; `found` gets what comes of it."""

    def __init__(
        self,
        spec: CacheSpec,
        found: dict[str, Any],
        store: Store | None,
        run_id: str,
        live: LiveReport,
        should_cancel: Callable[[], bool],
        rig: Rig,
    ) -> None:
        self.spec, self.found, self.live = spec, found, live
        self.arms = Arms(
            spec.specs(), spec.names(), rig=rig, store=store, run_id=run_id, live=live, should_cancel=should_cancel
        )

    def run(self) -> None:
        try:
            self.arms.prepare()
            self.arms.expect([self.spec.repeats])
            for repeat in range(1, self.spec.repeats + 1):
                order = range(len(ARMS))
                for arm in order if repeat % 2 else reversed(order):
                    self.arms.run(arm, repeat)
        except Cancelled:
            if self.arms.repeats():
                self._tell()
            self.found["cancelled"] = True
            raise Cancelled(self.found) from None
        self._tell()

    def _tell(self) -> None:
        arms = self.arms
        self.found["traffic"] = {
            "arms": [self._arm(arm) for arm in range(len(ARMS))],
            "against_first": {name: self._against_first(arm) for arm, (name, _) in enumerate(ARMS) if arm},
            "workload": arms.workloads[0].describe(),
            "repeats": arms.repeats(),
        }
        self.found |= {"warnings": arms.warnings(), "environment": arms.first_records[0]["environment"]}

    def _arm(self, arm: int) -> dict[str, Any]:
        name, settings = ARMS[arm]
        metrics = self.arms.metrics[arm]
        return {
            "name": name,
            "settings": dict(settings),
            "cache": metrics[0].get("answer_cache"),
            "metrics": over_repeats(metrics),
            "provenance": "measured",
        }

    def _against_first(self, arm: int) -> dict[str, Any]:
        pairs = list(zip(self.arms.metrics[0], self.arms.metrics[arm], strict=False))
        return {
            "ttft_s": ratio_of([(one["ttft_s"]["p50"], two["ttft_s"]["p50"]) for one, two in pairs]),
            "tokens_per_s": ratio_of([(one["output_tokens_per_s"], two["output_tokens_per_s"]) for one, two in pairs]),
        }
