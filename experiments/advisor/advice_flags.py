"""The flags that do in other engines what a value of a variable does here.

The registry names the option (`Variable.peers`); here is how a value is spelled, where it is not the bare number, and
what an engine lacks. Spellings are those of the engines' documentation: docs.vllm.ai (engine arguments), docs.sglang.io
(server arguments), nvidia.github.io/TensorRT-LLM (trtllm-serve, LLM arguments), llama.cpp's tools/server/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from core_engine.variables import VARIABLES, Value

ENGINES = ("vLLM", "SGLang", "TensorRT-LLM", "llama.cpp")
VLLM, SGLANG, TENSORRT, LLAMACPP = ENGINES
MIB = 2**20


@dataclass(frozen=True)
class Flag:
    """text is what to type, or a line of the engine's YAML; None where there is none. note: what differs there."""

    engine: str
    text: str | None
    note: str = ""

    def to_json(self) -> dict[str, str | None]:
        """{"engine","text","note"}."""
        return {"engine": self.engine, "text": self.text, "note": self.note or None}


DEFAULT = "its default; leave the option out"
ALWAYS = "it always does"
CHECKPOINT = "a checkpoint in this format; the engine reads the format from its config.json"

# (variable, value) -> engine -> (text, note). "*" is any value; {value} is put in.
SPELLED: dict[tuple[str, str], dict[str, tuple[str | None, str]]] = {
    ("batching", "continuous"): {
        VLLM: (None, ALWAYS), SGLANG: (None, ALWAYS), TENSORRT: (None, ALWAYS), LLAMACPP: ("--cont-batching", DEFAULT),
    },
    ("kv_layout", "paged"): {VLLM: (None, ALWAYS), SGLANG: (None, ALWAYS), TENSORRT: (None, ALWAYS)},
    ("prefix_cache", "on"): {
        VLLM: ("--enable-prefix-caching", DEFAULT), SGLANG: (None, "on unless --disable-radix-cache is given"),
        TENSORRT: ("kv_cache_config: {enable_block_reuse: true}", DEFAULT), LLAMACPP: ("--cache-prompt", DEFAULT),
    },
    ("prefix_cache", "off"): {
        VLLM: ("--no-enable-prefix-caching", ""), SGLANG: ("--disable-radix-cache", ""),
        TENSORRT: ("kv_cache_config: {enable_block_reuse: false}", ""), LLAMACPP: ("--no-cache-prompt", ""),
    },
    ("chunked_prefill", "on"): {
        VLLM: ("--enable-chunked-prefill", DEFAULT), SGLANG: ("--chunked-prefill-size 2048", "any size above 0"),
        TENSORRT: ("enable_chunked_prefill: true", ""),
    },
    ("chunked_prefill", "off"): {
        VLLM: ("--no-enable-chunked-prefill", ""), SGLANG: ("--chunked-prefill-size -1", ""),
        TENSORRT: ("enable_chunked_prefill: false", ""),
    },
    ("kv_memory_mib", "*"): {
        SGLANG: (None, "--max-total-tokens takes tokens, not bytes: divide by the bytes of a token (trilemma kv)"),
        LLAMACPP: (None, "--ctx-size takes tokens of all slots together: divide by the bytes of a token (trilemma kv)"),
    },
    ("kv_dtype", "fp8"): {
        VLLM: ("--kv-cache-dtype fp8", ""), SGLANG: ("--kv-cache-dtype fp8_e4m3", ""),
        TENSORRT: ("kv_cache_config: {dtype: fp8}", ""),
    },
    ("kv_dtype", "int8"): {
        VLLM: ("--kv-cache-dtype int8_per_token_head", "a scale for every token and head; fp8 in older versions"),
        SGLANG: ("--kv-cache-dtype fp8_e4m3", "its 8-bit format is FP8"),
        TENSORRT: ("kv_cache_config: {dtype: fp8}", "its 8-bit format on recent cards is FP8"),
        LLAMACPP: ("--cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on", "a quantized V needs flash attention"),
    },
    ("kv_dtype", "int4"): {
        VLLM: ("--kv-cache-dtype int4_per_token_head", "a scale for every token and head; not in older versions"),
        LLAMACPP: ("--cache-type-k q4_0 --cache-type-v q4_0 --flash-attn on", "a quantized V needs flash attention"),
    },
    ("kv_dtype", "auto"): {
        VLLM: ("--kv-cache-dtype auto", DEFAULT), SGLANG: ("--kv-cache-dtype auto", DEFAULT),
        LLAMACPP: ("--cache-type-k f16 --cache-type-v f16", DEFAULT),
    },
    ("dtype", "bf16"): {VLLM: ("--dtype bfloat16", ""), SGLANG: ("--dtype bfloat16", "")},
    ("dtype", "fp16"): {VLLM: ("--dtype float16", ""), SGLANG: ("--dtype float16", "")},
    ("dtype", "fp32"): {VLLM: ("--dtype float32", ""), SGLANG: ("--dtype float32", "")},
    ("weights", "w8a8"): {
        VLLM: (None, CHECKPOINT), SGLANG: (None, CHECKPOINT),
        TENSORRT: ("quantize.py --qformat int8_sq", "before serving"),
        LLAMACPP: ("llama-quantize MODEL.gguf OUT.gguf Q8_0", "weights alone; its activations are rounded in blocks"),
    },
    ("weights", "w8a16"): {
        VLLM: (None, CHECKPOINT), SGLANG: (None, CHECKPOINT),
        LLAMACPP: ("llama-quantize MODEL.gguf OUT.gguf Q8_0", "before serving"),
    },
    ("weights", "w4a16-awq"): {
        VLLM: ("--quantization awq", "with an AWQ checkpoint"),
        SGLANG: ("--quantization awq", "with an AWQ checkpoint"),
        TENSORRT: ("quantize.py --qformat int4_awq", "before serving"),
        LLAMACPP: ("llama-quantize MODEL.gguf OUT.gguf Q4_K_M", "its own 4-bit format"),
    },
    ("weights", "w4a16-gptq"): {
        VLLM: ("--quantization gptq", "with a GPTQ checkpoint"),
        SGLANG: ("--quantization gptq", "with a GPTQ checkpoint"),
        LLAMACPP: ("llama-quantize MODEL.gguf OUT.gguf Q4_K_M", "its own 4-bit format"),
    },
    ("weights", "w4a16-rtn"): {
        LLAMACPP: ("llama-quantize MODEL.gguf OUT.gguf Q4_0", "rounded to nearest, as here"),
    },
    ("graph", "off"): {VLLM: ("--enforce-eager", ""), SGLANG: ("--disable-cuda-graph", "")},
    ("graph", "*"): {VLLM: (None, "on unless --enforce-eager is given"),
                     SGLANG: (None, "on unless --disable-cuda-graph is given")},
    ("overlap", "on"): {
        VLLM: ("--async-scheduling", ""), SGLANG: (None, "on unless --disable-overlap-schedule is given"),
        TENSORRT: ("disable_overlap_scheduler: false", DEFAULT),
    },
    ("overlap", "off"): {
        VLLM: ("--no-async-scheduling", ""), SGLANG: ("--disable-overlap-schedule", ""),
        TENSORRT: ("disable_overlap_scheduler: true", ""),
    },
    ("speculation", "off"): {
        VLLM: (None, "leave --speculative-config out"), SGLANG: (None, "leave --speculative-algorithm out"),
        TENSORRT: (None, "leave speculative_config out"), LLAMACPP: (None, "leave --model-draft out"),
    },
    ("speculation", "draft"): {
        VLLM: ('--speculative-config \'{"model": "DRAFT", "num_speculative_tokens": 4}\'', ""),
        SGLANG: ("--speculative-algorithm STANDALONE --speculative-draft-model-path DRAFT", ""),
        TENSORRT: ("speculative_config: {decoding_type: DraftTarget, max_draft_len: 4, speculative_model_dir: DRAFT}",
                   ""),
        LLAMACPP: ("--model-draft DRAFT.gguf --draft-max 4", ""),
    },
    ("speculation", "eagle"): {
        VLLM: ('--speculative-config \'{"method": "eagle", "model": "HEAD", "num_speculative_tokens": 4}\'', ""),
        SGLANG: ("--speculative-algorithm EAGLE --speculative-draft-model-path HEAD", ""),
        TENSORRT: ("speculative_config: {decoding_type: Eagle, max_draft_len: 4, speculative_model_dir: HEAD}", ""),
    },
    ("speculation", "ngram"): {
        VLLM: (
            '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}\'', ""
        ),
        SGLANG: ("--speculative-algorithm NGRAM", ""),
        TENSORRT: ("speculative_config: {decoding_type: NGram, max_draft_len: 4}", ""),
        LLAMACPP: ("--spec-type ngram-simple", "not in older versions"),
    },
    ("num_draft_tokens", "*"): {
        VLLM: (None, "num_speculative_tokens {value} in --speculative-config"),
        TENSORRT: ("speculative_config: {{max_draft_len: {value}}}", ""),
    },
    ("disaggregation", "*"): {
        VLLM: (None, "two servers with --kv-transfer-config and a proxy; trilemma plan prints the lines"),
        SGLANG: (None, "two servers with --disaggregation-mode and its router; trilemma plan prints the lines"),
        TENSORRT: (None, "trtllm-serve disaggregated; trilemma plan prints the lines"),
    },
    ("pin_threads", "*"): {VLLM: (None, "the variable VLLM_CPU_OMP_THREADS_BIND"), LLAMACPP: (None, "--cpu-strict 1")},
}  # fmt: skip


def flags(variable: str, value: Value | None) -> list[Flag]:
    """One entry for each of the four engines: how to set `variable` to `value` there; none for what is no variable."""
    if variable not in VARIABLES or value is None:
        return []
    return [_flag(engine, variable, value) for engine in ENGINES]


def _flag(engine: str, variable: str, value: Value) -> Flag:
    for key in ((variable, str(value)), (variable, "*")):
        if engine in SPELLED.get(key, {}):
            text, note = SPELLED[key][engine]
            return Flag(engine, None if text is None else text.format(value=value) if "*" in key else text,
                        note.replace("{value}", str(value)))  # fmt: skip
    entry = VARIABLES[variable]
    name = entry.peers.get(engine)
    if name is None or entry.kind == "choice":
        return Flag(engine, None, f"no option that does what {variable}={value} does here")
    if variable == "kv_memory_mib":
        return Flag(engine, f"{name} {int(value) * MIB}")
    return Flag(engine, f"{name} {value}" if name.startswith("--") else f"{name}: {value}")
