"""Common statements about LLM inference, each with the check that settles it on the user's machine."""

from experiments.claims.catalogue import Claim, get_claim, load_claims
from experiments.claims.runner import run_claim

__all__ = [
    "Claim",
    "budget",
    "catalogue",
    "get_claim",
    "load_claims",
    "reasons",
    "run_all",
    "run_claim",
    "runner",
    "spec",
]
