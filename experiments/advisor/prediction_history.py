"""Stored comparisons of this machine as evidence: the same change repeated, and what predictions were off by.

Owns which comparisons count as the same change on a similar load. Knows the spec and the result of a comparison, no
simulator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from typing import Any

from core_engine.variables import VARIABLES
from experiments.advisor.prediction_estimate import EARLIER, OTHER_LOADS, Estimate
from experiments.foresight import OF_DRAFTS, REPEATING
from experiments.spec import CompareSpec
from experiments.store import Run, Store
from experiments.store.identity import code_hash, environment

MOST_RUNS = 500
SAME_MACHINE = ("cpu", "cores", "gpus")
# Loads whose figures differ by no more than these factors count as similar.
SIMILAR_RATE, SIMILAR_COUNT, SIMILAR_LENGTH = 1.25, 2.0, 1.5
BETWEEN_RUNS = 0.04  # how much two comparisons of one thing differ beyond what each of them sees, ln units
BETWEEN_LOADS, BETWEEN_WORKLOADS = 0.12, 0.25
LEAST_ERROR = 0.01
SHRUNK_BY = 2.0  # earlier errors n of a variable count n / (n + this)
FEWEST_ERRORS = 2


@dataclass(frozen=True)
class Past:
    """A finished comparison. change[curve]: (ln of candidate / baseline, its standard error).

    of_one_pair: the curves of which it has a single pair, whose error nothing tells.
    """

    run_id: str
    spec: Mapping[str, Any]
    change: Mapping[str, tuple[float, float]]
    prediction: Mapping[str, Any] | None = None
    code: str | None = None  # hash of the code that measured it
    of_one_pair: frozenset[str] = frozenset()

    def predicted(self, curve: str) -> Mapping[str, Any] | None:
        """What was predicted of a curve before this ran; None where nothing was."""
        listed = (self.prediction or {}).get("curves") or ()
        found = next((one for one in listed if one["name"] == curve), None)
        return found if found is not None and found["centre_ln"] is not None and not found["exact"] else None

    def residual(self, curve: str, source: str) -> float | None:
        """|outcome - centre| in scales of the prediction, None where that source had not predicted it."""
        said = self.predicted(curve)
        if said is None or said["source"] != source or curve not in self.change or not said["scale_ln"]:
            return None
        return abs(self.change[curve][0] - said["centre_ln"]) / float(said["scale_ln"])

    def error(self, curve: str, source: str) -> float | None:
        """By how much the source itself, before corrections, was off: outcome - its centre, ln units."""
        said = self.predicted(curve)
        if said is None or said["source"] != source or curve not in self.change:
            return None
        return float(self.change[curve][0] - said["uncorrected_ln"])


Match = tuple[Past, int]
"""A comparison of the same change, and 1 or -1: whether it had the two values in this order or in reverse."""


def of_this_machine(store: Store | None) -> list[Past]:
    """Finished comparisons at equal load that ran on a machine like this one, newest first."""
    if store is None:
        return []
    here = environment()
    runs = store.list_runs(MOST_RUNS, kind="compare", state="done")
    return [past_of(run) for run in runs if _counts(run, here)]


def _counts(run: Run, here: Mapping[str, Any]) -> bool:
    if run.result is None or run.environment is None or run.spec.get("endpoints"):
        return False
    same = all(run.environment.get(name) == here[name] for name in SAME_MACHINE)
    return same and run.spec.get("measure", "load") == "load" and not run.result.get("cancelled")


def past_of(run: Run) -> Past:
    """The run as evidence."""
    logs = {curve["name"]: found for curve in (run.result or {}).get("curves") or () if (found := _logs(curve))}
    changes = {name: _change(found) for name, found in logs.items()}
    single = frozenset(name for name, found in logs.items() if len(found) == 1)
    return Past(run.id, run.spec, changes, run.spec.get("predictions"), run.code, single)


def _logs(curve: Mapping[str, Any]) -> list[float]:
    """ln of candidate / baseline of every pair that has both."""
    samples = curve.get("samples") or {}
    pairs = zip(samples.get("baseline") or (), samples.get("candidate") or (), strict=True)
    return [math.log(new / old) for old, new in pairs if old and new and old > 0 and new > 0]


def _change(logs: Sequence[float]) -> tuple[float, float]:
    error = stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else BETWEEN_RUNS
    return fmean(logs), max(LEAST_ERROR, error)


# -- the same change again ---------------------------------------------------------------------------------------


def repeated(spec: CompareSpec, past: Sequence[Past], curves: Sequence[str]) -> dict[str, Estimate]:
    """Curves by earlier comparisons of the same two values (in either order) with the same settings and a like load."""
    matches = [(one, sign) for one in past if (sign := same_change(spec, one.spec)) and similar_load(spec, one.spec)]
    found = {}
    for name in curves:
        known = evidence_of(matches, name)
        if known:
            found[name] = _mean(name, known)
    return found


def under_other_loads(spec: CompareSpec, past: Sequence[Past], curves: Sequence[str]) -> dict[str, Estimate]:
    """The same for curves that nothing else predicts: loads of the same workload, else of any."""
    matches = [(one, sign) for one in past if (sign := same_change(spec, one.spec)) and _of_a_kind(spec, one)]
    alike = [(one, sign) for one, sign in matches if one.spec["workload"] == spec.workload]
    between = BETWEEN_LOADS if alike else BETWEEN_WORKLOADS
    found = {}
    for name in curves:
        known = evidence_of(alike or matches, name)
        if known:
            found[name] = _mean(name, known, between, OTHER_LOADS)
    return found


def evidence_of(matches: Sequence[Match], curve: str) -> Sequence[Match]:
    """Those that measured a curve with this version of the code, else with any.

    A single pair in all is no evidence: it may be the noise of that moment, and nothing tells how much that is.
    """
    known = [(one, sign) for one, sign in matches if curve in one.change]
    mine = [(one, sign) for one, sign in known if one.code == code_hash()]
    return next((found for found in (mine, known) if _more_than_one_pair(found, curve)), ())


def _more_than_one_pair(matches: Sequence[Match], curve: str) -> bool:
    return len(matches) > 1 or any(curve not in one.of_one_pair for one, _ in matches)


def _of_a_kind(spec: CompareSpec, other: Past) -> bool:
    """Drafts live on answers that repeat their prompt: what they do there says nothing of other answers, nor back."""
    drafting = spec.variable == "speculation" or spec.variable in OF_DRAFTS
    return not drafting or (spec.workload in REPEATING) == (other.spec["workload"] in REPEATING)


def _mean(curve: str, known: Sequence[Match], between: float = BETWEEN_RUNS, source: str = EARLIER) -> Estimate:
    """Inverse-variance mean of the changes; the scale holds its own error and that of one more comparison."""
    values = [(sign * one.change[curve][0], one.change[curve][1]) for one, sign in known]
    run_ids = [one.run_id for one, _ in known]
    weights = [1 / (between**2 + error**2) for _, error in values]
    centre = sum(weight * value for weight, (value, _) in zip(weights, values, strict=True)) / sum(weights)
    if len(values) > 2:
        between = max(between, stdev(value for value, _ in values))
    scale = math.sqrt(1 / sum(weights) + between**2 + median(error for _, error in values) ** 2)
    listed = ", ".join(run_ids[:3]) + (f" and {len(run_ids) - 3} more" if len(run_ids) > 3 else "")
    where = "" if source == EARLIER else " under other loads"
    of = "" if known[0][0].code == code_hash() else " of another version of the code"
    return Estimate(centre, scale, source, "measured", f"{len(run_ids)} earlier comparisons{where}{of}: {listed}")


def same_change(spec: CompareSpec, other: Mapping[str, Any]) -> int:
    """1 for the same two values under the same settings, -1 for them in reverse, 0 otherwise."""
    if other.get("variable") != spec.variable or _settings(other) != _settings(spec.to_dict()):
        return 0
    values = tuple(map(str, other.get("values") or ()))
    asked = tuple(map(str, spec.values))
    return 1 if values == asked else -1 if values == asked[::-1] else 0


def _settings(spec: Mapping[str, Any]) -> dict[str, str]:
    """What is set otherwise than usual; the seed of the engine changes no time."""
    given = {name: str(value) for name, value in (spec.get("settings") or {}).items()}
    return {n: v for n, v in given.items() if n != "seed" and v != str(VARIABLES[n].default if n in VARIABLES else "")}


def similar_load(spec: CompareSpec, other: Mapping[str, Any]) -> bool:
    """Whether the workload is the same and its amounts are near."""
    mine = spec.to_dict()
    if mine["workload"] != other.get("workload") or mine["concurrency"] != other.get("concurrency"):
        return False
    factors = {
        "rate_rps": SIMILAR_RATE, "time_scale": SIMILAR_RATE, "length_scale": SIMILAR_RATE,
        "num_requests": SIMILAR_COUNT, "max_tokens_cap": SIMILAR_LENGTH, "max_prompt_tokens": SIMILAR_LENGTH,
    }  # fmt: skip
    return all(_near(mine[name], other.get(name), factor) for name, factor in factors.items())


def _near(first: float | None, second: float | None, factor: float) -> bool:
    if first is None or second is None:
        return first is None and second is None
    return max(first, second) <= factor * min(first, second)


# -- what a source was off by --------------------------------------------------------------------------------------


def corrected(spec: CompareSpec, curve: str, estimate: Estimate, past: Sequence[Past]) -> Estimate:
    """The estimate moved by what its source was off by for this variable before, shrunk where that is little known."""
    way = direction(spec.variable, spec.values)
    errors = [
        direction(spec.variable, one.spec["values"]) * error
        for one in past
        if one.spec.get("variable") == spec.variable and (error := one.error(curve, estimate.source)) is not None
    ]
    if len(errors) < FEWEST_ERRORS or not way:
        return replace(estimate, uncorrected=estimate.centre)
    shift = way * median(errors) * len(errors) / (len(errors) + SHRUNK_BY)
    basis = f"{estimate.basis}; moved by {100 * math.expm1(shift):+.1f} % as {len(errors)} earlier predictions were off"
    return replace(estimate, centre=estimate.centre + shift, uncorrected=estimate.centre, basis=basis)


def direction(variable: str, values: Sequence[Any]) -> int:
    """1 or -1 by the order of the two values (of a choice, that of the registry), 0 where they are the same."""
    entry, (first, second) = VARIABLES.get(variable), values
    if entry is not None and entry.kind == "choice":
        places = [entry.choices.index(value) if value in entry.choices else -1 for value in (first, second)]
        first, second = places
    elif str(first) != str(second) and not (_is_number(first) and _is_number(second)):
        first, second = str(first), str(second)
    return (second > first) - (second < first)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
