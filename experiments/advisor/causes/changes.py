"""Changes that several causes propose: one step of a setting, in its range; none where it has been taken already."""

from __future__ import annotations

from core_engine.variables import VARIABLES, Value
from experiments.advisor.evidence import Evidence
from experiments.advisor.finding import ARCHITECTURE, Change

WIDE_WEIGHTS = (None, "none")
WIDE_KV = (None, "auto", "fp32", "bf16", "fp16")


def offered(*changes: Change | None) -> tuple[Change, ...]:
    """The changes that there are, without those that would change nothing."""
    return tuple(one for one in changes if one is not None and (one.to_value is None or one.to_value != one.from_value))


def stepped(
    evidence: Evidence, variable: str, factor: float, fallback: float | None = None
) -> tuple[Value | None, Value | None]:
    """(from, to) of a whole-number setting: its value times factor, within its range.

    Where nobody said it, from is None and to is made of fallback, or None as well: a default of this engine's says
    nothing of another server's.
    """
    entry = VARIABLES[variable]
    now = evidence.setting(variable)
    start = now if isinstance(now, int | float) else fallback
    if start is None:
        return None, None
    low, high = entry.minimum, entry.maximum
    assert low is not None and high is not None
    return now, int(max(low, min(high, round(start * factor))))


def seats(evidence: Evidence, factor: float, *, why: str, refuted_by: str) -> Change:
    """So many times the seats; of a server that does not say how many it has, of the sequences that run."""
    before, after = stepped(evidence, "max_num_seqs", factor, evidence.running)
    return Change("max_num_seqs", before, after, why, refuted_by)


def lighter_weights(evidence: Evidence, to: str, *, why: str, refuted_by: str) -> Change | None:
    """Weights in fewer bits; None where they are that already, or where W4 would go back to 8 bits."""
    now = evidence.setting("weights")
    if now not in WIDE_WEIGHTS and not (to.startswith("w4") and str(now).startswith("w8")):
        return None
    return Change("weights", now, to, why, refuted_by)


def lighter_kv(evidence: Evidence, *, why: str, refuted_by: str) -> Change | None:
    """KV in 8 bits, in the format that the server has: engines for GPUs have fp8, ours and llama.cpp int8."""
    now = evidence.setting("kv_dtype")
    if now not in WIDE_KV:
        return None
    to = "fp8" if evidence.engine in ("vLLM", "SGLang", "TensorRT-LLM") else "int8"
    return Change("kv_dtype", now, to, why, refuted_by)


def more_ranks(evidence: Evidence, *, why: str, refuted_by: str) -> Change:
    """Twice the devices that a layer is split over."""
    before, after = stepped(evidence, "tensor_parallel", 2, 1)
    return Change("tensor_parallel", before, after, why, refuted_by, ARCHITECTURE)
