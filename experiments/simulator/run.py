"""`trilemma simulate`: the traffic of a spec on simulated replicas, as the metrics JSON that a bench gives.

One replica under any workload (closed loops and conversations too) goes through the load generator and gives a whole
record; several replicas, or prefill and decode apart, take requests in order of arrival and give metrics alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from core_engine.simulation.fleet import Side, serve, serve_apart
from core_engine.simulation.gaps import Gaps
from core_engine.simulation.job import Ended, Job
from core_engine.simulation.replica import Replica
from core_engine.simulation.routers import router
from experiments.loadgen import no_garbage_collection
from experiments.metrics import parse_slo
from experiments.simulator.deployment import Deployed, SimulateSpec, deployed
from experiments.simulator.metrics import fleet_metrics
from experiments.workloads import Workload
from ledger.errors import InputError
from ledger.links import Link


def simulate(spec: SimulateSpec | Mapping[str, Any]) -> dict[str, Any]:
    """The metrics JSON of a simulated run, provenance "simulated", with `simulated` saying on what. InputError and
    CannotRunError as the deployment does."""
    checked = spec if isinstance(spec, SimulateSpec) else SimulateSpec.from_dict(spec)
    made = deployed(checked)
    if checked.replicas == 1 and not checked.prefill_replicas:
        metrics = _one(checked, made)
    else:
        from experiments.targets.simulator import SimulatorTarget

        workload = SimulatorTarget(made).draw(checked)
        metrics = simulate_jobs(checked, made, jobs_of(workload)) | {"workload": workload.describe()}
    return metrics | {"simulated": about(checked, made), "warnings": list(made.warnings)}


def simulate_jobs(spec: SimulateSpec, made: Deployed, jobs: Iterable[Job], **options: Any) -> dict[str, Any]:
    """Metrics of a fleet that serves jobs in order of arrival. options: of Replica."""
    ended: list[Ended] = []
    gaps = Gaps()
    with no_garbage_collection(first=False):  # a collection looks at all that waits, time and again, and frees nothing
        if spec.prefill_replicas:
            replicas, transfers = _apart(spec, made, jobs, ended, gaps, options)
        else:
            replicas, transfers = [made.replica(number, ended.append, **options) for number in range(spec.replicas)], {}
            serve(jobs, replicas, router(spec.router))
    for replica in replicas:
        gaps.merge(replica.gaps)
    metrics = fleet_metrics(
        ended, gaps, devices=spec.devices, price_per_device_hour=spec.price_per_device_hour, slo=parse_slo(spec.slo)
    )
    steps, passed = sum(r.num_steps for r in replicas), sum(r.num_passed for r in replicas)
    return metrics | {
        "steps": {"count": steps, "passed_in_runs": passed},
        "busy_share": _busy(replicas, metrics["duration_s"]),
        "memory": {
            "weights_bytes": made.memory.weights_bytes,
            "kv_pool_bytes": made.memory.num_blocks * made.memory.block_bytes,
            "kv_reserved_bytes": max(r.peak_used_blocks for r in replicas) * made.memory.block_bytes,
            "kv_peak_used_bytes": None,
            "activation_peak_bytes": None,
        },
        "config": made.config.settings(),
        "environment": {"simulated": made.profile.to_json()},
        **transfers,
    }


def jobs_of(workload: Workload) -> list[Job]:
    """A workload's requests as jobs. InputError for one whose arrivals depend on answers."""
    if workload.concurrency is not None or any(request.parent is not None for request in workload.requests):
        raise InputError("workload", workload.name, "one with times of its own when there are several replicas")
    ordered = sorted(enumerate(workload.requests), key=lambda pair: pair[1].arrival_ns)
    return [
        Job(
            number, request.arrival_ns, request.prompt_tokens, request.output_tokens, request.max_tokens,
            token_ids=request.prompt_token_ids,
        )
        for number, request in ordered
    ]  # fmt: skip


def about(spec: SimulateSpec, made: Deployed) -> dict[str, Any]:
    """What was simulated, for records and tables."""
    return {
        **made.profile.to_json(),
        "model": made.spec.name,
        "weights": made.times.weights,
        "kv_dtype": made.times.kv_dtype,
        "tp": spec.tp,
        "pp": spec.pp,
        "cp": spec.cp,
        "replicas": spec.replicas,
        "prefill_replicas": spec.prefill_replicas,
        "router": spec.router,
        "link": None if made.times.link is None else made.times.link.label,
        "devices": spec.devices,
        "kv_blocks": made.memory.num_blocks,
        "acceptance": spec.acceptance,
    }


def _one(spec: SimulateSpec, made: Deployed) -> dict[str, Any]:
    from experiments.targets.measure import measure
    from experiments.targets.simulator import SimulatorTarget

    target = SimulatorTarget(made)
    per_replica = replace(spec, price_per_device_hour=spec.price_per_device_hour * spec.devices)
    found = measure(per_replica, target, target.draw(spec), around={})
    an_hour = found.metrics["requests_per_device_hour"]  # of the replica, which the engine's metrics take for a device
    return found.metrics | {
        "devices": spec.devices,
        "price_per_device_hour": spec.price_per_device_hour,
        "requests_per_device_hour": an_hour and an_hour / spec.devices,
    }


def _apart(
    spec: SimulateSpec, made: Deployed, jobs: Iterable[Job], ended: list[Ended], gaps: Gaps, options: Mapping[str, Any]
) -> tuple[list[Replica], dict[str, Any]]:
    link = _transfer_link(spec, made)
    done = serve_apart(
        jobs,
        Side(
            spec.prefill_replicas, lambda number, on_end: made.replica(number, on_end, **options), router(spec.router)
        ),
        Side(
            spec.replicas,
            lambda number, on_end: made.replica(number, on_end, receives=True, **options),
            router(spec.router),
        ),
        link,
        made.kv_bytes_per_token,
        ended.append,
        lanes=made.times.split.devices,
    )
    gaps.merge(done.gaps)
    waits = sorted(done.transfer_ns)
    transfer = {
        "bytes": done.transfer_bytes,
        "requests": len(waits),
        "mean_s": sum(waits) / len(waits) / 1e9 if waits else None,
        "p99_s": waits[int(0.99 * (len(waits) - 1))] / 1e9 if waits else None,
        "link": link.label,
    }
    return [*done.prefill, *done.decode], {"kv_transfer": transfer}


def _transfer_link(spec: SimulateSpec, made: Deployed) -> Link:
    if made.times.link is None:
        raise InputError("link", spec.link, "a link by name, since none is known between these devices")
    return made.times.link


def _busy(replicas: list[Replica], duration_s: float | None) -> float | None:
    return None if not duration_s else sum(r.busy_ns for r in replicas) / 1e9 / duration_s / len(replicas)
