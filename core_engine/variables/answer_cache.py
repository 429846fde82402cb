"""Answers kept for requests that come again."""

from __future__ import annotations

from core_engine.variables.entry import Variable

CACHE_VARIABLES = (
    Variable(
        "exact_cache",
        "choice",
        "off",
        group="caching",
        choices=("off", "on"),
        moves=("ttft_s", "output_tokens_per_s", "cost_per_request"),
        excludes={"on": {"disaggregation": "on"}},
        help="Whether a request that comes again to the letter, greedy or with its seed, is given the answer it had.",
    ),
    Variable(
        "semantic_cache",
        "choice",
        "off",
        group="caching",
        choices=("off", "on"),
        moves=("ttft_s", "output_tokens_per_s", "cost_per_request", "quality"),
        excludes={"on": {"disaggregation": "on"}},
        help="Whether a request that allows it may be given the answer to the same question in other words.",
    ),
    Variable(
        "semantic_threshold",
        "float",
        0.89,
        group="caching",
        minimum=0,
        maximum=1,
        moves=("ttft_s", "quality"),
        acts_with={"semantic_cache": ("on",)},
        help="Semantic cache only: least cosine similarity of two questions' vectors at which one may answer for both.",
    ),
)
