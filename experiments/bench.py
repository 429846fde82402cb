"""One warm run of one configuration, and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments import loadgen
from experiments.live import LiveReport
from experiments.metrics import compute_metrics
from experiments.rig import Rig, busy_warning, draw_workload, machine, warm_up
from experiments.spec import BenchSpec
from experiments.store import Store


def run_bench(
    spec: BenchSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
) -> dict[str, Any]:
    """Warm up, run the workload once and return its metrics JSON with run_id and warnings; the record goes to `store`.

    Raises loadgen.Cancelled when cancelled (one run has no partial result), InputError and CannotRunError as the engine
    does.
    """
    checked = spec if isinstance(spec, BenchSpec) else BenchSpec.from_dict(spec)
    config, rig = checked.config(), rig or Rig()
    live = LiveReport(on_live, arms=1, repeats=1)
    around = machine()
    live.phase("loading")
    workload = draw_workload(checked, rig.tokenizer(config))
    live.phase("warmup")
    warmed = warm_up(rig, config, workload, should_cancel)
    engine = rig.engine(config)
    live.begin_run(0, 1)
    record = loadgen.run(
        engine, workload, on_progress=lambda progress: live.tick(engine, progress), should_cancel=should_cancel
    )
    record["environment"] = {**record["environment"], **around}
    if store is not None:
        store.add_record(run_id, 0, 1, record)
    metrics = compute_metrics(record, price_per_device_hour=checked.price_per_device_hour, slo=checked.slo)
    live.end_run(metrics["output_tokens_per_s"])
    live.phase("done")
    warnings = [busy_warning(around), metrics["offered_load"]["warning"]]
    return {
        **metrics,
        "run_id": run_id,
        "held_because": checked.held_because(),
        "warm_up": {"runs": warmed.runs, "stable": warmed.stable},
        "warnings": [warning for warning in warnings if warning],
    }
