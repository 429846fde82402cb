"""The registry of every variable a user can change: one entry each, read by the engine, the command line and the page.

Owns names, types, choices, defaults and what each variable is expected to move. Knows nothing of how a mechanism works.
Adding an optimisation means writing the mechanism and one entry here: docs/extending.md has a complete example.
"""

from __future__ import annotations

from typing import Any

from core_engine.cache_variables import CACHE_VARIABLES
from core_engine.saving_variables import SAVING_VARIABLES
from core_engine.variable import Value, Variable
from ledger.block_formats import W4A16_METHODS as W4A16
from ledger.errors import InputError

__all__ = ["VARIABLES", "Value", "Variable", "parse_setting", "parse_value", "variable"]

MADE_HERE = ("w8a16", "w8a8", *W4A16)  # formats that weights are quantized to when they are loaded
QUANTIZED = ("as-stored", *MADE_HERE)
KV_SPLITS = ("1", "2", "4", "8", "16", "32")
KV_DTYPES = ("auto", "fp32", "bf16", "fp16", "fp8", "int8", "int4", "int2")
LOOK_UPS = ("ngram",)  # forms of draft that need no file and read tokens alone
TRAINED_DRAFTS = ("draft", "medusa", "eagle", "self")
# What ranks don't compute: a step that is one call, formats whose groups a shard would cut, drafts that read the model.
MOST_RANKS = 64
NOT_ON_RANKS: dict[str, Value | tuple[Value, ...]] = {
    "kernels": ("compiled", "triton"),
    "graph": "on",
    "kv_splits": KV_SPLITS,
    "pin_threads": "auto",
    "weights": QUANTIZED,
    "head_weights": "int8",
    "speculation": TRAINED_DRAFTS,
}
# What two processes that hand KV over lack: GPUs, batches with rules of their own, KV that is not all in its blocks.
NOT_ON_SIDES: dict[str, Value | tuple[Value, ...]] = {
    "device": "cuda",
    "batching": ("static", "dynamic"),
    "kv_dtype": ("int8", "int4", "int2"),
    "speculation": (*LOOK_UPS, *TRAINED_DRAFTS),
    "tensor_parallel": tuple(range(2, MOST_RANKS + 1)),
    "pipeline_parallel": tuple(range(2, MOST_RANKS + 1)),
    "pin_threads": "auto",
}
RANKS = tuple(str(count) for count in range(2, MOST_RANKS + 1))
WITHOUT_ZERO = tuple(name for name in KV_DTYPES if name not in ("int4", "int2"))


