"""One sweep: which points, in which order, what is kept after each, and the result.

A repeat of a point is a record of the run when it is done, under a key of everything it depends on; a sweep that goes
on takes it. Repeats come in turns, up the loads and down again, so that a slow drift of the machine falls on all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.capacity import HighestRate, highest_rate
from experiments.live import LiveReport
from experiments.loadgen import Cancelled
from experiments.rig import Rig, busy_warning, rig_or_own
from experiments.spec import unsearchable
from experiments.store import Store
from experiments.sweep.figures import point_json, samples_of
from experiments.sweep.knees import Measured, latency_knee, memory_knee, offered_knee
from experiments.sweep.limits import best_goodput, limits, pareto
from experiments.sweep.measure import Measure, TargetMeasure
from experiments.sweep.plan import foreseen
from experiments.sweep.points import FLAT_OUT, SEARCHED, SYNCHRONOUS, Point, between, first_points, point_at
from experiments.sweep.spec import AUTO, CONCURRENCY, SweepSpec
from experiments.targets import warnings_of
from ledger.errors import InputError

# What a search between the points may add to them, for the time that is left.
SEARCH_ROOM = 3
LATENCIES = ("ttft_p95_s", "itl_p95_s")
NODE_FIELDS = ("cpu", "cores", "memory_bytes", "device", "threads", "torch", "trilemma")

Record = dict[str, Any]
Task = tuple[Point, int]


class SweepCancelled(Cancelled):
    """Cancelled by the user; `result` is the sweep of the finished points, None without one."""


def run_sweep(
    spec: SweepSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
    make_measure: Callable[[SweepSpec], Measure] | None = None,
) -> dict[str, Any]:
    """Measure a sweep and return its JSON (docs/architecture.md, Sweeps). Records go to `store` (None: nowhere).

    A sweep that was stopped goes on after its last finished point. make_measure: makes what measures a point, here or
    on each node of spec.ray_address; by default the spec's target, in that process. Raises SweepCancelled with what is
    there, InputError and CannotRunError as the target does; a point whose values don't work is told with the reason.
    """
    checked = spec if isinstance(spec, SweepSpec) else SweepSpec.from_dict(spec)
    with rig_or_own(rig) as used:
        return _Sweep(checked, store, run_id, on_live, should_cancel, used, make_measure).run()


class _Sweep:
    def __init__(
        self,
        spec: SweepSpec,
        store: Store | None,
        run_id: str,
        on_live: Callable[[dict[str, Any]], None],
        should_cancel: Callable[[], bool],
        rig: Rig,
        make_measure: Callable[[SweepSpec], Measure] | None,
    ) -> None:
        self.spec, self.store, self.run_id, self.should_cancel = spec, store, run_id, should_cancel
        self.on_live = on_live
        self.points: list[Point] = []
        self.records: dict[tuple[Point, int], Record] = {}
        self.unavailable: list[dict[str, Any]] = []
        self._made: dict[Point, tuple[int, dict[str, Any]]] = {}
        self.kept = self._kept()
        self.places = _Places(self.kept)
        planned = first_points(spec)
        arms = len(planned) + (spec.auto_points if spec.over == AUTO else 0) + (SEARCH_ROOM if self._searches else 0)
        self.live = LiveReport(self._tell, arms=arms, repeats=spec.repeats)
        self.arms = arms
        self.make_measure = make_measure
        here = make_measure(spec) if make_measure is not None and spec.ray_address is None else None
        self.measure: Measure = here or TargetMeasure(spec, rig, self.live, should_cancel)
        self.search: HighestRate | None = None

    @property
    def _searches(self) -> bool:
        spec = self.spec
        return spec.find and spec.slo is not None and not spec.of_variable and unsearchable(spec.slo) is None

    def run(self) -> dict[str, Any]:
        self.live.opening(server=self.spec.endpoint is not None)
        try:
            self._measure_all(first_points(self.spec))
            if self.spec.over == AUTO:
                self._measure_all(between(self.spec, self._rate_of(SYNCHRONOUS), self._rate_of(FLAT_OUT)))
            if not self._finished():
                raise InputError("--over", self.spec.over, self._why_none())
            if self._searches:
                self.search = self._find_highest()
        except Cancelled:
            raise SweepCancelled(self._result(cancelled=True) if self._finished() else None) from None
        self.live.phase("done")
        return self._result()

    # -- measuring -----------------------------------------------------------------------------------------------

    def _measure_all(self, points: Sequence[Point]) -> None:
        """All repeats of these points, in turns; what an earlier start has measured is taken."""
        self.points += [point for point in points if point not in self.points]
        tasks: list[Task] = []
        for repeat in range(1, self.spec.repeats + 1):
            tasks += [(point, repeat) for point in (points if repeat % 2 else list(reversed(points)))]
        for point, repeat in tasks:
            record = self.kept.get(point.key(self.spec, repeat))
            if record is not None:
                self.records[point, repeat] = record
                self.live.unit_done()
        self._run_tasks([task for task in tasks if task not in self.records])

    def _run_tasks(self, tasks: Sequence[Task]) -> None:
        if self.spec.ray_address is not None and tasks:
            from experiments.sweep.fanout import fan_out

            self.live.phase("running")
            fan_out(self.spec, tasks, self._told, self.should_cancel, self.make_measure)
            return
        for point, repeat in tasks:
            if self.should_cancel():
                raise Cancelled
            if any(one["label"] == point.label(self.spec.over) for one in self.unavailable):
                continue
            self.live.begin_run(min(self.points.index(point), self.arms - 1), repeat)
            try:
                self._keep(point, repeat, self.measure(point, repeat))
            except InputError as error:
                self._leave_out(point, error)

    def _told(self, task: Task, outcome: Record | InputError) -> None:
        """A task that another node has finished."""
        point, repeat = task
        self.live.begin_run(min(self.points.index(point), self.arms - 1), repeat)
        if isinstance(outcome, InputError):
            self._leave_out(point, outcome)
        else:
            self._keep(point, repeat, outcome)

    def _leave_out(self, point: Point, error: InputError) -> None:
        """A value that the engine refuses is a row with the reason; the others are measured."""
        row = {"label": point.label(self.spec.over), "value": point.value, "reason": str(error)}
        if row["label"] not in [one["label"] for one in self.unavailable]:
            self.unavailable.append(row)
        self.live.unit_done()

    def _keep(self, point: Point, repeat: int, record: Record) -> None:
        key = point.key(self.spec, repeat)
        record["sweep"] = {"key": key, "label": point.label(self.spec.over), "value": point.value,
                           "origin": point.origin}  # fmt: skip
        self.records[point, repeat] = record
        if self.store is not None:
            self.store.add_record(self.run_id, self.places.of(point, self.spec), repeat, record)
        self.live.end_run(self._json(point)["output_tokens_per_s"])

    def _kept(self) -> dict[str, Record]:
        """Records of an earlier start of this run, by key."""
        if self.store is None:
            return {}
        found = (stored for stored in self.store.records(self.run_id) if "sweep" in stored.record)
        return {stored.record["sweep"]["key"]: {**stored.record, "place": stored.arm} for stored in found}

    def _rate_of(self, origin: str) -> float:
        """Requests/s of one of auto's two first points."""
        point = next(one for one in self.points if one.origin == origin)
        rate = self._json(point)["requests_per_s"] if self._records_of(point) else None
        if not rate:
            raise InputError("--over", "auto", f"a workload that is answered: {self._why_none()}")
        return float(rate)

    def _why_none(self) -> str:
        return "; ".join(one["reason"] for one in self.unavailable) or "no request was answered"

    def _find_highest(self) -> HighestRate | None:
        """The highest load that meets the objectives, searched between the lowest and the highest swept."""
        known = {float(one["value"]): bool(one["meets"]) for one in self._swept() if one["meets"] is not None}
        if len(known) < 2:
            return None

        def meets(load: float) -> bool:
            value = self._value(load)
            if value in known:
                return known[value]
            point = point_at(self.spec, value, SEARCHED)
            self._measure_all([point])
            known[value] = bool(self._records_of(point) and self._json(point)["meets"])
            return known[value]

        found = highest_rate(
            meets, start=min(known), floor=min(known), ceiling=max(known), precision=self.spec.precision,
            known=dict(known),
        )  # fmt: skip
        ends = {name: None if at is None else self._value(at)
                for name, at in (("rate", found.rate), ("missed_at", found.missed_at))}  # fmt: skip
        return HighestRate(ends["rate"], ends["missed_at"], found.outcome, found.met_above_a_miss, found.probes)

    def _value(self, load: float) -> float:
        """A load that can be sent: whole clients, or a rate of five digits as its point keeps it."""
        return int(load) if self.spec.over == CONCURRENCY else float(f"{load:.5g}")

    # -- result --------------------------------------------------------------------------------------------------

    def _records_of(self, point: Point) -> list[Record]:
        return [self.records[point, n] for n in range(1, self.spec.repeats + 1) if (point, n) in self.records]

    def _json(self, point: Point) -> dict[str, Any]:
        """The point as far as it is measured; made once for each number of repeats, since it reads every event."""
        records = self._records_of(point)
        if self._made.get(point, (0, {}))[0] != len(records):
            self._made[point] = (len(records), point_json(self.spec, point, records))
        return self._made[point][1]

    def _finished(self) -> list[Point]:
        """Points with at least one repeat, ascending by load where they have one; those without come first."""
        there = [point for point in self.points if self._records_of(point)]
        if self.spec.of_variable:
            return there
        return sorted(there, key=lambda point: float(point.value) if point.value is not None else 0.0)

    def _swept(self) -> list[dict[str, Any]]:
        return [self._json(point) for point in self._finished() if point.value is not None]

    def _tell(self, live: dict[str, Any]) -> None:
        """The live object with the points so far, for charts that grow."""
        done = [self._json(point) for point in self._finished()]
        kept = ("label", "value", "origin", "output_tokens_per_s", "ttft_p95_s", "itl_p95_s", "meets")
        now = self.points[live["arm"]].label(self.spec.over) if live["arm"] < len(self.points) else ""
        self.on_live({**live, "note": now, "points": [{name: one[name] for name in kept} for one in done]})

    def _result(self, *, cancelled: bool = False) -> dict[str, Any]:
        spec, finished = self.spec, self._finished()
        points = [self._json(point) for point in finished]
        swept = [point for point in points if point["value"] is not None]
        found = self._knees(swept, finished)
        fronts = {latency: pareto(points, latency) for latency in LATENCIES}
        for place, point in enumerate(points):
            point["pareto"] = [latency for latency in LATENCIES if place in fronts[latency]]
        first = self._records_of(finished[0])[0]
        return {
            "over": {"name": spec.over, "values": list(spec.values), "of_variable": spec.of_variable,
                     "unit": {"concurrency": "clients", "rate": "requests/s", "auto": "requests/s"}.get(spec.over)},
            "points": points,
            "unavailable": self.unavailable,
            "knees": found,
            "goodput": best_goodput(points),
            "search": None if self.search is None else self.search.to_json(),
            "limits": self._limits(swept, found),
            "repeats": spec.repeats,
            "workload": {**first["workload"], "num_requests": None},
            "settings": self._settings(),
            "slo": spec.slo,
            "price_per_device_hour": spec.price_per_device_hour,
            "price_provenance": "assumed",
            "environment": first["environment"],
            "nodes": self._nodes(),
            "warnings": self._warnings(points),
            "cancelled": cancelled,
            "run_id": self.run_id,
            "provenance": first["provenance"],
        }  # fmt: skip

    def _settings(self) -> dict[str, Any]:
        """The engine's, without the variable that is swept; a server's own are not known."""
        spec = self.spec
        if spec.endpoint is not None:
            return {}
        if not spec.of_variable:
            return spec.config().settings()
        return {k: v for k, v in spec.config_at(spec.values[0]).settings().items() if k != spec.over}

    def _knees(self, swept: Sequence[dict[str, Any]], finished: Sequence[Point]) -> dict[str, Any]:
        memory = memory_knee(swept)
        if self.spec.of_variable:
            one_load = {"found": False, "load": None, "next_load": None,
                        "reason": "one load was measured: sweep concurrency or rate for this knee"}  # fmt: skip
            return {"latency": one_load, "offered": dict(one_load), "memory": memory}
        measured = [
            Measured(float(point.value), [samples_of(record) for record in self._records_of(point)])
            for point in finished
            if point.value is not None and point.origin != SEARCHED
        ]
        return {
            "latency": latency_knee(measured, closed=self.spec.over == CONCURRENCY),
            "offered": offered_knee(swept),
            "memory": memory,
        }

    def _limits(self, swept: Sequence[dict[str, Any]], found: Mapping[str, Any]) -> dict[str, Any] | None:
        spec = self.spec
        if spec.of_variable:
            return None
        return limits(
            swept, self.search, found, has_objectives=spec.slo is not None, unsearchable=unsearchable(spec.slo),
            headroom=spec.headroom, scale_out_at=spec.scale_out_at, demand_rps=spec.demand_rps,
        )  # fmt: skip

    def _nodes(self) -> list[dict[str, Any]]:
        """Each different machine that points ran on, with how many runs it did."""
        nodes: dict[str, dict[str, Any]] = {}
        for record in self.records.values():
            told = {name: record["environment"].get(name) for name in ("node", *NODE_FIELDS)}
            nodes.setdefault(repr(told), {**told, "runs": 0})["runs"] += 1
        return list(nodes.values())

    def _warnings(self, points: Sequence[Mapping[str, Any]]) -> list[str]:
        every = (busy_warning(record["environment"]) for record in self.records.values())
        busy = next(filter(None, every), None)  # one of several starts or nodes is enough
        found = [*foreseen(self.spec), *([] if busy is None else [busy])]
        nodes = self._nodes()
        differing = [name for name in NODE_FIELDS if len({repr(node[name]) for node in nodes}) > 1]
        if differing:
            found.append(f"points ran on machines that differ in {', '.join(differing)}: they don't compare")
        if any((record.get("warm_up") or {}).get("stable") is False for record in self.records.values()):
            found.append("the warm-up did not settle within 10 %")
        told = (warnings_of(record, point.label(self.spec.over)) for (point, _), record in self.records.items())
        found += dict.fromkeys(text for texts in told for text in texts)
        return found + [f"{point['label']}: {text}" for point in points for text in point["warnings"]]


class _Places:
    """The place of a point among the records of a run: its own from an earlier start, else the next free one."""

    def __init__(self, kept: Mapping[str, Record]) -> None:
        self._places: dict[Point, int] = {}
        self._kept = kept

    def of(self, point: Point, spec: SweepSpec) -> int:
        """The arm under which the point's records are stored."""
        if point not in self._places:
            known = (self._kept.get(point.key(spec, n)) for n in range(1, spec.repeats + 1))
            before = next((record["place"] for record in known if record is not None), None)
            taken = {*self._places.values(), *(record["place"] for record in self._kept.values())}
            self._places[point] = before if before is not None else max(taken, default=-1) + 1
        return self._places[point]
