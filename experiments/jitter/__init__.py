"""Side by side on one workload: what keeps answers steady while long prompts arrive, and what each way costs."""

from experiments.jitter.run import run_jitter
from experiments.jitter.spec import JitterSpec, parse_arms

__all__ = ["JitterSpec", "parse_arms", "run", "run_jitter", "spec"]
