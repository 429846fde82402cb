"""Models that can't be read are refused in one line; a cache is whole or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from core_engine.config import EngineConfig
from core_engine.model import embedded
from core_engine.model.loader import load_model
from ledger.errors import CannotRunError, InputError
from tests.core_engine.conftest import make_llama


def load(directory: Path, **settings: Any) -> Any:
    return load_model(EngineConfig.from_settings({"model": str(directory), "dtype": "fp32", **settings}))


def edit_config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_type": "mamba"}, "model_type"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 4}, "rope_parameters": None}, "rope_scaling.*longrope"),
        ({"head_dim": 16}, "shape"),
        ({"attention_bias": True}, "no tensor model.layers.0.self_attn.q_proj.bias"),
        ({"model_type": "qwen2"}, "no tensor model.layers.0.self_attn.q_proj.bias"),
        ({"model_type": "qwen3", "head_dim": 8}, "no tensor model.layers.0.self_attn.q_norm.weight"),
        ({"tie_word_embeddings": False}, "no tensor lm_head.weight"),
        ({"num_hidden_layers": 4}, "no tensor"),
        ({"num_hidden_layers": 2}, "without a place"),
        ({"intermediate_size": 95}, "shape"),
    ],
)
def test_a_config_that_does_not_match_is_refused(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    make_llama(tmp_path)
    edit_config(tmp_path, **change)
    with pytest.raises(InputError, match=word) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_second_tied_head_that_differs_is_refused_and_one_that_equals_is_not_counted(tmp_path: Path) -> None:
    make_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    embedding = tensors["model.embed_tokens.weight"]
    save_file({**tensors, "lm_head.weight": embedding.clone()}, path, metadata={"format": "pt"})
    held = load(tmp_path).weights.num_bytes()
    assert held == 4 * sum(t.numel() for t in tensors.values())
    save_file({**tensors, "lm_head.weight": embedding + 1}, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight"):
        load(tmp_path)


def test_a_tensor_without_a_place_is_named_and_the_old_rotary_constant_is_not(tmp_path: Path) -> None:
    make_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    constant = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    save_file({**tensors, **constant}, path, metadata={"format": "pt"})
    load(tmp_path)
    save_file({**tensors, "model.layers.0.mlp.gate.weight": torch.ones(4)}, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"without a place: model\.layers\.0\.mlp\.gate\.weight"):
        load(tmp_path)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
def test_checkpoints_of_any_float_format_load_into_any_dtype_as_memory_of_their_own(
    stored: torch.dtype, tmp_path: Path
) -> None:
    model = make_llama(tmp_path).to(stored)
    model.save_pretrained(tmp_path)
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        loaded = load(tmp_path, dtype=name, kernels="torch")  # as plain tensors
        assert torch.equal(loaded.weights.embedding, model.model.embed_tokens.weight.to(dtype))
        assert loaded.weights.num_bytes() == dtype.itemsize * sum(p.numel() for p in model.parameters())


def test_an_integer_checkpoint_is_refused_naming_tensor_and_format(tmp_path: Path) -> None:
    make_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"].to(torch.int8)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"up_proj\.weight stored as I8"):
        load(tmp_path)


def test_shards_with_an_index_equal_one_file_and_a_missing_or_doubled_part_is_named(tmp_path: Path) -> None:
    single, sharded = tmp_path / "single", tmp_path / "sharded"
    single.mkdir()
    sharded.mkdir()
    model = make_llama(single)
    make_llama(sharded)
    (sharded / "model.safetensors").unlink()
    model.save_pretrained(sharded, max_shard_size="50KB")
    shards = sorted(sharded.glob("model-*.safetensors"))
    assert len(shards) > 2 and (sharded / "model.safetensors.index.json").is_file()
    for ours, theirs in zip(load(single).weights.tensors(), load(sharded).weights.tensors(), strict=True):
        assert torch.equal(ours, theirs)

    content = load_file(shards[0])
    save_file({**content, **load_file(shards[1])}, shards[0], metadata={"format": "pt"})
    with pytest.raises(InputError, match="in two files"):
        load(sharded)
    save_file(content, shards[0], metadata={"format": "pt"})
    shards[1].unlink()
    with pytest.raises(InputError, match=f"missing: {shards[1].name}"):
        load(sharded)


@pytest.mark.parametrize("damage", ["truncated", "absent", "no_tokenizer"])
def test_unreadable_files_are_one_line(tmp_path: Path, damage: str) -> None:
    make_llama(tmp_path)
    weights = tmp_path / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "absent":
        weights.unlink()
    else:
        (tmp_path / "tokenizer.json").unlink()
    with pytest.raises((InputError, CannotRunError)) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_path_that_is_not_there_and_formats_that_do_not_run_here(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="model"):
        load(tmp_path / "nothing")
    make_llama(tmp_path)
    if not torch.cuda.is_available():
        with pytest.raises(CannotRunError, match="CUDA"):
            load(tmp_path, device="cuda")
        with pytest.raises(InputError, match="fp16"):
            load(tmp_path, dtype="fp16", device="cpu")


def test_an_interrupted_conversion_leaves_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILEMMA_CACHE", str(tmp_path))
    source = tmp_path / "fake.gguf"
    source.write_bytes(b"x")
    monkeypatch.setattr(embedded, "find_gguf", lambda: source)
    monkeypatch.setattr(embedded, "_verify", lambda path: None)

    def half(source: Path, directory: Path) -> None:
        (directory / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "_convert", half)
    with pytest.raises(KeyboardInterrupt):
        embedded.ensure_embedded()
    assert list((tmp_path / "models").iterdir()) == []


def test_a_damaged_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILEMMA_CACHE", str(tmp_path))
    source = tmp_path / "fake.gguf"
    source.write_bytes(b"x")
    monkeypatch.setattr(embedded, "find_gguf", lambda: source)
    with pytest.raises(CannotRunError, match="damaged"):
        embedded.ensure_embedded()


def test_the_converted_tokenizer_round_trips_and_renders_the_chat_template(embedded_dir: Path) -> None:
    from transformers import AutoTokenizer

    from core_engine.model.tokenizer import Tokenizer

    ours, reference = Tokenizer(embedded_dir, (2,)), AutoTokenizer.from_pretrained(embedded_dir)
    for text in ("Hello world 2026!", "  两个空格 and 中文\n\n", "🙂 emoji", "<|im_start|>user\nhi<|im_end|>"):
        assert ours.encode(text) == reference.encode(text)
        assert reference.decode(ours.encode(text)) == text
    messages = [{"role": "user", "content": "What is KV cache?"}]
    expected = reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ours.apply_chat_template(messages) == expected
