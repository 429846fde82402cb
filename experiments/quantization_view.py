"""The result of an evaluation as figures to show: a row a format, predictions beside measurements, slices by format.

Owns which figures stand beside each other; every one is read from the result. Knows no page and no language.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core_engine.variables import Value
from experiments.quality.held import change_of
from experiments.quality.predictions import EXPECTED
from experiments.quality.slices import ALL

MIB = 2**20
WEIGHTS, KV = ("weights", "weight_group", "weight_symmetric", "head_weights"), ("kv_dtype", "kv_key_axis", "kv_protect")
LOST, UNDECIDED = "worse", "inconclusive"
# Perplexity is lost where its whole interval is above this: W8A8 here is asked to cost no more.
TOLERATED_PERPLEXITY_PCT = 1.0
# Formats that the page says a line about: values of `weights`, "int8-head", values of `kv_dtype`.
FITS = (
    "none", "as-stored", "w8a16", "w8a8", "w4a16-rtn", "w4a16-awq", "w4a16-gptq", "int8-head", "fp8", "int8", "int4",
    "int2",
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % interval, None where it has none."""

    value: float | None
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True)
class FormatRow:
    """One candidate, or the baseline (label ""): what it holds, how fast it is, and what it costs in quality.

    None where a run did not measure a figure. Shares are of the baseline's; memory_share is that of what is quantized,
    the weights or else the KV cache. speedup: by (phase, batch). lost, undecided: slices judged so.
    """

    label: str
    changed: dict[str, Value]
    group: str
    dtype: str
    weights_mib: float | None
    bits_per_weight: float | None
    weights_share: float | None
    unquantized_share: float | None
    kv_bytes_per_token: float | None
    kv_bits: float | None
    kv_share: float | None
    sequences: int | None
    calibration: dict[str, Any] | None
    tokens_per_s: dict[tuple[str, int], float]
    speedup: dict[tuple[str, int], Interval]
    accuracy: float | None
    accuracy_points: Interval
    mean_verdict: str | None
    perplexity: float | None
    perplexity_change_pct: Interval
    kl: float | None
    top1: float | None
    texts_reason: str | None
    lost: tuple[str, ...]
    undecided: tuple[str, ...]

    @property
    def is_baseline(self) -> bool:
        """Whether the others are compared with it."""
        return not self.label

    @property
    def is_kv(self) -> bool:
        """Whether the KV cache is what it changes, and not the weights."""
        return any(name in self.changed for name in KV) and not any(name in self.changed for name in WEIGHTS)

    @property
    def memory_share(self) -> float | None:
        """Of the weights, or of the KV cache where that alone is changed."""
        return self.kv_share if self.is_kv else self.weights_share

    @property
    def bits(self) -> float | None:
        """Bits a weight, or an element of the KV cache where that alone is changed."""
        return self.kv_bits if self.is_kv else self.bits_per_weight

    @property
    def perplexity_lost(self) -> bool:
        """Whether the texts' perplexity has risen for certain, by more than is tolerated."""
        ends = self.perplexity_change_pct.ci95
        return ends is not None and ends[0] > TOLERATED_PERPLEXITY_PCT

    @property
    def is_sound(self) -> bool:
        """Whether nothing that was measured is worse: no slice, not the mean, not the texts."""
        return not self.lost and self.mean_verdict != LOST and not self.perplexity_lost

    def fits(self) -> tuple[str, ...]:
        """Names of what the format is for: values of `weights` and of `kv_dtype`."""
        if self.is_baseline:
            return ("none",)
        found = [str(self.changed[name]) for name in ("weights", "kv_dtype") if name in self.changed]
        found += ["int8-head"] if not found and "head_weights" in self.changed else []
        return tuple(name for name in found if name in FITS)


def format_rows(result: Mapping[str, Any]) -> list[FormatRow]:
    """The baseline, then every candidate, of an evaluation's JSON."""
    base, candidates = result["baseline"], result["candidates"]
    texts: list[dict[str, Any]] = next((arm["texts"] for arm in (base, *candidates) if arm["texts"]), [{}])
    first = replace(_row("", {}, base, base), perplexity=texts[-1].get("baseline_perplexity"))
    return [first, *(_row(c["label"], c["changed"], c, base) for c in candidates)]


def _row(label: str, changed: dict[str, Value], arm: Mapping[str, Any], base: Mapping[str, Any]) -> FormatRow:
    held, steps = arm.get("held"), (arm.get("speed") or {}).get("steps", [])
    shares = change_of(held, base["held"]) if held and base.get("held") else {}
    mean, text = _mean(arm["slices"]), arm["texts"][-1] if arm["texts"] else {}
    weights, kv = (held or {}).get("weights", {}), (held or {}).get("kv", {})
    settings = base.get("settings", {})
    return FormatRow(
        label=label,
        changed=changed,
        group=str(changed.get("weight_group", settings.get("weight_group", ""))),
        dtype=str(changed.get("dtype", settings.get("dtype", ""))),
        weights_mib=weights["bytes"] / MIB if weights else None,
        bits_per_weight=weights.get("bits_per_weight"),
        weights_share=shares.get("weights_share"),
        unquantized_share=(held or {}).get("unquantized", {}).get("share"),
        kv_bytes_per_token=kv.get("bytes_per_token"),
        kv_bits=kv.get("bits_per_element"),
        kv_share=shares.get("kv_share"),
        sequences=kv.get("sequences"),
        calibration=(held or {}).get("calibration"),
        tokens_per_s={(step["phase"], step["batch"]): step["tokens_per_s"] for step in steps},
        speedup={
            (step["phase"], step["batch"]): _interval(step["speedup"], step["speedup_ci95"])
            for step in steps
            if "speedup" in step
        },
        accuracy=mean.get("accuracy"),
        accuracy_points=_interval(mean.get("change_points"), mean.get("change_ci95")),
        mean_verdict=mean.get("verdict"),
        perplexity=text.get("perplexity"),
        perplexity_change_pct=_interval(text.get("change_pct"), text.get("change_ci95")),
        kl=text.get("kl_mean"),
        top1=text.get("top1_agreement"),
        texts_reason=arm.get("texts_reason"),
        lost=_judged(arm, LOST),
        undecided=_judged(arm, UNDECIDED),
    )


