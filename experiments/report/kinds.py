"""Which builder writes the report of which kind of run.

A new kind is one function and one entry here; a kind without one is shown whole by `of_anything`.
"""

from __future__ import annotations

from experiments.report.bench import of_bench
from experiments.report.cache import of_cache
from experiments.report.calibration import of_calibration
from experiments.report.claim import of_claim
from experiments.report.claims import of_claims
from experiments.report.comparison import of_comparison
from experiments.report.evaluation import of_eval
from experiments.report.factorial import of_factorial
from experiments.report.jitter import of_jitter
from experiments.report.ladder import of_ladder
from experiments.report.levers import of_levers
from experiments.report.plan import of_plan
from experiments.report.profile import of_profile
from experiments.report.speculation import of_speculation
from experiments.report.sweep import of_sweep
from experiments.report.titles import Builder

BUILDERS: dict[str, Builder] = {
    "bench": of_bench,
    "compare": of_comparison,
    "claim": of_claim,
    "claims": of_claims,
    "eval": of_eval,
    "speculation": of_speculation,
    "profile": of_profile,
    "sweep": of_sweep,
    "factorial": of_factorial,
    "plan": of_plan,
    "jitter": of_jitter,
    "ladder": of_ladder,
    "cache": of_cache,
    "levers": of_levers,
    "calibrate": of_calibration,
}
