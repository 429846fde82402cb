"""What number formats save, from the ledger's arithmetic: the computed halves of C05 (KV cache) and C27 (weights)."""

from __future__ import annotations

from typing import Any

from ledger.capacity import Deployment, kv_room_bytes, max_concurrency
from ledger.hardware import accelerator
from ledger.kv_cache import formula, kv_bytes_per_sequence
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.weight_formats import weights_report, weights_text

KV_FORMATS = ("fp16", "int8", "int4")
HELD_IN_16_BITS = 8
SEQ_LEN = 4096
CARD, MODEL_ON_CARD = "l4", "llama-3.1-8b"
WEIGHT_MODELS = ("llama-3.1-70b", "llama-3.1-8b", "llama-2-7b", "llama-3.2-1b", "smollm2-135m")
# The claim's shares, and how far off still counts as "about".
CLAIMED = {"w8a8": 0.50, "w4a16": 0.25}
ABOUT = 0.05


def kv_rows() -> list[dict[str, Any]]:
    """Of C05: sequences held where FP16 holds 8, with and without scales, and on a card where weights take a part."""
    spec = ModelSpec.from_fields(layers=32, kv_heads=8, head_dim=128)
    room = HELD_IN_16_BITS * kv_bytes_per_sequence(spec, SEQ_LEN)
    evidence = []
    for dtype in KV_FORMATS:
        size = kv_bytes_per_sequence(spec, SEQ_LEN, kv_dtype=dtype)
        bare = kv_bytes_per_sequence(spec, SEQ_LEN, kv_dtype=dtype, kv_group_size=None if dtype == "fp16" else 0)
        text = f"{formula(spec, SEQ_LEN, kv_dtype=dtype)}; {room:,} B / {size:,} B; {room // bare} without scales"
        evidence.append(_row(f"sequences held, {dtype} KV", room // size, "sequences", text))
    return [*evidence, *(_on_card(dtype) for dtype in KV_FORMATS)]


def weight_rows() -> tuple[list[dict[str, Any]], list[str]]:
    """Of C27: the share of 16-bit weight memory at W8A8 and W4A16 for models from 70B to 135M, and which are far off
    the claim."""
    evidence, off = [], []
    for model in WEIGHT_MODELS:
        spec = load_model_spec(model)
        for name, claimed in CLAIMED.items():
            report = weights_report(spec, name)
            share = report["share_of_16bit"]
            kept = report["bytes_16bit"] / report["total_bytes"]
            text = f"{weights_text(spec, name)}; {kept:.0%} of it stays 16 bit"
            evidence.append(_row(f"{model}, {name}", round(100 * share, 1), "% of 16-bit bytes", text))
            if share > claimed + ABOUT:
                off.append(f"{model} {name} {100 * share:.0f} %")
    return evidence, off


def _on_card(kv_dtype: str) -> dict[str, Any]:
    capacity = accelerator(CARD).memory_bytes
    d = Deployment(load_model_spec(MODEL_ON_CARD), kv_dtype=kv_dtype, seq_len=SEQ_LEN, capacity_bytes=capacity)
    size = kv_bytes_per_sequence(d.spec, SEQ_LEN, kv_dtype=kv_dtype, block_size=d.block_size)
    text = f"{kv_room_bytes(d):,} B for KV beside weights and buffers / {size:,} B a sequence of {SEQ_LEN:,}"
    return _row(f"{MODEL_ON_CARD} on an L4, {kv_dtype} KV", max_concurrency(d) or 0, "sequences", text) | {
        "provenance": "estimated"
    }


def _row(name: str, value: float, unit: str, text: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "formula": text, "provenance": "computed"}
