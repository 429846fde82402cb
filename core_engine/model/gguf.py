"""GGUF files: a config in Hugging Face's words and float32 tensors under Hugging Face's names.

Owns the format's names, the row order of q and k in llama files, and which quantizations and metadata are understood.
Metadata that would change the computation and is not known here is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from core_engine.model.rope import yarn_magnitude
from core_engine.quant.gguf_blocks import from_blocks, is_stored
from core_engine.quant.matrix import QuantizedMatrix
from ledger.errors import InputError, is_out_of_memory

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
ROPE_DIVISORS = "rope_freqs.weight"  # how llama3 scaling is stored: one divisor for each frequency
# Metadata under the architecture's name that is read below, or changes nothing.
KNOWN_KEYS = {
    *("block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "tensor_data_layout"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.layer_norm_rms_epsilon", "attention.sliding_window", "expert_count", "expert_used_count"),
    *("rope.freq_base", "rope.dimension_count", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor"),
    *("rope.scaling.original_context_length", "rope.scaling.finetuned", "rope.scaling.attn_factor"),
    *("rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"),
    *("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"),
}


class GgufFile:
    """One GGUF file, mapped into memory. `fields` is its metadata, `config` what a config.json would say."""

    def __init__(self, path: Path) -> None:
        """InputError naming the file when it is no GGUF file, is cut short, or is of a kind that is not computed."""
        from gguf import GGUFReader

        self.path = path
        try:
            self._reader = GGUFReader(path)
            self.fields: dict[str, Any] = {name: field.contents() for name, field in self._reader.fields.items()}
        except OSError as error:
            if is_out_of_memory(error):
                raise
            raise InputError("model", str(path), f"a readable file ({error.strerror or error})") from None
        except (ValueError, IndexError, KeyError, OverflowError, TypeError) as error:
            # What the reader says of a cut or foreign file is about numpy's views, so it goes to the cause only.
            raise InputError("model", str(path), "a whole GGUF file with known tensor types") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self._arch = str(self.fields.get("general.architecture"))
        self._refuse_unsupported()
        self._by_hf_name = {hf_name(name): tensor for name, tensor in self._tensors.items() if name != ROPE_DIVISORS}
        self.config = self._config()

    def names(self) -> list[str]:
        """Hugging Face's names of all weights."""
        return list(self._by_hf_name)

    def tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        """(name, array) of every weight."""
        return ((name, self.array(name)) for name in self.names())

    def array(self, name: str) -> np.ndarray:
        """A weight as float32 in its shape, q and k in Hugging Face's row order; it may be the mapped file itself."""
        tensor = self._by_hf_name[name]
        return np.ascontiguousarray(self._in_order(tensor.name, _dequantized(tensor)))

    def is_quantized(self, name: str) -> bool:
        """Whether a weight is stored in blocks of few bits."""
        return is_stored(self._by_hf_name[name].tensor_type.name)

    def matrix(self, name: str) -> QuantizedMatrix:
        """A weight that is stored in blocks, code by code, its rows in the order of `array`."""
        tensor = self._by_hf_name[name]
        rows = np.asarray(tensor.data).reshape(int(tensor.shape[1]), -1)
        return from_blocks(self._in_order(tensor.name, rows), tensor.tensor_type.name)

    def _in_order(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Rows (of numbers, or of blocks) of a tensor of the file, in the order of Hugging Face's checkpoints."""
        heads = {"attn_q": self.config["num_attention_heads"], "attn_k": self.config["num_key_value_heads"]}
        part = name.split(".")[2] if name.startswith("blk.") else ""
        return unpermute(rows, heads[part]) if self._arch == "llama" and part in heads else rows

    def _refuse_unsupported(self) -> None:
        if self._arch not in ARCHITECTURES:
            raise InputError("model (general.architecture)", self._arch, ", ".join(ARCHITECTURES))
        if self.fields.get("split.count", 0) > 1:
            raise InputError("model (split.count)", self.fields["split.count"], "a GGUF file in one piece")
        own = [key.removeprefix(f"{self._arch}.") for key in self.fields if key.startswith(f"{self._arch}.")]
        strange = sorted(set(own) - KNOWN_KEYS)
        if strange:
            raise InputError(f"model ({self._arch}.{strange[0]})", self._get(strange[0]), "a file without it")
        if self._get("expert_count", 0):
            raise InputError(f"model ({self._arch}.expert_count)", self._get("expert_count"), "0: no experts")
        for name, tensor in self._tensors.items():
            if tensor.tensor_type.name not in FORMATS:
                raise InputError("model", f"{name} in {tensor.tensor_type.name}", ", ".join(FORMATS))
            if name != ROPE_DIVISORS:
                hf_name(name)

    def _config(self) -> dict[str, Any]:
        hidden, heads = self._int("embedding_length"), self._int("attention.head_count")
        head_dim = self._int("attention.key_length", hidden // heads)
        for key in ("attention.value_length", "rope.dimension_count"):
            if self._get(key, head_dim) != head_dim:
                raise InputError(f"model ({self._arch}.{key})", self._get(key), f"the head size, {head_dim}")
        if "token_embd.weight" not in self._tensors:
            raise InputError("model", "no tensor token_embd.weight", "weights with every parameter of the model")
        context = self._int("context_length")
        config: dict[str, Any] = {
            "architectures": [ARCHITECTURES[self._arch]],
            "model_type": self._arch,
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": self._int("feed_forward_length"),
            "num_hidden_layers": self._int("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._int("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "max_position_embeddings": context,
            "rms_norm_eps": self._float("attention.layer_norm_rms_epsilon"),
            "rope_parameters": self._rope(context),
            "vocab_size": int(self._tensors["token_embd.weight"].shape[-1]),
            "bos_token_id": self.fields.get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self._end_tokens(),
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "attention_bias": self._arch != "qwen2" and "blk.0.attn_q.bias" in self._tensors,
            "mlp_bias": "blk.0.ffn_down.bias" in self._tensors,
        }
        window = self._int("attention.sliding_window", context)
        if window < context:
            if self._arch != "llama":  # such a file does not say in which layers the window acts
                raise InputError(f"model ({self._arch}.attention.sliding_window)", window, "a file without a window")
            config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": window}
        return config

    def _rope(self, context: int) -> dict[str, Any]:
        """Rope settings in the words of transformers; frequencies' divisors as the kind "divided"."""
        theta: dict[str, Any] = {"rope_theta": self._float("rope.freq_base", 10_000.0)}
        factor = self._float("rope.scaling.factor", self._float("rope.scale_linear", 1.0))
        kind = self._get("rope.scaling.type", "linear" if factor != 1 else "none")
        magnitude = self._float("rope.scaling.attn_factor", 1.0) * self._float("rope.scaling.yarn_attn_factor", 1.0)
        divisors = self._tensors.get(ROPE_DIVISORS)
        if kind not in ("none", "linear", "yarn") or (divisors is not None and kind != "none"):
            both = f" with {ROPE_DIVISORS}" if divisors is not None else ""
            raise InputError(f"model ({self._arch}.rope.scaling.type)", f"{kind}{both}", "none, linear, yarn")
        if kind == "yarn":
            if self._float("rope.scaling.yarn_ext_factor", 1.0) != 1:
                raise InputError(f"model ({self._arch}.rope.scaling.yarn_ext_factor)", "not 1", "1")
            return theta | {
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": self._int("rope.scaling.original_context_length", context),
                "attention_factor": magnitude * yarn_magnitude(factor),
                "beta_fast": self._float("rope.scaling.yarn_beta_fast", 32.0),
                "beta_slow": self._float("rope.scaling.yarn_beta_slow", 1.0),
            }
        if magnitude != 1:
            raise InputError(f"model ({self._arch}.rope.scaling.attn_factor)", magnitude, "1 without yarn")
        if divisors is not None:
            return theta | {"rope_type": "divided", "divisors": _dequantized(divisors).tolist()}
        return theta | ({"rope_type": "linear", "factor": factor} if kind == "linear" else {"rope_type": "default"})

    def _end_tokens(self) -> list[int]:
        """Ids that end an answer: end of sequence, of turn, of message, as far as the file names them."""
        ids = [self.fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
        return list(dict.fromkeys(int(token) for token in ids if token is not None))

    def _get(self, key: str, default: Any = None) -> Any:
        return self.fields.get(f"{self._arch}.{key}", default)

    def _int(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"model ({self._arch}.{key})", _short(value), "a whole number above 0, for all layers")
        return value

    def _float(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"model ({self._arch}.{key})", _short(value), "a number")
        # Stored as float32; the shortest decimal that rounds to it is the published value.
        return float(str(np.float32(value)))


def hf_name(gguf_name: str) -> str:
    """Hugging Face name of a GGUF tensor; InputError for one that the decoder has no place for."""
    if gguf_name in TOP_NAMES:
        return TOP_NAMES[gguf_name]
    parts = gguf_name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in LAYER_NAMES or parts[3] not in ("weight", "bias"):
        raise InputError("model", f"tensor without a place: {gguf_name[:60]}", "a llama, qwen2 or qwen3 file")
    return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{parts[3]}"


def unpermute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Turn the row order of q and k in llama GGUF files (interleaved pairs) into Hugging Face's (halves).

    weight [out, in], or a bias [out]; InputError when its rows are not whole heads.
    """
    out = weight.shape[0]
    if out % (2 * num_heads):
        raise InputError("model", f"q or k with {out} rows", f"rows for {num_heads} heads of an even size")
    return weight.reshape(num_heads, out // num_heads // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def _dequantized(tensor: Any) -> np.ndarray:
    from gguf import dequantize

    weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    return weight.reshape([int(size) for size in reversed(tensor.shape)])


def _short(value: Any) -> Any:
    return f"a list of {len(value)}" if isinstance(value, list) else value
