"""One warm run of one configuration, and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.live import LiveReport
from experiments.rig import Rig, busy_warning, machine, rig_or_own
from experiments.spec import BenchSpec
from experiments.store import Store
from experiments.targets import measure, target_for, warnings_of


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
    live = LiveReport(on_live, arms=1, repeats=1)
    around = machine()
    with rig_or_own(rig) as used:
        target = target_for(checked, used)
        live.opening(server=checked.endpoint is not None)
        workload = target.draw(checked)
        live.phase("warmup")
        warmed = target.warm_up(workload, should_cancel)
        measured = measure(
            checked,
            target,
            workload,
            around=around,
            on_begin=lambda: live.begin_run(0, 1),
            on_progress=lambda progress: live.tick(target, progress),
            should_cancel=should_cancel,
        )
    metrics = measured.metrics
    if store is not None:
        store.add_record(run_id, 0, 1, measured.record)
    live.end_run(metrics["output_tokens_per_s"])
    live.phase("done")
    warnings = [busy_warning(around), metrics["offered_load"]["warning"], *warnings_of(measured.record, "the run")]
    if not warmed.stable:
        warnings.append(f"warm-up did not settle within 10 % in {warmed.runs} runs")
    return {
        **metrics,
        "run_id": run_id,
        "held_because": checked.held_because(),
        "warm_up": {"runs": warmed.runs, "stable": warmed.stable},
        "warnings": [warning for warning in warnings if warning],
    }
