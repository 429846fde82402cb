"""Quality of a candidate against a baseline."""

from experiments.quality.agreement import Agreement, mean_logprobs, same_token_ids

__all__ = [
    "Agreement",
    "agreement",
    "arms",
    "choices",
    "constructed",
    "evaluation",
    "held",
    "items",
    "kept",
    "mean_logprobs",
    "overlooked",
    "predictions",
    "same_token_ids",
    "slices",
    "spec",
    "texts",
]
