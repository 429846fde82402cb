"""Both knees of a sweep: where latency turns steep, and where KV memory ends. Pure functions over measured points.

**Throughput / latency knee.** Between two successive loads, s = ln(latency ratio) / ln(load ratio): by how many per
cent latency rises for one per cent more load. Kleinrock's power, throughput / latency, is largest where one more per
cent of load adds as much to latency as to throughput (L. Kleinrock, "Power and Deterministic Rules of Thumb for
Probabilistic Problems in Computer Communications", ICC 1979). Of a closed loop, throughput = clients / latency
(Little), so that is s = 1/2; of rates that are served, s = 1. The knee is the last load before the first step with s
above that, when the 95 % bootstrap interval of s lies above it too. Latency is end-to-end time per output token, so
that points whose answers differ in length can be compared.

Beside it stands a segmented fit of two lines in log-log that meet at the break (V. M. R. Muggeo, "Estimating regression
models with unknown break-points", Statistics in Medicine 22, 2003), where there are five points or more.

Resampling is over repeats from three on; below, over the requests of a run, which share the run and its luck, so that
the interval is too narrow: `resampled` says which.

**Offered above served**: the first rate whose queue grows (experiments.sweep.growth).

**Memory knee**: the first load at which KV memory held requests up (experiments.sweep.pressure).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.sweep.figures import Sample, latency_per_token_s

CLOSED_SLOPE, OPEN_SLOPE = 0.5, 1.0
RESAMPLES = 1000
REPEATS_FROM = 3
FEWEST_POINTS, FEWEST_FOR_BREAK = 3, 5
BREAKS_TRIED = 60
SEED = 20_260_201
METHOD = "slope test: Kleinrock's power (1979); break: segmented regression (Muggeo 2003)"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """One load and what its repeats showed: samples[repeat] = (e2e in s, output tokens) of each request."""

    load: float
    samples: Sequence[Sequence[Sample]]


def latency_knee(points: Sequence[Measured], *, closed: bool) -> dict[str, Any]:
    """{"found","load","next_load","ci95","confidence","steps","segmented","threshold","resampled","method","reason"}.

    load: the last before latency turns steep, next_load the first beyond; ci95: bootstrap interval of load;
    confidence: share of resamples that find the same step. steps: {"from","to","slope","ci95"} each. points ascend by
    load; those without an answer are left out.
    """
    threshold = CLOSED_SLOPE if closed else OPEN_SLOPE
    known = [point for point in points if _latency(point.samples) is not None]
    base: dict[str, Any] = {
        "found": False, "load": None, "next_load": None, "ci95": None, "confidence": None, "steps": [],
        "segmented": None, "threshold": threshold, "resampled": None, "method": METHOD,
    }  # fmt: skip
    if len(known) < FEWEST_POINTS:
        return {**base, "reason": f"it takes {FEWEST_POINTS} loads with answers, {len(known)} there"}
    loads = np.log([point.load for point in known])
    measured = np.log([_latency(point.samples) or math.nan for point in known])
    drawn, how = _resampled(known)
    slopes, drawn_slopes = np.diff(measured) / np.diff(loads), np.diff(drawn, axis=1) / np.diff(loads)
    ends = np.quantile(drawn_slopes, [0.025, 0.975], axis=0)
    steps: list[dict[str, Any]] = [
        {"from": a.load, "to": b.load, "slope": float(slopes[i]), "ci95": [float(ends[0, i]), float(ends[1, i])]}
        for i, (a, b) in enumerate(pairwise(known))
    ]
    base |= {"steps": steps, "resampled": how, "segmented": _segmented(loads, measured, drawn)}
    steep = [place for place, step in enumerate(steps) if slopes[place] > threshold and step["ci95"][0] > threshold]
    if not steep:
        doubtful = [step for place, step in enumerate(steps) if slopes[place] > threshold]
        beyond = (
            f"; the step to {doubtful[0]['to']:g} may be one, its interval includes {threshold:g}" if doubtful else ""
        )
        return {**base, "reason": f"no knee up to {known[-1].load:g}{beyond}"}
    place = steep[0]
    firsts = _first_above(drawn_slopes, threshold)
    low, high = np.quantile(firsts, [0.025, 0.975], method="nearest")
    at = [known[min(int(one), len(known) - 1)].load for one in (low, high)]
    return {
        **base,
        "found": True,
        "load": known[place].load,
        "next_load": known[place + 1].load,
        "ci95": at,
        "confidence": float(np.mean(firsts == place)),
        "reason": f"from {known[place].load:g} to {known[place + 1].load:g} latency rises {slopes[place]:.2f} % a % of"
        f" load, above {threshold:g}",
    }


def _latency(samples: Sequence[Sequence[Sample]]) -> float | None:
    """Median over repeats, as a point has it."""
    values = [value for one in samples if (value := latency_per_token_s(one)) is not None]
    return float(np.median(values)) if values else None


def _first_above(slopes: Floats, threshold: float) -> NDArray[np.int64]:
    """Of each row the place of its first slope above the threshold; the number of slopes where none is."""
    above = slopes > threshold
    return np.where(above.any(axis=1), above.argmax(axis=1), slopes.shape[1])


def _resampled(points: Sequence[Measured]) -> tuple[Floats, str]:
    """[RESAMPLES, points] ln latency of resampled points, and what was resampled."""
    rng = np.random.default_rng(SEED)
    over_repeats = min(len(point.samples) for point in points) >= REPEATS_FROM
    columns = [(_of_repeats if over_repeats else _of_requests)(point, rng) for point in points]
    return np.log(np.stack(columns, axis=1)), "repeats" if over_repeats else "requests of a run"


def _of_repeats(point: Measured, rng: np.random.Generator) -> Floats:
    values = np.array([value for one in point.samples if (value := latency_per_token_s(one)) is not None])
    drawn = values[rng.integers(0, len(values), (RESAMPLES, len(values)))]
    return np.asarray(np.median(drawn, axis=1))


def _of_requests(point: Measured, rng: np.random.Generator) -> Floats:
    """The repeats' requests together: with one or two repeats there is nothing else to draw from."""
    every = np.array([sample for one in point.samples for sample in one])
    drawn = every[rng.integers(0, len(every), (RESAMPLES, len(every)))]
    return np.asarray(drawn[:, :, 0].sum(axis=1) / drawn[:, :, 1].sum(axis=1))


