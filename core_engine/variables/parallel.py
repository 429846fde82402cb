"""Several processes for one model: layers cut, layers dealt out, prompts apart from answers."""

from __future__ import annotations

from core_engine.variables.entry import Value, Variable
from core_engine.variables.kernels import KV_SPLITS
from core_engine.variables.model import QUANTIZED
from core_engine.variables.speculation import LOOK_UPS, TRAINED_DRAFTS

MOST_RANKS = 64
SEVERAL = tuple(range(2, MOST_RANKS + 1))  # numbers of ranks that are a split
RANKS = tuple(map(str, SEVERAL))
# What ranks don't compute: a step that is one call, formats whose groups a shard would cut, drafts that read the model.
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
    "tensor_parallel": SEVERAL,
    "pipeline_parallel": SEVERAL,
    "pin_threads": "auto",
}

PARALLEL_VARIABLES = (
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
        acts_with={"pipeline_parallel": SEVERAL},
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
)
