"""2 x 2 experiments: two variables at once, in four arms, to see whether they act on each other."""

from experiments.factorial.run import FactorialCancelled, run_factorial
from experiments.factorial.spec import FactorialSpec, parse_factors

__all__ = ["FactorialCancelled", "FactorialSpec", "parse_factors", "run_factorial"]
