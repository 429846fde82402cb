"""C02: a prefill and a decode step of the embedded model on this machine's roofline, and the arithmetic behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments import calibrate
from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.step_probe import REPEATS, Probe, ProbedStep, probe_steps
from ledger.hardware import Accelerator, accelerator
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.operators import StepCosts
from ledger.roofline import achieved, attention_intensity, crossover_batch

CONTEXT = 512
LARGE_BATCH = 32
STEPS = (
    ProbedStep("prefill", 1, CONTEXT),
    ProbedStep("decode", 1, CONTEXT),
    ProbedStep("decode", LARGE_BATCH, CONTEXT),
)
# A step that reaches less than this of its ceiling is limited by something that the roofline does not know.
NEAR_THE_ROOF = 0.4
# (what its heads share, preset): one model of each kind of attention
ATTENTION = (("MHA", "llama-2-7b"), ("GQA", "llama-3.1-8b"), ("GQA", "llama-3.1-70b"), ("MLA", "deepseek-v3"))
CARD = "h100-sxm"
CONTEXT_OF_CARD = 4096

ProbeSteps = Callable[[Sequence[ProbedStep], Mapping[str, Any], int], Probe]


def check(options: Mapping[str, Any], probe: ProbeSteps = probe_steps) -> dict[str, Any]:
    """Measured steps against the measured ceilings (calibrated first when they are not known), then the arithmetic."""
    if calibrate.stored() is None:
        calibrate.store(calibrate.calibrate())
    repeats = options.get("repeats")
    found = probe(STEPS, options.get("settings") or {}, int(repeats) if repeats and repeats != "auto" else REPEATS)
    device = calibrate.find_accelerator(f"this:{found.device}")
    costs = StepCosts(found.spec, found.dtype)
    crossover = crossover_batch(costs, device)
    rows = [_measured(costs, found, device, step, seconds) for step, seconds in zip(STEPS, found.seconds, strict=True)]
    verdict, reason = judge(rows, crossover)
    here = {
        "part": "crossover", "model": found.spec.name, "accelerator": device.label, "weights": found.dtype,
        "batch": crossover, "provenance": "computed",
    }  # fmt: skip
    return {"verdict": verdict, "reason": reason, "evidence": [*rows, here, *_crossovers(), *_intensities()]}


def judge(rows: Sequence[Mapping[str, Any]], crossover: int | None) -> Verdict:
    """From the measured prefill, decode of one and of many sequences, and the batch where decode changes sides."""
    prefill, decode, large = rows
    found = (
        f"a prefill of {prefill['seq_len']} tokens reached {prefill['compute_share']:.0%} of this machine's matrix"
        f" rate, a decode step of batch 1 {decode['bandwidth_share']:.0%} of its bandwidth"
    )
    if prefill["bound"] != "compute" or decode["bound"] != "memory":
        return FAILS, f"{found}; their bounds here are {prefill['bound']} and {decode['bound']}"
    if min(prefill["compute_share"], decode["bandwidth_share"]) < NEAR_THE_ROOF:
        return UNDECIDED, f"{found}: too far from the ceilings to say that they are what limits"
    if crossover is None or large["bound"] == "memory":
        return HOLDS, found
    return LIMITED, (
        f"{found}; from batch {crossover} on decode's linear layers are bound by compute too: at batch {large['batch']}"
        f" they reached {large['compute_share']:.0%} of the matrix rate"
    )


def _measured(
    costs: StepCosts, found: Probe, device: Accelerator, step: ProbedStep, seconds: Mapping[str, Any]
) -> dict[str, Any]:
    """One step: what it computes and moves (computed), how long it took and the rates that makes (measured)."""
    operators = costs.operators(step.phase, step.batch, step.seq_len, kv_dtype=found.dtype)
    flops, moved = sum(item.flops for item in operators), sum(item.bytes for item in operators)
    return {
        "part": f"{step.phase}, batch {step.batch}",
        "phase": step.phase,
        "batch": step.batch,
        "seq_len": step.seq_len,
        "flops": flops,
        "bytes": moved,
        **achieved(flops, moved, seconds["median"], device, found.dtype),
        "seconds_low": seconds["low"],
        "seconds_high": seconds["high"],
        "repeats": seconds["repeats"],
        "threads": found.threads,
        "ceilings": device.sources[0],
    }


def _crossovers() -> list[dict[str, Any]]:
    """The batch where decode's linear layers cross the ridge of a data-centre card, by weight format."""
    card = accelerator(CARD)
    return [
        {
            "part": "crossover", "model": name, "accelerator": card.label, "weights": weights,
            "batch": crossover_batch(StepCosts(load_model_spec(name), weights), card), "provenance": "computed",
        }
        for name, weights in (
            ("llama-3.1-8b", "bf16"), ("llama-3.1-8b", "w4a16"), ("mixtral-8x7b", "bf16"), ("deepseek-v3", "fp8"),
        )
    ]  # fmt: skip


def _intensities() -> list[dict[str, Any]]:
    """Operations a byte of KV cache in decode, which no batch changes, against the ridge of that card."""
    card = accelerator(CARD)
    return [_intensity(kind, load_model_spec(name), card) for kind, name in ATTENTION]


def _intensity(kind: str, spec: ModelSpec, card: Accelerator) -> dict[str, Any]:
    return {
        "part": f"attention intensity, {kind}", "model": spec.name, "flop_per_byte":
        attention_intensity(spec, CONTEXT_OF_CARD), "ridge": card.ridge("bf16"), "accelerator": card.label,
        "provenance": "computed",
    }  # fmt: skip
