"""What saves work before a model sees it: shorter prompts, and a small model that answers
first."""

from __future__ import annotations

from core_engine.variables.entry import Variable
from core_engine.variables.parallel import SEVERAL

SAVING_VARIABLES = (
    Variable(
        "prompt_compression",
        "choice",
        "off",
        group="caching",
        choices=("off", "on"),
        moves=("ttft_s", "output_tokens_per_s", "cost_per_request", "quality"),
        excludes={"on": {"disaggregation": "on"}},
        help="Whether long prompts are cut to their telling sentences before they are computed.",
    ),
    Variable(
        "prompt_keep",
        "float",
        0.5,
        group="caching",
        minimum=0.1,
        maximum=1,
        moves=("ttft_s", "quality"),
        acts_with={"prompt_compression": ("on",)},
        help="Prompt compression only: share of a prompt's words that is aimed at; questions and numbers always stay.",
    ),
    Variable(
        "router",
        "choice",
        "off",
        group="routing",
        choices=("off", "small-first"),
        moves=("ttft_s", "output_tokens_per_s", "cost_per_request", "quality"),
        excludes={
            "small-first": {
                "disaggregation": "on",
                "tensor_parallel": SEVERAL,
                "pipeline_parallel": SEVERAL,
            }
        },
        help="Whether a small model answers first and the model itself only where that one is unsure.",
    ),
    Variable(
        "router_small",
        "path",
        "quantized",
        group="routing",
        choices=("quantized", "embedded"),
        paths="a model with the same tokenizer: a Hugging Face directory or a .gguf file",
        moves=("ttft_s", "output_tokens_per_s", "quality"),
        acts_with={"router": ("small-first",)},
        help="Router only: who answers first; quantized is the model itself with weights=w4a16-rtn.",
    ),
    Variable(
        "router_threshold",
        "float",
        -1.0,
        group="routing",
        minimum=-20,
        maximum=0,
        moves=("ttft_s", "output_tokens_per_s", "quality"),
        acts_with={"router": ("small-first",)},
        help="Router only: least mean log-probability of the small model's first 16 tokens with which it goes on.",
    ),
)