def _entries() -> tuple[Variable, ...]:
    return (
        Variable(
            "batching",
            "choice",
            "continuous",
            group="scheduling",
            choices=("continuous", "dynamic", "static"),
            moves=("ttft_s", "output_tokens_per_s", "itl_s"),
            help="When waiting requests may join: at every step, or only when a whole batch has ended.",
        ),
        Variable(
            "max_num_seqs",
            "int",
            8,
            group="scheduling",
            minimum=1,
            maximum=1024,
            moves=("ttft_s", "itl_s", "output_tokens_per_s"),
            derives=("activation_peak_bytes",),
            peers={
                "vLLM": "--max-num-seqs",
                "SGLang": "--max-running-requests",
                "TensorRT-LLM": "--max_batch_size",
                "llama.cpp": "--parallel",
            },
            help="Most requests that are computed together.",
        ),
        Variable(
            "max_wait_ms",
            "float",
            200.0,
            group="scheduling",
            minimum=0,
            maximum=60_000,
            unit="ms",
            moves=("ttft_s",),
            help="Dynamic batching only: longest time the oldest request waits for a full batch.",
        ),
        Variable(
            "max_num_batched_tokens",
            "int",
            256,
            group="scheduling",
            minimum=1,
            maximum=65_536,
            unit="tokens",
            moves=("ttft_s", "itl_s"),
            derives=("activation_peak_bytes",),
            peers={
                "vLLM": "--max-num-batched-tokens",
                "SGLang": "--chunked-prefill-size",
                "TensorRT-LLM": "--max_num_tokens",
                "llama.cpp": "--batch-size",
            },
            help="Most tokens computed in one step, prefill and decode together.",
        ),
        Variable(
            "chunked_prefill",
            "choice",
            "on",
            group="scheduling",
            choices=("on", "off"),
            moves=("itl_s", "ttft_s"),
            peers={"vLLM": "--enable-chunked-prefill", "SGLang": "--chunked-prefill-size"},
            help="Whether a long prompt may be computed over several steps beside running decodes.",
        ),
        Variable(
            "max_queue",
            "int",
            4096,
            group="scheduling",
            minimum=1,
            maximum=1_000_000,
            unit="requests",
            moves=("ttft_s",),
            help="Most requests that may wait; one more is refused.",
        ),
        Variable(
            "rate_limit_rps",
            "float",
            0.0,
            group="scheduling",
            minimum=0,
            maximum=1_000_000,
            unit="requests/s",
            moves=("ttft_s",),
            help="Most requests taken in a second, after a burst of as many; one more is refused. 0 is no limit.",
        ),
        Variable(
            "kv_layout",
            "choice",
            "paged",
            group="memory",
            choices=("paged", "contiguous"),
            moves=("ttft_s", "output_tokens_per_s"),
            requires={"contiguous": {"prefix_cache": "off"}},
            help="Blocks as tokens come, or one run of memory for the longest an answer may become.",
        ),
        Variable(
            "block_size",
            "int",
            16,
            group="memory",
            minimum=1,
            maximum=1024,
            unit="tokens",
            derives=("num_kv_blocks",),
            peers={"vLLM": "--block-size", "SGLang": "--page-size"},
            help="Tokens in one block of the paged KV cache.",
        ),
        Variable(
            "kv_memory_mib",
            "int",
            256,
            group="memory",
            minimum=1,
            maximum=1_048_576,
            unit="MiB",
            derives=("num_kv_blocks",),
            moves=("output_tokens_per_s", "ttft_s"),
            peers={"vLLM": "--kv-cache-memory-bytes", "SGLang": "--max-total-tokens", "llama.cpp": "--ctx-size"},
            help="Memory given to the KV cache, on each rank where there are several.",
        ),
        Variable(
            "kv_dtype",
            "choice",
            "auto",
            group="memory",
            choices=KV_DTYPES,
            moves=("output_tokens_per_s", "ttft_s", "itl_s", "quality"),
            derives=("num_kv_blocks", "activation_peak_bytes"),
            peers={"vLLM": "--kv-cache-dtype", "SGLang": "--kv-cache-dtype", "llama.cpp": "--cache-type-k"},
            help="Number format of the KV cache; auto is the model's. int8, int4 and int2 store scales as well.",
        ),
        Variable(
            "kv_key_axis",
            "choice",
            "channel",
            group="memory",
            choices=("channel", "token"),
            moves=("quality",),
            derives=("num_kv_blocks",),
            excludes={"token": {"kv_dtype": WITHOUT_ZERO}},
            help="int4 and int2 keys share a scale per channel over the tokens of a block, or per token like values.",
        ),
        Variable(
            "kv_protect",
            "choice",
            "none",
            group="memory",
            choices=("none", "sinks", "outliers"),
            moves=("quality", "output_tokens_per_s"),
            derives=("num_kv_blocks",),
            requires={"sinks": {"prefix_cache": "off"}},
            excludes={"sinks": {"kv_dtype": WITHOUT_ZERO}, "outliers": {"kv_dtype": WITHOUT_ZERO}},
            help="Keep a sequence's first block in full precision (sinks), or the elements that make steps wide.",
        ),
        Variable(
            "kv_watermark",
            "float",
            0.01,
            group="memory",
            minimum=0,
            maximum=0.5,
            moves=("ttft_s",),
            help="Share of the KV blocks kept free when a request is admitted, so that running ones can grow.",
        ),
        Variable(
            "prefix_cache",
            "choice",
            "on",
            group="memory",
            choices=("on", "off"),
            moves=("ttft_s", "output_tokens_per_s"),
            peers={
                "vLLM": "--enable-prefix-caching",
                "SGLang": "--disable-radix-cache",
                "TensorRT-LLM": "enable_block_reuse",
                "llama.cpp": "--cache-prompt",
            },
            help="Whether the KV of a prompt's beginning is reused when an earlier request began alike.",
        ),
        Variable(
            "model",
            "path",
            "embedded",
            group="model",
            choices=("embedded", "embedded-wide"),
            paths="a model directory or .gguf file",
            moves=("ttft_s", "itl_s", "output_tokens_per_s", "quality"),
            derives=("num_kv_blocks",),
            excludes={"embedded-wide": {"weights": QUANTIZED, "head_weights": "int8"}},
            help="The embedded SmolLM2-135M-Instruct, the same with four times the work (embedded-wide), or a local "
            "directory (config.json, safetensors) or GGUF file.",
        ),
        Variable(
            "device",
            "choice",
            "auto",
            group="model",
            choices=("auto", "cpu", "cuda"),
            moves=("ttft_s", "itl_s", "output_tokens_per_s"),
            help="Where the model runs; auto takes CUDA when present.",
        ),
        Variable(
            "dtype",
            "choice",
            "auto",
            group="model",
            choices=("auto", "fp32", "bf16", "fp16"),
            moves=("ttft_s", "itl_s", "output_tokens_per_s", "quality"),
            derives=("num_kv_blocks",),
            peers={"vLLM": "--dtype", "SGLang": "--dtype", "llama.cpp": "--cache-type-k"},
            help="Number format of weights, activations and KV; auto is bf16 where the processor has it, else fp32.",
        ),
        Variable(
            "weights",
            "choice",
            "none",
            group="model",
            choices=("none", *QUANTIZED),
            moves=("itl_s", "ttft_s", "output_tokens_per_s", "quality"),
            derives=("weights_bytes",),
            excludes={
                value: {"weight_symmetric": "off", "weight_group": ("32", "128")}
                for value in ("as-stored", "w8a16", "w8a8")
            },
            peers={
                "vLLM": "--quantization",
                "SGLang": "--quantization",
                "TensorRT-LLM": "quantize.py --qformat",
                "llama.cpp": "llama-quantize TYPE",
            },
            help="Format of linear layers: none is dtype; as-stored is the file's own; w8a8 rounds activations too.",
        ),
        Variable(
            "weight_group",
            "choice",
            "64",
            group="model",
            choices=("64", "32", "128"),
            moves=("itl_s", "output_tokens_per_s", "quality"),
            derives=("weights_bytes",),
            acts_with={"weights": W4A16},
            peers={"TensorRT-LLM": "quantize.py --awq_block_size"},
            help="W4A16 only: inputs of an output that share a scale. It has to divide every input width.",
        ),
        Variable(
            "weight_symmetric",
            "choice",
            "on",
            group="model",
            choices=("on", "off"),
            moves=("quality",),
            derives=("weights_bytes",),
            acts_with={"weights": W4A16},
            help="W4A16 only: on centres the 16 levels on zero; off adds a zero point, held in 8 bits, to every group.",
        ),
        Variable(
            "head_weights",
            "choice",
            "16bit",
            group="model",
            choices=("16bit", "int8"),
            moves=("itl_s", "output_tokens_per_s", "quality"),
            derives=("weights_bytes",),
            peers={
                "TensorRT-LLM": "quantize.py --quantize_lm_head",
                "llama.cpp": "llama-quantize --output-tensor-type",
            },
            help="Format of the head (and of a tied embedding): that of dtype, or 8 bits with a scale a row.",
        ),
        Variable(
            "threads",
            "int",
            0,
            group="model",
            minimum=0,
            maximum=512,
            moves=("itl_s", "output_tokens_per_s"),
            peers={"llama.cpp": "--threads"},
            help="CPU threads; 0 takes every core this process may use.",
        ),
        Variable(
            "kernels",
            "choice",
            "auto",
            group="kernels",
            choices=("auto", "compiled", "triton", "torch"),
            moves=("itl_s", "ttft_s", "output_tokens_per_s"),
            derives=("weights_bytes", "activation_peak_bytes"),
            excludes={"compiled": {"device": "cuda"}, "triton": {"device": "cpu"}},
            help="Our own kernels where they can run (auto: compiled on a CPU, Triton on CUDA), or torch's operators.",
        ),
        Variable(
            "graph",
            "choice",
            "auto",
            group="kernels",
            choices=("auto", "on", "off"),
            moves=("itl_s", "output_tokens_per_s"),
            excludes={"on": {"kernels": "torch"}},
            peers={"vLLM": "--enforce-eager", "SGLang": "--disable-cuda-graph"},
            help="A whole step as one call (CUDA Graph; on a CPU one compiled call), or every operator by itself.",
        ),
        Variable(
            "overlap",
            "choice",
            "on",
            group="kernels",
            choices=("on", "off"),
            moves=("itl_s", "output_tokens_per_s"),
            peers={
                "vLLM": "--async-scheduling",
                "SGLang": "--disable-overlap-schedule",
                "TensorRT-LLM": "disable_overlap_scheduler",
            },
            help="Whether the next step is prepared while a GPU computes this one; a CPU is busy with computing.",
        ),
        Variable(
            "fused_ops",
            "choice",
            "on",
            group="kernels",
            choices=("on", "off"),
            moves=("itl_s", "output_tokens_per_s"),
            derives=("activation_peak_bytes",),
            help="Whether neighbouring operators are computed as one (q/k/v, gate/up with its activation, residuals).",
        ),
        Variable(
            "attention",
            "choice",
            "flash",
            group="kernels",
            choices=("flash", "naive"),
            moves=("ttft_s", "itl_s"),
            derives=("activation_peak_bytes",),
            help="flash never stores the scores; naive writes the whole matrix of queries x keys, then reads it again.",
        ),
        Variable(
            "kv_splits",
            "choice",
            "auto",
            group="kernels",
            choices=("auto", *KV_SPLITS),
            moves=("itl_s",),
            derives=("activation_peak_bytes",),
            excludes={splits: {"kernels": "torch", "attention": "naive"} for splits in KV_SPLITS},
            peers={"SGLang": "--triton-attention-num-kv-splits"},
            help="Ranges of the context that one new token's attention is split into (FlashDecoding).",
        ),
        Variable(
            "pin_threads",
            "choice",
            "off",
            group="kernels",
            excludes={"auto": {"kernels": "torch"}},
            choices=("auto", "off"),
            moves=("itl_s",),
            peers={"vLLM": "VLLM_CPU_OMP_THREADS_BIND", "llama.cpp": "--cpu-strict"},
            help="auto keeps each thread of the compiled step on a core of its own, where it has all cores; else off.",
        ),
        Variable(
            "tensor_parallel",
            "int",
            1,
            group="parallel",
            minimum=1,
            maximum=MOST_RANKS,
            unit="ranks",
            moves=("itl_s", "ttft_s", "output_tokens_per_s"),
            derives=("num_kv_blocks", "weights_bytes", "kv_pool_bytes", "activation_peak_bytes", "ranks"),
            excludes=dict.fromkeys(RANKS, NOT_ON_RANKS),
            alike={count: {"kernels": "torch"} for count in RANKS},
            peers={
                "vLLM": "--tensor-parallel-size",
                "SGLang": "--tp-size",
                "TensorRT-LLM": "--tp_size",
                "llama.cpp": "--split-mode row",
            },
            help="Processes (GPUs) that each layer is split over; its partial results are summed twice a layer.",
        ),
        Variable(
            "pipeline_parallel",
            "int",
            1,
            group="parallel",
            minimum=1,
            maximum=MOST_RANKS,
            unit="stages",
            moves=("itl_s", "ttft_s", "output_tokens_per_s"),
            derives=("num_kv_blocks", "weights_bytes", "kv_pool_bytes", "activation_peak_bytes", "ranks"),
            excludes=dict.fromkeys(RANKS, NOT_ON_RANKS),
            alike={count: {"kernels": "torch"} for count in RANKS},
            peers={
                "vLLM": "--pipeline-parallel-size",
                "SGLang": "--pp-size",
                "TensorRT-LLM": "--pp_size",
                "llama.cpp": "--split-mode layer",
            },
            help="Processes (GPUs) that the layers are dealt over; each hands its hidden states to the next.",
        ),
        Variable(
            "micro_batches",
            "int",
            0,
            group="parallel",
            minimum=0,
            maximum=MOST_RANKS,
            moves=("ttft_s", "output_tokens_per_s"),
            acts_with={"pipeline_parallel": tuple(map(int, RANKS))},
            help="Pipeline parallelism only: pieces of a step that follow one another through the stages; 0 is as many "
            "as stages.",
        ),
        Variable(
            "disaggregation",
            "choice",
            "off",
            group="parallel",
            choices=("off", "on"),
            moves=("itl_s", "ttft_s", "output_tokens_per_s"),
            derives=("num_kv_blocks", "weights_bytes", "kv_pool_bytes", "activation_peak_bytes", "transfer_area_bytes"),
            excludes={"on": NOT_ON_SIDES},
            peers={
                "vLLM": "--kv-transfer-config",
                "SGLang": "--disaggregation-mode",
                "TensorRT-LLM": "trtllm-serve disaggregated",
            },
            help="Prompts are computed in one process and answers in another, which is handed the KV; the threads are "
            "split between them.",
        ),
        Variable(
            "speculation",
            "choice",
            "off",
            group="speculation",
            choices=("off", *LOOK_UPS, *TRAINED_DRAFTS),
            moves=("itl_s", "output_tokens_per_s", "e2e_s"),
            derives=("activation_peak_bytes",),
            peers={
                "vLLM": "--speculative-config",
                "SGLang": "--speculative-algorithm",
                "TensorRT-LLM": "speculative_config",
                "llama.cpp": "--model-draft",
            },
            help="Who proposes tokens that the model verifies several at a time; the output stays the model's own.",
        ),
        Variable(
            "draft_model",
            "path",
            "shipped",
            group="speculation",
            choices=("shipped",),
            paths="a file made by trilemma train-draft",
            moves=("itl_s", "output_tokens_per_s"),
            peers={
                "vLLM": "--speculative-config",
                "SGLang": "--speculative-draft-model-path",
                "TensorRT-LLM": "speculative_config",
                "llama.cpp": "--model-draft",
            },
            help="The trained draft of speculation=draft, medusa, eagle and self: the embedded model's own, or a file.",
        ),
        Variable(
            "num_draft_tokens",
            "int",
            4,
            group="speculation",
            minimum=1,
            maximum=16,
            unit="tokens",
            moves=("itl_s", "output_tokens_per_s"),
            derives=("activation_peak_bytes",),
            peers={
                "vLLM": "num_speculative_tokens",
                "SGLang": "--speculative-num-steps",
                "TensorRT-LLM": "max_draft_len",
                "llama.cpp": "--draft-max",
            },
            help="Speculation only: most tokens proposed for a sequence at a time.",
        ),
        Variable(
            "draft_control",
            "choice",
            "adaptive",
            group="speculation",
            choices=("adaptive", "fixed"),
            moves=("itl_s", "output_tokens_per_s"),
            help="adaptive: fewer drafts where few are accepted, none where steps with them are seen to be slower.",
        ),
        *CACHE_VARIABLES,
        *SAVING_VARIABLES,
        Variable(
            "seed",
            "int",
            0,
            group="sampling",
            minimum=0,
            maximum=2**63 - 1,
            peers={"vLLM": "--seed"},
            help="Seed of the requests that bring none of their own.",
        ),
    )


