"""C26: rounding, AWQ and GPTQ at equal bits by perplexity, KL divergence and accuracy, each against the other in pairs.

The embedded model's weights were of 4 bits before, in groups of 32 with a minimum (Q4_1): any other grid rounds them a
second time, which is not the quantizer's doing. The same weights as they are stored, and rounded in groups like their
own, stand beside; what the algorithms claim is looked at on tensors made for it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.made_tensors import made_rows
from experiments.claims.quality_rows import (
    Arms,
    Evaluate,
    changed,
    item_evidence,
    items,
    low_and_high,
    of_text,
    text_evidence,
    texts,
    with_settings,
)
from experiments.quality.evaluation import Evaluation
from experiments.quality.slices import ALL
from ledger.hardware import accelerator
from ledger.model_spec import load_model_spec
from ledger.weight_formats import weights_report

RTN, AWQ, GPTQ = "w4a16-rtn", "w4a16-awq", "w4a16-gptq"
EQUAL_BITS: Arms = {name: {"weights": name} for name in (RTN, AWQ, GPTQ)}
# Of the embedded model alone: its file's own blocks, and rounding in groups of the same size and kind.
OWN_GRID: Arms = {
    "as stored": {"weights": "as-stored"},
    "w4a16-rtn, groups of 32 with a zero point": {"weights": RTN, "weight_group": "32", "weight_symmetric": "off"},
}
MODEL, CARD = "llama-2-7b", "rtx-4090"
NOTE = (
    "these weights were 4-bit before, on another grid (Q4_1, groups of 32): rounding them again costs most of this, "
    "whoever rounds"
)


def check(
    options: Mapping[str, Any], evaluate: Evaluate, made: Callable[[], list[dict[str, Any]]] = made_rows
) -> dict[str, Any]:
    """All against the unquantized model, then AWQ and GPTQ against rounding, then the made tensors and a 7B's bytes."""
    asked = items(options), texts(options)
    embedded = (options.get("settings") or {}).get("model", "embedded") == "embedded"
    arms = with_settings(options, {**EQUAL_BITS, **(OWN_GRID if embedded else {})})
    found = evaluate(arms, dict(options.get("settings") or {}), *asked)
    pairs = evaluate({name: arms[name] for name in (AWQ, GPTQ)}, arms[RTN], *asked)
    tensors = made()
    verdict, reason = judge(found, pairs, tensors, list(arms), embedded)
    evidence = [row for label in arms for row in text_evidence(found, label)]
    evidence += [row for label in arms for row in item_evidence(found, label, "unquantized")]
    for name in (AWQ, GPTQ):
        evidence += [{**row, "part": f"{name} against {RTN}"} for row in text_evidence(pairs, name)]
        evidence += item_evidence(pairs, name, RTN)
    return {"verdict": verdict, "reason": reason, "evidence": [*evidence, *tensors, *_on_a_card()]}


def judge(
    found: Evaluation, pairs: Evaluation, made: Sequence[Mapping[str, Any]], labels: Sequence[str], embedded: bool
) -> Verdict:
    """Holds when AWQ and GPTQ both win some of rounding's loss back here, with a limit when one does; each must on the
    tensors made for it."""
    losing = [row for row in made if row["ratio"] >= 1]
    if losing:
        return FAILS, "; ".join(f"{row['part']}: {row['ratio']:.2f} times the error of rounding" for row in losing)
    words = {name: _word(of_text(pairs, name)) for name in (AWQ, GPTQ)}
    losses = "; ".join(_loss(found, label) for label in labels)
    against = ", ".join(
        f"{name} {words[name]} ({changed(of_text(pairs, name))} perplexity, "
        f"{_row(pairs, name).change_points:+.1f} points of accuracy)"
        for name in (AWQ, GPTQ)
    )
    tensors = ", ".join(f"{row['weights']} {row['ratio']:.2f}" for row in made)
    text = f"{losses}. Against rounding: {against}. On tensors made for them, their error by rounding's: {tensors}"
    text += f". {NOTE}" if embedded else ""
    better = sum(word == "better" for word in words.values())
    if better:
        return (HOLDS if better == len(words) else LIMITED), text
    return (UNDECIDED if "inconclusive" in words.values() else FAILS), text


def _word(row: Mapping[str, Any]) -> str:
    low, high = low_and_high(row)
    return "better" if high < 0 else "worse" if low > 0 else "inconclusive"


def _loss(found: Evaluation, label: str) -> str:
    row, text = _row(found, label), of_text(found, label)
    return (
        f"{label} {changed(text)} perplexity, KL {text['kl_mean']:.3f}, {row.change_points:+.1f} points "
        f"[{row.change_ci95[0]:+.1f}, {row.change_ci95[1]:+.1f}]"
    )


def _row(found: Evaluation, label: str) -> Any:
    """Of all items; of the only slice where there is no other."""
    rows = [row for row in found.rows if row.candidate == label]
    return next((row for row in rows if row.slice == ALL), rows[-1])


def _on_a_card() -> list[dict[str, Any]]:
    """A 7B model's weights beside the memory of a consumer card."""
    spec, card = load_model_spec(MODEL), accelerator(CARD)
    return [
        {
            "part": f"weights of {MODEL} in {name} on {card.label}", "bytes": size, "card_bytes": card.memory_bytes,
            "share": size / card.memory_bytes, "provenance": "computed",
        }
        for name in ("fp16", "w4a16")
        for size in (weights_report(spec, name)["total_bytes"],)
    ]  # fmt: skip
