"""Weights, activation peak and the ledger of accounts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.activations import activation_how, activation_peak_bytes, activation_phases
from ledger.errors import InputError
from ledger.memory import Account, MemoryLedger, predict_ledger
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.weights import parameter_count, parameter_shapes, parts, weight_bytes, weights_how

EMBEDDED = load_model_spec("embedded")


def test_tied_head_counts_once():
    untied = replace(EMBEDDED, tie_embeddings=False)
    assert parameter_count(EMBEDDED) == 134_515_008
    assert parameter_count(untied) - parameter_count(EMBEDDED) == 49_152 * 576
    assert "lm_head.weight" not in parameter_shapes(EMBEDDED)
    assert weight_bytes(EMBEDDED, 4) == 538_060_032


def test_embedding_and_norms_are_in_the_weights():
    assert parts(EMBEDDED)["embedding"] == 49_152 * 576
    assert parts(EMBEDDED)["norms"] == (2 * 30 + 1) * 576
    assert sum(parts(EMBEDDED).values()) == parameter_count(EMBEDDED)
    assert "134,515,008 parameters (head tied to the embedding, held once) x 4 B" in weights_how(EMBEDDED, 4)


def test_biases_follow_the_family():
    assert "model.layers.0.self_attn.q_proj.bias" in parameter_shapes(load_model_spec("qwen2.5-7b"))
    assert "model.layers.0.self_attn.o_proj.bias" not in parameter_shapes(load_model_spec("qwen2.5-7b"))
    assert parameter_shapes(load_model_spec("qwen3-8b"))["model.layers.0.self_attn.q_norm.weight"] == (128,)


def test_typed_fields_have_no_weights():
    with pytest.raises(InputError):
        weight_bytes(ModelSpec.from_fields(layers=2, kv_heads=2, head_dim=8))
    with pytest.raises(InputError, match="hidden_size"):
        activation_peak_bytes(ModelSpec.from_fields(layers=2, kv_heads=2, head_dim=8), 16, 1)


def test_activation_peak_depends_on_tokens_vocabulary_rows_and_context():
    peak = activation_peak_bytes(EMBEDDED, 512, 1, 4)
    assert activation_peak_bytes(EMBEDDED, 1024, 1, 4) == 2 * peak
    assert activation_peak_bytes(EMBEDDED, 512, 512, 4) > 512 * 49_152 * 4
    assert activation_peak_bytes(EMBEDDED, 1, 1, 4, context_tokens=8192) > 2 * 8192 * 3 * 64 * 4
    assert activation_peak_bytes(EMBEDDED, 512, 1, 2) < peak


def test_activation_text_ends_in_the_figure():
    assert activation_how(EMBEDDED, 512, 1, 4).endswith(f"= {activation_peak_bytes(EMBEDDED, 512, 1, 4):,} B")
    names = {phase.name for phase in activation_phases(EMBEDDED, 1, 1)}
    assert names == {"rotary positions", "attention", "MLP", "logits"}


def test_activation_text_evaluates_to_the_figure():
    for phase in activation_phases(EMBEDDED, 300, 7, 2, 1000):
        terms = "".join(char for char in phase.how.replace(" x ", "*") if char in "0123456789+*() ")
        assert eval(terms) == phase.bytes, phase.name


@given(st.integers(1, 5000), st.integers(1, 256), st.integers(1, 256), st.sampled_from([2, 4]))
def test_accounts_add_up(tokens, seqs, mib, dtype_bytes):
    ledger = predict_ledger(
        EMBEDDED, dtype_bytes=dtype_bytes, kv_pool_bytes=mib * 2**20, max_num_batched_tokens=tokens, max_num_seqs=seqs
    )
    assert sum(account.bytes for account in ledger.accounts) == ledger.total_bytes == ledger.to_json()["total_bytes"]
    assert 0 <= mib * 2**20 - ledger.account("kv_pool").bytes < 16 * 46_080
    assert all(account.how for account in ledger.accounts)


def test_fit_and_unexplained():
    ledger = MemoryLedger((Account("weights", 70, "given"), Account("kv_pool", 20, "given")), capacity_bytes=100)
    assert ledger.fits is True
    assert replace(ledger, capacity_bytes=89).fits is False
    assert replace(ledger, capacity_bytes=None).fits is None
    assert ledger.unexplained_bytes(95) == 5
    with pytest.raises(InputError, match="weights"):
        Account("weights", -1, "given")
    with pytest.raises(KeyError):
        ledger.account("rent")


def test_pool_below_one_block_is_refused():
    with pytest.raises(InputError, match="kv_pool_bytes"):
        predict_ledger(EMBEDDED, dtype_bytes=4, kv_pool_bytes=100, max_num_batched_tokens=8, max_num_seqs=1)