def _segmented(loads: Floats, measured: Floats, drawn: Floats) -> dict[str, Any] | None:
    """Two lines that meet: {"load","ci95","slope_before","slope_after"}; None below FEWEST_FOR_BREAK points."""
    if len(loads) < FEWEST_FOR_BREAK:
        return None
    # A line takes two points: breaks lie between the second and the one before the last.
    breaks = np.linspace(loads[1], loads[-2], BREAKS_TRIED)
    place, coefficients = _best_break(loads, breaks, measured[None, :])
    places, _ = _best_break(loads, breaks, drawn)
    low, high = np.quantile(breaks[places], [0.025, 0.975])
    before = float(coefficients[0, 1])
    return {
        "load": float(np.exp(breaks[place[0]])),
        "ci95": [float(np.exp(low)), float(np.exp(high))],
        "slope_before": before,
        "slope_after": before + float(coefficients[0, 2]),
    }


def _best_break(loads: Floats, breaks: Floats, rows: Floats) -> tuple[NDArray[np.int64], Floats]:
    """For each row of ln latencies: the place of the break with the least squared error, and its coefficients."""
    errors, found = [], []
    for at in breaks:
        design = np.stack([np.ones_like(loads), loads, np.maximum(0.0, loads - at)], axis=1)
        solved = np.linalg.lstsq(design, rows.T, rcond=None)[0]
        errors.append(((design @ solved - rows.T) ** 2).sum(axis=0))
        found.append(solved.T)
    best = np.argmin(np.stack(errors), axis=0)
    return best, np.stack(found)[best, np.arange(len(rows))]


def offered_knee(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{"found","load","next_load","served_rps","reason"}: the first rate that the target could not keep.

    points: of the result, with a rate, ascending. served_rps: the most that was served where it fell behind.
    """
    rates = [point for point in points if point["load"]["rate_rps"] is not None]
    if not rates:
        return {**_none(), "served_rps": None, "reason": "no rate was sent: each client of a closed loop waits"}
    behind = next((place for place, point in enumerate(rates) if point["behind"]), None)
    if behind is None:
        unknown = [point for point in rates if point["behind"] is None]
        more = f"; {len(unknown)} points have too few requests to tell" if unknown else ""
        return {**_none(), "served_rps": None,
                "reason": f"no knee up to {rates[-1]['load']['rate_rps']:g} requests/s{more}"}  # fmt: skip
    served = [point["served_rps"] for point in rates if point["behind"] and point["served_rps"] is not None]
    at = rates[behind]
    return {
        "found": True,
        "load": rates[behind - 1]["load"]["rate_rps"] if behind else None,
        "next_load": at["load"]["rate_rps"],
        "served_rps": max(served, default=None),
        "reason": f"of {at['offered_rps']:.3g} requests/s {at['served_rps']:.3g} were served and the queue grew",
    }


def memory_knee(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{"found","load","next_load","running_before","running","context_tokens","tokens","confidence","predicted",
    "reason"}: the first load at which KV memory held requests up.

    running: the most at once there, running_before: at the load before; context_tokens: a sequence's mean prompt and
    answer; tokens: the most taken of the pool. confidence: share of repeats in which the load and its predecessor
    showed it and did not. predicted (computed): sequences that the pool holds when all are of full length.
    """
    base = {**_none(), "running_before": None, "running": None, "context_tokens": None, "tokens": None,
            "confidence": None, "predicted": None}  # fmt: skip
    known = [point for point in points if point["kv"]["known"]]
    if not known:
        return {**base, "reason": "unknown: the target shows no steps and no KV blocks, as a server to its clients"}
    base["predicted"] = known[-1]["kv"]["predicted"]
    first = next((place for place, point in enumerate(known) if point["kv"]["pressed"]), None)
    if first is None:
        full = max(point["kv"]["peak_share"] for point in known)
        return {**base, "reason": f"no knee up to {known[-1]['label']}: at most {full:.0%} of the pool was taken"}
    at, before = known[first], known[first - 1] if first else None
    kv = at["kv"]
    agreeing = kv["pressed_repeats"] / len(at["repeats"])
    if before is not None:
        agreeing *= 1 - before["kv"]["pressed_repeats"] / len(before["repeats"])
    return {
        "found": True,
        "load": None if before is None else before["value"],
        "next_load": at["value"],
        "running_before": None if before is None else _peak(before),
        "running": _peak(at),
        "context_tokens": kv["mean_tokens"],
        "tokens": kv["peak_tokens"],
        "confidence": agreeing,
        "predicted": kv["predicted"],
        "reason": f"at {at['label']}: {kv['preemptions']:g} preemptions, {kv['wait_steps_share']:.0%} of steps waited"
        f" for KV blocks, {kv['refused']:g} requests refused",
    }


def _none() -> dict[str, Any]:
    return {"found": False, "load": None, "next_load": None}


def _peak(point: Mapping[str, Any]) -> int | None:
    found: int | None = point["metrics"]["concurrency"]["peak"]
    return found
