"""A step as the figures of the Roofline page: operators under the roofs, their time, and intensity over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ledger.capacity import max_concurrency
from ledger.deployment import Deployment
from ledger.hardware import Accelerator
from ledger.model_spec import ModelSpec
from ledger.operators import Operator, StepCosts
from ledger.roofline import roofline_report

PHASES = ("prefill", "decode")
FEWEST_DOUBLINGS, MOST_DOUBLINGS = 12, 16  # the batch axis ends at 4,096, or further out where the crossover lies
MOST_BARS = 12


@dataclass(frozen=True)
class StepSetting:
    """What a step computes: `batch` sequences of `seq_len` tokens, in these formats, on one of `tp` cards."""

    batch: int
    seq_len: int
    weights: str
    kv_dtype: str
    tp: int

    def formats(self) -> dict[str, Any]:
        """The formats and ranks, as the roofline takes them."""
        return {"weights": self.weights, "kv_dtype": self.kv_dtype, "tp": self.tp}


@dataclass(frozen=True)
class RooflineView:
    """One or both phases of a step on one card, and how decode's intensity grows with the batch."""

    reports: dict[str, dict[str, Any]]
    points: list[dict[str, Any]]
    roofs: list[dict[str, Any]]
    lines: list[dict[str, Any]]
    ridge: float
    crossover_batch: int | None
    crossover_how: str
    attention_intensity: float | None
    latent: bool
    held: int | None  # sequences that the cards' memory holds under vLLM's defaults; None for this machine
    warnings: tuple[str, ...]


def roofline_view(spec: ModelSpec, card: Accelerator, phases: Sequence[str], setting: StepSetting) -> RooflineView:
    """Everything the page draws. InputError for what the card or the model has no figures for."""
    made = {
        phase: roofline_report(spec, card, phase, setting.batch, setting.seq_len, **setting.formats())
        for phase in phases
    }
    points = [_point(row, phase) for phase, report in made.items() for row in report["operators"]]
    roofs = _roofs(points, card)
    first = next(iter(made.values()))
    busiest = max((row for row in first["operators"] if row["linear"]), key=lambda row: row["flops"], default=None)
    return RooflineView(
        reports=made,
        points=points,
        roofs=roofs,
        lines=_lines(spec, setting, first["crossover_batch"]),
        ridge=busiest["ridge"] if busiest else roofs[0]["ridge"],
        crossover_batch=first["crossover_batch"],
        crossover_how=first["crossover_how"],
        attention_intensity=first["attention_intensity"],
        latent=any(layer.kind == "mla" for layer in spec.layers),
        held=_held(spec, card, setting),
        warnings=tuple(dict.fromkeys(text for report in made.values() for text in report["warnings"])),
    )


def _held(spec: ModelSpec, card: Accelerator, setting: StepSetting) -> int | None:
    if card.provenance == "measured":
        return None
    return max_concurrency(
        Deployment(
            spec,
            weights=setting.weights,
            kv_dtype=setting.kv_dtype,
            seq_len=setting.seq_len,
            tp=setting.tp,
            capacity_bytes=card.memory_bytes,
            card=card.name,
        )
    )


def kind_of(row: Any) -> str:
    """linear (a weight matrix), attention (over a cache or a state), or other."""
    linear, part = (row.linear, row.part) if isinstance(row, Operator) else (row["linear"], row["part"])
    if linear:
        return "linear"
    return "attention" if part in ("attention", "state") else "other"


def _point(row: dict[str, Any], phase: str) -> dict[str, Any]:
    attained = row["flops"] / row["time_s"] if row["time_s"] else 0.0
    return {
        **row,
        "key": f"{phase}: {row['name']}",
        "phase": phase,
        "kind": kind_of(row),
        "attained_flops_per_s": attained,
        "share": row["share"] or 0.0,
    }


def _roofs(points: list[dict[str, Any]], card: Accelerator) -> list[dict[str, Any]]:
    """One roof a number format that operators with arithmetic run in, the busiest first."""
    busy: dict[str, float] = {}
    for point in points:
        if point["flops"]:
            busy[point["runs_in"]] = busy.get(point["runs_in"], 0.0) + point["flops"]
    return [
        {
            "dtype": dtype,
            "flops_per_s": card.flops_per_s[dtype],
            "bandwidth_bytes_per_s": card.bandwidth_bytes_per_s,
            "ridge": card.ridge(dtype),
        }
        for dtype in sorted(busy, key=lambda dtype: -busy[dtype])
    ]


def _lines(spec: ModelSpec, setting: StepSetting, crossover: int | None) -> list[dict[str, Any]]:
    """Operations a byte of decode's linear layers and of its attention, over the batch."""
    points: dict[str, list[dict[str, Any]]] = {"linear": [], "attention": []}
    costs = StepCosts(spec, setting.weights, setting.tp)
    doublings = max(FEWEST_DOUBLINGS, min(MOST_DOUBLINGS, (crossover or 1).bit_length()))
    for batch in (2**power for power in range(doublings + 1)):
        found = costs.operators("decode", batch, setting.seq_len, kv_dtype=setting.kv_dtype)
        for kind, line in points.items():
            own = [operator for operator in found if kind_of(operator) == kind]
            moved = sum(operator.bytes for operator in own)
            if moved:
                line.append({"batch": batch, "intensity": sum(operator.flops for operator in own) / moved})
    return [{"kind": kind, "points": line} for kind, line in points.items() if line]


def bars_of(points: Sequence[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    """The operators of a phase that take most time, longest first; the rest as one row without a name."""
    own = sorted((point for point in points if point["phase"] == phase), key=lambda point: -point["time_s"])
    shown, rest = own[:MOST_BARS], own[MOST_BARS:]
    if len(rest) > 1:
        time_s, share = sum(row["time_s"] for row in rest), sum(row["share"] for row in rest)
        more = {
            "key": "",
            "name": "",
            "phase": phase,
            "time_s": time_s,
            "share": share,
            "bound": "",
            "count": len(rest),
            "is_rest": True,
        }
        return [*shown, more]
    return own


def roofline_rows(view: RooflineView) -> list[dict[str, Any]]:
    """Every operator as a row of a CSV file."""
    keys = ("phase", "name", "part", "count", "flops", "weight_bytes", "kv_bytes", "activation_bytes", "bytes",
            "intensity", "ridge", "bound", "runs_in", "time_s", "share", "how")  # fmt: skip
    return [{key: point[key] for key in keys} for point in view.points]
