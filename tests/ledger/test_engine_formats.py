"""The formats that our engine holds weights in, against the tensors of a quantized matrix."""

from __future__ import annotations

import pytest

from ledger.block_formats import engine_format, held_gguf_format
from ledger.errors import InputError
from ledger.model_spec import load_model_spec
from ledger.weight_formats import engine_groups, rank_weights, weights_report

ROWS, DEPTH = 576, 1536


@pytest.mark.parametrize(
    ("weights", "group", "symmetric", "size"),
    [
        ("w8a16", 64, True, ROWS * DEPTH + 2 * ROWS),
        ("w8a8", 64, True, ROWS * DEPTH + 2 * ROWS),
        ("w4a16-rtn", 64, True, ROWS * DEPTH // 2 + ROWS * DEPTH // 64 * 2),
        ("w4a16-awq", 32, False, ROWS * DEPTH // 2 + ROWS * DEPTH // 32 * 3),
        ("w4a16-gptq", 64, True, ROWS * DEPTH // 2 + ROWS * DEPTH // 64 * 2 + 4 * DEPTH),
    ],
)
def test_a_linear_layer_is_its_codes_scales_zero_points_and_order(weights, group, symmetric, size):
    assert engine_format(weights, group, symmetric=symmetric).bytes_of((ROWS, DEPTH)) == size


BLOCKS = {"Q8_0": 34 / 32, "Q4_0": 18 / 32, "Q4_1": 20 / 32, "Q5_0": 26 / 32, "Q5_1": 28 / 32,
          "Q4_K": 148 / 256, "Q5_K": 212 / 256, "Q6_K": 210 / 256}  # fmt: skip


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_as_they_are_held(kind):
    assert held_gguf_format(kind).bytes_of((ROWS, DEPTH)) == ROWS * DEPTH * BLOCKS[kind]


@pytest.mark.parametrize("name", ["none", "as-stored", "w4"])
def test_a_name_that_is_no_format_of_ours_is_refused(name):
    with pytest.raises(InputError):
        engine_format(name)
    with pytest.raises(InputError):
        held_gguf_format(name)


def total(**settings):
    spec = load_model_spec("embedded")
    (stage,) = rank_weights(spec, "bf16", groups=engine_groups(spec, **settings))
    return stage.total_bytes


def test_the_embedding_stays_as_it_is_so_that_4_bits_are_not_a_quarter():
    whole = total(weights="none")
    assert whole == 2 * 134_515_008
    assert total(weights="none", dtype="fp32") == 2 * whole
    four = total(weights="w4a16-rtn")
    assert four == 2 * (49_152 * 576 + 61 * 576) + 106_168_320 // 2 + 106_168_320 // 64 * 2
    assert 0.42 < four / whole < 0.43


def test_an_int8_head_takes_a_byte_and_a_scale_a_row():
    saved = total(weights="w8a16") - total(weights="w8a16", head_weights="int8")
    assert saved == 49_152 * 576 - 2 * 49_152
    with pytest.raises(InputError, match="head_weights"):
        total(weights="w8a16", head_weights="int2")


def test_what_a_file_stores_is_counted_by_its_own_formats():
    names = {"model.embed_tokens.weight": held_gguf_format("Q8_0")}
    names |= {f"model.layers.{i}.mlp.down_proj.weight": held_gguf_format("Q4_1") for i in range(30)}
    saved = total(weights="none") - total(weights="as-stored", stored=names)
    assert saved == 49_152 * 576 * (2 - 34 / 32) + 30 * 576 * 1536 * (2 - 20 / 32)


def test_the_report_takes_these_groups():
    spec = load_model_spec("embedded")
    groups = engine_groups(spec, "w4a16-rtn")
    report = weights_report(spec, "w4a16", groups=groups)
    assert report["total_bytes"] == total(weights="w4a16-rtn")
