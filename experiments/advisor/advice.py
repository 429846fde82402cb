"""One next change out of a diagnosis: what it should do, what it takes, what would refute it, and its test.

Owns which of the proposed changes is the next one: the first of the ranked causes' changes that can be tested here and
of which no prediction rules out that it helps; what was passed over is named with the reason. A diagnosis of a server
elsewhere has no run here to test with: the change and its flags are given, and no prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from core_engine.variables import VARIABLES, Value
from experiments import jobs
from experiments.advisor.advice_flags import Flag, flags
from experiments.advisor.prediction import Prediction, predict
from experiments.advisor.record import with_prediction
from experiments.spec import DEFAULT_REPEATS, BenchSpec, CompareSpec, checked_settings, needed_values
from experiments.store import Run, Store
from ledger.errors import InputError

NOT_HERE = "nothing runs here under one load that it could be tested with: measure it where it serves, one at a time"
TESTABLE = ("bench", "compare")  # kinds whose every arm is one load under one set of settings
OF_A_BENCH = tuple(BenchSpec().to_dict())


class ProposedChange(Protocol):
    """A change as a cause proposes it (see finding.Change)."""

    @property
    def variable(self) -> str: ...
    @property
    def from_value(self) -> Value | None: ...
    @property
    def to_value(self) -> Value | None: ...
    @property
    def why(self) -> str: ...
    @property
    def refuted_by(self) -> str: ...
    @property
    def effort(self) -> str: ...


class RankedCause(Protocol):
    """A finding with its changes, the likeliest first."""

    @property
    def cause(self) -> str: ...
    @property
    def changes(self) -> Sequence[ProposedChange]: ...


@dataclass(frozen=True)
class PassedOver:
    """A change that is not the next one, and why."""

    variable: str
    to_value: Value | None
    reason: str

    def is_of(self, advice: Advice) -> bool:
        """Whether it is the very change that an advice is about."""
        return (self.variable, self.to_value) == (advice.variable, advice.to_value)


@dataclass(frozen=True)
class Advice:
    """The next change. test: the comparison that tests it with the prediction in it, None with the reason."""

    cause: str
    variable: str
    from_value: Value | None
    to_value: Value | None
    why: str
    effort: str
    refuted_by: str
    flags: tuple[Flag, ...]
    prediction: Prediction | None = None
    test: Mapping[str, Any] | None = None
    no_test: str | None = None
    passed_over: tuple[PassedOver, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The advice as JSON."""
        return {
            "cause": self.cause,
            "variable": self.variable,
            "from": self.from_value,
            "to": self.to_value,
            "why": self.why,
            "effort": self.effort,
            "refuted_by": self.refuted_by,
            "flags": [flag.to_json() for flag in self.flags],
            "prediction": None if self.prediction is None else self.prediction.to_json(),
            "test": None if self.test is None else dict(self.test),
            "no_test": self.no_test,
            "passed_over": [
                {"variable": one.variable, "to": one.to_value, "reason": one.reason} for one in self.passed_over
            ],
        }


def advise(
    findings: Iterable[RankedCause], base: BenchSpec | None, store: Store | None, *, tokenizer: Any = None
) -> Advice | None:
    """The next change; None when no cause proposes any. base: the run that the evidence is of, None for a server."""
    passed: list[PassedOver] = []
    kept: Advice | None = None  # the first change, when a prediction speaks against each
    for cause, change in ((one.cause, change) for one in findings for change in one.changes):
        try:
            test = None if base is None else comparison_for(change, base)
        except InputError as error:
            passed.append(PassedOver(change.variable, change.to_value, str(error)))
            continue
        if test is None:
            elsewhere = base is None or base.endpoint is not None
            made = _advice(cause, change, no_test=NOT_HERE if elsewhere else "no setting of an engine")
            if base is None:
                return made
            kept = kept or made
            continue
        prediction = predict(test, store, tokenizer=tokenizer)
        made = _advice(cause, change, test=test, prediction=prediction)
        if prediction.may_help:
            return replace(made, passed_over=tuple(passed))
        passed.append(PassedOver(change.variable, change.to_value, "predicted to make no curve better"))
        kept = kept or made
    return None if kept is None else replace(kept, passed_over=tuple(one for one in passed if not one.is_of(kept)))


def _advice(
    cause: str,
    change: ProposedChange,
    *,
    test: CompareSpec | None = None,
    prediction: Prediction | None = None,
    no_test: str | None = None,
) -> Advice:
    first, second = (change.from_value, change.to_value) if test is None else test.values
    spec = None
    if test is not None and prediction is not None:
        spec = with_prediction(test.to_dict(), prediction)
    return Advice(
        cause, change.variable, first, second, change.why, change.effort, change.refuted_by,
        tuple(flags(change.variable, second)), prediction, spec, no_test,
    )  # fmt: skip


def comparison_for(change: ProposedChange, base: BenchSpec) -> CompareSpec | None:
    """The comparison that tests a change on the load of `base`; None for what is no setting of an engine.

    InputError where the engine can't have it, or where it is so already.
    """
    name = change.variable
    if name not in VARIABLES or base.endpoint is not None:
        return None
    if change.to_value is None:
        raise InputError(name, "no value", f"one found by a search: trilemma sweep --over {name}=VALUE,VALUE,...")
    held = {key: value for key, value in base.settings.items() if key != name}
    now = base.settings.get(name, needed_values(held.items()).get(name, VARIABLES[name].default))
    first = now if change.from_value is None else change.from_value
    if str(first) == str(change.to_value):
        raise InputError(name, change.to_value, "another value: it is so already")
    spec = {**base.to_dict(), "settings": held, "variable": name, "values": [first, change.to_value]}
    made = CompareSpec.from_dict({**spec, "repeats": DEFAULT_REPEATS})
    made.configs()  # InputError for values that don't go together
    return made


def base_of(run: Run, arm: int = 0) -> BenchSpec | None:
    """The spec of one arm of a stored run: what a change is tested against. None for a kind without one such load."""
    if run.kind not in TESTABLE:
        return None
    if run.kind == "compare":
        return CompareSpec.from_dict(run.spec).arms()[arm]
    given = {name: run.spec[name] for name in OF_A_BENCH if run.spec.get(name) is not None}
    return BenchSpec.from_dict({**given, "settings": checked_settings(run.spec.get("settings"))})


def start_test(advice: Advice, store: Store, *, started_by: str | None = None) -> str:
    """Start the comparison as a job, its prediction stored before; the run's id. InputError without a test.

    started_by: as `jobs.start` takes it.
    """
    if advice.test is None:
        raise InputError("advice", advice.variable, advice.no_test or "one that can be tested here")
    return jobs.start("compare", advice.test, store, started_by=started_by)
