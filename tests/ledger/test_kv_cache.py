"""KV arithmetic: faults 43, 45 and 46, the formula text, and properties."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import InputError
from ledger.kv_cache import formula, kv_bytes_per_sequence, kv_bytes_per_token, kv_report, state_bytes_per_sequence
from ledger.layers import LayerSpec
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.partition import stages

HYBRID = {
    "model_type": "qwen3_next", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 8, "vocab_size": 10,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 100,
}  # fmt: skip


def test_the_interview_question():
    spec = ModelSpec.from_fields(layers=32, kv_heads=8, head_dim=128)
    report = kv_report(spec, 8192, concurrency=4)
    assert report["kv_bytes_per_token"] == 131_072
    assert report["kv_bytes_total"] == 4 * 2**30


def test_latent_attention_is_one_vector_and_not_split_over_ranks():
    spec = load_model_spec("deepseek-v3")
    assert kv_bytes_per_token(spec) == 70_272
    assert kv_report(spec, 1000, tp=8)["kv_bytes_per_token"] == 70_272


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (3, 3), (8, 1), (16, 1)])
def test_kv_heads_are_replicated_below_one_a_rank(tp, heads):
    spec = ModelSpec.from_fields(layers=1, kv_heads=8, head_dim=64)
    assert kv_report(spec, 1, tp=tp)["kv_bytes_total"] == 2 * heads * 64 * 2


def test_windowed_layers_are_bounded_and_full_ones_grow():
    spec = load_model_spec("gemma-2-9b")
    short, long = kv_report(spec, 4096), kv_report(spec, 8192)
    assert long["kv_bytes_per_sequence"] - short["kv_bytes_per_sequence"] == 4096 * long["kv_bytes_per_token"]
    assert long["kv_bytes_per_token_all_layers"] == 2 * long["kv_bytes_per_token"]


def test_blocks_round_up_only_when_asked():
    spec = ModelSpec.from_fields(layers=1, kv_heads=1, head_dim=1)
    assert kv_report(spec, 17)["kv_bytes_per_sequence"] == 17 * 4
    assert kv_report(spec, 17, block_size=16)["kv_bytes_per_sequence"] == 32 * 4


def test_state_is_constant_and_apart():
    spec = ModelSpec.from_config(HYBRID)
    assert state_bytes_per_sequence(spec) == 6 * (4 * 8 * 8 + (2 * 2 * 8 + 4 * 8) * 3) * 2
    short, long = kv_report(spec, 10), kv_report(spec, 90)
    assert short["state_bytes_per_sequence"] == long["state_bytes_per_sequence"] == state_bytes_per_sequence(spec)
    assert long["kv_bytes_per_sequence"] == 9 * short["kv_bytes_per_sequence"]
    in_float32 = ModelSpec.from_config({**HYBRID, "mamba_ssm_dtype": "float32"})
    assert state_bytes_per_sequence(in_float32) - state_bytes_per_sequence(spec) == 6 * 4 * 8 * 8 * 2


def test_default_is_two_bytes_whatever_the_config_says():
    spec = ModelSpec.from_config({**HYBRID, "torch_dtype": "float32"})
    assert kv_report(spec, 50)["kv_bytes_total"] == kv_report(spec, 50, kv_dtype="bf16")["kv_bytes_total"]


BITS = [("fp32", 32), ("fp16", 16), ("fp8", 8), ("int8", 8.25), ("int4", 4.5), ("int2", 2.5)]
PAYLOAD_BITS = [("int8", 8), ("int4", 4), ("int2", 2)]


@pytest.mark.parametrize(("dtype", "bits"), BITS)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_a_format_includes_the_scales_and_zero_points_of_its_groups(dtype, bits, head_dim):
    spec = ModelSpec.from_fields(layers=2, kv_heads=2, head_dim=head_dim)
    report = kv_report(spec, 10, kv_dtype=dtype)
    assert report["kv_bytes_total"] == 10 * 2 * 2 * 2 * head_dim * bits / 8
    assert report["overhead"]["bits_per_element"] == bits


@pytest.mark.parametrize(("dtype", "bits"), PAYLOAD_BITS)
def test_group_0_counts_the_payload_alone_and_says_so(dtype, bits):
    spec = ModelSpec.from_fields(layers=2, kv_heads=2, head_dim=64)
    report = kv_report(spec, 10, kv_dtype=dtype, kv_group_size=0)
    assert report["kv_bytes_total"] == 10 * 2 * 2 * 2 * 64 * bits / 8
    assert "payload only" in report["formula"]


def test_smaller_groups_cost_more_and_groups_need_a_format_that_has_them():
    spec = ModelSpec.from_fields(layers=1, kv_heads=1, head_dim=64)
    assert kv_report(spec, 1, kv_dtype="int4", kv_group_size=32)["kv_bytes_total"] == 64 + 4 * 4
    with pytest.raises(InputError, match="kv_group_size"):
        kv_report(spec, 1, kv_dtype="fp16", kv_group_size=32)
    with pytest.raises(InputError, match="kv_group_size"):
        kv_report(spec, 1, kv_dtype="int4", kv_group_size=-1)


def test_a_group_never_spans_heads():
    heads_of_96 = ModelSpec.from_fields(layers=1, kv_heads=4, head_dim=96)
    assert kv_report(heads_of_96, 1, kv_dtype="int4")["kv_bytes_total"] == 2 * 4 * (96 // 2 + 2 * 4)


def test_a_latent_is_one_row():
    spec = load_model_spec("deepseek-v3")
    assert kv_report(spec, 1, kv_dtype="int8")["kv_bytes_total"] == 61 * (576 + 9 * 2)


def test_the_formula_prints_the_overhead():
    spec = ModelSpec.from_fields(layers=32, kv_heads=8, head_dim=128)
    assert kv_report(spec, 1, kv_dtype="int4")["formula"].startswith(
        "2 x 32 layers x 8 KV heads x (128 x 0.5 B + 2 groups x 4 B) = 36,864 B a token"
    )


def test_formula_has_the_numbers():
    spec = load_model_spec("embedded")
    assert formula(spec, kv_dtype="fp32") == "2 x 30 layers x 3 KV heads x 64 x 4 B = 46,080 B a token"
    assert kv_report(spec, 100, 2)["formula"] == (
        "2 x 30 layers x 3 KV heads x 64 x 2 B = 23,040 B a token; "
        "100 tokens x 23,040 B = 2,304,000 B a sequence of 100; x 2 sequences = 4,608,000 B"
    )


def test_a_model_without_attention_has_no_kv():
    spec = ModelSpec.from_fields(layers=1, kv_heads=1, head_dim=1)
    bare = ModelSpec(**{**spec.__dict__, "layers": (LayerSpec("none"),)})
    assert kv_report(bare, 10)["kv_bytes_total"] == 0
    assert formula(bare, 10) == "no layer keeps keys or values: 0 B a token"


def test_over_the_models_maximum_is_computed_with_a_warning():
    assert kv_report(ModelSpec.from_config(HYBRID), 100)["warnings"] == []
    assert "maximum of 100" in kv_report(ModelSpec.from_config(HYBRID), 101)["warnings"][0]


@pytest.mark.parametrize(
    "bad", [{"seq_len": 0}, {"concurrency": -1}, {"tp": 0}, {"tp": 10**6}, {"block_size": 0}, {"kv_dtype": "fp7"}]
)
def test_bad_input_names_the_field(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        kv_report(load_model_spec("embedded"), **{"seq_len": 10, **bad})


def test_layers_are_split_into_stages_and_the_last_gets_no_extra_one():
    assert [len(stage) for stage in stages(61, 4)] == [15, 15, 16, 15]
    assert [len(stage) for stage in stages(30, 3)] == [10, 10, 10]
    with pytest.raises(InputError, match="pp"):
        stages(30, 31)


def test_pipeline_figures_are_those_of_the_largest_stage():
    spec = load_model_spec("deepseek-v3")
    report = kv_report(spec, 100, pp=4)
    assert report["layers_per_stage"] == [15, 15, 16, 15]
    assert report["stage"] == 2
    assert report["kv_bytes_per_token"] == 16 * 576 * 2
    assert [row["stage"] for row in report["per_layer"]].count(2) == 16
    assert "stage 3 of 4, 16 of 61 layers" in report["formula"]


def test_of_stages_with_equal_caches_the_one_with_most_state_counts():
    config = {
        "model_type": "falcon_mamba", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 24,
        "vocab_size": 10, "state_size": 4, "conv_kernel": 4, "time_step_rank": 4,
    }  # fmt: skip
    spec = ModelSpec.from_config(config)
    report = kv_report(spec, 100, pp=7)
    assert report["layers_per_stage"] == [3, 3, 3, 4, 4, 4, 3]
    assert report["state_bytes_per_sequence"] == state_bytes_per_sequence(spec) * 4 // 24
    assert report["stage"] == 3


def test_tensor_and_pipeline_ranks_combine():
    spec = load_model_spec("llama-3.1-70b")
    assert kv_report(spec, 100, tp=16, pp=3)["kv_bytes_per_sequence"] == 100 * 27 * 2 * 128 * 2


def test_head_size_is_the_configs_own():
    # Qwen3-32B: hidden / heads would be 80.
    spec = load_model_spec("qwen3-32b")
    assert kv_report(spec, 1)["kv_bytes_per_token"] == 64 * 2 * 8 * 128 * 2


def test_where_sixteen_bits_hold_8_sequences_int8_holds_15_and_int4_28():
    spec = ModelSpec.from_fields(layers=32, kv_heads=8, head_dim=128)
    room = kv_bytes_per_sequence(spec, 4096) * 8
    held = {dtype: room // kv_bytes_per_sequence(spec, 4096, kv_dtype=dtype) for dtype in ("fp16", "int8", "int4")}
    assert held == {"fp16": 8, "int8": 15, "int4": 28}


SPECS = st.sampled_from(["llama-3.1-8b", "mistral-7b", "gemma-2-9b", "deepseek-v3", "embedded"]).map(load_model_spec)


@given(SPECS, st.integers(1, 200_000), st.integers(1, 16), st.integers(1, 8), st.sampled_from([None, 1, 16, 64]))
def test_monotone_in_length_batch_and_precision_and_ranks_hold_the_whole(spec, length, tp, pp, block):
    def total(dtype="fp16", n=length, batch=1, ranks=1, stages=1):
        return kv_report(spec, n, batch, dtype, block, ranks, pp=stages)["kv_bytes_total"]

    assert total() <= total(n=length + 1)
    assert total() < total(batch=2)
    assert total("int2") < total("int4") < total("int8") < total("fp16") < total("fp32")
    assert tp * pp * total(ranks=tp, stages=pp) >= total()
    assert kv_bytes_per_sequence(spec, length, block_size=block, tp=tp, pp=pp) == total(ranks=tp, stages=pp)


@given(SPECS, st.integers(1, 200_000))
def test_layers_add_up_and_the_formula_says_the_same(spec, length):
    report = kv_report(spec, length)
    assert sum(layer["bytes_per_sequence"] for layer in report["per_layer"]) == report["kv_bytes_per_sequence"]
    said = re.search(r"= ([\d,]+) B a sequence", report["formula"])
    assert said is not None
    assert int(said[1].replace(",", "")) == report["kv_bytes_per_sequence"]
