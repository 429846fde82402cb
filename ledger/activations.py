"""Peak of the tensors alive beside weights and KV cache during one step of the torch decoder. Knows ModelSpec only.

The figure is that of the busiest moment of a forward pass, not a sum over layers: a layer's temporaries are freed
before the next layer's. Attention reads a gathered copy of one layer's keys and values and, where it
is naive, stores all scores. A product is held twice for a moment:
on a CPU it is computed transposed and then copied. Logits are float32, for the rows that sample. An upper estimate of
what the decoder holds; what a fused kernel allocates inside is not counted. Compiled kernels: step_kernels.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledger.errors import InputError
from ledger.formats import positive
from ledger.model_spec import ModelSpec

LOGIT_BYTES = 4  # logits are float32 whatever the model's dtype
SCORE_BYTES = 4  # so are scores that are stored


@dataclass(frozen=True)
class Phase:
    """One moment of the forward pass: its bytes and the arithmetic."""

    name: str
    bytes: int
    how: str


def activation_peak_bytes(
    spec: ModelSpec,
    num_tokens: int,
    num_logit_rows: int,
    element_bytes: int = 2,
    context_tokens: int | None = None,
    *,
    score_keys: int | None = None,
) -> int:
    """Bytes alive at the busiest moment of a step of `num_tokens` tokens with logits of `num_logit_rows` rows.

    `context_tokens` is how many cached tokens the step's rows read together (default: num_tokens, a first prefill).
    `score_keys`: keys of each token whose scores are all stored, as naive attention does; None with flash.
    InputError for a number below 1 or a spec without hidden, intermediate or vocabulary size.
    """
    return _busiest(spec, num_tokens, num_logit_rows, element_bytes, context_tokens, score_keys).bytes


def activation_how(
    spec: ModelSpec,
    num_tokens: int,
    num_logit_rows: int,
    element_bytes: int = 2,
    context_tokens: int | None = None,
    *,
    score_keys: int | None = None,
) -> str:
    """Which moment is the busiest, and its arithmetic with the numbers put in."""
    phase = _busiest(spec, num_tokens, num_logit_rows, element_bytes, context_tokens, score_keys)
    return f"{phase.name}: {phase.how} = {phase.bytes:,} B"


def activation_phases(
    spec: ModelSpec,
    num_tokens: int,
    num_logit_rows: int,
    element_bytes: int = 2,
    context_tokens: int | None = None,
    *,
    score_keys: int | None = None,
) -> list[Phase]:
    """The moments that can be the busiest: rotary positions, attention, MLP, logits."""
    positive("num_tokens", num_tokens)
    positive("num_logit_rows", num_logit_rows)
    positive("element_bytes", element_bytes)
    for name in ("hidden_size", "intermediate_size", "vocab_size"):
        if not getattr(spec, name):
            raise InputError(name, "missing", "a config that has it")
    context = num_tokens if context_tokens is None else positive("context_tokens", context_tokens)
    hidden, inner, vocab = spec.hidden_size, spec.intermediate_size, spec.vocab_size
    query, kv, rope = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim, 2 * spec.head_dim
    base = hidden + rope  # alive in every phase of a layer
    kept = f"{num_tokens:,} tokens x ({hidden} residual + {rope} rope tables"
    projected = f"{kept} + {hidden} normed + {query} + 2 x {kv} qkv"
    unit = f"{element_bytes} B"
    attend = num_tokens * (base + hidden + 4 * query + 2 * kv) + 2 * context * kv
    score_bytes, score_how = (0, "") if score_keys is None else _scores(spec, num_tokens, score_keys)
    logit_bytes = max(2 * element_bytes, LOGIT_BYTES + element_bytes)
    final = (num_tokens + num_logit_rows) * hidden * element_bytes
    return [
        Phase(
            "rotary positions",
            num_tokens * (base + hidden + 5 * query + 2 * kv) * element_bytes,
            f"{projected} + 4 x {query} rotation) x {unit}",
        ),
        Phase(
            "attention",
            attend * element_bytes + score_bytes,
            f"({projected} + 3 x {query} query, output, result) + 2 x {context:,} gathered tokens x {kv}) x {unit}"
            f"{score_how}",
        ),
        Phase(
            "MLP",
            num_tokens * (base + hidden + 4 * inner) * element_bytes,
            f"{kept} + {hidden} normed + 2 x 2 x {inner} gate and up) x {unit}",
        ),
        Phase(
            "logits",
            final + num_logit_rows * vocab * logit_bytes,
            f"({num_tokens:,} tokens + {num_logit_rows:,} rows) x {hidden} x {unit}"
            f" + {num_logit_rows:,} rows x {vocab:,} x {logit_bytes} B",
        ),
    ]


def _scores(spec: ModelSpec, tokens: int, keys: int) -> tuple[int, str]:
    """Bytes of all scores at once, before and after the softmax, and of a mask for them; and the arithmetic."""
    masks = (spec.num_heads // spec.num_kv_heads + 1) * tokens * keys
    how = f" + {spec.num_heads} heads x {tokens:,} x {keys:,} scores x 2 x {SCORE_BYTES} B + {masks:,} B of masks"
    return 2 * SCORE_BYTES * spec.num_heads * tokens * keys + masks, how


def _busiest(
    spec: ModelSpec, tokens: int, rows: int, element_bytes: int, context: int | None, score_keys: int | None
) -> Phase:
    phases = activation_phases(spec, tokens, rows, element_bytes, context, score_keys=score_keys)
    return max(phases, key=lambda phase: phase.bytes)
