"""Climbs a ladder: each step compared with the settings as they are by then, adopted or taken back, and the whole
measured against the start.

The result: {"kind":"ladder","recipe","workload","slo","aim","start": settings,"end": settings,"steps":[{"name",
"changes":{VARIABLE:[from,to]},"because":{VARIABLE: the value that needs it},"effort","hours","rank","moves","outcome",
"reasons","comparison": as `trilemma compare --json` without what all runs share, or null,"quality": see guard.py, or
null,"simulate": a command or null,"place","code": hash of the code that made it}],"overall":{"comparison","quality",
"outcome","reasons","code"} or null where the end is the start,"undone": names of steps taken back by that last look,
"returns": see roi.py,"order": see roi.py,"repeats","environment","warnings","cancelled","run_id","provenance"}. outcome
is "adopted", "rolled back", "undecided", "already there" or "can't run here".

The end is measured against the start directly, since gains of steps don't multiply. Where that shows a guarded curve
worse, the last step is taken back and it is measured again.

A finished step is kept under the run's id, a finished repeat as a record of the run: a ladder that goes on repeats
neither. Where the code has changed meanwhile, the steps that were measured before are named in a warning, and the
comparison that was under way begins anew: its arms have to be of one version.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from experiments.compare import run_comparison
from experiments.loadgen import Cancelled
from experiments.playbook.decide import FORBIDDING, decide
from experiments.playbook.guard import guard_quality
from experiments.playbook.outcomes import ADOPTED, CANT_RUN, ROLLED_BACK, THERE
from experiments.playbook.roi import order_of, return_rows
from experiments.playbook.spec import LadderSpec
from experiments.playbook.steps import EFFORT_PROVENANCE, Step
from experiments.playbook.trial import (
    Settings,
    StepRecords,
    changed,
    complete,
    spec_of_step,
    touches_outputs,
    with_step,
)
from experiments.quality.kept import key_of
from experiments.rig import Rig, rig_or_own
from experiments.spec import BenchSpec
from experiments.store import Store
from experiments.store.identity import code_hash
from experiments.targets import target_for
from ledger.errors import CannotRunError, InputError

OVERALL = "start to end"
# Of a comparison: the same for all of the ladder, or long and of no use to a step.
LEFT_OUT = ("environment", "workload", "held_equal", "run_id", "guess_pct", "price_per_device_hour", "slo", "capacity")
LEFT_OUT_OF_METRICS = ("config", "environment", "workload", "in_other_terms", "target")
# What a step that can't run here is simulated on; any other of the catalogue can be put in its place.
CARD = "h100-sxm"
# A live object while no comparison tells anything.
NO_WORK: dict[str, Any] = {
    "arm": 0, "repeat": 1, "repeats": 1, "fraction": 0.0, "eta_s": None, "snapshot": None, "series": None,
}  # fmt: skip

Row = dict[str, Any]
Guard = Callable[..., dict[str, Any]]
"""As guard_quality."""


class LadderCancelled(Cancelled):
    """Cancelled by the user; `result` is the ladder of the finished steps, None without one."""


def run_ladder(
    spec: LadderSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
    guard: Guard = guard_quality,
) -> dict[str, Any]:
    """Climb and return the JSON above; `store` (None: nowhere) keeps what is finished.

    Raises LadderCancelled with what is there, and InputError or CannotRunError when the start itself can't run; a step
    that can't is told with the reason and passed over.
    """
    checked = spec if isinstance(spec, LadderSpec) else LadderSpec.from_dict(spec)
    return _Ladder(checked, store, run_id, on_live, should_cancel, rig, guard).run()


class _Ladder:
    def __init__(
        self,
        spec: LadderSpec,
        store: Store | None,
        run_id: str,
        on_live: Callable[[dict[str, Any]], None],
        should_cancel: Callable[[], bool],
        rig: Rig | None,
        guard: Guard,
    ) -> None:
        self.spec, self.store, self.run_id, self.should_cancel = spec, store, run_id, should_cancel
        self.rig, self.guard = rig, guard
        self.steps = spec.all_steps()
        self.start = spec.start_settings()
        self.current: Settings = dict(self.start)
        self.rows: list[Row] = []
        self.befores: dict[str, Settings] = {}
        self.overall: Row | None = None
        self.undone: list[str] = []
        self.environment: dict[str, Any] = {}
        self.workload: dict[str, Any] = {}
        self.live = _Live(on_live, len(self.steps) + 1)

    def run(self) -> dict[str, Any]:
        try:
            self._begin()
            for place, step in enumerate(self.steps):
                self._climb(place, step)
            self._look_back()
        except Cancelled:
            raise LadderCancelled(self._result(cancelled=True) if self.rows else None) from None
        self.live.done()
        return self._result()

    def _begin(self) -> None:
        """The start has to run: what is refused later is a step's fault."""
        self.live.begin(0, "")
        with rig_or_own(self.rig) as rig:
            common = {name: getattr(self.spec, name) for name in BenchSpec.__dataclass_fields__}
            spec = BenchSpec(**{**common, "settings": dict(self.start)})
            target = target_for(spec, rig)
            workload = target.draw(spec)
            self.workload = workload.describe()
            target.warm_up(workload, self.should_cancel)

    # -- one step ------------------------------------------------------------------------------------------------

    def _climb(self, place: int, step: Step) -> None:
        if self.should_cancel():
            raise Cancelled
        self.live.begin(place, step.name)
        row = self._kept_or(place, step.name, lambda: self._try(place, step))
        self.befores[step.name] = dict(self.current)
        self.rows.append(row)
        if row["outcome"] == ADOPTED:
            self.current = {**self.current, **{name: values[1] for name, values in row["changes"].items()}}
        self.live.told(row)

    def _try(self, place: int, step: Step) -> Row:
        row: Row = {
            "name": step.name, "place": place, "changes": {}, "because": {}, "effort": step.effort,
            "hours": step.hours, "rank": step.rank, "moves": list(step.moves), "outcome": THERE, "reasons": [],
            "comparison": None, "quality": None, "simulate": None,
        }  # fmt: skip
        now = complete(self.current)
        if step.is_there(now):
            values = {name: now[name] for name in step.changes}
            return {**row, "reasons": [{"code": "there", "values": values}]}
        try:
            after, because = with_step(self.current, step)
            moved = {name: list(values) for name, values in changed(self.current, after).items()}
            row |= {"changes": moved, "because": because}
            comparison, quality = self._measure(place, step.name, self.current, after)
        except (InputError, CannotRunError) as error:
            wanted = {name: [now[name], value] for name, value in step.changes.items() if now[name] != value}
            row |= {"changes": wanted, "outcome": CANT_RUN, "simulate": self._simulate(step)}
            return {**row, "reasons": [{"code": "cant_run", "error": str(error)}]}
        decision = decide(comparison, quality)
        return {**row, "comparison": comparison, "quality": quality, "outcome": decision.outcome,
                "reasons": list(decision.reasons)}  # fmt: skip

    def _measure(self, place: int, name: str, before: Settings, after: Settings) -> tuple[Row, Row | None]:
        """The comparison, trimmed, and the guard where answers can change."""
        spec = spec_of_step(self.spec, name, before, after)
        records = StepRecords(self.store, self.run_id, place, spec)
        with rig_or_own(self.rig) as rig:
            result = run_comparison(
                spec, records, self.run_id, self.live.inner, self.should_cancel, rig=rig, kept=records.kept()
            )
            quality = None
            if touches_outputs(before, after):
                quality = self.guard(
                    self.start,
                    after,
                    most_drop=self.spec.most_drop(),
                    limit=self.spec.quality_items,
                    kept=self.store,
                    rig=rig,
                    on_live=self.live.inner,
                    should_cancel=self.should_cancel,
                )
        return {**_trimmed(result), "environment": result["environment"]}, quality

    def _kept_or(self, place: int, name: str, make: Callable[[], Row]) -> Row:
        """A step that an earlier start of this run has finished, else a new one, kept."""
        key = key_of("ladder", self.run_id, place, name, sorted(self.current.items()), self.spec.to_dict())
        if self.store is not None and (found := self.store.scores([key])):
            row: Row = found[key]
        else:
            row = {**make(), "code": code_hash()}
            if self.store is not None:
                self.store.keep_scores({key: row})
        environment = (row["comparison"] or {}).get("environment")
        self.environment = self.environment or environment or {}
        return row

    def _simulate(self, step: Step) -> str | None:
        """The command that asks the simulator for what can't run here."""
        if not step.simulate:
            return None
        load = self.spec
        words = ["trilemma", "simulate", str(self.start.get("model", "embedded")), "--gpu", CARD]
        words += ["--workload", load.workload]
        words += ["--rate", f"{load.rate_rps:g}"] if load.rate_rps else []
        words += ["--concurrency", str(load.concurrency)] if load.concurrency else []
        words += ["--slo", load.slo] if load.slo else []
        return f"{shlex.join(words)} {step.simulate}"

    # -- the whole -----------------------------------------------------------------------------------------------

    def _look_back(self) -> None:
        """Start against end; while that is worse in a guarded curve, the last adopted step is taken back."""
        place = len(self.steps)
        while adopted := [row for row in self.rows if row["outcome"] == ADOPTED]:
            self.live.begin(len(self.steps), OVERALL)
            self.overall = self._kept_or(place, OVERALL, partial(self._against_start, place))
            if not any(reason["code"] in FORBIDDING for reason in self.overall["reasons"]):
                return
            last = adopted[-1]
            last["outcome"] = ROLLED_BACK
            last["reasons"] = [{"code": "undone", "reasons": self.overall["reasons"]}, *last["reasons"]]
            self.undone.append(last["name"])
            self.current = self.befores[last["name"]]
            self.live.told(last)
            place += 1
        self.overall = None

    def _against_start(self, place: int) -> Row:
        comparison, quality = self._measure(place, OVERALL, self.start, self.current)
        decision = decide(comparison, quality)
        return {"comparison": comparison, "quality": quality, "outcome": decision.outcome,
                "reasons": list(decision.reasons)}  # fmt: skip

    def _result(self, *, cancelled: bool = False) -> dict[str, Any]:
        spec = self.spec
        returns = return_rows(self.rows, str(spec.aim))
        return {
            "kind": "ladder",
            "recipe": spec.recipe,
            "workload": self.workload,
            "slo": spec.slo,
            "aim": spec.aim,
            "most_drop": spec.most_drop(),
            "start": dict(self.start),
            "end": dict(self.current),
            "changed": {name: list(values) for name, values in changed(self.start, self.current).items()},
            "steps": self.rows,
            "overall": self.overall,
            "undone": self.undone,
            "returns": returns,
            "order": order_of(returns),
            "effort_provenance": EFFORT_PROVENANCE,
            "repeats": spec.repeats or "auto",
            "price_per_device_hour": spec.price_per_device_hour,
            "price_provenance": "assumed",
            "environment": self.environment,
            "warnings": self._warnings(),
            "cancelled": cancelled,
            "run_id": self.run_id,
            "provenance": "measured",
        }

    def _warnings(self) -> list[str]:
        """Each once, with the steps that it was said of."""
        of: dict[str, list[str]] = {}
        for row in self.rows:
            for text in (row["comparison"] or {}).get("warnings") or ():
                of.setdefault(text, []).append(row["name"])
        told = [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in of.items()]
        rows = [*self.rows, *([{"name": OVERALL, **self.overall}] if self.overall else [])]
        older = [row["name"] for row in rows if row.get("code") != code_hash()]
        if older:
            told.append(f"{', '.join(older)}: measured before the ladder was resumed, by another version of the code")
        return told


