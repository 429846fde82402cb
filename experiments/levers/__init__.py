"""Cost levers: what each saves on one workload, measured or simulated, and what all save together."""

from experiments.levers.run import run_levers
from experiments.levers.spec import LeversSpec, parse_levers

__all__ = ["LeversSpec", "catalogue", "parse_levers", "run", "run_levers", "simulated", "spec", "words"]
