"""Quality of a candidate against a baseline."""

from experiments.quality.agreement import Agreement, mean_logprobs, same_token_ids

__all__ = ["Agreement", "mean_logprobs", "same_token_ids"]