def _trimmed(result: Mapping[str, Any]) -> Row:
    found = {name: value for name, value in result.items() if name not in LEFT_OUT}
    found["arms"] = [
        {**arm, "metrics": {name: value for name, value in arm["metrics"].items() if name not in LEFT_OUT_OF_METRICS}}
        for arm in result["arms"]
    ]
    return found


class _Live:
    """The live object of a ladder: that of the comparison or evaluation under way, with the step and how far all is.

    "step": its name, "" before the first; "verdicts": [[step, outcome], ...] of those that are finished.
    """

    def __init__(self, publish: Callable[[dict[str, Any]], None], units: int) -> None:
        self._publish, self._units = publish, units
        self._place, self._step = 0, ""
        self._began_s: float | None = None
        self._first = 0.0
        self._verdicts: list[list[str]] = []
        self._fraction = 0.0

    def begin(self, place: int, step: str) -> None:
        """A step, or the last look, begins."""
        self._place, self._step, self._fraction = place, step, 0.0
        self.inner({**NO_WORK, "phase": "loading"})

    def inner(self, live: dict[str, Any]) -> None:
        """What the work of a step tells."""
        if live["phase"] == "done":  # a step's comparison is, not the ladder
            return
        guarding = live["phase"] in ("items", "texts", "speed")
        share = 0.9 + 0.1 * live["fraction"] if guarding else 0.9 * live["fraction"]
        self._fraction = max(self._fraction, share)
        done = (self._place + self._fraction) / self._units
        now_s = time.monotonic()
        if self._began_s is None and live["phase"] == "running":
            self._began_s, self._first = now_s, done
        self._publish({**live, "estimate": None, "step": self._step, "verdicts": self._verdicts,
                       "fraction": min(1.0, done), "eta_s": self._eta_s(done, now_s)})  # fmt: skip

    def told(self, row: Row) -> None:
        """A step has its outcome."""
        self._verdicts = [*(one for one in self._verdicts if one[0] != row["name"]), [row["name"], row["outcome"]]]

    def done(self) -> None:
        """All of it is over."""
        self._publish({**NO_WORK, "phase": "done", "fraction": 1.0, "eta_s": 0.0, "estimate": None, "step": "",
                       "verdicts": self._verdicts})  # fmt: skip

    def _eta_s(self, done: float, now_s: float) -> float | None:
        """If the rest goes as fast as what was done since measuring began; None before a tenth of a step is."""
        if self._began_s is None or (done - self._first) * self._units < 0.1:
            return None
        return round((now_s - self._began_s) / (done - self._first) * (1 - done), 1)
