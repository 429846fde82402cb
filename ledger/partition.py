"""How a model is cut over devices: layers into stages, parameters over tensor-parallel ranks. Knows no bytes."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from ledger.errors import InputError
from ledger.formats import positive
from ledger.model_spec import ModelSpec
from ledger.weights import LAYER

MAX_RANKS = 1024


def stages(num_layers: int, pp: int) -> tuple[range, ...]:
    """The layers of each of `pp` pipeline stages: num_layers // pp each, and what is left over one each to the stages
    before the last, from the back, since the last one also holds the head (as vLLM splits them).

    InputError when there are more stages than layers.
    """
    positive("pp", pp, MAX_RANKS)
    if pp > num_layers:
        raise InputError("pp", pp, f"at most one stage for each of the {num_layers} layers")
    sizes = [num_layers // pp] * pp
    for place in range(num_layers % pp):
        sizes[-2 - place] += 1
    starts = [sum(sizes[:index]) for index in range(pp)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))


def outer_stages(name: str, pp: int, *, tied: bool) -> tuple[int, ...]:
    """The stages that hold a parameter outside the layers: the first for the embedding (the last too when the head is
    tied to it), the last for what follows the layers.
    """
    last = pp - 1
    if _BEFORE.search(name):
        return (0, last) if tied and last and _TOKENS.search(name) else (0,)
    return (last,)


def layers_in(stage: range, layers: Sequence[int]) -> int:
    """How many of these layers (ascending indices) are in a stage."""
    return bisect_left(layers, stage.stop) - bisect_left(layers, stage.start)


def rank_share(name: str, part: str, spec: ModelSpec, tp: int) -> tuple[int, int]:
    """(n, of): the largest of `tp` ranks holds n / of of this parameter.

    Heads, MLP width, experts' width and vocabulary are split; KV heads never below one a rank; norms, routers, latent
    down-projections, learned positions and the biases that follow a row split are held by every rank.
    """
    if tp == 1 or part == "norms" or _WHOLE.search(name):
        return 1, 1
    if part == "attention":
        return _attention_share(name, spec, tp)
    if part == "state":
        found = LAYER.search(name)
        heads = spec.layers[int(found[1])].state_heads if found and int(found[1]) < spec.num_layers else 0
        return (-(-heads // tp), heads) if heads else (1, tp)
    return 1, tp


def _attention_share(name: str, spec: ModelSpec, tp: int) -> tuple[int, int]:
    found = LAYER.search(name)
    layer = spec.layers[int(found[1])] if found and int(found[1]) < spec.num_layers else None
    kv_heads = (layer.kv_heads if layer else 0) or spec.num_kv_heads
    query, kv = -(-spec.num_heads // tp), max(1, -(-kv_heads // tp))
    if _KEY_VALUE.search(name):
        return kv, kv_heads
    if _FUSED.search(name):
        return query + 2 * kv, spec.num_heads + 2 * kv_heads
    return query, spec.num_heads


_BEFORE = re.compile(r"embed|wte|wpe|per_layer_(?:model_)?proj|project_in|emb\b")
_TOKENS = re.compile(r"embed_tokens\.|wte\.|word_embeddings\.|embed_in\.|embeddings\.")
_KEY_VALUE = re.compile(r"\b(?:k|v|kv)_proj\b")
_FUSED = re.compile(r"\b(?:qkv_proj|query_key_value|c_attn|Wqkv|W_pack|wqkv)\b")
_WHOLE = re.compile(
    r"\b(?:router|gate|shared_expert_gate)\.|\bwpe\b|embed_positions|q_a_proj|kv_a_proj|e_score_correction"
    r"|(?:o_proj|out_proj|down_proj|dense|dense_4h_to_h|c_proj|fc2|fc_out)\.bias$"
)
