"""From measured steps to a device profile: least squares in relative error, with coefficients that are never negative.

A step's time is linear in what is unknown: for every class the slowdown against the roof (for weight matrices one for
each of a few numbers of tokens, put between as Efficiency does), a constant and a share a row. Elementwise work is
counted at its roof: it grows with the tokens as the matrices do, and the two can't be told apart. Each observation is
divided by what was measured, so that a short step counts as much as a long one; observations far off the first fit
count less (Huber weights), since a step that the system held up says nothing about the engine. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from ledger.device_profile import CLASSES, DeviceProfile, Efficiency
from ledger.errors import InputError
from ledger.step_time import StepShape, StepTimes

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
SMOOTH = 0.05  # weight of a bend between neighbouring nodes against a relative error of 1
ROUNDS = 6
HUBER = 1.5  # in standard deviations, as the median of the absolute residuals gives it
FOLDS = 5
SOLVED = tuple(kind for kind in CLASSES if kind not in ("linear", "elementwise"))
UNSEEN = 1e-9
FEWEST = 12


@dataclass(frozen=True)
class Observation:
    """A step's shape, and what its execution took, s. group: steps that are left out together when errors are
    cross-validated, since they are repeats of one another or nearly so."""

    shape: StepShape
    seconds: float
    group: str
    weight: float = 1.0


@dataclass(frozen=True)
class Fit:
    """A profile with its residuals: relative errors of the observations, and of each when its group was left out."""

    profile: DeviceProfile
    residuals: tuple[float, ...]
    left_out: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Mean, 95th percentile and largest absolute error in %, of the fit and cross-validated."""
        return {
            "observations": len(self.residuals),
            "fitted_error_pct": _errors(self.residuals),
            "cross_validated_error_pct": _errors(self.left_out),
        }


def fit(times: StepTimes, observations: Sequence[Observation]) -> Fit:
    """The profile of `times` with efficiencies that explain the observations of executions; host times are left as they
    are. InputError with too few observations."""
    if len(observations) < FEWEST:
        raise InputError("observations", len(observations), f"at least {FEWEST} steps")
    bare = _bare(times, [item.shape.tokens for item in observations])
    matrix = np.array([_row(bare, item.shape) for item in observations])
    known = np.array([bare.roofs_s(item.shape)["elementwise"] for item in observations])
    seconds = np.array([item.seconds for item in observations])
    weights = np.array([item.weight for item in observations])
    count = len(bare.profile.efficiency("linear").slowdown)
    found = _solve(matrix, known, seconds, weights, count)
    groups = sorted({item.group for item in observations})
    left_out = np.zeros(len(observations))
    for fold in range(FOLDS):
        out = np.array([groups.index(item.group) % FOLDS == fold for item in observations])
        if out.any() and not out.all():
            other = _solve(matrix[~out], known[~out], seconds[~out], weights[~out], count)
            left_out[out] = (matrix[out] @ other + known[out]) / seconds[out] - 1
    residuals = (matrix @ found + known) / seconds - 1
    return Fit(_profile(bare, found), tuple(residuals.tolist()), tuple(left_out.tolist()))


def _bare(times: StepTimes, tokens: Sequence[int]) -> StepTimes:
    """The same with every class at its roof, and nodes for the weight matrices over the tokens that were measured."""
    nodes = [node for node in NODES if min(tokens) <= node <= max(tokens)] or [min(tokens)]
    known = {kind: Efficiency(slowdown=((1, 1.0),)) for kind in CLASSES}
    known["linear"] = Efficiency(slowdown=tuple((node, 1.0) for node in nodes))
    nothing = {
        "host_step_s": 0.0,
        "host_row_s": 0.0,
        "launch_s": 0.0,
        "kernel_s": 0.0,
        "graph_launch_s": 0.0,
        "processors": 0,
    }
    profile = replace(times.profile, efficiencies=known, **nothing)  # type: ignore[arg-type]
    return StepTimes(times.spec, profile, weights=times.weights, kv_dtype=times.kv_dtype)


def _row(bare: StepTimes, shape: StepShape) -> list[float]:
    """Seconds at the roof of each unknown: the nodes of weight matrices, the other classes, a step, a row."""
    linear = bare.profile.efficiency("linear")
    nodes = [0.0] * len(linear.slowdown)
    roofs = bare.roofs_s(shape)
    for rows, seconds in ((shape.tokens, roofs["layers"]), (shape.sampled, roofs["head"])):
        for place, share in linear.parts(rows) if rows else ():
            nodes[place] += share * seconds
    return [*nodes, *(roofs[kind] for kind in SOLVED), 1.0, float(shape.rows)]


def _solve(matrix: np.ndarray, known: np.ndarray, seconds: np.ndarray, weights: np.ndarray, nodes: int) -> np.ndarray:
    relative, wanted = matrix / seconds[:, None], 1 - known / seconds
    scale = relative.max(axis=0)
    scale[scale < UNSEEN] = 1.0  # a node that no observation is near: only its neighbours speak for it
    bends = _bends(nodes, matrix.shape[1], scale)
    huber = np.ones(len(seconds))
    found = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        root = np.sqrt(weights * huber)
        left = np.vstack([relative / scale * root[:, None], bends])
        right = np.concatenate([root * wanted, np.zeros(len(bends))])
        found = nnls(left, right)[0] / scale
        errors = np.abs(relative @ found - wanted)
        spread = max(1e-4, 1.4826 * float(np.median(errors)))
        huber = np.minimum(1.0, HUBER * spread / np.maximum(errors, 1e-12))
    return found


def _bends(nodes: int, columns: int, scale: np.ndarray) -> np.ndarray:
    """Second differences of neighbouring nodes, so that one without observations lies between its neighbours."""
    rows = np.zeros((max(0, nodes - 2), columns))
    for place in range(nodes - 2):
        rows[place, place : place + 3] = SMOOTH * np.array([1.0, -2.0, 1.0])
    return rows / scale


def _profile(bare: StepTimes, found: np.ndarray) -> DeviceProfile:
    nodes = bare.profile.efficiency("linear").slowdown
    linear = tuple((rows, float(value)) for (rows, _), value in zip(nodes, found, strict=False))
    values = found[len(nodes) : len(nodes) + len(SOLVED)]
    efficiencies = {kind: Efficiency(slowdown=((1, float(value)),)) for kind, value in zip(SOLVED, values, strict=True)}
    return replace(
        bare.profile,
        efficiencies={"linear": Efficiency(slowdown=linear), "elementwise": Efficiency(), **efficiencies},
        host_step_s=float(found[-2]),
        host_row_s=float(found[-1]),
    )


def _errors(values: Sequence[float]) -> dict[str, float]:
    sizes = np.abs(np.array(values)) * 100
    return {"mean": float(sizes.mean()), "p95": float(np.percentile(sizes, 95)), "max": float(sizes.max())}
