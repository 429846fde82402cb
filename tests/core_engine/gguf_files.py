"""GGUF files of tiny transformers models, written with the gguf package the way llama.cpp's converter lays them out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from gguf.constants import GGML_QUANT_SIZES
from tokenizers import pre_tokenizers

# Sizes that every quantization divides: K-quants have blocks of 256.
SIZES: dict[str, Any] = {
    "vocab_size": 258,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.06,
}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
TOKENS = [*BYTES, "ab", "<|end|>"]
NORMAL, CONTROL = 1, 3


def interleaved(rows: int, heads: int) -> np.ndarray:
    """For each row of q or k in a llama GGUF file, which row of the checkpoint it is (llama.cpp's permute)."""
    return np.arange(rows).reshape(heads, 2, rows // heads // 2).swapaxes(1, 2).reshape(rows)


def random_blocks(kind: GGMLQuantizationType, rows: int, columns: int) -> np.ndarray:
    """Valid blocks of a K-quant with random content [rows, bytes a row]; the package has no quantizer for them."""
    size, width = GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(rows).integers(0, 256, (rows * columns // size, width), dtype=np.uint8)
    scale = np.array([2e-5 if kind.name == "Q6_K" else 3e-4], np.float16).view(np.uint8)
    if kind.name == "Q6_K":
        blocks[:, -2:] = scale
    else:  # scale and scale of the minima; centred: 31.5 of 63 times the scales, 7.5 or 15.5 the mean of the numbers
        mean = 7.5 if kind.name == "Q4_K" else 15.5
        blocks[:, :2] = scale
        blocks[:, 2:4] = np.array([3e-4 * mean], np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


def write_gguf(
    path: Path,
    model: Any,
    arch: str,
    kind: str = "F32",
    *,
    edit: Callable[[GGUFWriter], None] = lambda _: None,
    skip: str = "",
    tokenizer: bool = True,
) -> None:
    """Write `model` to `path`. Matrices in format `kind`, and the model gets the very values that the file holds.

    edit: adds metadata; skip: leaves out tensors whose GGUF name contains it.
    """
    config = model.config
    writer = GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if tokenizer:
        add_byte_tokenizer(writer)
    edit(writer)
    for name, parameter in model.named_parameters():
        target = gguf_name(name)
        if not skip or skip not in target:
            order = _row_order(target, arch, config, parameter.shape[0])
            _add(writer, target, parameter, order, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    """ "model.layers.0.mlp.up_proj.weight" -> "blk.0.ffn_up.weight"."""
    stem, suffix = name.rsplit(".", 1)
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem)
    return f"blk.{found[1]}.{NAMES[found[2]]}.{suffix}" if found else f"{NAMES[stem]}.{suffix}"


def add_byte_tokenizer(writer: GGUFWriter, pre: str = "gpt-2") -> None:
    """A byte-level tokenizer with one merge and one control token."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([NORMAL] * 257 + [CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(257)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}<|end|>{% endfor %}")


def _row_order(name: str, arch: str, config: Any, rows: int) -> np.ndarray:
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    part = name.split(".")[-2]
    return interleaved(rows, heads[part]) if arch == "llama" and part in heads else np.arange(rows)


def _add(writer: GGUFWriter, name: str, parameter: torch.nn.Parameter, order: np.ndarray, kind: str) -> None:
    values = parameter.detach().numpy()[order]
    wanted = GGMLQuantizationType[kind if values.ndim == 2 else "F32"]
    if wanted.name == "F32":
        stored = values
    elif wanted.name.endswith("_K"):
        stored = random_blocks(wanted, *values.shape)
    else:
        stored = quantize(values, wanted)
    writer.add_tensor(name, stored, raw_dtype=None if stored.dtype != np.uint8 else wanted)
    held = torch.empty_like(parameter)
    held[torch.from_numpy(order)] = torch.from_numpy(dequantize(stored, wanted).astype(np.float32).copy())
    with torch.no_grad():
        parameter.copy_(held)
