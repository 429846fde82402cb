"""A calibration is computed once: what is read back is what was made, and what is damaged is made again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.model import weights as model_weights
from core_engine.quant import cache
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.quantize import Cost, Named
from core_engine.quant.scheme import Scheme
from tests.core_engine.quant.models import make, named_weights, use_small_text


def same(first: Named, second: Named) -> bool:
    def parts(named: Named) -> dict[str, object]:
        return {
            f"{name} {part}": value.tolist() if isinstance(value, torch.Tensor) else value
            for name, weight in named.items()
            for part, value in (vars(weight) if isinstance(weight, QuantizedMatrix) else {"": weight}).items()
        }

    return parts(first) == parts(second)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make("qwen2", tmp_path)
    use_small_text(monkeypatch, tmp_path)
    return tmp_path


def files(model: Path) -> list[Path]:
    return sorted((model / "cache/quant").glob("*"))


@pytest.mark.parametrize(
    "settings",
    [
        {"weights": "w8a8"},
        {"weights": "w4a16-awq", "weight_symmetric": "off"},
        {"weights": "w4a16-gptq", "weight_symmetric": "off"},
    ],
)
def test_a_second_start_reads_what_the_first_one_made(settings: dict[str, str], model: Path) -> None:
    first, made = named_weights(model, **settings)
    (path,) = files(model)
    second, read = named_weights(model, **settings)
    assert made is not None and read is not None and not made.from_cache
    assert read == replace(made, from_cache=True)
    assert same(first, second)
    assert path.stat().st_size < 1.3 * 3 * 64 * 64 * 9  # 3 layers, 10 matrices of 64 x 64 in about a byte each


def test_methods_groups_texts_and_models_do_not_share_a_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named_weights(model, weights="w4a16-gptq")
    named_weights(model, weights="w4a16-gptq", weight_group="64")
    named_weights(model, weights="w4a16-gptq", weight_symmetric="off")
    named_weights(model, weights="w4a16-awq")
    assert len(files(model)) == 4
    named_weights(model, weights="w4a16-awq", head_weights="int8")  # the head is not in it
    assert len(files(model)) == 4
    (model / "calibration.txt").write_text("Other words, said often enough. " * 100)
    named_weights(model, weights="w4a16-awq")
    assert len(files(model)) == 5
    monkeypatch.setattr(cache, "CODE", cache.CODE + 1)
    named_weights(model, weights="w4a16-awq")
    assert len(files(model)) == 6
    make("qwen2", model, seed=9)
    named_weights(model, weights="w4a16-awq")
    assert len(files(model)) == 7


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "foreign"])
def test_a_damaged_file_is_made_again(damage: str, model: Path) -> None:
    first, _ = named_weights(model, weights="w4a16-gptq")
    (path,) = files(model)
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[:-100])
    elif damage == "flipped":
        path.write_bytes(whole[:-1000] + bytes([whole[-1000] ^ 1]) + whole[-999:])
    else:
        path.write_bytes(b"" if damage == "emptied" else b"nothing of ours" * 100)
    second, cost = named_weights(model, weights="w4a16-gptq")
    assert cost is not None and not cost.from_cache
    assert same(first, second)
    third, again = named_weights(model, weights="w4a16-gptq")
    assert again is not None and again.from_cache and same(first, third)


def test_a_cache_that_can_not_be_written_is_said_and_the_model_runs(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model / "cache").write_text("in the way")
    said: list[str] = []
    path = cache.cache_path(model / "cache", "model", Scheme.of(EngineConfig()), "text")
    made = ({"norm": torch.ones(2)}, Cost(1.0))
    assert cache.cached(path, lambda: made, said.append) is made
    assert len(said) == 1 and "can't be written" in said[0]


def test_what_needs_no_calibration_leaves_no_file(model: Path) -> None:
    named_weights(model, weights="w4a16-rtn")
    named_weights(model, weights="w8a16")
    assert files(model) == []


def test_an_odd_number_of_codes_survives(tmp_path: Path) -> None:
    codes = torch.arange(15, dtype=torch.uint8).repeat(2, 1)
    matrix = QuantizedMatrix(4, 15, codes, torch.ones(2, 1).half())
    cache.save(tmp_path / "one", {"a.weight": matrix}, Cost(1.0))
    found = cache.load(tmp_path / "one")
    assert found is not None and same(found[0], {"a.weight": matrix})


def test_the_embedded_model_is_known_without_reading_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_weights, "digest_of_files", lambda paths: pytest.fail("read"))
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    from core_engine.model.embedded import GGUF_SHA256, embedded_directory

    assert model_weights.model_digest(embedded_directory()).startswith(GGUF_SHA256)


def kept(folder: Path) -> set[str]:
    return {path.name.removesuffix(".safetensors") for path, _ in cache.held_in(folder)}


def test_the_cache_keeps_within_its_limit_and_what_was_used_longest_ago_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use(name: str) -> bool:
        """Whether it was there; makes it otherwise."""
        numbers = {"norm": torch.zeros(256)}
        _, cost = cache.cached(tmp_path / f"{name}.safetensors", lambda: (numbers, Cost(1.0)), lambda _: None)
        now = max((about.st_mtime_ns for _, about in cache.held_in(tmp_path)), default=0)
        os.utime(tmp_path / f"{name}.safetensors", ns=(now + 10**9, now + 10**9))
        return cost.from_cache

    assert not use("a")
    (_, about), *_ = cache.held_in(tmp_path)
    monkeypatch.setattr(cache, "LIMIT_BYTES", 3 * about.st_size)
    assert [use(name) for name in "bc"] == [False, False] and kept(tmp_path) == {"a", "b", "c"}
    assert use("a")
    assert not use("d") and kept(tmp_path) == {"a", "c", "d"}  # b was used longest ago
    monkeypatch.setattr(cache, "LIMIT_BYTES", 1)
    assert not use("e") and kept(tmp_path) == {"e"}  # alone beyond the limit, but in use


def test_reading_a_file_is_using_it(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    cache.save(path, {"norm": torch.ones(2)}, Cost(1.0))
    os.utime(path, (0, 0))
    assert cache.load(path) is not None and path.stat().st_mtime > 0


def test_what_a_killed_process_left_unfinished_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / ".quant-old", tmp_path / ".quant-new"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (0, 0))
    cache.make_room(tmp_path / "kept.safetensors")
    assert not old.exists() and new.exists()
