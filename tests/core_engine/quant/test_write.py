"""A written checkpoint is the model that was quantized: the same matrices, in a layout that other libraries read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from core_engine.config import EngineConfig
from core_engine.model.quantized_checkpoint import quantize_model
from core_engine.quant.matrix import QuantizedMatrix
from ledger.errors import InputError
from ledger.model_spec import ModelSpec
from ledger.weight_formats import weight_bytes_of
from tests.core_engine.gguf_files import SIZES, write_gguf
from tests.core_engine.quant.models import in_small_groups, make, make_tiny, named_weights, use_small_text
from tests.core_engine.quant.test_cache import same

FORMATS = [
    {"weights": "w8a16"},
    {"weights": "w8a8"},
    {"weights": "w4a16-rtn"},
    {"weights": "w4a16-rtn", "weight_symmetric": "off"},
    {"weights": "w4a16-awq", "weight_symmetric": "off"},
    {"weights": "w4a16-gptq"},
]


def config(model: Path, **settings: str) -> EngineConfig:
    return EngineConfig.from_settings({"model": str(model), "dtype": "fp32", **in_small_groups(settings)})


@pytest.mark.parametrize("settings", FORMATS)
def test_what_is_written_is_read_back_code_by_code(
    settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("qwen2", tmp_path)
    use_small_text(monkeypatch, tmp_path)
    made, _ = named_weights(tmp_path, **settings)
    out = tmp_path / "out/quantized"
    result = quantize_model(config(tmp_path, **settings), out)
    read, cost = named_weights(out, weights="as-stored")
    assert cost is None and same(made, read)
    tensors = load_file(out / "model.safetensors")
    assert result["bytes"] == sum(tensor.nbytes for tensor in tensors.values())
    assert (out / "tokenizer.json").is_file()
    stored = json.loads((out / "config.json").read_text())["quantization_config"]
    assert stored["quant_method"] == "compressed-tensors" and stored["format"] in result["format"]


def test_the_head_of_a_written_checkpoint_can_be_rounded_when_it_is_loaded(tmp_path: Path) -> None:
    make("llama", tmp_path)
    quantize_model(config(tmp_path, weights="w8a16"), tmp_path / "out")
    named, _ = named_weights(tmp_path / "out", weights="as-stored", head_weights="int8")
    assert isinstance(named["model.embed_tokens.weight"], QuantizedMatrix)


def test_the_ledger_knows_the_bytes_of_a_written_checkpoint(tmp_path: Path) -> None:
    make("llama", tmp_path)
    result = quantize_model(config(tmp_path, weights="w4a16-rtn", dtype="bf16"), tmp_path / "out")
    spec = ModelSpec.from_config(json.loads((tmp_path / "out/config.json").read_text()))
    shapes = 3 * 7 * 2 * 8  # of each matrix the two numbers of its shape
    assert result["bytes"] - shapes == weight_bytes_of(spec, "as-stored")


def test_a_gguf_file_is_quantized_again_with_its_tokenizer(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", make_tiny("llama", tmp_path, **SIZES), "llama", "Q8_0")
    quantize_model(config(tmp_path / "tiny.gguf", weights="w4a16-rtn"), tmp_path / "out")
    named, _ = named_weights(tmp_path / "out", weights="as-stored")
    assert isinstance(named["model.layers.0.mlp.up_proj.weight"], QuantizedMatrix)


def test_a_text_of_the_users_is_what_is_calibrated_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path)
    use_small_text(monkeypatch, tmp_path)
    own = tmp_path / "own.txt"
    own.write_text("Quite another text, with other letters: zxqj. " * 200)
    for name, text in (("ours", None), ("theirs", own)):
        quantize_model(config(tmp_path, weights="w4a16-gptq"), tmp_path / name, text)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "theirs"))
    assert any(not torch.equal(first[name], second[name]) for name in first if name.endswith("weight_packed"))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"weights": "none"}, "--weights"),
        ({"weights": "as-stored"}, "--weights"),
        ({"weights": "w8a16", "head_weights": "int8"}, "head_weights"),
    ],
)
def test_settings_that_write_nothing_new_are_refused(settings: dict[str, str], field: str, tmp_path: Path) -> None:
    make("llama", tmp_path)
    with pytest.raises(InputError) as caught:
        quantize_model(config(tmp_path, **settings), tmp_path / "out")
    assert caught.value.field == field and not (tmp_path / "out").exists()


def test_a_directory_that_is_there_and_a_text_without_use_are_refused(tmp_path: Path) -> None:
    make("llama", tmp_path)
    (tmp_path / "text").write_text("x")
    with pytest.raises(InputError, match="--out"):
        quantize_model(config(tmp_path, weights="w8a16"), tmp_path)
    for text, weights in ((tmp_path / "text", "w8a16"), (tmp_path / "nothing", "w4a16-gptq")):
        with pytest.raises(InputError, match="--calibration"):
            quantize_model(config(tmp_path, weights=weights), tmp_path / "out", text)
    assert not (tmp_path / "out").exists()