def _judged(arm: Mapping[str, Any], verdict: str) -> tuple[str, ...]:
    return tuple(row["slice"] for row in arm["slices"] if row.get("verdict") == verdict and row["slice"] != ALL)


def _interval(value: float | None, ends: Sequence[float] | None) -> Interval:
    return Interval(value, None if ends is None else (ends[0], ends[1]))


def _mean(slices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The row of all items: that of the only slice where there is but one, empty without items."""
    return slices[-1] if slices and (slices[-1]["slice"] == ALL or len(slices) == 1) else {}


@dataclass(frozen=True)
class Guess:
    """One figure of one candidate: what was expected, and what was measured."""

    label: str
    figure: str
    expected: float
    measured: Interval


def guesses(rows: Sequence[FormatRow], predictions: Mapping[str, Mapping[str, float | None]]) -> list[Guess]:
    """What was expected beside what was found, by candidate and figure (names of predictions.EXPECTED)."""
    found = []
    for row in rows:
        share = row.memory_share
        measured = {
            "memory_pct": Interval(None if share is None else 100 * share),
            "decode_speedup": row.speedup.get(("decode", 1), Interval(None)),
            "accuracy_points": row.accuracy_points,
        }
        for item in EXPECTED:
            expected = (predictions.get(row.label) or {}).get(item.name)
            if expected is not None:
                found.append(Guess(row.label, item.name, expected, measured[item.name]))
    return found


@dataclass(frozen=True)
class SliceCell:
    """A candidate on a slice. scored_by: "accuracy" (change in points), or "logprob" (in nats) without a signal."""

    label: str
    scored_by: str
    change: float
    ci95: tuple[float, float] | None
    p: float
    verdict: str
    mean_hides: bool


@dataclass(frozen=True)
class SliceLine:
    """A slice of the items, or all of them: the baseline on it, and every candidate."""

    name: str
    items: int
    accuracy: float
    ci95: tuple[float, float]
    chance: float
    signal: bool
    cells: tuple[SliceCell, ...]

    @property
    def is_all(self) -> bool:
        """Whether it stands for all slices together."""
        return self.name == ALL


def slice_lines(result: Mapping[str, Any]) -> list[SliceLine]:
    """Slices down, candidates across."""
    candidates = result["candidates"]
    moved = {c["label"]: _mean(c["slices"]).get("verdict") for c in candidates}
    return [
        SliceLine(
            name=base["slice"],
            items=base["items"],
            accuracy=base["accuracy"],
            ci95=(base["ci95"][0], base["ci95"][1]),
            chance=base["chance"],
            signal=base["signal"],
            cells=tuple(_cell(c["label"], c["slices"][place], moved[c["label"]]) for c in candidates),
        )
        for place, base in enumerate(result["baseline"]["slices"])
    ]


def _cell(label: str, row: Mapping[str, Any], mean_verdict: str | None) -> SliceCell:
    by_accuracy = row["scored_by"] == "accuracy"
    ends = row["change_ci95"] if by_accuracy else row["logprob_ci95"]
    return SliceCell(
        label=label,
        scored_by=row["scored_by"],
        change=row["change_points"] if by_accuracy else row["logprob_change"],
        ci95=None if ends is None else (ends[0], ends[1]),
        p=row["p_adjusted"],
        verdict=row["verdict"],
        mean_hides=row["verdict"] == LOST and row["slice"] != ALL and mean_verdict != LOST,
    )


def best_of(rows: Sequence[FormatRow]) -> FormatRow | None:
    """The candidate that takes the smallest share of the weights, or else of the KV, of those where nothing is worse.

    Those without a verdict, for want of items, are none of them.
    """
    sound = [row for row in rows if not row.is_baseline and row.is_sound]
    known = [row for row in sound if row.memory_share is not None and row.mean_verdict is not None]
    return min(known, key=lambda row: (row.is_kv, row.memory_share or 0.0), default=None)


def eval_command(spec: Mapping[str, Any]) -> str:
    """The command line that runs the evaluation of a spec again."""
    parts = ["trilemma", "eval"]
    for option, given in (("--set", spec["settings"]), ("--baseline", spec["baseline"])):
        parts += [word for name, value in given.items() for word in (option, f"{name}={value}")]
    if spec["vary"]:
        parts += ["--vary", f"{spec['vary'][0]}={','.join(map(str, spec['vary'][1]))}"]
    for arm in spec.get("arms") or ():
        parts += ["--candidate", ",".join(f"{name}={value}" for name, value in arm.items())]
    for option in ("items", "texts"):
        parts += [word for path in spec[option] for word in (f"--{option}", path)]
    if spec["slices"]:
        parts += ["--slices", ",".join(spec["slices"])]
    if spec["limit"] is not None:
        parts += ["--limit", str(spec["limit"])]
    if spec["seed"]:
        parts += ["--seed", str(spec["seed"])]
    return shlex.join([*parts, *(["--speed"] if spec.get("speed") else [])])
