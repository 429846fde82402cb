"""C25: what W8A8 saves of weight memory, and how much faster int8 products are here than 16- and 32-bit ones.

Steps of both arms are timed by turns, with the time of their linear layers alone; what data-centre cards do is from
their data sheets.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.timed_row import timed_row
from experiments.statistics import CurveSamples, judge
from experiments.step_probe import PairedProbe, ProbedStep, probe_pair
from ledger.hardware import accelerator

REPEATS = 8
STEPS = (ProbedStep("decode", 1, 256), ProbedStep("decode", 32, 256), ProbedStep("prefill", 1, 512))
DTYPES = ("bf16", "fp32")
HALF = 0.55  # of 16-bit bytes at most, to be called half
MULTIPLE = 2.0
CARDS = ("a100-sxm-80gb", "h100-sxm")
# What multiplies bytes, the widest first: (flag of the processor, what it is).
INSTRUCTIONS = (
    ("amx_int8", "AMX tiles of int8"),
    ("avx512_vnni", "AVX-512 VNNI, four int8 products at a time"),
    ("avx_vnni", "AVX-VNNI, four int8 products at a time"),
    ("i8mm", "int8 matrix instructions (i8mm)"),
    ("asimddp", "int8 dot products (asimddp)"),
    ("avx2", "no instruction for int8 dot products: pairs of 16 bits (AVX2's vpmaddwd) stand in"),
)

ProbePair = Callable[[Sequence[ProbedStep], Sequence[Mapping[str, Any]], int], PairedProbe]


def check(options: Mapping[str, Any], probe: ProbePair = probe_pair) -> dict[str, Any]:
    """Unquantized weights against w8a8 in each dtype (or the one that is set), then the cards' dense rates."""
    given, repeats = options.get("settings") or {}, options.get("repeats")
    count = int(repeats) if repeats and repeats != "auto" else REPEATS
    rows, held = [], []
    for dtype in (given["dtype"],) if "dtype" in given else DTYPES:
        base = {**given, "dtype": dtype}
        arms = [{**base, "weights": "none"}, {**base, "weights": "w8a8"}]
        found = probe(STEPS, arms, count)
        held.append(_held(dtype, found))
        rows += _rows(dtype, found)
    verdict, reason = judge_products(held, rows)
    return {"verdict": verdict, "reason": reason, "evidence": [*held, *rows, *map(_card, CARDS)]}


def judge_products(held: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """By the share of the first dtype's bytes, and by the linear layers of steps that compute bounds, against the
    fastest dtype there is here: holds when about half the bytes are held and they take half the time or less."""
    share = held[0]["share"]
    busy = [row for row in rows if row["of"] == "linear layers" and row["phase"] == "prefill"]
    busy = busy or [row for row in rows if row["of"] == "step" and row["phase"] == "prefill"]
    hardest = min(busy, key=lambda row: row["baseline"])
    speed = hardest["baseline"] / hardest["candidate"]
    gains = ", ".join(f"{row['part']} {row['baseline'] / row['candidate']:.2f}x ({row['verdict']})" for row in rows)
    text = (
        f"W8A8 holds {share:.0%} of the {held[0]['dtype']} bytes, embedding and head included; {gains}. Here: "
        f"{instructions()}. A100 and H100: dense INT8 is 2x dense FP16"
    )
    if hardest["verdict"] == "inconclusive":
        return UNDECIDED, text
    if hardest["verdict"] != "better":
        return FAILS, f"int8 products are not faster here: {text}"
    return (HOLDS if share <= HALF and speed >= MULTIPLE else LIMITED), text


def instructions() -> str:
    """What this processor multiplies int8 with."""
    from core_engine.environment import cpu_flags

    flags = cpu_flags()
    return next((text for flag, text in INSTRUCTIONS if flag in flags), f"unknown ({platform.machine()})")


def _held(dtype: str, found: PairedProbe) -> dict[str, Any]:
    whole, quantized = found.weights_bytes
    return {
        "part": f"weights held, w8a8 against {dtype}", "dtype": dtype, "baseline_bytes": whole,
        "candidate_bytes": quantized, "share": quantized / whole, "provenance": "measured",
    }  # fmt: skip


def _rows(dtype: str, found: PairedProbe) -> list[dict[str, Any]]:
    timed = [("step", step, pair) for step, pair in zip(STEPS, found.seconds, strict=True)]
    timed += [("linear layers", step, pair) for step, pair in zip(STEPS, found.products, strict=False)]
    verdicts = judge([CurveSamples(str(i), "mean", "lower", *pair) for i, (*_, pair) in enumerate(timed)])
    return [
        timed_row(
            step, verdict, found, part=f"{of}, {step.phase}, batch {step.batch}, against {dtype}", of=of,
            variable="weights", values=["none", "w8a8"],
        )
        for (of, step, _), verdict in zip(timed, verdicts, strict=True)
    ]  # fmt: skip


def _card(name: str) -> dict[str, Any]:
    card = accelerator(name)
    int8, half = card.flops_per_s["int8"], card.flops_per_s["fp16"]
    return {
        "part": f"dense INT8 of {card.label}", "int8_per_s": int8, "fp16_per_s": half, "ratio": int8 / half,
        "provenance": "datasheet",
    }  # fmt: skip
