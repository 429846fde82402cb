"""What a change of one variable will do to the five curves, said before anything runs.

Owns the shape of a prediction and the order in which its sources are asked:

1. earlier comparisons of the same change on this machine and a similar load (prediction_history.py), measured;
2. the calibrated simulator, both arms on the very requests that the comparison will send (prediction_simulated.py),
   corrected by what it was off by before for this variable;
3. the simulator's arithmetic where only the baseline is calibrated and the formats alone differ, computed;
4. earlier comparisons of the same change under other loads, measured, with a wider scale;
5. else nothing: a curve without a source says "measure".

Quality has sources of its own (prediction_quality.py). Every source gives a centre and a scale in ln units; how wide
the 80 % band then is follows from how far earlier predictions of that source were off (prediction_bands.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from experiments.advisor.prediction_bands import band_factor
from experiments.advisor.prediction_estimate import BETTER, NO_DIFFERENCE, QUALITY, TIMED, Estimate, verdict_of
from experiments.advisor.prediction_history import Past, corrected, of_this_machine, repeated, under_other_loads
from experiments.advisor.prediction_quality import quality
from experiments.spec import CompareSpec
from experiments.store import Store
from ledger.errors import CannotRunError, InputError

VERSION = 1


@dataclass(frozen=True)
class CurvePrediction:
    """One curve: the change in %, its 80 % band, the verdict it amounts to and where it is from.

    The *_ln fields are what the band was made of; the score and later bands read them. A curve that nothing predicts
    has None and says why in `basis`.
    """

    name: str
    median_pct: float | None
    band80_pct: tuple[float, float] | None
    verdict: str | None
    source: str
    provenance: str | None
    basis: str
    exact: bool = False
    centre_ln: float | None = None
    uncorrected_ln: float | None = None
    scale_ln: float | None = None
    factor: float | None = None

    @property
    def may_gain(self) -> bool:
        """Whether the band reaches a change that a comparison would call better; False without a band."""
        ends = self.band80_pct or ()
        return any(verdict_of(self.name, math.log1p(end / 100)) == BETTER for end in ends)


@dataclass(frozen=True)
class Prediction:
    """Of one comparison. made_at: ISO 8601 in UTC. notes: what a reader should know of its sources."""

    variable: str
    from_value: Any
    to_value: Any
    curves: tuple[CurvePrediction, ...]
    notes: tuple[str, ...] = ()
    made_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    version: int = VERSION

    def curve(self, name: str) -> CurvePrediction:
        """One of the five."""
        return next(curve for curve in self.curves if curve.name == name)

    @property
    def is_empty(self) -> bool:
        """Whether no timed curve is predicted."""
        return all(self.curve(name).median_pct is None for name in TIMED)

    @property
    def may_help(self) -> bool:
        """Whether no band rules a gain out: one reaches a gain, or a timed curve has none."""
        unknown = any(self.curve(name).band80_pct is None for name in TIMED)
        return unknown or any(curve.may_gain for curve in self.curves)

    def to_json(self) -> dict[str, Any]:
        """As it is stored with a run."""
        found = asdict(self)
        for curve in found["curves"]:
            curve["band80_pct"] = None if curve["band80_pct"] is None else list(curve["band80_pct"])
        return {**found, "curves": list(found["curves"]), "notes": list(self.notes)}


def predict(spec: CompareSpec | Mapping[str, Any], store: Store | None = None, *, tokenizer: Any = None) -> Prediction:
    """The prediction for a comparison. tokenizer: of its model, when the caller has it loaded.

    InputError for a spec that is not valid. What can't be predicted is said in the curves, never raised.
    """
    checked = spec if isinstance(spec, CompareSpec) else CompareSpec.from_dict(spec)
    past = of_this_machine(store)
    refused = _not_predictable(checked)
    notes: list[str] = []
    timed: dict[str, Estimate] = {} if refused else _timed(checked, past, tokenizer, notes)
    reason = refused or "; ".join(notes) or "nothing predicts this curve"
    curves = [_curve(name, timed.get(name), past, reason) for name in TIMED]
    estimate, why = (None, refused) if refused else quality(checked, past, store)
    curves.append(_curve(QUALITY, estimate, past, why or reason))
    return Prediction(checked.variable, *checked.values, tuple(curves), tuple(dict.fromkeys(notes)))


def _not_predictable(spec: CompareSpec) -> str | None:
    if spec.endpoints is not None:
        return "two servers: nothing is known of either before it is measured"
    if spec.measure != "load":
        return "a comparison of capacities searches for rates; only comparisons at equal load are predicted"
    return None


def _timed(spec: CompareSpec, past: Sequence[Past], tokenizer: Any, notes: list[str]) -> dict[str, Estimate]:
    """The four timed curves by the first source that has them."""
    found = repeated(spec, past, TIMED)
    missing = [name for name in TIMED if name not in found]
    if not missing:
        return found
    from experiments.advisor.prediction_simulated import simulated

    try:
        estimates, told = simulated(spec, tokenizer)
    except (CannotRunError, InputError) as error:
        elsewhere = under_other_loads(spec, past, missing)
        if len(elsewhere) < len(missing):
            notes.append(f"cannot predict: measure ({error})")
        return elsewhere | found
    notes += told
    return {name: corrected(spec, name, estimates[name], past) for name in missing if name in estimates} | found


def _curve(name: str, estimate: Estimate | None, past: Sequence[Past], reason: str) -> CurvePrediction:
    if estimate is None:
        return CurvePrediction(name, None, None, None, "none", None, reason)
    about = (estimate.source, estimate.provenance, estimate.basis)
    if estimate.exact:
        return CurvePrediction(name, 0.0, (0.0, 0.0), NO_DIFFERENCE, *about, True, 0.0, 0.0, 0.0, 0.0)
    factor = band_factor(estimate.source, name, past)
    half = factor * estimate.scale
    return CurvePrediction(
        name,
        _pct(estimate.centre),
        (_pct(estimate.centre - half), _pct(estimate.centre + half)),
        verdict_of(name, estimate.centre),
        *about,
        False,
        estimate.centre,
        estimate.centre if estimate.uncorrected is None else estimate.uncorrected,
        estimate.scale,
        factor,
    )


def _pct(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)
