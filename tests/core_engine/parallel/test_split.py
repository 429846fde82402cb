"""How a model is cut over ranks, by arithmetic: heads, parameters, bytes of a step, micro-batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.parallel.pipeline import micro_batches
from core_engine.plan import Row
from ledger.errors import InputError
from ledger.kv_blocks import BlockFormat
from ledger.model_spec import ModelSpec
from ledger.operators import StepCosts
from ledger.parallel import (
    bubble_share,
    imbalance,
    part_block_bytes,
    part_traffic,
    part_weight_bytes,
    rank_parts,
    ring_factor,
)
from ledger.partition import even_parts, head_shares, stages
from ledger.weight_formats import weight_bytes_of
from ledger.weights import weight_bytes

SMOLLM2 = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49_152, "tie_word_embeddings": True,
}  # fmt: skip
LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256, "tie_word_embeddings": False,
}  # fmt: skip


def counts(num_heads: int, kv_heads: int, tp: int) -> list[tuple[int, int]]:
    return [(len(share.query), len(share.kv)) for share in head_shares(num_heads, kv_heads, tp)]


def test_whole_kv_groups_go_to_a_rank() -> None:
    assert counts(9, 3, 3) == [(3, 1)] * 3
    assert counts(9, 3, 2) == [(6, 2), (3, 1)]
    assert counts(32, 8, 4) == [(8, 2)] * 4


def test_kv_heads_are_repeated_when_there_are_more_ranks() -> None:
    shares = head_shares(8, 2, 4)
    assert [(share.query, share.kv) for share in shares] == [
        (range(2), range(1)), (range(2, 4), range(1)), (range(4, 6), range(1, 2)), (range(6, 8), range(1, 2)),
    ]  # fmt: skip
    assert counts(9, 3, 4) == [(3, 1), (3, 1), (2, 1), (1, 1)]


@given(group=st.integers(1, 6), kv=st.integers(1, 6), tp=st.integers(1, 36))
def test_every_query_head_is_once_and_beside_its_kv_head(group: int, kv: int, tp: int) -> None:
    heads = group * kv
    if tp > heads:
        with pytest.raises(InputError):
            head_shares(heads, kv, tp)
        return
    shares = head_shares(heads, kv, tp)
    assert [head for share in shares for head in share.query] == list(range(heads))
    assert {head for share in shares for head in share.kv} == set(range(kv))
    for share in shares:
        assert {head // group for head in share.query} == set(share.kv)
        assert len(share.query) == len(share.kv) * (len(share.query) // len(share.kv))
    assert len(shares[0].query) == max(len(share.query) for share in shares)


def test_uneven_parts_are_whole_and_the_first_are_the_larger() -> None:
    assert [len(part) for part in even_parts(1000, 3)] == [334, 333, 333]
    assert [place for part in even_parts(10, 4) for place in part] == list(range(10))


@pytest.mark.parametrize("config", [SMOLLM2, LLAMA_8B], ids=["smollm2", "llama-8b"])
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 3)])
def test_the_ledgers_largest_rank_is_the_largest_of_the_ranks(config: dict, tp: int, pp: int) -> None:
    spec = ModelSpec.from_config(config)
    parts = rank_parts(spec, tp, pp)
    assert weight_bytes_of(spec, "none", tp, pp) == max(part_weight_bytes(spec, part, 2) for part in parts)
    blocks = [part_block_bytes(spec, part, BlockFormat("bf16"), 16) for part in parts]
    elements = [
        sum(layer.kv_elements_per_rank(tp) for layer in spec.layers[stage.start : stage.stop])
        for stage in stages(spec.num_layers, pp)
    ]
    assert max(blocks) == 16 * 2 * max(elements)


@pytest.mark.parametrize(("tp", "pp"), [(3, 1), (2, 1), (1, 2), (2, 3)])
def test_the_ranks_hold_everything_and_twice_only_what_is_repeated(tp: int, pp: int) -> None:
    spec = ModelSpec.from_config(SMOLLM2)
    held = sum(part_weight_bytes(spec, part, 4) for part in rank_parts(spec, tp, pp))
    norms = (2 * 30 + 1) * 576 * 4
    table = 49_152 * 576 * 4
    assert held == weight_bytes(spec, 4) + (tp - 1) * norms + (table if pp > 1 else 0)


def test_a_steps_payload_is_the_formula() -> None:
    spec = ModelSpec.from_config(SMOLLM2)
    tokens, rows, hidden = 7, 3, 576 * 4
    first, second = (part_traffic(spec, part, tokens, rows, 4) for part in rank_parts(spec, 2, 1))
    assert first.all_reduces == 61 and first.all_reduce_bytes == 61 * tokens * hidden == second.all_reduce_bytes
    assert first.logits_bytes + second.logits_bytes == rows * 49_152 * 4 and first.sends == 0
    stages = [part_traffic(spec, part, tokens, rows, 4, micro_batches=2) for part in rank_parts(spec, 2, 2)]
    assert sum(one.all_reduce_bytes for one in stages) == 2 * 61 * tokens * hidden
    assert [one.send_bytes for one in stages] == [tokens * hidden] * 2 + [0, 0]
    assert [one.sends for one in stages] == [2, 2, 0, 0] and [one.all_reduces for one in stages] == [62, 62, 60, 60]
    alone = part_traffic(spec, rank_parts(spec, 1, 2)[0], tokens, rows, 4)
    assert (alone.all_reduces, alone.logits_bytes, alone.send_bytes) == (0, 0, tokens * hidden)


def test_the_roofline_and_the_simulator_count_the_same_all_reduces() -> None:
    spec = ModelSpec.from_config(LLAMA_8B)
    traffic = part_traffic(spec, rank_parts(spec, 4, 1)[0], 7, 3, 2)
    counted = next(one for one in StepCosts(spec, "bf16", tp=4).of_tokens(7, 3) if one.name == "all-reduce")
    assert counted.count == traffic.all_reduces == 65
    assert counted.link_bytes == pytest.approx(ring_factor(4) * traffic.all_reduce_bytes)


def test_ring_bubble_and_imbalance() -> None:
    assert [ring_factor(ranks) for ranks in (1, 2, 4)] == [0, 1, 1.5]
    assert bubble_share(1, 1) == 0 and bubble_share(2, 2) == pytest.approx(1 / 3)
    assert imbalance([6, 3]) == pytest.approx(4 / 3) and imbalance([3, 3, 3]) == 1


def row(start: int, count: int, name: str = "a", drafts: int = 0) -> Row:
    blocks = tuple(range(-(-(start + count) // 4)))
    return Row(name, start, tuple(range(count)), blocks, count > 1, num_drafts=drafts)


def test_micro_batches_keep_the_order_and_share_the_tokens() -> None:
    rows = [row(5, 1, "a"), row(3, 1, "b"), row(9, 1, "c"), row(2, 1, "d")]
    assert [[one.request_id for one in part] for part in micro_batches(rows, 2, 4)] == [["a", "b"], ["c", "d"]]
    assert len(micro_batches(rows[:1], 3, 4)) == 1 and len(micro_batches(rows, 9, 4)) == 4


def test_a_prompt_is_cut_where_a_block_ends() -> None:
    (first,), (second,) = micro_batches([row(2, 14)], 2, 4)
    assert (first.start, first.end) == (2, 8) and (second.start, second.end) == (8, 16)
    assert first.tokens + second.tokens == tuple(range(14))
    assert micro_batches([row(4, 3, drafts=2)], 2, 4) == [[row(4, 3, drafts=2)]]


@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30), st.booleans()), min_size=1, max_size=6),
    parts=st.integers(1, 5),
)
def test_micro_batches_are_the_rows_again_when_put_together(sizes: list, parts: int) -> None:
    rows = [row(start, count, str(i), min(count - 1, 2) * drafted) for i, (start, count, drafted) in enumerate(sizes)]
    found = micro_batches(rows, parts, 4)
    assert 1 <= len(found) <= parts and all(found)
    flat = [
        (one.request_id, one.start + i, token) for part in found for one in part for i, token in enumerate(one.tokens)
    ]
    assert flat == [(one.request_id, one.start + i, token) for one in rows for i, token in enumerate(one.tokens)]
    for part in found:
        names = [one.request_id for one in part]
        assert len(set(names)) == len(names)  # a row is not cut within a part
        assert all(one.end % 4 == 0 or one.end == rows[int(one.request_id)].end for one in part)
