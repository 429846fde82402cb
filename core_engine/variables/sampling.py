"""What requests take that bring none of their own."""

from __future__ import annotations

from core_engine.variables.entry import Variable

SAMPLING_VARIABLES = (
    Variable(
        "seed",
        "int",
        0,
        group="sampling",
        minimum=0,
        maximum=2**63 - 1,
        peers={"vLLM": "--seed"},
        help="Seed of the requests that bring none of their own.",
    ),
)
