"""GGUF files against safetensors and transformers, layer by layer; metadata, tokenizers, and files that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter, RopeScalingType

from core_engine.model.gguf import GgufFile
from core_engine.model.rope import inverse_frequencies
from core_engine.model.spec import DecoderSpec
from ledger.errors import InputError
from ledger.weights import weight_bytes
from tests.core_engine.conftest import LLAMA3_ROPE, load_fp32, make_tiny
from tests.core_engine.gguf_files import SIZES, add_byte_tokenizer, write_gguf
from tests.core_engine.oracle import hidden_in_chunks, ragged_prompts

ARCH = {"llama": "llama", "llama-biases": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
IDS = ragged_prompts((40,))[0]
HEADS_OF_128 = {"head_dim": 128}


@torch.inference_mode()
def reference_layers(model: Any) -> list[torch.Tensor]:
    """Normalised hidden states [tokens, hidden_size] after each layer, by transformers."""
    states = model(torch.tensor([IDS]), output_hidden_states=True).hidden_states
    return [*(model.model.norm(state[0]) for state in states[1:-1]), states[-1][0]]


def add_window(writer: GGUFWriter) -> None:
    writer.add_sliding_window(21)


@pytest.mark.parametrize("family", ARCH)
def test_safetensors_and_gguf_of_one_model_agree_layer_by_layer(family: str, tmp_path: Path) -> None:
    own_head = HEADS_OF_128 if family == "qwen3" else {"head_dim": 64} if family == "mistral" else {}
    model = make_tiny(family, tmp_path, **SIZES, **own_head)
    path = tmp_path / "tiny.gguf"
    write_gguf(path, model, ARCH[family], edit=add_window if family == "mistral" else lambda _: None)
    direct, through_gguf = load_fp32(tmp_path), load_fp32(path)
    assert through_gguf.decoder.spec.windows == direct.decoder.spec.windows
    for ours, theirs in zip(direct.weights.tensors(), through_gguf.weights.tensors(), strict=True):
        assert torch.equal(ours, theirs)
    for layers, expected in enumerate(reference_layers(model), start=1):
        first, second = (hidden_in_chunks(m.decoder, IDS, 16, 8, layers=layers) for m in (direct, through_gguf))
        torch.testing.assert_close(first, second, atol=1e-6, rtol=0)
        torch.testing.assert_close(second, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"])
def test_quantized_files_compute_with_the_values_they_hold(kind: str, family: str, tmp_path: Path) -> None:
    model = make_tiny(family, tmp_path, **SIZES, **(HEADS_OF_128 if family == "qwen3" else {}))
    path = tmp_path / "tiny.gguf"
    before = model.model.layers[0].mlp.up_proj.weight.clone()
    write_gguf(path, model, ARCH[family], kind)
    assert not torch.equal(before, model.model.layers[0].mlp.up_proj.weight)
    loaded = load_fp32(path)
    for layers, expected in enumerate(reference_layers(model), start=1):
        hidden = hidden_in_chunks(loaded.decoder, IDS, 16, 8, layers=layers)
        torch.testing.assert_close(hidden, expected, atol=5e-5, rtol=1e-4)
    assert loaded.weights.num_bytes() == weight_bytes(loaded.spec, element_bytes=4)


def test_an_own_output_matrix_and_sixteen_bits(tmp_path: Path) -> None:
    model = make_tiny("llama", tmp_path, **SIZES, tie_word_embeddings=False)
    write_gguf(tmp_path / "tiny.gguf", model, "llama", "Q8_0")
    loaded = load_fp32(tmp_path / "tiny.gguf", dtype="bf16")
    assert loaded.weights.head is not loaded.weights.embedding
    assert torch.equal(loaded.weights.head, model.lm_head.weight.to(torch.bfloat16))
    assert loaded.weights.num_bytes() == weight_bytes(loaded.spec, element_bytes=2)


# -- rope scaling ----------------------------------------------------------------------------------------------------


def config_of(tmp_path: Path, edit: Callable[[GGUFWriter], None], arch: str = "llama", **sizes: Any) -> dict[str, Any]:
    model = make_tiny("llama" if arch == "llama" else arch, tmp_path, **sizes)
    write_gguf(tmp_path / "tiny.gguf", model, arch, edit=edit)
    return GgufFile(tmp_path / "tiny.gguf").config


def test_llama3_scaling_comes_as_divisors_of_the_frequencies(tmp_path: Path) -> None:
    direct = DecoderSpec.from_config(
        json.loads((make_tiny("llama3", tmp_path), (tmp_path / "config.json").read_text())[1])
    )
    plain = inverse_frequencies(replace(direct.rope, kind="default"), direct.head_dim)
    divisors = plain / inverse_frequencies(direct.rope, direct.head_dim)
    assert divisors.max() == LLAMA3_ROPE["factor"] and divisors.min() == 1

    def edit(writer: GGUFWriter) -> None:
        writer.add_tensor("rope_freqs.weight", divisors.numpy())

    rope = DecoderSpec.from_config(config_of(tmp_path, edit)).rope
    torch.testing.assert_close(
        inverse_frequencies(rope, direct.head_dim), inverse_frequencies(direct.rope, direct.head_dim)
    )


@pytest.mark.parametrize("scaling", [{"rope_type": "linear", "factor": 4.0}, {"rope_type": "yarn", "factor": 4.0}])
def test_linear_and_yarn_keys_give_what_the_config_gives(scaling: dict[str, Any], tmp_path: Path) -> None:
    def edit(writer: GGUFWriter) -> None:
        writer.add_rope_scaling_type(RopeScalingType(scaling["rope_type"]))
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(64)

    read = DecoderSpec.from_config(config_of(tmp_path, edit, "qwen2")).rope
    rope = {**scaling, "rope_theta": 10_000.0, "original_max_position_embeddings": 64}
    config = json.loads((tmp_path / "config.json").read_text())
    expected = DecoderSpec.from_config({**config, "rope_parameters": rope}).rope
    assert read.attention_factor == pytest.approx(expected.attention_factor)
    assert torch.equal(inverse_frequencies(read, 8), inverse_frequencies(expected, 8))


# -- refused ---------------------------------------------------------------------------------------------------------


def test_a_file_cut_anywhere_is_refused_in_one_line(tmp_path: Path) -> None:
    model = make_tiny("llama", tmp_path)
    whole = tmp_path / "whole.gguf"
    write_gguf(whole, model, "llama")
    content = whole.read_bytes()
    GgufFile(whole)
    for size in (0, 3, 4, 20, 200, 5000, len(content) // 2, len(content) - 40):
        path = tmp_path / "cut.gguf"
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match="GGUF") as caught:
            load_fp32(path)
        assert "\n" not in str(caught.value)


def test_what_is_no_gguf_file_is_refused_in_one_line(tmp_path: Path) -> None:
    for name, content in (("text.gguf", b"hello " * 100), ("weights.bin", b"x")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"GGUF|\.gguf") as caught:
            load_fp32(path)
        assert "\n" not in str(caught.value)


def extra_tensor(name: str) -> Callable[[GGUFWriter], None]:
    return lambda writer: writer.add_tensor(name, np.ones(48, np.float32))


@pytest.mark.parametrize(
    ("arch", "edit", "word"),
    [
        ("gemma", lambda w: None, "architecture"),
        ("llama", lambda w: w.add_expert_count(4), "expert_count"),
        ("llama", lambda w: w.add_logit_scale(0.5), "logit_scale"),
        ("llama", lambda w: w.add_rope_scaling_type(RopeScalingType.LONGROPE), "longrope"),
        ("llama", lambda w: w.add_uint32("split.count", 2), "split.count"),
        ("qwen2", lambda w: w.add_sliding_window(16), "sliding_window"),
        ("llama", extra_tensor("blk.0.ffn_gate_inp.weight"), "ffn_gate_inp"),
        ("llama", extra_tensor("blk.9.ffn_up.weight"), "without a place"),
        ("llama", extra_tensor("blk.0.attn_q.bias"), "k_proj.bias"),
    ],
)
def test_a_file_that_can_not_be_computed_is_refused(
    arch: str, edit: Callable[[GGUFWriter], None], word: str, tmp_path: Path
) -> None:
    model = make_tiny("qwen2" if arch == "qwen2" else "llama", tmp_path)
    write_gguf(tmp_path / "tiny.gguf", model, arch, edit=edit)
    with pytest.raises(InputError, match=word) as caught:
        load_fp32(tmp_path / "tiny.gguf")
    assert "\n" not in str(caught.value)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", make_tiny("llama", tmp_path), "llama", skip="blk.1.ffn_up")
    with pytest.raises(InputError, match=r"layers\.1\.mlp\.up_proj"):
        load_fp32(tmp_path / "tiny.gguf")


def test_partial_rotary_is_refused(tmp_path: Path) -> None:
    model = make_tiny("llama", tmp_path, **SIZES)

    def edit(writer: GGUFWriter) -> None:
        writer.kv_data[0].pop("llama.rope.dimension_count")
        writer.add_rope_dimension_count(32)

    write_gguf(tmp_path / "tiny.gguf", model, "llama", edit=edit)
    with pytest.raises(InputError, match=r"rope\.dimension_count"):
        load_fp32(tmp_path / "tiny.gguf")


def test_the_engine_answers_from_a_gguf_file_as_from_its_directory(tmp_path: Path) -> None:
    from tests.core_engine.oracle import engine_greedy

    model = make_tiny("qwen2", tmp_path, **SIZES)
    write_gguf(tmp_path / "tiny.gguf", model, "qwen2")
    direct, through_gguf = load_fp32(tmp_path), load_fp32(tmp_path / "tiny.gguf")
    prompts = ragged_prompts((5, 20))
    assert engine_greedy(direct, prompts, 8) == engine_greedy(through_gguf, prompts, 8)
    assert through_gguf.name == "tiny"
    assert through_gguf.tokenizer.eos_token_ids == (257,)
    assert through_gguf.tokenizer.decode(through_gguf.tokenizer.encode("abba 🙂")) == "abba 🙂"
    ids = through_gguf.tokenizer.apply_chat_template([{"role": "user", "content": "ab"}])
    assert ids == [256, 257]


def test_a_file_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", make_tiny("llama", tmp_path), "llama", tokenizer=False)
    with pytest.raises(InputError, match="tokenizer"):
        load_fp32(tmp_path / "tiny.gguf")


def test_an_unknown_pre_tokenizer_is_refused(tmp_path: Path) -> None:
    model = make_tiny("llama", tmp_path, vocab_size=258)
    edit = lambda writer: add_byte_tokenizer(writer, "tekken")  # noqa: E731
    write_gguf(tmp_path / "tiny.gguf", model, "llama", tokenizer=False, edit=edit)
    with pytest.raises(InputError, match="tekken"):
        load_fp32(tmp_path / "tiny.gguf")
