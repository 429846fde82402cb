"""How a model is cut over devices: layers into stages, parameters over tensor-parallel ranks. Knows no bytes."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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


def even_parts(count: int, parts: int) -> tuple[range, ...]:
    """`count` things in a row dealt over `parts`, as evenly as can be; the first ones have one more where they must."""
    each, over = divmod(count, parts)
    starts = [part * each + min(part, over) for part in range(parts + 1)]
    return tuple(range(first, last) for first, last in pairwise(starts))


@dataclass(frozen=True)
class HeadShare:
    """The query and the KV heads of one rank; every query head reads a KV head that the rank holds."""

    query: range
    kv: range


def head_shares(num_heads: int, kv_heads: int, tp: int) -> tuple[HeadShare, ...]:
    """The heads of each of `tp` ranks, by whole KV groups: a KV head and the query heads that read it stay together.

    With more ranks than KV heads each rank has one KV head, which several hold then, and a part of its group. Shares
    may be uneven: 9 query and 3 KV heads over 2 ranks are 6 + 2 and 3 + 1.
    InputError when there are more ranks than query heads, or when KV heads do not divide query heads.
    """
    positive("tp", tp, MAX_RANKS)
    if num_heads % kv_heads:
        raise InputError("num_key_value_heads", kv_heads, f"a divisor of the {num_heads} query heads")
    if tp > num_heads:
        raise InputError("tp", tp, f"at most one rank for each of the {num_heads} query heads")
    group = num_heads // kv_heads
    if tp <= kv_heads:
        return tuple(HeadShare(range(p.start * group, p.stop * group), p) for p in even_parts(kv_heads, tp))
    holders = [len(ranks) for ranks in reversed(even_parts(tp, kv_heads))]  # fewest first: rank 0 is the largest
    return tuple(
        HeadShare(range(kv * group + part.start, kv * group + part.stop), range(kv, kv + 1))
        for kv, ranks in enumerate(holders)
        for part in even_parts(group, ranks)
    )


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

    Heads go by whole KV groups (`head_shares`), KV heads never below one a rank. MLP width and vocabulary are split,
    the first ranks one more where that does not divide; experts' width is split. Norms, routers, latent
    down-projections, learned positions and the biases that follow a row split are held whole.
    """
    if tp == 1 or part == "norms" or _WHOLE.search(name):
        return 1, 1
    if part == "attention":
        return _attention_share(name, spec, tp)
    if part == "state":
        found = LAYER.search(name)
        heads = spec.layers[int(found[1])].state_heads if found and int(found[1]) < spec.num_layers else 0
        return (-(-heads // tp), heads) if heads else (1, tp)
    width = {"mlp": spec.intermediate_size, "embedding": spec.vocab_size, "head": spec.vocab_size}.get(part, 0)
    return (-(-width // tp), width) if width else (1, tp)


def _attention_share(name: str, spec: ModelSpec, tp: int) -> tuple[int, int]:
    found = LAYER.search(name)
    layer = spec.layers[int(found[1])] if found and int(found[1]) < spec.num_layers else None
    kv_heads = (layer.kv_heads if layer else 0) or spec.num_kv_heads
    query, kv = _most_query_heads(spec.num_heads, kv_heads, tp), max(1, -(-kv_heads // tp))
    if _KEY_VALUE.search(name):
        return kv, kv_heads
    if _FUSED.search(name):
        return query + 2 * kv, spec.num_heads + 2 * kv_heads
    return query, spec.num_heads


def _most_query_heads(num_heads: int, kv_heads: int, tp: int) -> int:
    """Of the largest rank. More ranks than heads repeat them; heads that form no groups are dealt one by one."""
    if tp > num_heads or num_heads % kv_heads:
        return -(-num_heads // tp)
    return max(len(share.query) for share in head_shares(num_heads, kv_heads, tp))


_BEFORE = re.compile(r"embed|wte|wpe|per_layer_(?:model_)?proj|project_in|emb\b")
_TOKENS = re.compile(r"embed_tokens\.|wte\.|word_embeddings\.|embed_in\.|embeddings\.")
_KEY_VALUE = re.compile(r"\b(?:k|v|kv)_proj\b")
_FUSED = re.compile(r"\b(?:qkv_proj|query_key_value|c_attn|Wqkv|W_pack|wqkv)\b")
_WHOLE = re.compile(
    r"\b(?:router|gate|shared_expert_gate)\.|\bwpe\b|embed_positions|q_a_proj|kv_a_proj|e_score_correction"
    r"|(?:o_proj|out_proj|down_proj|dense|dense_4h_to_h|c_proj|fc2|fc_out)\.bias$"
)
