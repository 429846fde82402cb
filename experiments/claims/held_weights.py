"""C27: the bytes that a model's weights really take in every format, beside the ledger's and the shares quoted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from experiments.asked_to_stop import go_on
from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.fits_for import FITS_FOR
from experiments.claims.formats import ABOUT, CLAIMED, weight_rows

DTYPE = "bf16"
WHOLE = {"weights": "none"}
ARMS: tuple[Mapping[str, str], ...] = (
    WHOLE,
    {"weights": "w8a8"},
    {"weights": "w8a8", "head_weights": "int8"},
    {"weights": "w4a16-rtn"},
    {"weights": "w4a16-rtn", "head_weights": "int8"},
    {"weights": "w4a16-awq"},
    {"weights": "w4a16-gptq"},
)

Hold = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], list[dict[str, Any]]]


def hold(settings: Mapping[str, Any], arms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each arm over `settings`: bytes of the tensors held, the ledger's prediction and its split, and what it took
    to quantize. One model is in memory at a time; InputError and CannotRunError as the engine raises them."""
    return [_held({**settings, **arm}) for arm in arms]


def _held(settings: Mapping[str, Any]) -> dict[str, Any]:
    from core_engine.config import EngineConfig
    from core_engine.environment import dtype_name
    from core_engine.model.loader import load_model
    from ledger.weight_formats import engine_groups, weights_report

    go_on()
    config = EngineConfig.from_settings(settings)
    loaded = load_model(config)
    groups = engine_groups(
        loaded.spec,
        config.weights,
        group=int(config.weight_group),
        symmetric=config.weight_symmetric == "on",
        head_weights=config.head_weights,
        dtype=dtype_name(loaded.weights.dtype),
    )
    report = weights_report(loaded.spec, config.weights, groups=groups)
    return {
        "model": loaded.name,
        "weights": config.weights,
        "head_weights": config.head_weights,
        "held_bytes": loaded.weights.num_bytes(),
        "predicted_bytes": report["total_bytes"],
        "bits_per_parameter": report["bits_per_parameter"],
        "unquantized_share": report["bytes_16bit"] / report["total_bytes"],
        "by_part": {row["part"]: row["bytes"] for row in report["parts"]},
        "quantizing": None if loaded.quantizing is None else asdict(loaded.quantizing),
        "fits_for": FITS_FOR[config.weights],
        "provenance": "measured",
    }


def check(options: Mapping[str, Any], hold: Hold = hold) -> dict[str, Any]:
    """Bytes held by the engine in every format, then the arithmetic for models from 70B to 135M."""
    rows = hold({"dtype": DTYPE, **(options.get("settings") or {})}, ARMS)
    whole = rows[0]["held_bytes"]
    rows = [{"part": _name(row), "share": row["held_bytes"] / whole, **row} for row in rows]
    computed, off = weight_rows()
    verdict, reason = judge(rows, off, len(computed))
    return {"verdict": verdict, "reason": reason, "evidence": [*rows, *computed]}


def judge(rows: Sequence[Mapping[str, Any]], off: Sequence[str], models: int) -> Verdict:
    """Holds when the bytes are the ledger's and every share is near the quoted one, here and by arithmetic."""
    wrong = [row for row in rows if row["held_bytes"] != row["predicted_bytes"]]
    if wrong:
        row = wrong[0]
        return UNDECIDED, (
            f"{row['part']}: {row['held_bytes']:,} B held where the ledger says {row['predicted_bytes']:,} B, so that "
            "its split of them can't be trusted"
        )
    claimed = [(row, CLAIMED[name]) for row in rows if (name := _claimed_as(row)) is not None]
    far = [row for row, share in claimed if row["share"] > share + ABOUT]
    found = ", ".join(f"{row['part']} {row['share']:.1%}" for row, _ in claimed)
    text = f"held to the byte as the ledger says, of {rows[0]['model']}'s 16-bit weights: {found}"
    if off:
        text += f"; by arithmetic beyond {100 * ABOUT:.0f} points of the claim: {', '.join(off)}"
    text += "; embedding and head stay 16 bit unless asked for, and scales take bits"
    if not far and not off:
        return HOLDS, text
    return (FAILS if len(far) + len(off) == len(claimed) + models else LIMITED), text


def _claimed_as(row: Mapping[str, Any]) -> str | None:
    """The key of CLAIMED of a format with the head as people leave it: 16 bit."""
    kind = str(row["weights"]).removesuffix("-rtn").removesuffix("-awq").removesuffix("-gptq")
    return kind if kind in CLAIMED and row["head_weights"] == "16bit" else None


def _name(row: Mapping[str, Any]) -> str:
    return f"weights={row['weights']}" + (", int8 head" if row["head_weights"] == "int8" else "")
