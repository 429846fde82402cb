"""C06 and C50: what quantized keys and values cost in perplexity, KL divergence and top-1 agreement, format by format.

Every window goes through the engine's own KV path; the baseline keeps KV in the model's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.quality_rows import (
    Arms,
    Evaluate,
    changed,
    low_and_high,
    of_text,
    text_evidence,
    texts,
    with_settings,
)

INT8, CHANNEL, TOKEN = "int8", "int4, keys per channel", "int4, keys per token"
COSTS: Arms = {
    INT8: {"kv_dtype": "int8"},
    CHANNEL: {"kv_dtype": "int4", "kv_key_axis": "channel"},
    TOKEN: {"kv_dtype": "int4", "kv_key_axis": "token"},
}
NEXT_TO_NOTHING_PCT = 1.0

PLAIN = "int2, plain: keys per token"
PROTECTED: Arms = {
    "int2, keys per channel": {"kv_dtype": "int2", "kv_key_axis": "channel"},
    "int2, keys per channel, outliers apart": {"kv_dtype": "int2", "kv_key_axis": "channel", "kv_protect": "outliers"},
    "int2, keys per channel, first block kept": {
        "kv_dtype": "int2", "kv_key_axis": "channel", "kv_protect": "sinks", "prefix_cache": "off",
    },
}  # fmt: skip
TWO_BITS: Arms = {PLAIN: {"kv_dtype": "int2", "kv_key_axis": "token"}, **PROTECTED}
COLLAPSE_PCT = 100.0  # twice the baseline's perplexity
WORKS_PCT = 10.0

NOTHING, SOME, OPEN = "next to nothing", "more than that", "undecided"


def costs(options: Mapping[str, Any], evaluate: Evaluate) -> dict[str, Any]:
    """C06: int8, int4 with keys per channel and per token, each against the model's dtype; then one axis against the
    other."""
    scored, base = texts(options), dict(options.get("settings") or {})
    arms = with_settings(options, COSTS)
    found = evaluate(arms, base, [], scored)
    trap = evaluate({TOKEN: arms[TOKEN]}, arms[CHANNEL], [], scored)
    rows = {label: of_text(found, label) for label in arms}
    verdict, reason = judge_costs(rows, of_text(trap, TOKEN))
    evidence = [row for label in arms for row in text_evidence(found, label, costs=cost(rows[label]))]
    evidence += [{**row, "part": f"{TOKEN}, against {CHANNEL}"} for row in text_evidence(trap, TOKEN)]
    return {"verdict": verdict, "reason": reason, "evidence": evidence}


def cost(row: Mapping[str, Any]) -> str:
    """Whether a format's perplexity is within NEXT_TO_NOTHING_PCT of the baseline's, by the interval."""
    low, high = low_and_high(row)
    return NOTHING if high <= NEXT_TO_NOTHING_PCT else SOME if low > NEXT_TO_NOTHING_PCT else OPEN


def judge_costs(rows: Mapping[str, Mapping[str, Any]], token_against_channel: Mapping[str, Any]) -> Verdict:
    """Holds when every format costs next to nothing, with a limit when int8 does, and not when int8 costs more."""
    words = {label: cost(row) for label, row in rows.items()}
    figures = "; ".join(
        f"{label} {changed(row)} perplexity, KL {row['kl_mean']:.4f}, top-1 {row['top1_agreement']:.1%}: {words[label]}"
        for label, row in rows.items()
    )
    low, high = low_and_high(token_against_channel)
    word = "worse" if low > 0 else "better" if high < 0 else "no different"
    text = f"{figures}. Keys per token are {word} than per channel at int4: {changed(token_against_channel)}"
    if words[INT8] == OPEN:
        return UNDECIDED, text
    if words[INT8] == SOME:
        return FAILS, text
    return (HOLDS if set(words.values()) == {NOTHING} else LIMITED), text


def two_bits(options: Mapping[str, Any], evaluate: Evaluate) -> dict[str, Any]:
    """C50: plain int2, then keys per channel, outliers apart, and the first block kept, against the model's dtype."""
    arms = with_settings(options, TWO_BITS)
    found = evaluate(arms, dict(options.get("settings") or {}), [], texts(options))
    rows = {label: of_text(found, label) for label in arms}
    verdict, reason = judge_two_bits(rows)
    evidence = [row for label in arms for row in text_evidence(found, label)]
    return {"verdict": verdict, "reason": reason, "evidence": evidence}


def judge_two_bits(rows: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """Holds when even plain int2 works; with a limit when a protected one does, or costs but does not collapse; not
    when all collapse. To work is to cost WORKS_PCT at most, to collapse more than COLLAPSE_PCT."""
    best = min(PROTECTED, key=lambda label: rows[label]["change_pct"])
    plain, kept = low_and_high(rows[PLAIN]), low_and_high(rows[best])
    figures = "; ".join(f"{label} {_times(row)}" for label, row in rows.items())
    fate = "collapses" if plain[0] > COLLAPSE_PCT else "does not collapse"
    text = f"perplexity against the unquantized cache: {figures}. Plain int2 {fate} (over twice the baseline)"
    if plain[1] <= WORKS_PCT:
        return HOLDS, text
    if kept[1] <= WORKS_PCT:
        return LIMITED, f"{text}; it works with {best}"
    if kept[1] <= COLLAPSE_PCT:
        return LIMITED, f"{text}; with {best} it does not collapse either, but costs more than {WORKS_PCT:.0f} %"
    return (FAILS if kept[0] > COLLAPSE_PCT else UNDECIDED), f"{text}; the best protection is {best}"


def _times(row: Mapping[str, Any]) -> str:
    return f"{row['perplexity'] / row['baseline_perplexity']:.2f}x"
