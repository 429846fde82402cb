"""The model, where it runs, and the formats of its weights."""

from __future__ import annotations

from core_engine.variables.entry import Variable
from ledger.block_formats import W4A16_METHODS as W4A16

MADE_HERE = ("w8a16", "w8a8", *W4A16)  # formats that weights are quantized to when they are loaded
QUANTIZED = ("as-stored", *MADE_HERE)

MODEL_VARIABLES = (
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
)
