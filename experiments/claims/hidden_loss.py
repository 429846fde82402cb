"""C38: does W4 cost a slice what the mean hides? Looked for on this model, and shown on a constructed one.

The slice is chosen on one half of the items and confirmed on the other (experiments.quality.overlooked).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.quality_rows import Arms, Evaluate, item_evidence, items, with_settings
from experiments.quality.constructed import LABEL, lookup_items, write_model
from experiments.quality.evaluation import Evaluation, evaluate
from experiments.quality.overlooked import FOUND, NOT_CONFIRMED, Overlooked

FOUR_BITS: Arms = {
    "w4a16-rtn": {"weights": "w4a16-rtn"},
    "w4a16-awq": {"weights": "w4a16-awq"},
    "w4a16-gptq": {"weights": "w4a16-gptq"},
    "w4a16-rtn, groups of 32 with a zero point": {
        "weights": "w4a16-rtn", "weight_group": "32", "weight_symmetric": "off",
    },
}  # fmt: skip
BUILT = "w4a16-rtn on a constructed model"


def constructed() -> Evaluation:
    """The constructed model in 4 bits, rounded to nearest in groups of 64, against itself in float32."""
    with tempfile.TemporaryDirectory(prefix="trilemma-") as directory:
        write_model(Path(directory))
        base = {"model": directory, "dtype": "fp32", "kernels": "torch", "kv_memory_mib": 4}
        return evaluate({BUILT: {**base, "weights": "w4a16-rtn"}}, base, lookup_items(), [])


def check(
    options: Mapping[str, Any], evaluate: Evaluate, constructed: Callable[[], Evaluation] = constructed
) -> dict[str, Any]:
    """Every 4-bit form of this model by slices, then the constructed one."""
    arms = with_settings(options, FOUR_BITS)
    here = evaluate(arms, dict(options.get("settings") or {}), items(options), [])
    built = constructed()
    verdict, reason = judge(here.overlooked, built.overlooked)
    evidence = [row for label in arms for row in item_evidence(here, label, "unquantized")]
    evidence += [{**row, "model": LABEL} for row in item_evidence(built, BUILT, "unquantized")]
    found = [{"part": part, **(one.to_json() if one else {})} for part, one in
             (("looked for on this model", here.overlooked), (f"looked for on {LABEL}", built.overlooked))]  # fmt: skip
    return {"verdict": verdict, "reason": reason, "evidence": [*evidence, *found]}


def judge(here: Overlooked | None, built: Overlooked | None) -> Verdict:
    """Holds when such a slice is confirmed on this model, with a limit when only the constructed one has it."""
    if here is not None and here.verdict == FOUND:
        return HOLDS, f"on this model {here.sentence}"
    said = "nothing was scored" if here is None else here.sentence
    if built is not None and built.verdict == FOUND:
        return LIMITED, f"on this model {said}. On {LABEL}, labelled as such: {built.sentence}"
    text = f"on this model {said}; on {LABEL} {'nothing was scored' if built is None else built.sentence}"
    return (UNDECIDED if here is not None and here.verdict == NOT_CONFIRMED else FAILS), text
