"""Checkpoints of other libraries, packed by those libraries: see make_fixtures.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from core_engine.config import EngineConfig
from core_engine.model.decoder import assemble
from core_engine.model.loader import open_model
from core_engine.model.sources import DirectorySource
from core_engine.model.spec import DecoderSpec
from core_engine.quant.checkpoints import AWQ_ORDER, layout_of, packed, unpacked
from core_engine.quant.matrix import QuantizedMatrix
from ledger.errors import InputError
from ledger.model_spec import ModelSpec
from ledger.weight_formats import tensor_formats
from tests.core_engine.conftest import load_fp32, write_tokenizer
from tests.core_engine.oracle import hidden_in_chunks, ragged_prompts

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ["awq", "gptq", "gptq-8bit", "ct-w4a16", "ct-w4a16-asym", "ct-w8a16", "ct-w8a8"]
AT = "model.layers.0."


def checkpoint(name: str, directory: Path) -> dict[str, Any]:
    """Put a fixture into a directory as a model; returns its config."""
    shutil.copy(FIXTURES / f"{name}.safetensors", directory / "model.safetensors")
    config: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())["config"]
    (directory / "config.json").write_text(json.dumps(config))
    write_tokenizer(directory)
    return config


def matrices(directory: Path, config: dict[str, Any]) -> dict[str, QuantizedMatrix]:
    source = DirectorySource(directory, config)
    found = {name: source.stored(name) for name in source.names()}
    return {name: weight for name, weight in found.items() if isinstance(weight, QuantizedMatrix)}


@pytest.mark.parametrize("name", NAMES)
def test_matrices_are_what_the_library_reads_back(name: str, tmp_path: Path) -> None:
    found = matrices(tmp_path, checkpoint(name, tmp_path))
    theirs = load_file(FIXTURES / f"{name}-values.safetensors")
    assert {f"{AT}{module}.weight" for module in theirs} == set(found)
    for module, values in theirs.items():
        ours = found[f"{AT}{module}.weight"]
        torch.testing.assert_close(ours.dequantized(), values, rtol=1e-6, atol=1e-7)
        assert int(ours.codes.max()) < 2**ours.bits


@pytest.mark.parametrize(("name", "lowest"), [("awq", 0), ("ct-w4a16-asym", 0), ("gptq", 1)])
def test_zero_points_from_one_end_to_the_other_are_read(name: str, lowest: int, tmp_path: Path) -> None:
    zeros = [matrix.zero for matrix in matrices(tmp_path, checkpoint(name, tmp_path)).values()]
    assert all(zero is not None and (int(zero.min()), int(zero.max())) == (lowest, 15) for zero in zeros)


def test_symmetric_matrices_hold_no_zero_points_and_act_order_an_order(tmp_path: Path) -> None:
    assert all(m.zero is None for m in matrices(tmp_path, checkpoint("gptq-8bit", tmp_path)).values())
    for matrix in matrices(tmp_path, checkpoint("gptq", tmp_path)).values():
        assert matrix.order is not None and not torch.equal(matrix.order, torch.arange(matrix.shape[1]))


def test_int8_activations_are_rounded_for_each_token(tmp_path: Path) -> None:
    assert all(m.activation_group == m.shape[1] for m in matrices(tmp_path, checkpoint("ct-w8a8", tmp_path)).values())
    assert all(m.activation_group is None for m in matrices(tmp_path, checkpoint("ct-w8a16", tmp_path)).values())


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_checkpoint_runs_with_the_librarys_values(name: str, tmp_path: Path) -> None:
    quantized, plain = tmp_path / "quantized", tmp_path / "plain"
    quantized.mkdir()
    plain.mkdir()
    config = checkpoint(name, quantized)
    theirs = load_file(FIXTURES / f"{name}-values.safetensors")
    rest = {key: value for key, value in load_file(quantized / "model.safetensors").items() if ".mlp." not in key}
    rest = {key: value for key, value in rest.items() if ".self_attn." not in key}
    save_file(rest | {f"{AT}{module}.weight": value for module, value in theirs.items()}, plain / "model.safetensors")
    (plain / "config.json").write_text(json.dumps({**config, "quantization_config": None}))
    write_tokenizer(plain)
    ids = ragged_prompts((40,))[0]
    ours, expected = (hidden_in_chunks(load_fp32(path).decoder, ids, 16, 8) for path in (quantized, plain))
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bits", [4, 8])
def test_packing_and_unpacking_is_the_identity(bits: int) -> None:
    numbers = torch.arange(2**bits, dtype=torch.uint8).repeat(3, 1)
    assert torch.equal(unpacked(packed(numbers, bits), bits), numbers)
    assert torch.equal(unpacked(packed(numbers[:, :5], bits), bits)[:, :5], numbers[:, :5])


def test_the_nibbles_of_a_word_are_in_the_orders_of_the_formats() -> None:
    assert unpacked(torch.tensor([[0x76543210]], dtype=torch.int32), 4).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert AWQ_ORDER == (0, 2, 4, 6, 1, 3, 5, 7)


@pytest.mark.parametrize(("form", "stored"), [("gptq", [15, 14, 7]), ("gptq_v2", [0, 15, 8])])
def test_gptq_zero_points_of_0_and_15_in_both_formats(form: str, stored: list[int]) -> None:
    layout = layout_of(
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 8, "checkpoint_format": form}}
    )
    assert layout is not None
    zeros = torch.tensor([[*stored, 0, 0, 0, 0, 0]], dtype=torch.uint8)
    codes = torch.arange(8, dtype=torch.uint8).repeat(8, 1)
    parts = {"qweight": packed(codes, 4).t(), "qzeros": packed(zeros, 4), "scales": torch.ones(1, 8)}
    values = layout.read(parts).dequantized()
    assert [int(row[0]) for row in values[:3]] == [0, -15, -8]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "bitsandbytes"}, "quant_method"),
    ({"quant_method": "fp8"}, "quant_method"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"}, "version"),
    ({"quant_method": "awq", "bits": 3, "group_size": 128}, "bits"),
    ({"quant_method": "awq", "bits": 4, "group_size": 0}, "group_size"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": False}, "zero_point"),
    ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "bits"),
    ({"quant_method": "gptq", "bits": 4}, "group_size"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": "marlin"}, "checkpoint_format"),
    ({"quant_method": "compressed-tensors"}, "config_groups"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}}, "config_groups"),
    ("int4", "quant_method"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("settings", "field"), REFUSED)
def test_what_is_not_read_is_one_line_that_names_the_field(settings: Any, field: str) -> None:
    with pytest.raises(InputError, match=field) as caught:
        layout_of({"quantization_config": settings})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"format": "nvfp4-pack-quantized"}, "format"),
        ({"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme"),
        ({"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}, "type"),
        ({"weights": {"num_bits": 8, "type": "int", "strategy": "tensor"}}, "strategy"),
        ({"weights": {"num_bits": 3, "type": "int", "strategy": "channel"}}, "num_bits"),
        ({"targets": ["Linear", "Embedding"]}, "targets"),
        ({"input_activations": {"num_bits": 8, "strategy": "tensor", "dynamic": False}}, "dynamic"),
        ({"input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}}, "activations"),
    ],
)
def test_compressed_tensors_with_other_settings_are_refused(change: dict[str, Any], field: str) -> None:
    settings = json.loads((FIXTURES / "ct-w4a16.json").read_text())["config"]["quantization_config"]
    group = settings["config_groups"]["group_0"]
    place = settings if set(change) & {"format", "kv_cache_scheme"} else group
    place.update(change)
    group["format"] = None
    with pytest.raises(InputError, match=field):
        layout_of({"quantization_config": settings})


@pytest.mark.parametrize("damage", ["missing", "shape", "g_idx"])
def test_tensors_that_do_not_go_together_are_one_line(damage: str, tmp_path: Path) -> None:
    config = checkpoint("gptq", tmp_path)
    path, name = tmp_path / "model.safetensors", f"{AT}mlp.up_proj"
    tensors = load_file(path)
    if damage == "missing":
        del tensors[f"{name}.scales"]
    elif damage == "shape":
        tensors[f"{name}.scales"] = tensors[f"{name}.scales"][:1]
    else:
        tensors[f"{name}.g_idx"] = torch.zeros_like(tensors[f"{name}.g_idx"])
    save_file(tensors, path)
    with pytest.raises(InputError, match="model") as caught:
        matrices(tmp_path, config)
    assert "\n" not in str(caught.value)


def test_as_stored_keeps_the_matrices_and_none_makes_plain_ones_of_them(tmp_path: Path) -> None:
    checkpoint("awq", tmp_path)
    opened = open_model(EngineConfig.from_settings({"model": str(tmp_path), "weights": "as-stored"}))
    assert opened.source.quantized
    assert all(isinstance(tensor, torch.Tensor) for tensor in load_fp32(tmp_path).weights.tensors())


def test_the_ledger_counts_the_bytes_of_what_the_libraries_wrote(tmp_path: Path) -> None:
    for name in NAMES:
        config = checkpoint(name, tmp_path)
        formats = tensor_formats(ModelSpec.from_config(config), "as-stored")
        tensors = load_file(tmp_path / "model.safetensors")
        module = f"{AT}mlp.up_proj"
        held = sum(t.nbytes for n, t in tensors.items() if n.startswith(f"{module}.") and "weight_shape" not in n)
        assert formats[f"{module}.weight"].bytes_of((96, 64)) == held, name


def test_a_quantized_head_is_a_matrix_like_any_other(tmp_path: Path) -> None:
    config = {**checkpoint("awq", tmp_path), "tie_word_embeddings": False}
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    for part in ("qweight", "qzeros", "scales"):
        tensors[f"lm_head.{part}"] = tensors[f"{AT}self_attn.q_proj.{part}"].repeat(1, 4)
    save_file(tensors, path)
    source = DirectorySource(tmp_path, config)
    weights = assemble(DecoderSpec.from_config(config), {name: source.stored(name) for name in source.names()})
    assert isinstance(weights.head, QuantizedMatrix) and weights.head.shape == (256, 64)
