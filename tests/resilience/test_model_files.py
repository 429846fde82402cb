"""Model files that are cut or garbage: one line that names them, never a fault of ours."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from core_engine.config import EngineConfig
from core_engine.model.loader import open_model
from ledger.errors import CannotRunError, InputError
from tests.core_engine.conftest import load_fp32, make_llama, make_tiny
from tests.core_engine.gguf_files import write_gguf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    make_llama(directory)
    return directory


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("gguf")
    write_gguf(directory / "whole.gguf", make_tiny("llama", directory), "llama")
    return (directory / "whole.gguf").read_bytes()


def refused(path: Path) -> str:
    """The line with which a model is refused; a model that loads all the same gives none."""
    try:
        load_fp32(path).close()
    except (InputError, CannotRunError) as error:
        assert "\n" not in str(error)
        return str(error)
    return ""


def copy_of(model: Path, directory: Path, name: str, content: bytes) -> Path:
    """The model with another content of one of its files."""
    for path in model.iterdir():
        (directory / path.name).write_bytes(content if path.name == name else path.read_bytes())
    return directory


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "html"])
def test_a_file_of_a_directory_that_is_damaged_is_one_line(model: Path, tmp_path: Path, name: str, damage: str) -> None:
    whole = (model / name).read_bytes()
    garbage = random.Random(name).randbytes(len(whole))
    damaged = {"empty": b"", "cut": whole[: len(whole) // 2], "garbage": garbage, "html": b"<html>404</html>"}[damage]
    said = refused(copy_of(model, tmp_path, name, damaged))
    assert said.startswith("model") and (name in said or str(tmp_path) in said)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": "48"}, {"hidden_size": -1}, {"hidden_size": None}, {"num_hidden_layers": 10**9},
        {"num_attention_heads": 0}, {"vocab_size": 2.5}, 
        {"rms_norm_eps": "small"}, {"rope_parameters": [1]}, {"max_position_embeddings": 0},
    ],
)  # fmt: skip
def test_a_config_with_values_of_no_sense_is_one_line(model: Path, tmp_path: Path, change: dict[str, object]) -> None:
    config = json.loads((model / "config.json").read_text())
    assert refused(copy_of(model, tmp_path, "config.json", json.dumps(config | change).encode()))


@pytest.mark.parametrize("seed", range(30))
def test_garbage_in_the_head_of_a_gguf_file_is_never_a_fault_of_ours(gguf: bytes, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    body = bytearray(gguf)
    place, length = draw.randrange(4, 2500), draw.choice((1, 2, 8, 64))
    body[place : place + length] = draw.randbytes(length)
    path = tmp_path / "garbage.gguf"
    path.write_bytes(body)
    _opened(path)


@pytest.mark.parametrize("seed", range(30))
def test_garbage_in_the_head_of_safetensors_is_never_a_fault_of_ours(model: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    body = bytearray((model / "model.safetensors").read_bytes())
    place, length = draw.randrange(0, 1500), draw.choice((1, 2, 8, 64))
    body[place : place + length] = draw.randbytes(length)
    _opened(copy_of(model, tmp_path, "model.safetensors", bytes(body)))


def _opened(path: Path) -> None:
    """Open a model and its tokenizer, whose only errors are ours."""
    try:
        open_model(EngineConfig.from_settings({"model": str(path)})).tokenizer()
    except (InputError, CannotRunError) as error:
        assert "\n" not in str(error)
