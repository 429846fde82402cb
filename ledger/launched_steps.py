"""Peak of the tensors alive beside weights and KV cache during one step of the GPU decoder (kernels/triton).

Its kernels read the cache in place and write into what they are handed, so that nothing is gathered and no product is
held twice. The figure is that of the busiest moment, as in activations.py. Knows ModelSpec only.
"""

from __future__ import annotations

from ledger.activations import LOGIT_BYTES, Phase
from ledger.model_spec import ModelSpec

PLACE_BYTES = 12  # a token's id, position and slot, int32 each
ROPE_BYTES = 8  # cosine and sine, float32, of every element of a head


def launched_phases(
    spec: ModelSpec, num_tokens: int, num_logit_rows: int, element_bytes: int, *, quantized_kv: bool
) -> list[Phase]:
    """The moments that can be the busiest with fused operators: attention, MLP, logits. Split KV's partial results,
    a few numbers for each query head of a decode row, are not in them."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    places = num_tokens * (PLACE_BYTES + ROPE_BYTES * spec.head_dim)
    new = 2 * kv if quantized_kv else 0
    attention = 3 * hidden + 3 * query + 2 * kv + new
    mlp = 2 * hidden + 3 * inner
    logit_bytes = LOGIT_BYTES + (element_bytes if element_bytes != LOGIT_BYTES else 0)
    rows = num_logit_rows
    said = f"{num_tokens:,} tokens x"
    beside = f" x {element_bytes} B + {places:,} B of places and rotations"
    kept = " + 2 x keys and values" if quantized_kv else " + keys and values"
    return [
        Phase(
            "attention",
            num_tokens * attention * element_bytes + places,
            f"{said} (3 x {hidden} residual, normed, result + 3 x {query} queries and output{kept}){beside}",
        ),
        Phase(
            "MLP",
            num_tokens * mlp * element_bytes + places,
            f"{said} (2 x {hidden} residual, normed + 3 x {inner} gate, up, product){beside}",
        ),
        Phase(
            "logits",
            (num_tokens + rows) * hidden * element_bytes + rows * spec.vocab_size * logit_bytes + places,
            f"({num_tokens:,} + {rows:,}) x {hidden} x {element_bytes} B + {rows:,} x {spec.vocab_size:,} x "
            f"{logit_bytes} B + {places:,} B of places and rotations",
        ),
    ]