VARIABLES: dict[str, Variable] = {entry.name: entry for entry in _entries()}


def variable(name: str) -> Variable:
    """The entry called `name`; InputError when there is none."""
    if name not in VARIABLES:
        raise InputError("variable", name, ", ".join(VARIABLES))
    return VARIABLES[name]


def parse_value(name: str, text: Any) -> Value:
    """Turn text (or an already typed value) into a valid value of variable `name`; InputError otherwise."""
    entry = variable(name)
    if entry.kind == "choice":
        if text not in entry.choices:
            raise InputError(name, text, entry.accepted())
        return str(text)
    if entry.kind == "path":
        if not str(text).strip():
            raise InputError(name, text, entry.accepted())
        return str(text)
    return _parse_number(entry, text)


def _parse_number(entry: Variable, text: Any) -> Value:
    try:
        number = int(str(text)) if entry.kind == "int" else float(str(text))
    except ValueError:
        raise InputError(entry.name, text, entry.accepted()) from None
    low, high = entry.minimum, entry.maximum
    if low is None or high is None:
        raise TypeError(f"variable {entry.name} has no range")  # a fault of the registry, not of the user
    if not low <= number <= high:  # also refuses NaN, which compares false
        raise InputError(entry.name, text, entry.accepted())
    return number


def parse_setting(text: str) -> tuple[str, Value]:
    """Parse "NAME=VALUE"; InputError names the field and what is accepted."""
    name, separator, value = text.partition("=")
    if not separator:
        raise InputError("--set", text, "NAME=VALUE")
    return name.strip(), parse_value(name.strip(), value.strip())
