"""Claims that formulas settle: C04 and C45, from the ledger's arithmetic."""

from __future__ import annotations

from typing import Any

from ledger.kv_cache import kv_report
from ledger.model_spec import ModelSpec
from ledger.weights import weight_bytes

GB = 1e9
TOKENS = 131_072
# "Far more" is read as at least twice.
FAR_MORE = 2.0


def thirteen_billion(tokens: int = TOKENS) -> dict[str, Any]:
    """C04: weights and KV cache of a 13B model at so many tokens, with all 40 KV heads (Llama-2-13B) and with 8."""
    full = _llama(layers=40, heads=40, kv_heads=40, hidden=5120, intermediate=13_824)
    grouped = _llama(layers=40, heads=40, kv_heads=8, hidden=5120, intermediate=13_824)
    caches = [_kv(spec, tokens, sequences) for spec in (full, grouped) for sequences in (1, 16)]
    batches = [row["value"] / GB for row in caches if row["sequences"] == 16]
    fitting = [row for row in caches if 10 <= row["value"] / GB < 100]
    found = f"16 sequences take {batches[0]:,.0f} GB with 40 KV heads and {batches[1]:,.0f} GB with 8"
    if all(10 <= value < 100 for value in batches):
        verdict, reason = "holds", found
    elif fitting:
        verdict = "holds with a limit"
        reason = f"{found}; tens of GB is {fitting[0]['name']}, {fitting[0]['sequences']} sequence"
    else:
        verdict, reason = "does not hold here", found
    return {"verdict": verdict, "reason": reason, "evidence": [_weights(full), *caches]}


def seven_billion(tokens: int = TOKENS) -> dict[str, Any]:
    """C45: KV cache of one sequence of so many tokens against the FP16 weights of a 7.2B model, and at INT8."""
    spec = _llama(layers=32, heads=32, kv_heads=8, hidden=4096, intermediate=14_336)
    cache, eight_bit, weights = _kv(spec, tokens, 1), _kv(spec, tokens, 1, "int8"), _weights(spec)
    ratio = cache["value"] / weights["value"]
    reason = (
        f"the cache is {cache['value']:,} B, {ratio:.2f} times the weights; "
        f"at INT8 it is {eight_bit['value'] / weights['value']:.2f} times"
    )
    verdict = "holds" if ratio >= FAR_MORE else "holds with a limit" if ratio > 1 else "does not hold here"
    return {"verdict": verdict, "reason": reason, "evidence": [cache, eight_bit, weights]}


def _llama(*, layers: int, heads: int, kv_heads: int, hidden: int, intermediate: int) -> ModelSpec:
    return ModelSpec.from_config(
        {
            "model_type": "llama",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": intermediate,
            "vocab_size": 32_000,
            "max_position_embeddings": TOKENS,
            "tie_word_embeddings": False,
        }
    )


def _kv(spec: ModelSpec, tokens: int, sequences: int, kv_dtype: str | None = None) -> dict[str, Any]:
    report = kv_report(spec, tokens, concurrency=sequences, kv_dtype=kv_dtype)
    name = f"KV cache, {spec.num_kv_heads} KV heads, {kv_dtype or 'fp16'}"
    return _row(name, report["kv_bytes_total"], report["formula"]) | {"sequences": sequences}


def _weights(spec: ModelSpec) -> dict[str, Any]:
    size = weight_bytes(spec, 2)
    return _row("weights, fp16", size, f"{size // 2:,} parameters x 2 B")


def _row(name: str, value: int, formula: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": "B", "formula": formula, "provenance": "computed"}
