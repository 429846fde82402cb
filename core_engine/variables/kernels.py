"""What computes a step, and how it is launched."""

from __future__ import annotations

from core_engine.variables.entry import Variable

KV_SPLITS = ("1", "2", "4", "8", "16", "32")

KERNEL_VARIABLES = (
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
)
