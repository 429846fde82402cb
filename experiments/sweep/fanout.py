"""Points of a sweep on the nodes of a Ray cluster: one worker process a node, each measuring one point at a time.

Owns Ray; it is imported here alone, when a sweep asks for it. Every node needs the same version of this package. Two
engines on one node would measure each other, so a worker takes all of its node's processors unless told otherwise.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from experiments.loadgen import Cancelled
from experiments.sweep.measure import Measure
from experiments.sweep.points import Point
from experiments.sweep.spec import SweepSpec
from ledger.errors import CannotRunError, InputError

LOCAL = "local"
POLL_S = 0.25
START_S = 300.0  # a worker imports torch first

Task = tuple[Point, int]
Outcome = dict[str, Any] | InputError
MakeMeasure = Callable[[SweepSpec], Measure]


def fan_out(
    spec: SweepSpec,
    tasks: Sequence[Task],
    on_done: Callable[[Task, Outcome], None],
    should_cancel: Callable[[], bool],
    make_measure: MakeMeasure | None = None,
) -> None:
    """Measure tasks on the nodes of spec.ray_address, as they become free; on_done gets each record, or its InputError.

    make_measure: made once on every worker, by default targets of that node. CannotRunError without Ray, without a
    cluster at the address, or when a node is lost: what was finished has been told by then. Cancelled when asked.
    """
    with _cluster(spec) as ray:
        workers = _workers(ray, spec, make_measure)
        waiting = list(tasks)
        busy: dict[Any, Any] = {}
        try:
            while waiting or busy:
                if should_cancel():
                    raise Cancelled
                while waiting and workers:
                    task, worker = waiting.pop(0), workers.pop()
                    busy[worker.measure.remote(task[0].to_json(), task[1])] = (worker, task)
                done, _ = ray.wait(list(busy), num_returns=1, timeout=POLL_S)
                for reference in done:
                    worker, task = busy.pop(reference)
                    on_done(task, _outcome(ray, reference, task, spec))
                    workers.append(worker)
        finally:
            for worker in (*workers, *(worker for worker, _ in busy.values())):
                ray.kill(worker)


class Worker:
    """What runs on a node. Errors that a user can cause come back as values: Ray would wrap them."""

    def __init__(self, spec: Mapping[str, Any], make_measure: MakeMeasure | None) -> None:
        checked = SweepSpec.from_dict(spec)
        self._measure = (make_measure or _on_this_node)(checked)

    def ready(self) -> str:
        """The node's name, once everything is imported."""
        return socket.gethostname()

    def measure(self, point: Mapping[str, Any], repeat: int) -> dict[str, Any]:
        """{"record"}, {"input": (field, value, accepted)} or {"cannot_run": line}."""
        try:
            record = self._measure(Point.from_json(point), repeat)
        except InputError as error:
            return {"input": (error.field, str(error.value), error.accepted)}
        except CannotRunError as error:
            return {"cannot_run": f"{socket.gethostname()}: {error}"}
        record["environment"] = {**record["environment"], "node": socket.gethostname()}
        return {"record": record}


def _on_this_node(spec: SweepSpec) -> Measure:
    from experiments.live import LiveReport
    from experiments.rig import Rig
    from experiments.sweep.measure import TargetMeasure

    return TargetMeasure(spec, Rig(), LiveReport(lambda _: None, arms=1, repeats=1))


@contextmanager
def _cluster(spec: SweepSpec) -> Iterator[Any]:
    """Ray, connected; whoever had connected before stays so."""
    try:
        import ray
    except ImportError:
        raise CannotRunError("--ray-address needs Ray, which is not installed: pip install 'trilemma[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(address=spec.ray_address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # a cluster that does not start raises a bare one
        line = " ".join(str(error).split())
        raise CannotRunError(f"--ray-address {spec.ray_address}: no Ray cluster answers there ({line})") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _workers(ray: Any, spec: SweepSpec, make_measure: MakeMeasure | None) -> list[Any]:
    """spec.per_node workers on every node that is alive; a node without room for one is left out unless all are."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    found = []
    for node in ray.nodes():
        has = node["Resources"]
        if not node["Alive"] or has.get("CPU", 0) < 1:
            continue
        room = {"num_cpus": max(1, int(has["CPU"]) // spec.per_node), "num_gpus": has.get("GPU", 0) / spec.per_node}
        affinity = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        made = ray.remote(Worker).options(**room, scheduling_strategy=affinity)
        found += [made.remote(spec.to_dict(), make_measure) for _ in range(spec.per_node)]
    started = {worker.ready.remote(): worker for worker in found}
    ready, _ = ray.wait(list(started), num_returns=len(started), timeout=START_S) if started else ([], [])
    failures = {reference: _why_dead(ray, reference) for reference in ready}
    workers = [worker for reference, worker in started.items() if failures.get(reference, "late") is None]
    for worker in found:
        if worker not in workers:
            ray.kill(worker)
    if not workers:
        why = next(filter(None, failures.values()), f"no node had free processors within {START_S:.0f} s")
        raise CannotRunError(f"--ray-address {spec.ray_address}: no worker started: {why}")
    return workers


def _why_dead(ray: Any, reference: Any) -> str | None:
    """The last line of what went wrong when a worker began; None for one that lives."""
    try:
        ray.get(reference)
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[-1] if lines else type(error).__name__
    return None


def _outcome(ray: Any, reference: Any, task: Task, spec: SweepSpec) -> Outcome:
    label = task[0].label(spec.over)
    try:
        found = ray.get(reference)
    except ray.exceptions.RayActorError:
        raise CannotRunError(f"a node was lost while it measured {label}; what is finished is kept") from None
    if "input" in found:
        return InputError(*found["input"])
    if "cannot_run" in found:
        raise CannotRunError(found["cannot_run"])
    record: dict[str, Any] = found["record"]
    return record
