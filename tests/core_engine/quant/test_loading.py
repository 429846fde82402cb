"""Weights as the variables ask for them: as the file has them, with an int8 head, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.model.gguf import GgufFile
from core_engine.model.loader import open_model
from core_engine.model.weights import Wanted
from core_engine.quant.linear import PackedMatrix, held, tensors_of
from core_engine.quant.matrix import QuantizedMatrix
from ledger.errors import InputError
from tests.core_engine.conftest import make_tiny
from tests.core_engine.gguf_files import SIZES, write_gguf
from tests.core_engine.quant.models import in_small_groups, make, named_weights, plain, use_small_text

KINDS = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_gguf_file_as_stored_holds_its_own_numbers_in_hugging_faces_row_order(kind: str, tmp_path: Path) -> None:
    model = make_tiny("llama", tmp_path, **SIZES)
    path = tmp_path / "tiny.gguf"
    write_gguf(path, model, "llama", kind)
    named, cost = named_weights(path, weights="as-stored")
    assert cost is None
    matrices = {name for name, weight in named.items() if isinstance(weight, QuantizedMatrix)}
    assert matrices == {name for name, tensor in model.state_dict().items() if tensor.ndim == 2} - {"lm_head.weight"}
    for name, array in GgufFile(path).tensors():
        assert torch.equal(plain(named)[name].view(torch.int32), torch.from_numpy(array.copy()).view(torch.int32))


def test_none_of_a_gguf_file_is_plain(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", make_tiny("llama", tmp_path, **SIZES), "llama", "Q4_1")
    named, _ = named_weights(tmp_path / "tiny.gguf")
    assert all(isinstance(weight, torch.Tensor) for weight in named.values())


@pytest.mark.parametrize(("tied", "name"), [(True, "model.embed_tokens.weight"), (False, "lm_head.weight")])
def test_an_int8_head_is_the_tied_embedding_or_the_head_alone(tied: bool, name: str, tmp_path: Path) -> None:
    make("llama", tmp_path, tie_word_embeddings=tied)
    exact, _ = named_weights(tmp_path)
    named, _ = named_weights(tmp_path, head_weights="int8")
    assert {key for key, weight in named.items() if isinstance(weight, QuantizedMatrix)} == {name}
    head, values = named[name], plain(exact)[name]
    assert isinstance(head, QuantizedMatrix) and head.group == 64 and head.activation_group is None
    assert bool(((head.dequantized() - values).abs() <= 0.51 * head.scale.float()).all())


def test_the_head_is_rounded_from_the_files_numbers_whatever_dtype_the_rest_has(tmp_path: Path) -> None:
    make("llama", tmp_path)
    heads = []
    for dtype in ("fp32", "bf16"):
        head = named_weights(tmp_path, head_weights="int8", dtype=dtype)[0]["model.embed_tokens.weight"]
        assert isinstance(head, QuantizedMatrix)
        heads.append(head.codes)
    assert torch.equal(*heads)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"weights": "w4a16-rtn", "weight_group": "128"}, "weight_group", "64 or 32, which divide"),
    ({"weights": "as-stored"}, "weights", "quantization_config"),
    ({"weights": "w8a16", "weight_symmetric": "off"}, "settings", "weight_symmetric"),
    ({"weights": "w8a8", "weight_symmetric": "off"}, "settings", "weight_symmetric"),
    ({"weights": "as-stored", "weight_symmetric": "off"}, "settings", "weight_symmetric"),
    ({"weights": "w8a16", "weight_group": "32"}, "settings", "weight_group other than 32 or 128"),
    ({"weights": "w8a8", "weight_group": "128"}, "settings", "weight_group other than 32 or 128"),
    ({"weights": "as-stored", "weight_group": "32"}, "settings", "weight_group other than 32 or 128"),
    ({"weights": "w3"}, "weights", "w4a16-gptq"),
    ({"head_weights": "int4"}, "head_weights", "int8"),
    ({"weight_group": "16"}, "weight_group", "128"),
]


@pytest.mark.parametrize(("settings", "field", "accepted"), REFUSED)
def test_what_makes_no_sense_is_refused_in_one_line(
    settings: dict[str, Any], field: str, accepted: str, tmp_path: Path
) -> None:
    make("llama", tmp_path)
    with pytest.raises(InputError) as caught:
        open_model(EngineConfig.from_settings({"model": str(tmp_path), **settings}))
    assert caught.value.field == field and accepted in caught.value.accepted
    assert "\n" not in str(caught.value)


def test_groups_that_divide_nothing_name_the_format_that_needs_none(tmp_path: Path) -> None:
    make("llama", tmp_path, intermediate_size=72)
    with pytest.raises(InputError, match=r"weights=w8a16: none divides .* 64 and 72"):
        open_model(EngineConfig.from_settings({"model": str(tmp_path), "weights": "w4a16-rtn"}))


def test_128_does_not_divide_the_embedded_models_576(embedded_dir: Path) -> None:
    settings = {"weights": "w4a16-awq", "weight_group": "128"}
    with pytest.raises(InputError, match=r"weight_group: 128 .* 64 or 32, which divide .* 576 and 1536"):
        open_model(EngineConfig.from_settings(settings))


def test_a_second_quantized_head_is_refused_where_the_file_has_one(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, make_tiny("llama", tmp_path, **SIZES), "llama", "Q8_0")
    settings = {"model": str(path), "weights": "as-stored", "head_weights": "int8"}
    with pytest.raises(InputError, match="the file's own head is quantized"):
        open_model(EngineConfig.from_settings(settings))


def test_a_calibration_text_that_is_too_short_or_no_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("llama", tmp_path)
    use_small_text(monkeypatch, tmp_path)
    text = tmp_path / "calibration.txt"
    for content, accepted in ((b"Short.", "at least 64 tokens"), (b"  \n", "not empty"), (b"\xff\xfe\x00", "UTF-8")):
        text.write_bytes(content)
        with pytest.raises(InputError, match="calibration") as caught:
            named_weights(tmp_path, weights="w4a16-gptq")
        assert accepted in caught.value.accepted


def test_the_embedded_model_as_stored_is_its_gguf_file(embedded_dir: Path) -> None:
    opened = open_model(EngineConfig.from_settings({"weights": "as-stored"}))
    exact = open_model(EngineConfig())
    assert opened.source.quantized and not exact.source.quantized
    for name in ("model.embed_tokens.weight", "model.layers.7.self_attn.q_proj.weight", "model.norm.weight"):
        assert torch.equal(opened.source.plain(name), exact.source.plain(name))
    bits = {getattr(opened.source.stored(name), "bits", None) for name in opened.source.names()}
    assert bits == {4, 8, None}


@pytest.mark.parametrize("weights", ["w8a16", "w8a8", "w4a16-rtn", "w4a16-awq", "w4a16-gptq", "as-stored"])
def test_quantized_weights_go_to_the_device_with_all_they_hold(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_text(monkeypatch, tmp_path)
    tensors = make_tiny("llama", tmp_path, **SIZES)
    path = tmp_path
    if weights == "as-stored":
        path = tmp_path / "tiny.gguf"
        write_gguf(path, tensors, "llama", "Q4_1")
    head = "16bit" if weights == "as-stored" else "int8"
    settings = {"model": str(path), "weights": weights, "head_weights": head}
    opened = open_model(EngineConfig.from_settings(in_small_groups(settings)))
    elsewhere = torch.device("meta")  # a device that is no CPU and is everywhere
    named, _ = opened.weights(Wanted(opened.scheme, elsewhere, torch.float32), opened.tokenizer(), None, lambda _: None)
    assert any(isinstance(weight, QuantizedMatrix) for weight in named.values())
    for name, weight in named.items():
        assert {tensor.device for tensor in tensors_of(weight)} == {elsewhere}, name
    down = held(named["model.layers.0.mlp.down_proj.weight"])
    assert isinstance(down, PackedMatrix)
    out, depth = down.shape
    result = down.product(torch.empty(3, depth, device=elsewhere))
    assert result.shape == (3, out) and result.device == elsewhere
